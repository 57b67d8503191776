// SPDX-License-Identifier: Apache-2.0
// What ends a sleep, and what does not. What must end one ends one that would last for long.
#include "job/wait_set.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "support/real_time.h"

namespace parallax::testkit {
namespace {

constexpr int64_t kShortNs = 5 * kNanosecondsPerMillisecond;

class WaitSetTest : public testing::Test {
 protected:
  void SetUp() override {
    transport_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    ASSERT_TRUE(set_.open(transport_.get()).ok());
  }
  void transport_is_ready() {
    const uint64_t one = 1;
    ASSERT_EQ(write(transport_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  template <typename Sleep>
  static int64_t time_of(Sleep sleep) {
    const int64_t start_ns = kClock.now_ns();
    sleep();
    return kClock.now_ns() - start_ns;
  }

  static constexpr int64_t kLongNs = kPromptMs * kNanosecondsPerMillisecond;
  UniqueFd transport_;
  WaitSet set_;
};

TEST_F(WaitSetTest, TheBellEndsOneSleep) {
  set_.ring();
  set_.ring();
  EXPECT_LT(time_of([&] { set_.sleep(kLongNs); }), kLongNs);
  EXPECT_GE(time_of([&] { set_.sleep(kShortNs); }), kShortNs);
  set_.ring();
  set_.sleep_by_bell(nullptr);
  EXPECT_GE(time_of([&] { set_.sleep_by_bell(&kShortNs); }), kShortNs);
}

TEST_F(WaitSetTest, TheTransportEndsSleepsAsLongAsItIsReady) {
  transport_is_ready();
  for (int i = 0; i < 3; ++i) EXPECT_LT(time_of([&] { set_.sleep(kLongNs); }), kLongNs);
  EXPECT_GE(time_of([&] { set_.sleep_by_bell(&kShortNs); }), kShortNs) << "that is by the bell";
}

TEST_F(WaitSetTest, MutedTheTransportWakesNobodyAndTheBellStillDoes) {
  set_.mute();
  set_.mute();
  transport_is_ready();
  EXPECT_GE(time_of([&] { set_.sleep(kShortNs); }), kShortNs);
  set_.ring();
  EXPECT_LT(time_of([&] { set_.sleep(kLongNs); }), kLongNs);
  set_.watch();
  EXPECT_LT(time_of([&] { set_.sleep(kLongNs); }), kLongNs);
}

}  // namespace
}  // namespace parallax::testkit
