// SPDX-License-Identifier: Apache-2.0
#include "group/pace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace parallax {
namespace {

constexpr int64_t kMs = kNanosecondsPerMillisecond;

// The times of a world whose rank `slow` takes `slow_ms` before `phase`, and whose others take 1.
PaceVote times_of(uint32_t world, uint32_t slow, StepPhase phase, int64_t slow_ms) {
  PaceVote all;
  for (uint32_t rank = 0; rank < world; ++rank) {
    OwnTime::Times own = {kMs, kMs, kMs};
    if (rank == slow) own[static_cast<size_t>(phase)] = slow_ms * kMs;
    all.merge(PaceVote::of(rank, own));
  }
  return all;
}

TEST(OwnTime, WhatOthersMakeItWaitForIsNotItsOwn) {
  OwnTime own;
  own.begin(1);
  own.open(1, 100);
  own.called(1, StepPhase::kPull, 130);  // 30 of its own
  own.completed(400);                    // waited for others
  own.called(1, StepPhase::kPush, 405);
  own.called(1, StepPhase::kPush, 407);
  own.completed(900);
  own.called(1, StepPhase::kStepEnd, 910);
  EXPECT_EQ(own.of(1), (OwnTime::Times{30, 7, 10}));
}

// A step that begins before the one before is decided: what it takes until then holds up nobody.
TEST(OwnTime, WhatIsDoneBeforeTheDecisionIsNotWaitedFor) {
  OwnTime own;
  own.open(1, 0);
  own.called(1, StepPhase::kStepEnd, 5);
  own.begin(2);
  own.called(2, StepPhase::kPull, 50);
  EXPECT_EQ(own.of(1), (OwnTime::Times{0, 0, 5}));
  own.open(2, 60);
  own.called(2, StepPhase::kPush, 100);
  EXPECT_EQ(own.of(2), (OwnTime::Times{0, 40, 0}));
}

TEST(LateWindow, TheRankThePhaseAndTheTimeAreNamed) {
  for (const StepPhase phase : {StepPhase::kPull, StepPhase::kPush, StepPhase::kStepEnd}) {
    LateWindow window;
    for (uint32_t step = 1; step <= 20; ++step) {
      window.add(times_of(8, 5, phase, 201), 8, 230 * kMs);
      const LateRank late = window.late();
      if (step < LateWindow::kLateStepsMin) {
        EXPECT_EQ(late.steps, 0u) << "too early to tell";
      } else {
        EXPECT_EQ(late, (LateRank{5, phase, 200, std::min(step, 16u)}));
      }
    }
  }
}

TEST(LateWindow, AFewMillisecondsOrAFewStepsAreNothing) {
  LateWindow little;
  LateWindow part;
  LateWindow now_and_then;
  for (uint32_t step = 0; step < 64; ++step) {
    little.add(times_of(4, 1, StepPhase::kPush, 9), 4, 10 * kMs);
    part.add(times_of(4, 1, StepPhase::kPush, 100), 4, 1000 * kMs);
    now_and_then.add(times_of(4, 1, StepPhase::kPush, step % 2 == 0 ? 200 : 1), 4, 300 * kMs);
  }
  EXPECT_EQ(little.late().steps, 0u);
  EXPECT_EQ(part.late().steps, 0u) << "a tenth of the step";
  EXPECT_EQ(now_and_then.late().steps, 0u);
}

TEST(LateWindow, TakingTurnsIsNobodysFault) {
  LateWindow window;
  for (uint32_t step = 0; step < 64; ++step) {
    window.add(times_of(4, step % 4, StepPhase::kPush, 200), 4, 230 * kMs);
    EXPECT_EQ(window.late().steps, 0u);
  }
}

TEST(LateWindow, WhoCatchesUpIsForgotten) {
  LateWindow window;
  for (uint32_t step = 0; step < 16; ++step) {
    window.add(times_of(2, 1, StepPhase::kPull, 200), 2, 230 * kMs);
  }
  EXPECT_EQ(window.late().steps, 16u);
  for (uint32_t step = 0; step < 5; ++step) {
    window.add(times_of(2, 1, StepPhase::kPull, 1), 2, 30 * kMs);
  }
  EXPECT_EQ(window.late().steps, 0u);
}

// Given a rank that is slow throughout, each phase by itself not by much, expect it to be
// named.
TEST(LateWindow, PhasesAddUp) {
  LateWindow window;
  PaceVote times;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const int64_t each = (rank == 2 ? 60 : 1) * kMs;
    times.merge(PaceVote::of(rank, {each, each + (rank == 2 ? kMs : 0), each}));
  }
  for (uint32_t step = 0; step < 16; ++step) window.add(times, 4, 300 * kMs);
  EXPECT_EQ(window.late(), (LateRank{2, StepPhase::kPush, 178, 16}));
}

TEST(LateWindow, NonsenseOfAPeerNamesNobody) {
  LateWindow window;
  const PaceVote nonsense[] = {
      {{UINT32_MAX, UINT32_MAX, UINT32_MAX}, 7, {0, 0, 0}},
      {{UINT32_MAX, 0, 0}, 9, {UINT64_MAX, UINT64_MAX, UINT64_MAX}},
      {{0, 0, 0}, 3, {UINT64_MAX, UINT64_MAX, UINT64_MAX}},
      {{}, UINT32_MAX, {}},
  };
  for (uint32_t step = 0; step < 64; ++step) {
    window.add(nonsense[step % 4], 8, -1);
    window.add(times_of(1, 0, StepPhase::kPull, 500), 1, kMs);
  }
  EXPECT_EQ(window.late().steps, 0u);
}

TEST(PaceVote, MergesInAnyOrder) {
  const PaceVote a = PaceVote::of(4, {5 * kMs, 0, 0});
  const PaceVote b = PaceVote::of(2, {0, 2 * kMs, 3 * kMs});  // as long as a: the lower rank
  const PaceVote c = PaceVote::of(1, {-kMs, kMs, kMs});
  PaceVote one;
  for (const PaceVote& each : {a, b, c}) one.merge(each);
  PaceVote other;
  for (const PaceVote& each : {c, b, a}) other.merge(each);
  EXPECT_EQ(one, other);
  EXPECT_EQ(one.rank, 2u);
  EXPECT_EQ(one.sum_us, (std::array<uint64_t, 3>{5000, 3000, 4000}));
}

TEST(LateWindow, ACauseIsSaidOnce) {
  LateWindow window;
  const LateRank pull = {3, StepPhase::kPull, 200, 12};
  const LateRank push = {3, StepPhase::kPush, 200, 12};
  EXPECT_FALSE(window.news({}, 0));
  EXPECT_TRUE(window.news(pull, 0));
  EXPECT_FALSE(window.news(pull, LateWindow::kSayAgainNs + 1)) << "still the same";
  EXPECT_FALSE(window.news(push, LateWindow::kSayAgainNs - 1)) << "too soon";
  EXPECT_TRUE(window.news(push, LateWindow::kSayAgainNs));
}

}  // namespace
}  // namespace parallax
