// SPDX-License-Identifier: Apache-2.0
// The inner loops of sums, for every dtype, from sources that lie askew, against one addition at a
// time; and squared norms against an exact sum term by term.
#include "aggregate/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/seeded_random.h"
#include "support/vector_levels.h"

namespace parallax {
namespace {

constexpr size_t kCounts[] = {0,  1,  3,  7,  8,  15,  16,   17,   31,
                              32, 33, 63, 64, 65, 511, 1000, 4095, 4096};

template <typename In>
class RowKernels : public testing::Test {
 protected:
  using Sum = sum_of_t<In>;

  static In draw(SeededRandom& random) {
    const auto number = static_cast<float>(random.between(-4096, 4096)) / 64.0f;
    if constexpr (std::is_same_v<In, Half>) {
      return to_half(number);
    } else if constexpr (std::is_same_v<In, BFloat>) {
      return to_bfloat(number);
    } else if constexpr (std::is_integral_v<In>) {
      return static_cast<In>(random.next());  // large ones too: sums wrap
    } else {
      return static_cast<In>(number);
    }
  }
  // `count` numbers, one byte off their alignment.
  static std::vector<std::byte> askew(SeededRandom& random, size_t count) {
    std::vector<std::byte> bytes(count * sizeof(In) + 1);
    for (size_t i = 0; i < count; ++i) {
      const In number = draw(random);
      std::memcpy(bytes.data() + 1 + i * sizeof(In), &number, sizeof number);
    }
    return bytes;
  }
  // a + b, one at a time; integers as their bits add.
  static Sum naive_plus(Sum a, Sum b) {
    if constexpr (std::is_integral_v<Sum>) {
      return static_cast<Sum>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      const volatile Sum sum = a + b;
      return sum;
    }
  }
  // Three sources, one after the other; nothing is written behind the last element.
  static void sum_three(SeededRandom& random, size_t count) {
    const Sum kept = 77;
    std::vector<Sum> sum(count + 1, kept), naive(count, Sum{0});
    for (int source = 0; source < 3; ++source) {
      const std::vector<std::byte> bytes = askew(random, count);
      if (source == 0) start_sum<In>(sum.data(), bytes.data() + 1, count);
      if (source > 0) add_to_sum<In>(sum.data(), bytes.data() + 1, count);
      for (size_t i = 0; i < count; ++i) {
        naive[i] = naive_plus(naive[i], load<In>(bytes.data() + 1 + i * sizeof(In)));
      }
    }
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(std::memcmp(&sum[i], &naive[i], sizeof(Sum)), 0) << "element " << i << ", seed 11";
    }
    EXPECT_EQ(sum[count], kept);
  }
};

using Types = testing::Types<float, double, Half, BFloat, int32_t, int64_t>;
TYPED_TEST_SUITE(RowKernels, Types);

// Given three sources, expect the sum that adding them one after the other to zero gives, bit for
// bit, at each level of vector code.
TYPED_TEST(RowKernels, SumsAreThoseOfOneAdditionAtATime) {
  testkit::at_each_vector_level([&] {
    SeededRandom random(11);
    for (const size_t count : kCounts) this->sum_three(random, count);
  });
}

// Given -0 and what is no number, expect an accumulator's first addend to be added to +0, not
// copied.
TEST(RowKernelsOf, AFoldBeginsAtPlusZero) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float source[] = {-0.0f, NAN, -infinity};
  float sum[3];
  start_sum<float>(sum, reinterpret_cast<const std::byte*>(source), 3);
  EXPECT_EQ(std::bit_cast<uint32_t>(sum[0]), 0u);
  EXPECT_TRUE(std::isnan(sum[1]));
  EXPECT_EQ(sum[2], -infinity);
}

// Given floats, expect the sum of their squares, which are exact in double, over the divisor's.
TEST(RowKernelsOf, SquaresOfFloats) {
  SeededRandom random(12);
  for (const size_t count : kCounts) {
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(random.between(-900, 900));
    int64_t squares = 0;  // of whole numbers: no order can matter
    for (const float value : values) squares += static_cast<int64_t>(value * value);
    for (const double divisor : {1.0, 2.0, 8.0}) {
      ExactSum sum;
      add_squares(values.data(), count, divisor, &sum);
      EXPECT_EQ(sum.value(), static_cast<double>(squares) / (divisor * divisor)) << count;
    }
  }
}

// Given doubles whose squares differ by 2^120, expect none to be lost: two halves of half a last
// bit and a one are together more than half of it.
TEST(RowKernelsOf, SquaresOfDoublesAreExact) {
  const double values[] = {0x1p60, -1, 0x1p33, -0x1p33};
  ExactSum sum, divided;
  add_squares(values, 4, 1, &sum);
  EXPECT_EQ(sum.value(), 0x1p120 + 0x1p68);
  double rounded = 0;
  for (const double value : values) rounded += value * value;
  EXPECT_EQ(rounded, 0x1p120) << "which a sum of doubles does not see";
  add_squares(values, 4, 2, &divided);
  EXPECT_EQ(divided.value(), 0x1p118 + 0x1p66);
  // The last bit of the first square is 2^-104, which tells more than a half from a half.
  const double near[] = {1 + 0x1p-52, 0x1p-27, 0x1p-27};
  ExactSum over;
  add_squares(near, 3, 1, &over);
  EXPECT_EQ(over.value(), 1 + 0x1p-51 + 0x1p-52);
}

