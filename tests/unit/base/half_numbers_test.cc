// SPDX-License-Identifier: Apache-2.0
// f16 by the hundred, at each level of vector code, against number.h one by one: every pattern of
// f16, floats of every exponent around what is rounded, NaNs, any alignment, any count.
#include "base/half_numbers.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "base/seeded_random.h"
#include "support/vector_levels.h"

namespace parallax {
namespace {

TEST(HalfNumbers, EveryPatternIsWidenedAsOneIs) {
  constexpr size_t kCount = 65536;
  std::vector<std::byte> halves(1 + kCount * sizeof(Half));
  for (uint32_t pattern = 0; pattern < kCount; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    std::memcpy(&halves[1 + pattern * sizeof bits], &bits, sizeof bits);
  }
  testkit::at_each_vector_level([&] {
    std::vector<std::byte> floats(1 + kCount * sizeof(float));
    widen_halves(&halves[1], &floats[1], kCount);
    for (uint32_t pattern = 0; pattern < kCount; ++pattern) {
      const float want = widen(Half{static_cast<uint16_t>(pattern)});
      const float found = load<float>(&floats[1 + pattern * sizeof(float)]);
      ASSERT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(want)) << pattern;
    }
  });
}

// All signs, exponents, and digits that decide, drawn ones behind them.
std::vector<float> floats_to_round() {
  std::vector<float> all;
  for (uint32_t high = 0; high < 1u << 19; ++high) {
    for (const uint32_t low : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x1fffu}) {
      all.push_back(std::bit_cast<float>(high << 13 | low));
    }
  }
  SeededRandom random(5);
  for (int i = 0; i < 100'000; ++i) {
    all.push_back(std::bit_cast<float>(static_cast<uint32_t>(random.next())));
  }
  return all;
}

TEST(HalfNumbers, FloatsAreRoundedAsOneIs) {
  const std::vector<float> floats = floats_to_round();
  std::vector<std::byte> bytes(1 + floats.size() * sizeof(float));
  std::memcpy(&bytes[1], floats.data(), floats.size() * sizeof(float));
  testkit::at_each_vector_level([&] {
    std::vector<std::byte> halves(1 + floats.size() * sizeof(Half));
    round_to_halves(&bytes[1], &halves[1], floats.size());
    for (size_t i = 0; i < floats.size(); ++i) {
      uint16_t found;
      std::memcpy(&found, &halves[1 + i * sizeof found], sizeof found);
      ASSERT_EQ(found, to_half(floats[i]).bits) << std::bit_cast<uint32_t>(floats[i]);
    }
  });
}

TEST(HalfNumbers, AnyCountAndNothingBehindIt) {
  testkit::at_each_vector_level([&] {
    for (size_t count = 0; count < 40; ++count) {
      std::vector<Half> halves(count + 1, Half{0x3c00});
      std::vector<float> floats(count + 1, 7);
      widen_halves(reinterpret_cast<const std::byte*>(halves.data()),
                   reinterpret_cast<std::byte*>(floats.data()), count);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(floats[i], 1) << count;
      ASSERT_EQ(floats[count], 7) << count;
      floats.assign(count + 1, 2);
      round_to_halves(reinterpret_cast<const std::byte*>(floats.data()),
                      reinterpret_cast<std::byte*>(halves.data()), count);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(halves[i].bits, 0x4000) << count;
      ASSERT_EQ(halves[count].bits, 0x3c00) << count;
    }
  });
}

}  // namespace
}  // namespace parallax
