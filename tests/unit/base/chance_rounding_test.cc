// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding: to a neighbour and no further, on the average to the number itself, and
// what is no finite number between two of them stays what it is.
#include "base/chance_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/counter_bits.h"
#include "base/seeded_random.h"
#include "support/naive_training.h"

namespace parallax::chance_rounding {
namespace {

using Limits = std::numeric_limits<float>;

template <typename S>
struct Of;
template <>
struct Of<BFloat> {
  static constexpr uint32_t kDtype = PARALLAX_BF16;
  static constexpr float kLargest = 0x1.fep127f;
  static constexpr float kBeyond = 0x1.fffp127f;  // nearest is infinity
};
template <>
struct Of<Half> {
  static constexpr uint32_t kDtype = PARALLAX_F16;
  static constexpr float kLargest = 65504;
  static constexpr float kBeyond = 65525;
};

template <typename S>
float chosen(float value, uint32_t chance) {
  return widen(round_by_chance(value, chance, TypeTag<S>{}));
}

// Numbers of every magnitude: normal and subnormal of the narrow type, and around its bounds.
std::vector<float> some_numbers(float largest) {
  SeededRandom random(7);
  std::vector<float> all = {
      0.0f, -0.0f, 1.0f, 1.00001f, -1.5f, largest, std::nextafter(largest, 0.0f)};
  for (int exponent = -149; exponent < 127; ++exponent) {
    for (int i = 0; i < 4; ++i) {
      const auto unit = static_cast<float>(random.unit() * 2 - 1);
      all.push_back(std::ldexp(unit, exponent));
    }
    all.push_back(std::ldexp(1.0f, exponent));
  }
  return all;
}

template <typename S>
class ChanceRounding : public testing::Test {};
using Narrow = testing::Types<BFloat, Half>;
TYPED_TEST_SUITE(ChanceRounding, Narrow);

// Given any number and chance: expect what the naive program makes of them.
TYPED_TEST(ChanceRounding, IsTheNaiveProgramsBitForBit) {
  SeededRandom random(3);
  for (const float value : some_numbers(Of<TypeParam>::kLargest)) {
    for (int i = 0; i < 40; ++i) {
      const auto any = static_cast<uint32_t>(random.below(uint64_t{1} << 32));
      const uint32_t chance = i == 0 ? 0 : i == 1 ? UINT32_MAX : any;
      const double fraction = std::ldexp(static_cast<double>(chance), -32);
      const auto want = static_cast<float>(
          testkit::rounded_by_chance(Of<TypeParam>::kDtype, static_cast<double>(value), fraction));
      const float got = chosen<TypeParam>(value, chance);
      ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want))
          << value << ", chance " << chance;
    }
  }
}

TYPED_TEST(ChanceRounding, WhatIsOfTheTypeStays) {
  for (uint32_t bits = 0; bits <= UINT16_MAX; ++bits) {
    const TypeParam number = {static_cast<uint16_t>(bits)};
    const float value = widen(number);
    for (const uint32_t chance : {0u, 1u, 0x80000000u, UINT32_MAX}) {
      const TypeParam got = round_by_chance(value, chance, TypeTag<TypeParam>{});
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(widen(got)));
      } else {
        ASSERT_EQ(got.bits, number.bits);
      }
    }
  }
}

TYPED_TEST(ChanceRounding, FiniteNumbersGoToInfinityWhereNearestSendsThem) {
  const float largest = Of<TypeParam>::kLargest;
  for (const uint32_t chance : {0u, 1u, 0x80000000u, UINT32_MAX}) {
    for (const float sign : {1.0f, -1.0f}) {
      EXPECT_EQ(chosen<TypeParam>(sign * std::nextafter(largest, Limits::infinity()), chance),
                sign * largest);
      EXPECT_EQ(chosen<TypeParam>(sign * Of<TypeParam>::kBeyond, chance),
                sign * Limits::infinity());
      EXPECT_EQ(chosen<TypeParam>(sign * Limits::infinity(), chance), sign * Limits::infinity());
    }
    EXPECT_TRUE(std::isnan(chosen<TypeParam>(Limits::quiet_NaN(), chance)));
  }
}

// Given many roundings of a number by the bits of as many rows: expect it to go up as often as its
// place between its neighbours says, within five deviations of so many throws.
TYPED_TEST(ChanceRounding, TheMeanIsTheNumberItself) {
  constexpr int kThrows = 20'000;
  uint64_t row = 0;
  for (const float value : some_numbers(Of<TypeParam>::kLargest)) {
    const float down = chosen<TypeParam>(value, UINT32_MAX), up = chosen<TypeParam>(value, 0);
    if (down == up) continue;
    int ups = 0;
    for (int i = 0; i < kThrows; ++i) {
      const auto chance =
          static_cast<uint32_t>(CounterBits(5, row).at(static_cast<uint64_t>(i)) >> 32);
      ups += chosen<TypeParam>(value, chance) == up ? 1 : 0;
    }
    ++row;
    const double place = (static_cast<double>(value) - static_cast<double>(down)) /
                         (static_cast<double>(up) - static_cast<double>(down));
    const double deviation = std::sqrt(kThrows * place * (1 - place));
    ASSERT_NEAR(ups, kThrows * place, 5 * deviation + 1) << value;
  }
  EXPECT_GT(row, 100u);
}

}  // namespace
}  // namespace parallax::chance_rounding
