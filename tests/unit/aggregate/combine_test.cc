// SPDX-License-Identifier: Apache-2.0
// Operations on numbers: what IEEE 754 says of NaN and -0, integers that wrap, bits, any alignment.
#include "aggregate/combine.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/seeded_random.h"
#include "support/vector_levels.h"

namespace parallax {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename In, typename Sum = sum_of_t<In>>
std::vector<Sum> combined(Combine how, std::vector<Sum> to, const std::vector<In>& from) {
  std::vector<std::byte> bytes(1 + from.size() * sizeof(In));
  std::memcpy(&bytes[1], from.data(), from.size() * sizeof(In));  // one byte off, as in messages
  combine_into<In, Sum>(how, to.data(), &bytes[1], to.size());
  return to;
}

TEST(Combine, ANaNWinsAndZerosHaveAnOrder) {
  for (const float one : {1.0f, -0.0f, 0.0f, INFINITY, -INFINITY}) {
    for (const Combine how : {Combine::kMin, Combine::kMax}) {
      EXPECT_TRUE(std::isnan(combined<float>(how, {one}, {kNan})[0]));
      EXPECT_TRUE(std::isnan(combined<float>(how, {kNan}, {one})[0]));
    }
  }
  for (const auto& [a, b] : {std::pair{0.0f, -0.0f}, std::pair{-0.0f, 0.0f}}) {
    EXPECT_TRUE(std::signbit(combined<float>(Combine::kMin, {a}, {b})[0]));
    EXPECT_FALSE(std::signbit(combined<float>(Combine::kMax, {a}, {b})[0]));
  }
  EXPECT_EQ(combined<double>(Combine::kMin, {3, -2}, {-5, 7}), (std::vector<double>{-5, -2}));
  EXPECT_EQ(combined<double>(Combine::kMax, {3, -2}, {-5, 7}), (std::vector<double>{3, 7}));
}

// As many as go in vectors, at each level of them: as one by one.
TEST(Combine, ManyAreAsOneByOne) {
  SeededRandom random(4);
  constexpr size_t kCount = 301;
  const auto drawn = [&] {
    constexpr float kSpecial[] = {kNan, -0.0f, 0.0f, INFINITY, -INFINITY, 1};
    return random.chance(40) ? kSpecial[random.below(6)] : static_cast<float>(random.unit() - 0.5);
  };
  std::vector<float> to(kCount);
  std::vector<Half> from(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    to[i] = drawn();
    from[i] = to_half(drawn());
  }
  for (const Combine how : {Combine::kMin, Combine::kMax, Combine::kProduct, Combine::kSum}) {
    std::vector<float> want(kCount);
    for (size_t i = 0; i < kCount; ++i) want[i] = combined<Half>(how, {to[i]}, {from[i]})[0];
    testkit::at_each_vector_level([&] {
      const std::vector<float> found = combined<Half>(how, to, from);
      for (size_t i = 0; i < kCount; ++i) {
        if (std::isnan(want[i])) {
          ASSERT_TRUE(std::isnan(found[i])) << i;
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(want[i])) << i;
        }
      }
    });
  }
}

TEST(Combine, IntegersWrapAndHaveBits) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(combined<int32_t>(Combine::kProduct, {kMost, -3}, {2, 5}),
            (std::vector<int32_t>{-2, -15}));
  EXPECT_EQ(combined<int32_t>(Combine::kSum, {kMost}, {1})[0], std::numeric_limits<int32_t>::min());
  EXPECT_EQ(combined<int64_t>(Combine::kAnd, {12}, {10})[0], 8);
  EXPECT_EQ(combined<int64_t>(Combine::kOr, {12}, {10})[0], 14);
  EXPECT_EQ(combined<int64_t>(Combine::kXor, {12}, {-1})[0], ~int64_t{12});
}

TEST(Combine, NarrowOnesAreWidenedAndTheFirstIsTaken) {
  const std::vector<BFloat> from = {to_bfloat(-3), to_bfloat(0.5f)};
  EXPECT_EQ(combined<BFloat>(Combine::kProduct, {2, 2}, from), (std::vector<float>{-6, 1}));
  std::vector<float> first(2);
  start_combine<BFloat, float>(Combine::kMax, first.data(),
                               reinterpret_cast<const std::byte*>(from.data()), 2);
  EXPECT_EQ(first, (std::vector<float>{-3, 0.5f}));
  // A sum starts at +0, as every sum does.
  const float zero = -0.0f;
  start_combine<float, float>(Combine::kSum, first.data(),
                              reinterpret_cast<const std::byte*>(&zero), 1);
  EXPECT_FALSE(std::signbit(first[0]));
  EXPECT_EQ(combine_of(PARALLAX_OP_MEAN), Combine::kSum);
  EXPECT_EQ(combine_of(PARALLAX_OP_XOR), Combine::kXor);
}

}  // namespace
}  // namespace parallax
