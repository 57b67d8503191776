// SPDX-License-Identifier: Apache-2.0
#include "group/step_window.h"

#include <gtest/gtest.h>

#include "base/seeded_random.h"

namespace parallax {
namespace {

// A window that has begun, ended, decided and finished so many steps.
StepWindow window_at(uint64_t begun, uint64_t ended, uint64_t decided, uint64_t finished,
                     uint32_t staleness = 0) {
  StepWindow window(staleness);
  while (window.begun() < begun) {
    window.begin();
    if (window.ended() < ended) window.end(window.begun());
    if (window.decided() < decided) window.decide();
    if (window.finished() < finished) window.finish();
  }
  return window;
}

TEST(StepWindow, BeforeTheFirstStep) {
  const StepWindow window;
  EXPECT_TRUE(window.between_steps());
  EXPECT_TRUE(window.has_room());
  EXPECT_FALSE(window.in_calls());
  EXPECT_FALSE(window.has_begun(0)) << "no step has the number 0";
  EXPECT_FALSE(window.has_begun(1));
  EXPECT_FALSE(window.takes_calls(0)) << "no step has the number 0";
  EXPECT_TRUE(window.may_start(1));
  EXPECT_TRUE(window.is_current(1));
  EXPECT_EQ(window.next_to_vote(), 1u);
  EXPECT_FALSE(window.is_ending(1));
  // The buffers of the first steps are open from the start: peers may be ahead.
  EXPECT_TRUE(window.admits(1) && window.admits(2));
  EXPECT_FALSE(window.admits(0) || window.admits(3));
}

TEST(StepWindow, TakesCallsFromItsBeginToItsEnd) {
  StepWindow window;
  EXPECT_EQ(window.begin(), 1u);
  EXPECT_TRUE(window.in_calls() && window.takes_calls(1));
  EXPECT_FALSE(window.takes_calls(0) || window.takes_calls(2));
  EXPECT_FALSE(window.between_steps());
  EXPECT_ANY_THROW(window.begin()) << "the step before has not ended";
  window.end(1);
  EXPECT_FALSE(window.in_calls() || window.takes_calls(1));
  EXPECT_TRUE(window.has_begun(1));
  EXPECT_TRUE(window.is_ending(1));
  EXPECT_ANY_THROW(window.end(1)) << "it has ended";
}

TEST(StepWindow, TheNextStepMayBeginButNotStartBeforeTheDecision) {
  StepWindow window = window_at(1, 1, 0, 0);
  EXPECT_TRUE(window.has_room());
  EXPECT_EQ(window.begin(), 2u);
  EXPECT_FALSE(window.may_start(2));
  window.decide();
  EXPECT_TRUE(window.may_start(2));
  EXPECT_TRUE(window.is_decided(1));
  EXPECT_FALSE(window.is_decided(2));
  EXPECT_FALSE(window.is_current(2)) << "step 1 is decided and not yet applied";
  window.finish();
  EXPECT_TRUE(window.is_current(2));
  EXPECT_FALSE(window.may_start(3));
}

TEST(StepWindow, AThirdStepHasNoRoomUntilTheOldestIsFinished) {
  StepWindow window = window_at(2, 2, 1, 0);
  EXPECT_FALSE(window.has_room());
  EXPECT_ANY_THROW(window.begin());
  window.finish();
  EXPECT_TRUE(window.has_room());
  EXPECT_EQ(window.begin(), 3u);
  EXPECT_EQ(StepWindow::slot(3), StepWindow::slot(1)) << "it takes over the buffers of step 1";
  EXPECT_NE(StepWindow::slot(3), StepWindow::slot(2));
}

TEST(StepWindow, AdmitsMessagesOfTheStepsThatHaveBuffers) {
  const StepWindow window = window_at(5, 5, 4, 4);
  EXPECT_TRUE(window.is_over(4));
  EXPECT_FALSE(window.admits(4));
  EXPECT_TRUE(window.admits(5) && window.admits(6));
  EXPECT_FALSE(window.admits(7));
  EXPECT_FALSE(window.is_over(5));
  EXPECT_EQ(window.opens(), 6u);
  EXPECT_FALSE(window.admits_asks(4) || window.admits_asks(8));
  EXPECT_TRUE(window.admits_asks(5) && window.admits_asks(6) && window.admits_asks(7));
}

TEST(StepWindow, StepsAreVotedOnDecidedAndFinishedOneAtATime) {
  StepWindow window = window_at(2, 2, 0, 0);
  EXPECT_EQ(window.next_to_vote(), 1u);
  EXPECT_TRUE(window.is_ending(1) && window.is_ending(2));
  EXPECT_ANY_THROW(window.finish()) << "not decided";
  window.decide();
  EXPECT_EQ(window.next_to_vote(), 1u);
  EXPECT_ANY_THROW(window.decide()) << "step 2 is not decided before step 1 is applied";
  window.finish();
  EXPECT_EQ(window.next_to_vote(), 2u);
  EXPECT_FALSE(window.is_ending(1));
  EXPECT_TRUE(window.is_ending(2));
  EXPECT_ANY_THROW(window_at(3, 2, 2, 2).decide()) << "step 3 has not ended";
}

TEST(StepWindow, StalenessLetsCallsGoAheadAndPullsWaitForLess) {
  StepWindow window = window_at(1, 1, 0, 0, 3);
  EXPECT_EQ(window.depth(), 5u);
  while (window.has_room()) window.end(window.begin());
  EXPECT_EQ(window.begun(), 5u);
  EXPECT_TRUE(window.is_current(4)) << "it may miss what steps 1, 2 and 3 change";
  EXPECT_FALSE(window.is_current(5)) << "and not step 1 as well";
  EXPECT_TRUE(window.may_start(1));
  EXPECT_FALSE(window.may_start(2)) << "what is given is not stale";
  EXPECT_EQ(window.next_to_vote(), 1u);
  EXPECT_TRUE(window.admits(2));
  EXPECT_FALSE(window.admits(3)) << "it has no buffers";
  EXPECT_TRUE(window.admits_pulls(1) && window.admits_pulls(5))
      << "a peer may have finished step 1";
  EXPECT_FALSE(window.admits_pulls(0) || window.admits_pulls(6));
  for (uint64_t step = 2; step <= 5; ++step)
    EXPECT_NE(window.calls_slot(step), window.calls_slot(1));
  EXPECT_EQ(window.calls_slot(6), window.calls_slot(1));
  window.decide();
  window.finish();
  EXPECT_TRUE(window.is_current(5));
  EXPECT_TRUE(window.has_room());
}

TEST(StepWindow, AsynchronouslyEveryStepThatMayBeginIsCurrent) {
  StepWindow window = window_at(3, 3, 3, 3, StepWindow::kAsync);
  while (window.has_room()) window.end(window.begin());
  EXPECT_EQ(window.begun(), 3 + StepWindow::kDepthMax);
  EXPECT_TRUE(window.is_current(window.begun()));
  EXPECT_EQ(StepWindow(PARALLAX_STALENESS_MAX).depth(), StepWindow::kDepthMax);
  EXPECT_ANY_THROW(StepWindow(StepWindow::kAsync + 1));
}

// Without staleness a pull is admitted as any message is.
TEST(StepWindow, AdmitsPullsAsOthersWithoutStaleness) {
  const StepWindow window = window_at(5, 5, 4, 4);
  for (uint64_t step = 0; step < 9; ++step) {
    EXPECT_EQ(window.admits_pulls(step), window.admits(step)) << step;
    EXPECT_EQ(window.calls_slot(step), StepWindow::slot(step)) << step;
  }
}

// Given whatever is allowed, in any order: the numbers never leave their order, and the questions
// never contradict each other.
TEST(StepWindow, KeepsItsOrderWhateverHappensNext) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SeededRandom random(seed);
    StepWindow window(seed % 4 == 0 ? StepWindow::kAsync : static_cast<uint32_t>(seed % 4));
    for (int i = 0; i < 400; ++i) {
      const uint64_t action = random.below(4);
      if (action == 0 && !window.in_calls() && window.has_room()) window.begin();
      if (action == 1 && window.in_calls()) window.end(window.begun());
      if (action == 2 && window.is_ending(window.decided() + 1) &&
          window.decided() == window.finished()) {
        window.decide();
      }
      if (action == 3 && window.is_decided(window.next_to_vote())) window.finish();
      ASSERT_LE(window.finished(), window.decided()) << "seed " << seed;
      ASSERT_LE(window.decided(), window.ended()) << "seed " << seed;
      ASSERT_LE(window.ended(), window.begun()) << "seed " << seed;
      ASSERT_LE(window.begun(), window.finished() + window.depth()) << "seed " << seed;
      for (uint64_t step = 1; step <= window.opens() + window.depth(); ++step) {
        ASSERT_FALSE(window.admits_pulls(step) && window.is_over(step)) << "seed " << seed;
        ASSERT_TRUE(!window.admits(step) || window.admits_pulls(step)) << "seed " << seed;
        ASSERT_TRUE(!window.is_ending(step) || window.admits(step) || window.staleness() > 0)
            << "seed " << seed;
        ASSERT_TRUE(window.is_over(step) || !window.is_current(step) || window.admits_pulls(step))
            << "seed " << seed;
        ASSERT_FALSE(window.takes_calls(step) && window.is_ending(step)) << "seed " << seed;
      }
    }
    ASSERT_GT(window.finished(), 20u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace parallax
