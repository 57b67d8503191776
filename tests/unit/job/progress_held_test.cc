// SPDX-License-Identifier: Apache-2.0
// What a call sends and leaves to the next one. See followed_soon.h.
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "unit/job/progress_world.h"

namespace parallax::testkit {
namespace {

// Given calls that another one follows at once, again and again, expect what they send to be left
// to that one, after some times; and once it comes late, not any more for as many.
TEST(Progress, WhatIsSentWaitsForTheCallThatFollows) {
  StillClock clock;
  TwoRanks ranks(true, false, clock);  // rank 1 tells rank 0, the barrier's root
  Request* const committed = ranks.commit(1);
  ranks.expect_done(0, ranks.commit(0));
  ranks.expect_done(1, committed);
  const auto round = [&](int64_t later_ns) {
    const uint32_t key = 3;
    Request* first = nullptr;
    const auto barrier = [&](Engine& engine) { return engine.collective_calls().barrier(&first); };
    EXPECT_TRUE(ranks.progress(0).call(0, barrier).ok());
    Request* const zero = first;
    EXPECT_TRUE(ranks.progress(1).call(0, barrier, &key).ok());
    const bool held =
        ranks.progress(1).look([](const Engine& engine) { return engine.needs_pass(); });
    clock.advance(later_ns);
    ranks.progress(1).drive_once();  // the pass that follows
    ranks.expect_done(0, zero);
    ranks.expect_done(1, first);
    return held;
  };
  // It comes to rest by itself, soon.
  const int64_t end_ns = in_ms(kPromptMs);
  int rounds = 1;
  while (!round(0) && kClock.now_ns() < end_ns) ++rounds;
  EXPECT_GT(rounds, FollowedSoon::kTimes);
  EXPECT_TRUE(round(0));
  EXPECT_TRUE(round(FollowedSoon::kSoonNs + 1));
  for (int i = 0; i < FollowedSoon::kTimes; ++i) EXPECT_FALSE(round(0)) << i;
  EXPECT_TRUE(round(0));
}

// Given what is held back and no call that follows, expect the thread to send it, after its rest.
TEST(Progress, WhatNoCallFollowsIsSentByTheThread) {
  StillClock clock;
  TwoRanks ranks(true, false, clock);  // rank 1 tells rank 0, the barrier's root
  Request* const committed = ranks.commit(1);
  ranks.expect_done(0, ranks.commit(0));
  ranks.expect_done(1, committed);
  const uint32_t key = 0;
  const int64_t end_ns = in_ms(kPromptMs);
  bool held = false;
  while (!held && kClock.now_ns() < end_ns) {
    Request* first = nullptr;
    const auto barrier = [&](Engine& engine) { return engine.collective_calls().barrier(&first); };
    EXPECT_TRUE(ranks.progress(0).call(0, barrier).ok());
    Request* const zero = first;
    EXPECT_TRUE(ranks.progress(1).call(0, barrier, &key).ok());
    held = ranks.progress(1).look([](const Engine& engine) { return engine.needs_pass(); });
    if (held) {
      clock.advance(Parking::kRestNs);
      ranks.expect_done(0, zero);  // with what rank 1's thread sends
      ranks.expect_done_unwaited(1, first);
    } else {
      ranks.progress(1).drive_once();
      ranks.expect_done(0, zero);
      ranks.expect_done(1, first);
    }
  }
  EXPECT_TRUE(held);
}

// Given a waiter that looks, and a thread that rests beside it, expect nothing to be held back: the
// waiter may be about to sleep, and the thread would not look.
TEST(Progress, BesideAWaiterNothingIsLeftToTheNextCall) {
  StillClock clock;
  TwoRanks ranks(true, false, clock);  // rank 1 tells rank 0, the barrier's root
  Request* const committed = ranks.commit(1);
  ranks.expect_done(0, ranks.commit(0));
  ranks.expect_done(1, committed);
  // Until rank 0 splits, too: it looks as long as the clock stands.
  const std::vector<uint32_t> both = {0, 1};
  const auto split = [&](Engine& engine, Request** out) {
    return engine.job_calls().split(both, out);
  };
  Request* const waited = ranks.post(1, split);
  std::thread waiter([&] { EXPECT_TRUE(ranks.wait(1, waited)); });
  const uint32_t key = 3;
  uint32_t held = 0;
  for (int i = 0; i < 200; ++i) {
    Request* const zero = ranks.barrier(0);
    Request* one = nullptr;
    const auto barrier = [&](Engine& engine) { return engine.collective_calls().barrier(&one); };
    EXPECT_TRUE(ranks.progress(1).call(0, barrier, &key).ok());
    held += ranks.progress(1).look([](const Engine& engine) { return engine.needs_pass(); });
    ranks.expect_done(0, zero);
    ranks.expect_done_unwaited(1, one);
  }
  EXPECT_EQ(held, 0u);
  ranks.expect_done(0, ranks.post(0, split));
  waiter.join();
  EXPECT_TRUE(ranks.release(1, waited).ok());
}

}  // namespace
}  // namespace parallax::testkit