// Given what is no number among them, expect the norm to be none either.
TEST(RowKernelsOf, SquaresOfNonsense) {
  const float floats[] = {1, NAN, 2};
  const double doubles[] = {1, std::numeric_limits<double>::infinity(), 2};
  ExactSum nan, infinite;
  add_squares(floats, 3, 1, &nan);
  add_squares(doubles, 3, 1, &infinite);
  EXPECT_TRUE(std::isnan(nan.value()));
  EXPECT_TRUE(std::isinf(infinite.value()));
}

// Given rows of each width that has such a kernel, as far off a register's alignment as floats can
// lie, old ones and new ones, and a NaN where a new one is begun: expect one addition at a time.
TEST(RowKernelsOf, NarrowRowsAnywhere) {
  testkit::at_each_vector_level([] {
    for (const size_t width : {8, 16, 32, 64}) {
      SeededRandom random(width);
      constexpr uint32_t kSums = 4, kCount = 40, kBegun = 2;
      std::vector<float> sums(1 + kSums * width, NAN), values(3 + kCount * width);
      std::fill_n(sums.begin(), 1 + kBegun * width, 1.5f);
      for (float& value : values) value = static_cast<float>(random.between(-99, 99));
      std::vector<float> expected = sums;
      std::vector<uint32_t> slots, places;
      uint32_t next = kBegun;
      for (uint32_t i = 0; i < kCount; ++i) {
        const auto slot = static_cast<uint32_t>(random.below(std::min(next + 1, kSums)));
        slots.push_back(slot);
        places.push_back(static_cast<uint32_t>(random.below(kCount)));
        for (size_t at = 0; at < width; ++at) {
          float& sum = expected[1 + slot * width + at];
          sum = (slot == next ? 0 : sum) + values[3 + places[i] * width + at];
        }
        next += slot == next ? 1 : 0;
      }
      uint32_t end = 0;
      const auto* const bytes = reinterpret_cast<const std::byte*>(values.data() + 3);
      ASSERT_TRUE(with_narrow_width(width, [&](auto known) {
        end = add_narrow_rows<known>(sums.data() + 1, bytes, slots.data(), places.data(), kCount,
                                     kBegun);
      }));
      EXPECT_EQ(end, next) << width;
      EXPECT_EQ(std::memcmp(sums.data(), expected.data(), sums.size() * sizeof(float)), 0) << width;
    }
  });
}

// Given rows of each such width, off a register's alignment, that are put elsewhere or back, one of
// them again in the same call: expect (+0 + first) + second, bit for bit.
TEST(RowKernelsOf, PairsOfNarrowRows) {
  testkit::at_each_vector_level([] {
    for (const size_t width : {8, 16, 32, 64}) {
      SeededRandom random(width);
      std::vector<float> values(1 + 6 * width), sums(1 + 4 * width, 7.0F);
      for (float& value : values) {
        value = random.chance(30) ? -0.0F : static_cast<float>(random.between(-99, 99));
      }
      const auto row = [&](size_t at) { return &values[1 + at * width]; };
      const auto bytes = [](const float* at) { return reinterpret_cast<const std::byte*>(at); };
      float* const sum = &sums[1];
      const std::array<float*, 4> to = {sum, row(4), sum, sum + 2 * width};
      const std::array<const std::byte*, 4> first = {bytes(row(0)), bytes(row(4)), bytes(sum),
                                                     bytes(row(5))};
      const std::array<const std::byte*, 4> second = {bytes(row(1)), bytes(row(2)), bytes(row(3)),
                                                      bytes(row(0))};
      std::vector<float> expected = sums, there(row(4), row(4) + width);
      for (size_t at = 0; at < width; ++at) {
        expected[1 + at] = (0 + row(0)[at] + row(1)[at]) + row(3)[at];
        expected[1 + 2 * width + at] = 0 + row(5)[at] + row(0)[at];
        there[at] = 0 + there[at] + row(2)[at];
      }
      ASSERT_TRUE(with_narrow_width(width, [&](auto known) {
        add_row_pairs<known>(to.data(), first.data(), second.data(), 4);
      }));
      EXPECT_EQ(std::memcmp(sums.data(), expected.data(), sums.size() * sizeof(float)), 0) << width;
      EXPECT_EQ(std::memcmp(row(4), there.data(), width * sizeof(float)), 0) << width;
    }
  });
}

}  // namespace
}  // namespace parallax
