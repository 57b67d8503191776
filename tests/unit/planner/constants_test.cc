// SPDX-License-Identifier: Apache-2.0
// Constants by name: what the setting takes, and refuses by name.
#include "planner/constants.h"

#include <gtest/gtest.h>

#include <string>

namespace parallax {
namespace {

CostSetting parsed(const std::string& text) {
  CostSetting setting;
  const Status status = parse_costs(text, &setting);
  EXPECT_TRUE(status.ok()) << status.message();
  return setting;
}

TEST(Constants, MeasuredAndStandardGiveNone) {
  EXPECT_TRUE(parsed("measured").measured);
  EXPECT_TRUE(parsed("").measured);
  EXPECT_TRUE(parsed("measured").wanted());
  EXPECT_FALSE(parsed("standard").measured);
  EXPECT_FALSE(parsed("standard").wanted());
  CostConstants found;
  found.copy_byte_ps = 7;
  EXPECT_EQ(parsed("measured").over(found), found);
}

// Given some by name, expect them in place of what was found, and the others as found.
TEST(Constants, ThoseGivenHold) {
  const CostSetting setting = parsed("between_latency_ns=20000,sum_f64_byte_ps=0");
  EXPECT_TRUE(setting.measured);
  CostConstants found;
  found.inside.latency_ns = 11;
  found.sum_byte_ps = {1, 2, 3, 4};
  CostConstants expected = found;
  expected.between.latency_ns = 20'000;
  expected.sum_byte_ps[1] = 0;
  EXPECT_EQ(setting.over(found), expected);
}

// Given all by name, as they are printed, expect nothing to be left to measure.
TEST(Constants, TheirTextIsTakenBack) {
  CostConstants constants;
  for (size_t row = 0; row < kConstantCount; ++row) {
    kConstantRows[row].of(constants) = 1000 + row;
  }
  const CostSetting setting = parsed(costs_text(constants));
  EXPECT_FALSE(setting.measured);
  EXPECT_TRUE(setting.wanted());
  EXPECT_EQ(setting.over({}), constants);
}

TEST(Constants, WhatIsWrongIsNamed) {
  for (const char* text :
       {"latency=3", "between_latency_ns", "between_latency_ns=", "between_latency_ns=-1",
        "between_latency_ns=3us", "copy_byte_ps=1000000001", "standard,copy_byte_ps=1", ","}) {
    CostSetting setting;
    const Status status = parse_costs(text, &setting);
    EXPECT_EQ(status.code(), PARALLAX_INVALID) << text;
    EXPECT_NE(status.message().find("costs: "), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace parallax
