// SPDX-License-Identifier: Apache-2.0
#include "collectives/device_launches.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/clock.h"
#include "unit/collectives/fake_communicator.h"

namespace parallax::testkit {
namespace {

class DeviceLaunchesTest : public testing::Test {
 protected:
  // Variables of so many floats each, with numbers 10, 20, ...
  void begin(const std::vector<uint64_t>& counts, uint64_t finished = 0) {
    std::vector<DeviceLaunches::Entry> entries;
    for (const uint64_t count : counts) {
      entries.push_back({.variable = static_cast<uint32_t>(10 * (entries.size() + 1)),
                         .like = {.count = count, .dtype = PARALLAX_F32},
                         .name = std::to_string(10 * (entries.size() + 1)),
                         .id = 3});
    }
    launches_.begin(devices_, {.device = 1}, timeout_ns_);
    launches_.add(entries, finished);
  }
  void give(uint32_t variable, uint64_t step) {
    launches_.give(variable, step, {.from = numbers_ + variable, .to = numbers_ + variable},
                   &pending_);
  }
  Status advance() { return launches_.advance(0); }
  // As passes of a job come, until then.
  Status advance_to(int64_t ms) {
    Status status;
    for (; status.ok() && now_ms_ < ms; now_ms_ = std::min(now_ms_ + 20, ms)) {
      status = launches_.advance(now_ms_ * kNanosecondsPerMillisecond);
    }
    return status.ok() ? launches_.advance(now_ms_ * kNanosecondsPerMillisecond) : status;
  }
  // This rank does not run meanwhile.
  void stand_still(int64_t ms) { now_ms_ += ms; }
  // Of each launch, the variables: a buffer tells which, null is one not given.
  std::vector<std::vector<int>> launched() const {
    std::vector<std::vector<int>> all;
    for (const auto& launch : devices_.told.launches) {
      std::vector<int>& told = all.emplace_back();
      for (const DeviceReduction& each : launch) {
        told.push_back(each.from == nullptr ? -1 : static_cast<int>(each.from - numbers_));
      }
    }
    return all;
  }
  using Launches = std::vector<std::vector<int>>;

