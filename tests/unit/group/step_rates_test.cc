// SPDX-License-Identifier: Apache-2.0
#include "group/step_rates.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace parallax {
namespace {

TEST(StepRates, OneClipIsEnough) {
  StepRates rates = {.count = 2};
  EXPECT_FALSE(rates.any_clip());
  rates.groups[2].clip_norm = 1;  // beyond those given
  EXPECT_FALSE(rates.any_clip());
  rates.groups[1].clip_norm = 1;
  EXPECT_TRUE(rates.any_clip());
  EXPECT_EQ(rates.given().size(), 2u);
}

// Given rates that differ in one field of one group, expect that one, with what both ranks said.
TEST(StepRates, TheFirstDifferenceIsNamed) {
  const std::vector<Rates> same(3, {.learning_rate = 1, .weight_decay = 2, .clip_norm = 3});
  EXPECT_EQ(difference(same, 4, same, 7).any, 0u);
  for (uint32_t field = 0; field < kRatesFieldCount; ++field) {
    std::vector<Rates> other = same;
    if (field == 0) other[2].learning_rate = 8;
    if (field == 1) other[2].weight_decay = 8;
    if (field == 2) other[2].decoupled = 1;
    if (field == 3) other[2].maximize = 1;
    if (field == 4) other[2].clip_norm = 8;
    const RatesDifference found = difference(same, 4, other, 7);
    EXPECT_EQ(found.any, 1u);
    EXPECT_EQ(found.group, 2u);
    EXPECT_EQ(found.field, field);
    EXPECT_EQ(found.first_rank, 4u);
    EXPECT_EQ(found.second_rank, 7u);
    EXPECT_EQ(found.second_bits, is_count(field) ? 1u : std::bit_cast<uint32_t>(8.0f));
    EXPECT_TRUE(names_a_field(found, 10));
  }
}

TEST(StepRates, SignedZerosAreDifferentBits) {
  EXPECT_EQ(difference(std::vector<Rates>{{.weight_decay = 0.0f}}, 0,
                       std::vector<Rates>{{.weight_decay = -0.0f}}, 1)
                .field,
            1u);
}

TEST(StepRates, ADifferenceOfAPeerMustNameAField) {
  EXPECT_TRUE(names_a_field({}, 1));
  EXPECT_FALSE(names_a_field({.any = 2}, 1));
  EXPECT_FALSE(names_a_field({.any = 1, .group = kRatesMax}, 1));
  EXPECT_FALSE(names_a_field({.any = 1, .field = kRatesFieldCount}, 1));
  EXPECT_FALSE(names_a_field({.any = 1, .first_rank = 4}, 4));
  EXPECT_FALSE(names_a_field({.any = 1, .second_rank = 4}, 4));
}

}  // namespace
}  // namespace parallax
