// SPDX-License-Identifier: Apache-2.0
// How long a waiter looks, by how long it had to wait.
#include "job/spin_time.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

TEST(SpinTime, LookingInVainMakesItShortAndFindingBringsItBack) {
  SpinTime spin;
  EXPECT_EQ(spin.now_ns(), SpinTime::kMaxNs);
  spin.blocked();
  EXPECT_EQ(spin.now_ns(), SpinTime::kMaxNs / 2);
  spin.found();
  EXPECT_EQ(spin.now_ns(), SpinTime::kMaxNs);
  for (int i = 0; i < 20; ++i) spin.blocked();
  EXPECT_EQ(spin.now_ns(), SpinTime::kMinNs);
  spin.found();
  EXPECT_EQ(spin.now_ns(), 2 * SpinTime::kMinNs);
  for (int i = 0; i < 20; ++i) spin.found();
  EXPECT_EQ(spin.now_ns(), SpinTime::kMaxNs);
}

TEST(SpinTime, AWholeOneIsTriedNowAndThen) {
  SpinTime spin;
  uint32_t whole = 0;
  for (uint32_t i = 0; i < 10 * SpinTime::kTriedEvery; ++i) {
    spin.blocked();
    whole += spin.now_ns() == SpinTime::kMaxNs ? 1 : 0;
  }
  EXPECT_EQ(whole, 10u);
  while (spin.now_ns() != SpinTime::kMaxNs) spin.blocked();
  spin.found();
  EXPECT_EQ(spin.now_ns(), SpinTime::kMaxNs);
  spin.found();
  EXPECT_EQ(spin.now_ns(), SpinTime::kMaxNs);
}

TEST(SpinTime, WhereItIsForbiddenThereIsNone) {
  SpinTime spin;
  spin.forbid();
  for (uint32_t i = 0; i < 2 * SpinTime::kTriedEvery; ++i) {
    EXPECT_EQ(spin.now_ns(), 0);
    spin.blocked();
  }
  spin.found();
  EXPECT_EQ(spin.now_ns(), 0);
}

}  // namespace
}  // namespace parallax