  FormingDevices devices_;
  DeviceLaunches launches_;
  int64_t timeout_ns_ = 0;
  int64_t now_ms_ = 1000;
  uint32_t pending_ = 0;
  std::byte numbers_[64] = {};
};

constexpr uint64_t kLargeCount = DeviceLaunches::kSmallBytes;  // of floats: four times as large

TEST_F(DeviceLaunchesTest, LaunchesByNumberAndStepWhateverComesFirst) {
  begin({kLargeCount, kLargeCount});
  give(20, 1);
  EXPECT_TRUE(advance().ok());
  EXPECT_EQ(launched(), Launches{});
  EXPECT_EQ(launches_.waits_for(20, 1), 10u);
  give(20, 2);
  give(10, 1);
  EXPECT_TRUE(advance().ok());
  EXPECT_EQ(launched(), (Launches{{10}, {20}}));
  EXPECT_EQ(launches_.waits_for(20, 1), DeviceLaunches::kNoVariable);
  EXPECT_EQ(launches_.waits_for(20, 2), 10u);
  give(10, 2);
  EXPECT_TRUE(advance().ok());
  EXPECT_EQ(launched(), (Launches{{10}, {20}, {10}, {20}}));
}

TEST_F(DeviceLaunchesTest, SmallNeighboursGoTogether) {
  begin({1, 1, kLargeCount, 1, DeviceLaunches::kSmallBytes / 4});
  for (const uint32_t variable : {50, 40, 30, 20, 10}) give(variable, 1);
  EXPECT_TRUE(advance().ok());
  EXPECT_EQ(launched(), (Launches{{10, 20}, {30}, {40, 50}}));
}

TEST_F(DeviceLaunchesTest, NoMoreGoTogetherThanTheBound) {
  begin(std::vector<uint64_t>(5, DeviceLaunches::kSmallBytes / 4));
  for (const uint32_t variable : {10, 20, 30, 40, 50}) give(variable, 1);
  EXPECT_TRUE(advance().ok());
  EXPECT_EQ(launched().size(), 1u);
  const uint64_t most = DeviceLaunches::kTogetherBytes / DeviceLaunches::kSmallBytes;
  EXPECT_GE(most, 5u);
}

TEST_F(DeviceLaunchesTest, EndsInOrderAndGivesBack) {
  begin({kLargeCount, kLargeCount});
  give(10, 1);
  give(20, 1);
  EXPECT_TRUE(advance().ok());
  EXPECT_EQ(pending_, 2u);
  EXPECT_TRUE(launches_.busy());
  devices_.told.may_end = 1;
  EXPECT_TRUE(advance().ok());
  EXPECT_TRUE(launches_.ended(10, 1));
  EXPECT_FALSE(launches_.ended(20, 1));
  EXPECT_EQ(pending_, 1u);
  devices_.told.may_end = 2;
  EXPECT_TRUE(advance().ok());
  EXPECT_TRUE(launches_.ended(20, 1));
  EXPECT_EQ(pending_, 0u);
  EXPECT_FALSE(launches_.busy());
}

TEST_F(DeviceLaunchesTest, WhatIsNotGivenTakesPart) {
  begin({1, 1});
  give(20, 1);
  launches_.give_nothing(10, 1);
  launches_.give_nothing(20, 1);  // it was given
  EXPECT_TRUE(advance().ok());
  EXPECT_EQ(launched(), (Launches{{-1, 20}}));
  EXPECT_EQ(devices_.told.device, 1u) << "of a rank that has given no slice";
}

// Given windows of one commit and of the next, expect them registered before the first launch that
// follows, behind all that came before, and nothing launched meanwhile or while it is held.
TEST_F(DeviceLaunchesTest, WindowsAreRegisteredBeforeTheNextLaunch) {
  const std::vector<ByteRange> first = {{4096, 64}, {8192, 32}}, second = {{16384, 8}};
  devices_.told.holds_windows = true;
  begin({1});
  launches_.add({}, 0, first);
  EXPECT_TRUE(launches_.in_window({8192 + 31, 1}));
  EXPECT_FALSE(launches_.in_window({8192 + 32, 1}));
  EXPECT_TRUE(advance().ok());
  EXPECT_TRUE(devices_.told.windows.empty()) << "nothing is due";
  give(10, 1);
  launches_.hold(true);
  EXPECT_TRUE(advance().ok());
  EXPECT_TRUE(devices_.told.windows.empty()) << "it is another's";
  launches_.hold(false);
  EXPECT_TRUE(advance().ok());
  ASSERT_EQ(devices_.told.windows.size(), 1u);
  EXPECT_EQ(devices_.told.windows[0].first.size(), 2u);
  EXPECT_EQ(devices_.told.windows[0].first[1].first, 8192u);
  EXPECT_TRUE(advance().ok());
  EXPECT_EQ(launched(), Launches{}) << "it is under way";
  devices_.told.registering = false;
  devices_.told.may_end = 2;
  EXPECT_TRUE(advance().ok());
  EXPECT_TRUE(advance().ok());
  EXPECT_EQ(launched(), Launches{{10}});
  launches_.add({{.variable = 20, .like = {.count = 1}, .name = "20", .id = 4}}, 1, second);
  devices_.told.holds_windows = false;
  give(10, 2);
  give(20, 2);
  EXPECT_TRUE(advance().ok());
  ASSERT_EQ(devices_.told.windows.size(), 2u);
  EXPECT_EQ(devices_.told.windows[1].first.size(), 1u);
  EXPECT_EQ(devices_.told.windows[1].second, 1u) << "behind the launch before";
  EXPECT_EQ(launched(), (Launches{{10}, {10}, {20}}));
}

TEST_F(DeviceLaunchesTest, WindowsThatAreNotRegisteredInTimeFailTheJob) {
  timeout_ns_ = 400 * kNanosecondsPerMillisecond;
  begin({1});
  give(10, 1);
  devices_.told.may_end = 1;
  EXPECT_TRUE(advance_to(1100).ok());
  EXPECT_TRUE(launches_.ended(10, 1));
  launches_.add({}, 1, {{4096, 64}});
  devices_.told.holds_windows = true;
  give(10, 2);
  EXPECT_TRUE(advance_to(1480).ok());
  const Status late = advance_to(1600);
  EXPECT_EQ(late.code(), PARALLAX_IO);
  EXPECT_NE(late.message().find("did not end within 400 ms"), std::string::npos) << late.message();
}

// Where its place is in a window.
TEST_F(DeviceLaunchesTest, WhatIsNotGivenTakesPartFromItsPlace) {
  launches_.begin(devices_, {.device = 1});
  const DeviceReduction like = {.from = numbers_ + 1, .to = numbers_ + 2, .count = 1};
  launches_.add({{.variable = 10, .like = like, .name = "10", .id = 3}}, 0);
  launches_.give_nothing(10, 1);
  give(10, 2);
  EXPECT_TRUE(advance().ok());
  ASSERT_EQ(devices_.told.launches.size(), 2u);
  const DeviceReduction& zeros = devices_.told.launches[0][0];
  EXPECT_TRUE(zeros.zeros);
  EXPECT_EQ(zeros.from, numbers_ + 1);
  EXPECT_EQ(zeros.to, numbers_ + 2);
  EXPECT_FALSE(devices_.told.launches[1][0].zeros);
  EXPECT_EQ(devices_.told.launches[1][0].from, numbers_ + 10);
}

TEST_F(DeviceLaunchesTest, TheFirstSliceSettlesTheDevice) {
  begin({1});
  uint32_t settled = 9;
  EXPECT_TRUE(launches_.fits_device(0, &settled));
  EXPECT_FALSE(launches_.fits_device(1, &settled));
  EXPECT_EQ(settled, 0u);
  give(10, 1);
  EXPECT_TRUE(advance().ok());
  EXPECT_EQ(devices_.told.device, 0u);
}

TEST_F(DeviceLaunchesTest, NothingIsLaunchedBeforeItHasFormed) {
  devices_.told.formed = false;
  begin({1});
  give(10, 1);
  EXPECT_TRUE(advance().ok());
  EXPECT_TRUE(launches_.to_be_asked());
  EXPECT_EQ(launched(), Launches{});
  devices_.told.formed = true;
  EXPECT_TRUE(advance().ok());
  EXPECT_EQ(launched(), Launches{{10}});
}

TEST_F(DeviceLaunchesTest, LateVariablesBeginBehindTheStepsThatWere) {
  begin({1}, 4);
  give(10, 5);
  EXPECT_TRUE(advance().ok());
  launches_.add({{.variable = 11, .like = {.count = 1}}}, 5);
  give(11, 6);
  give(10, 6);
  EXPECT_TRUE(advance().ok());
  EXPECT_EQ(launched(), (Launches{{10}, {10}, {11}})) << "of two commits: not together";
}

TEST_F(DeviceLaunchesTest, WhatFailsIsToldAndGivenUpOnce) {
  begin({kLargeCount, kLargeCount});
  give(10, 1);
  EXPECT_TRUE(advance().ok());
  give(20, 1);
  devices_.told.fails = io_error("a device");
  EXPECT_EQ(advance().code(), PARALLAX_IO);
  devices_.told.is_quiet = false;
  launches_.give_up();
  EXPECT_EQ(pending_, 2u) << "devices may still write";
  EXPECT_TRUE(launches_.busy());
  devices_.told.is_quiet = true;
  launches_.give_up();
  EXPECT_EQ(pending_, 0u);
  EXPECT_FALSE(launches_.busy());
  EXPECT_EQ(devices_.told.aborts, 1u);
}

// Whoever waits for the end of a hold would wait forever.
TEST_F(DeviceLaunchesTest, WhatIsGivenUpIsHeldNoMore) {
  begin({4});
  launches_.hold(true);
  EXPECT_TRUE(launches_.held());
  launches_.give_up();
  EXPECT_FALSE(launches_.held());
}

TEST_F(DeviceLaunchesTest, AnEndWithoutAnEndOfTheDevice) {
  begin({1});
  give(10, 1);
  EXPECT_TRUE(advance().ok());
  devices_.told.is_quiet = false;
  launches_.finish(0);
  EXPECT_EQ(pending_, 1u);
  devices_.told.is_quiet = true;
  launches_.give_up();
  EXPECT_EQ(pending_, 1u) << "its request is gone";
}

// Given a deadline, expect the oldest launch to be named once it is past, and none before; a sum
// that ends in time begins no other's.
TEST_F(DeviceLaunchesTest, WhatTakesTooLongFails) {
  timeout_ns_ = 100 * kNanosecondsPerMillisecond;
  begin({kLargeCount, kLargeCount});
  give(10, 1);
  EXPECT_TRUE(advance_to(1050).ok());
  give(20, 1);
  EXPECT_TRUE(advance_to(1099).ok());
  devices_.told.may_end = 1;
  EXPECT_TRUE(advance_to(1149).ok()) << "the first has ended";
  const Status late = advance_to(1150);
  EXPECT_EQ(late.code(), PARALLAX_IO);
  EXPECT_NE(late.message().find("variable '20'"), std::string::npos) << late.message();
  EXPECT_NE(late.message().find("within 100 ms of its launch"), std::string::npos);
  EXPECT_EQ(late.facts().variable, 3u);
  EXPECT_EQ(late.facts().step, 1u);
  launches_.give_up();
  EXPECT_EQ(devices_.told.aborts, 1u);
  EXPECT_TRUE(advance_to(2000).ok()) << "it is given up once";
}

TEST_F(DeviceLaunchesTest, ACommunicatorThatDoesNotFormFails) {
  timeout_ns_ = 100 * kNanosecondsPerMillisecond;
  devices_.told.formed = false;
  begin({kLargeCount, kLargeCount});
  EXPECT_TRUE(advance_to(1500).ok()) << "nothing is due";
  give(10, 1);
  EXPECT_TRUE(advance_to(1599).ok());
  const Status late = advance_to(1600);
  EXPECT_NE(late.message().find("since its communicator forms"), std::string::npos)
      << late.message();
}

// Given a rank that is stopped for far longer than the deadline, and again, expect each time to
// count as a part of it: what ended meanwhile, here or on the others, is seen first.
TEST_F(DeviceLaunchesTest, TimeInWhichThisRankStoodStillCountsLittle) {
  timeout_ns_ = 100 * kNanosecondsPerMillisecond;
  for (const bool forms : {true, false}) {
    SCOPED_TRACE(forms);
    devices_.told.formed = !forms;
    if (forms) begin({kLargeCount});
    give(10, forms ? 1 : 2);
    EXPECT_TRUE(advance_to(now_ms_ + 40).ok());
    stand_still(60000);
    EXPECT_TRUE(advance_to(now_ms_).ok());
    stand_still(3600000);
    EXPECT_TRUE(advance_to(now_ms_ + 9).ok()) << "40 ms, twice 25 and 9";
    devices_.told.formed = true;
    devices_.told.may_end = forms ? 1 : 0;
    if (!forms) break;
    EXPECT_TRUE(advance_to(now_ms_ + 20).ok());
    EXPECT_EQ(pending_, 0u);
  }
  EXPECT_EQ(advance_to(now_ms_ + 1).code(), PARALLAX_IO) << "it does end";
}

}  // namespace
}  // namespace parallax::testkit
