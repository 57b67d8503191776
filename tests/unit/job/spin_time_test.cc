// SPDX-License-Identifier: Apache-2.0
// How long a waiter looks, and how much of it quietly, by what looking found.
#include "job/spin_time.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

constexpr int64_t kWholeNs = SpinOptions().spin_ns;

TEST(SpinTime, LookingInVainMakesTheQuietPartShortAndFindingBringsItBack) {
  SpinTime spin;
  EXPECT_EQ(spin.quiet_ns(), kWholeNs);
  spin.vain();
  EXPECT_EQ(spin.quiet_ns(), kWholeNs / 2);
  spin.found();
  EXPECT_EQ(spin.quiet_ns(), kWholeNs);
  for (int i = 0; i < 20; ++i) spin.vain();
  EXPECT_EQ(spin.quiet_ns(), SpinTime::kQuietMinNs);
  EXPECT_EQ(spin.whole_ns(), kWholeNs) << "it looks as long, but not as quietly";
  spin.found();
  EXPECT_EQ(spin.quiet_ns(), 2 * SpinTime::kQuietMinNs);
  for (int i = 0; i < 20; ++i) spin.found();
  EXPECT_EQ(spin.quiet_ns(), kWholeNs);
}

TEST(SpinTime, AWholeOneIsTriedNowAndThen) {
  SpinTime spin;
  uint32_t whole = 0;
  for (uint32_t i = 0; i < 10 * SpinTime::kTriedEvery; ++i) {
    spin.vain();
    whole += spin.quiet_ns() == kWholeNs ? 1 : 0;
  }
  EXPECT_EQ(whole, 10u);
  while (spin.quiet_ns() != kWholeNs) spin.vain();
  spin.found();
  EXPECT_EQ(spin.quiet_ns(), kWholeNs);
}

TEST(SpinTime, WhatIsSetHoldsWhateverIsFound) {
  SpinTime never(SpinOptions{.spin_ns = 7'000, .yield = SpinYield::kNever});
  SpinTime always(SpinOptions{.spin_ns = 7'000, .yield = SpinYield::kAlways});
  for (uint32_t i = 0; i < 3 * SpinTime::kTriedEvery; ++i) {
    for (SpinTime* spin : {&never, &always}) i % 5 == 0 ? spin->found() : spin->vain();
    EXPECT_EQ(never.quiet_ns(), 7'000);
    EXPECT_EQ(always.quiet_ns(), 0);
    EXPECT_EQ(always.whole_ns(), 7'000);
  }
}

// Between ranks of one host.
TEST(SpinTime, ItLooksLongerWhileWaitsEndThen) {
  constexpr int64_t kMostNs = SpinTime::kLonger * kWholeNs;
  for (const SpinYield yield : {SpinYield::kAuto, SpinYield::kAlways}) {
    SpinTime spin(SpinOptions{.yield = yield, .longer = true});
    EXPECT_EQ(spin.longer_ns(), kWholeNs);
    EXPECT_EQ(spin.most_ns(), kMostNs);
    spin.waited(kWholeNs);
    EXPECT_EQ(spin.longer_ns(), kWholeNs) << "a short wait says nothing";
    spin.waited(kWholeNs + 1);
    EXPECT_EQ(spin.longer_ns(), 2 * kWholeNs);
    for (int i = 0; i < 20; ++i) spin.waited(kMostNs);
    EXPECT_EQ(spin.longer_ns(), kMostNs);
    spin.waited(kWholeNs);
    spin.waited(kMostNs + 1);
    EXPECT_EQ(spin.longer_ns(), kMostNs / 2);
    for (int i = 0; i < 20; ++i) spin.waited(kMostNs + 1);
    EXPECT_EQ(spin.longer_ns(), kWholeNs);
    EXPECT_EQ(spin.whole_ns(), kWholeNs);
  }
}

TEST(SpinTime, AWaitThatIsGivenUpMakesItShorter) {
  SpinTime spin(SpinOptions{.longer = true});
  for (int i = 0; i < 20; ++i) spin.waited(2 * kWholeNs);
  for (int i = 0; i < 20; ++i) spin.gave_up();
  EXPECT_EQ(spin.longer_ns(), kWholeNs);
}

TEST(SpinTime, ItLooksForAMillisecondAtMostUnlessMoreIsSet) {
  EXPECT_EQ(SpinTime(SpinOptions{.spin_ns = 7'000, .longer = true}).most_ns(), 140'000);
  EXPECT_EQ(SpinTime(SpinOptions{.spin_ns = 400'000, .longer = true}).most_ns(), 1'000'000);
  EXPECT_EQ(SpinTime(SpinOptions{.spin_ns = 4'000'000, .longer = true}).most_ns(), 4'000'000);
}

TEST(SpinTime, ItLooksNoLongerWhereItKeepsTheCoreOrHostsAreSeveral) {
  SpinTime keeps(SpinOptions{.yield = SpinYield::kNever, .longer = true});
  SpinTime hosts(SpinOptions{.longer = false});
  for (SpinTime* spin : {&keeps, &hosts}) {
    EXPECT_EQ(spin->most_ns(), kWholeNs);
    spin->waited(2 * kWholeNs);
    EXPECT_EQ(spin->longer_ns(), kWholeNs);
  }
}

TEST(SpinTime, OfNothingThereIsNoQuietPart) {
  SpinTime spin(SpinOptions{.spin_ns = 0, .yield = SpinYield::kAuto, .longer = true});
  for (uint32_t i = 0; i < 2 * SpinTime::kTriedEvery; ++i) {
    EXPECT_EQ(spin.quiet_ns(), 0);
    EXPECT_EQ(spin.whole_ns(), 0);
    EXPECT_EQ(spin.longer_ns(), 0);
    spin.vain();
    spin.waited(1);
  }
}

}  // namespace
}  // namespace parallax
