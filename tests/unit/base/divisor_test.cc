// SPDX-License-Identifier: Apache-2.0
#include "base/divisor.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

// Numbers around every power of two, where rounding would first go wrong.
std::vector<uint32_t> edges(uint32_t most) {
  std::vector<uint32_t> numbers = {0, 1, 2, 3, most};
  for (uint64_t power = 4; power <= most; power *= 2) {
    for (const uint64_t near : {power - 1, power, power + 1}) {
      if (near <= most) numbers.push_back(static_cast<uint32_t>(near));
    }
  }
  return numbers;
}

void expect_exact(uint32_t number, const Divisor& divisor) {
  ASSERT_EQ(divisor.quotient(number), number / divisor.value()) << number;
  ASSERT_EQ(divisor.remainder(number), number % divisor.value()) << number;
  ASSERT_EQ(divisor.remainder_in_vectors(number), number % divisor.value()) << number;
  ASSERT_EQ(divisor.quotient_in_vectors(number), number / divisor.value()) << number;
}

TEST(Divisor, IsExactAtTheEdges) {
  for (const uint32_t value : edges(1u << 31)) {
    if (value == 0) continue;
    const Divisor divisor(value);
    for (const uint32_t number : edges(UINT32_MAX)) expect_exact(number, divisor);
    // Around multiples, the largest of them above all.
    for (const uint32_t times : {1u, 2u, UINT32_MAX / value}) {
      for (const uint32_t off : {0u, 1u, UINT32_MAX}) expect_exact(times * value + off, divisor);
    }
  }
}

TEST(Divisor, IsExactForEverySmallOne) {
  for (uint32_t value = 1; value <= 700; ++value) {
    const Divisor divisor(value);
    for (uint32_t number = 0; number <= 3000; ++number) expect_exact(number, divisor);
    for (uint32_t number = UINT32_MAX; number > UINT32_MAX - 1500; --number) {
      expect_exact(number, divisor);
    }
  }
}

TEST(Divisor, IsExactByChance) {
  SeededRandom random(7);
  for (int i = 0; i < 200'000; ++i) {
    const auto value = static_cast<uint32_t>(1 + random.below(uint64_t{1} << (1 + i % 31)));
    expect_exact(static_cast<uint32_t>(random.next()), Divisor(value));
  }
}

}  // namespace
}  // namespace parallax
