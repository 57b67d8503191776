// SPDX-License-Identifier: Apache-2.0
// Sums on their way out: scaled in their own type, rounded once, and where they are already.
#include "aggregate/scaled_numbers.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace parallax {
namespace {

TEST(ScaledNumbers, AreMultipliedInTheirTypeAndRoundedOnce) {
  constexpr size_t kCount = 600;  // more than one piece
  std::vector<float> sums(kCount);
  std::iota(sums.begin(), sums.end(), 1.0f);
  std::vector<Half> halves(kCount);
  give_numbers(reinterpret_cast<const std::byte*>(sums.data()), kCount, 1.0 / 3,
               {.values = reinterpret_cast<std::byte*>(halves.data()),
                .dtype = PARALLAX_F16,
                .sum = SumType::kF32});
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(halves[i].bits, to_half(sums[i] * static_cast<float>(1.0 / 3)).bits) << i;
  }
}

TEST(ScaledNumbers, InPlace) {
  std::vector<double> sums = {2, 4, 6};
  auto* bytes = reinterpret_cast<std::byte*>(sums.data());
  const NumberFormat same = {.values = bytes, .dtype = PARALLAX_F64, .sum = SumType::kF64};
  give_numbers(bytes, 3, 1, same);
  EXPECT_EQ(sums, (std::vector<double>{2, 4, 6}));
  give_numbers(bytes, 3, 0.5, same);
  EXPECT_EQ(sums, (std::vector<double>{1, 2, 3}));
}

TEST(ScaledNumbers, IntegersAreCopied) {
  const std::vector<int64_t> sums = {5, -7};
  std::vector<int64_t> got(2);
  give_numbers(reinterpret_cast<const std::byte*>(sums.data()), 2, 1,
               {.values = reinterpret_cast<std::byte*>(got.data()),
                .dtype = PARALLAX_I64,
                .sum = SumType::kI64});
  EXPECT_EQ(got, sums);
}

}  // namespace
}  // namespace parallax
