// SPDX-License-Identifier: Apache-2.0
// When passes began, and whether they left anything.
#include "engine/pass_state.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

class SetClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_; }
  void set(int64_t now_ns) { now_ns_ = now_ns; }

 private:
  int64_t now_ns_ = 5;
};

TEST(PassState, WhatHappensInAPassHappensWhenItBegan) {
  SetClock clock;
  PassState pass(clock);
  EXPECT_EQ(pass.began_ns(), 5);
  clock.set(7);
  EXPECT_EQ(pass.clock().now_ns(), 5);
  EXPECT_EQ(pass.now_ns(), 7);
  EXPECT_EQ(pass.begin(), 7);
  EXPECT_EQ(pass.began_ns(), 7);
}

TEST(PassState, ARunIsNewForATenthOfAMillisecond) {
  SetClock clock;
  PassState pass(clock);
  clock.set(1'000'000);
  EXPECT_EQ(pass.begin_run(), 1'000'000);
  EXPECT_TRUE(pass.has_run_lately());
  clock.set(1'100'000);
  EXPECT_TRUE(pass.has_run_lately()) << "no pass has begun since";
  pass.begin();
  EXPECT_TRUE(pass.has_run_lately());
  clock.set(1'100'001);
  pass.begin();
  EXPECT_FALSE(pass.has_run_lately());
  pass.begin_run();
  EXPECT_TRUE(pass.has_run_lately());
}

TEST(PassState, ACallUnsettlesIt) {
  const SetClock clock;
  PassState pass(clock);
  EXPECT_FALSE(pass.settled()) << "no pass has looked yet";
  pass.settle(true);
  EXPECT_TRUE(pass.settled());
  int calls = 3;
  EXPECT_EQ(&pass.unsettled_by(calls), &calls);
  EXPECT_FALSE(pass.settled());
}

TEST(PassState, StepsAreAloneUntilSomethingElseComes) {
  const SetClock clock;
  PassState pass(clock);
  int calls = 3;
  EXPECT_EQ(&pass.given_to_steps(calls), &calls);
  EXPECT_FALSE(pass.steps_alone()) << "no pass has looked yet";
  pass.settle(true);
  EXPECT_FALSE(pass.steps_alone());
  pass.give_steps();
  pass.given_to_steps(calls);
  EXPECT_TRUE(pass.steps_alone());
  EXPECT_FALSE(pass.settled());
  pass.unsettled_by(calls);
  pass.give_steps();
  EXPECT_FALSE(pass.steps_alone());
}

}  // namespace
}  // namespace parallax
