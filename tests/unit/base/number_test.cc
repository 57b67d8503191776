// SPDX-License-Identifier: Apache-2.0
// Conversions of numbers: every pattern of the 16-bit types, what lies between them and how it is
// rounded, against arithmetic in double and, where the compiler has it, its own _Float16.
#include "base/number.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

struct Format {
  uint32_t dtype;
  int exponent_bits, digit_bits;  // stored digits
};
constexpr Format kHalf = {PARALLAX_F16, 5, 10};
constexpr Format kBFloat = {PARALLAX_BF16, 8, 7};

// The value of a pattern by the definition of IEEE 754.
double value_of(const Format& format, uint32_t pattern) {
  const uint32_t digits = pattern & ((1u << format.digit_bits) - 1);
  const uint32_t exponent = pattern >> format.digit_bits & ((1u << format.exponent_bits) - 1);
  const double sign = (pattern >> 15) != 0 ? -1 : 1;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  if (exponent == (1u << format.exponent_bits) - 1) return digits != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(digits, 1 - bias - format.digit_bits);
  return sign * std::ldexp((1u << format.digit_bits) + digits,
                           static_cast<int>(exponent) - bias - format.digit_bits);
}

template <typename From>
uint16_t narrow(uint32_t from_dtype, uint32_t to_dtype, From value) {
  std::array<std::byte, 9> in = {};  // one byte off
  std::memcpy(&in[1], &value, sizeof value);
  std::array<std::byte, 2> out;
  converter(from_dtype, to_dtype)(&in[1], out.data(), 1);
  return std::bit_cast<uint16_t>(out);
}

template <typename To>
To widen_to(uint32_t from_dtype, uint32_t to_dtype, uint16_t pattern) {
  To out;
  converter(from_dtype, to_dtype)(reinterpret_cast<const std::byte*>(&pattern),
                                  reinterpret_cast<std::byte*>(&out), 1);
  return out;
}

TEST(Number, EveryPatternOfSixteenBitsWidensExactlyAndComesBack) {
  for (const Format& format : {kHalf, kBFloat}) {
    for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
      const auto bits = static_cast<uint16_t>(pattern);
      const double want = value_of(format, pattern);
      const auto single = widen_to<float>(format.dtype, PARALLAX_F32, bits);
      const auto twice = widen_to<double>(format.dtype, PARALLAX_F64, bits);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(single) && std::isnan(twice)) << pattern;
        const uint16_t back = narrow(PARALLAX_F32, format.dtype, single);
        ASSERT_TRUE(std::isnan(value_of(format, back))) << "a NaN became " << back;
        continue;
      }
      ASSERT_EQ(std::bit_cast<uint64_t>(static_cast<double>(single)), std::bit_cast<uint64_t>(want))
          << dtype_name(format.dtype) << " " << pattern;
      ASSERT_EQ(std::bit_cast<uint64_t>(twice), std::bit_cast<uint64_t>(want)) << pattern;
      ASSERT_EQ(narrow(PARALLAX_F32, format.dtype, single), bits);
      ASSERT_EQ(narrow(PARALLAX_F64, format.dtype, twice), bits);
    }
  }
}

// Between two neighbours: below the middle down, above up, in it to the even one.
TEST(Number, NarrowsToNearestEvenFromBothWiderTypes) {
  for (const Format& format : {kHalf, kBFloat}) {
    const uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.digit_bits;
    for (uint32_t pattern = 0; pattern + 1 < infinity; ++pattern) {
      const double low = value_of(format, pattern);
      const double high = value_of(format, pattern + 1);
      const double middle = low + (high - low) / 2;
      const uint32_t even = pattern % 2 == 0 ? pattern : pattern + 1;
      for (const uint32_t sign : {0u, 0x8000u}) {
        const double signed_one = sign == 0 ? 1 : -1;
        const auto from_double = [&](double value) {
          return narrow(PARALLAX_F64, format.dtype, signed_one * value);
        };
        ASSERT_EQ(from_double(middle), even | sign) << pattern;
        // So near the middle that rounding through float alone would land in it.
        ASSERT_EQ(from_double(std::nextafter(middle, low)), pattern | sign) << pattern;
        ASSERT_EQ(from_double(std::nextafter(middle, high)), (pattern + 1) | sign) << pattern;
        const auto single = static_cast<float>(signed_one * middle);
        if (static_cast<double>(single) != signed_one * middle) continue;  // below float's least
        ASSERT_EQ(narrow(PARALLAX_F32, format.dtype, single), even | sign);
        ASSERT_EQ(narrow(PARALLAX_F32, format.dtype, std::nextafter(single, 0.0f)), pattern | sign);
      }
    }
    const double largest = value_of(format, infinity - 1);
    const double step = largest - value_of(format, infinity - 2);
    EXPECT_EQ(narrow(PARALLAX_F64, format.dtype, largest + step / 2), infinity);
    EXPECT_EQ(narrow(PARALLAX_F64, format.dtype, std::nextafter(largest + step / 2, 0)),
              infinity - 1);
    EXPECT_EQ(narrow(PARALLAX_F64, format.dtype, 1e300), infinity);
    EXPECT_EQ(narrow(PARALLAX_F64, format.dtype, 1e-320), 0);
    EXPECT_EQ(narrow(PARALLAX_F32, format.dtype, -INFINITY), infinity | 0x8000u);
  }
}

#ifdef __FLT16_MANT_DIG__
__extension__ typedef _Float16 Float16;

TEST(Number, AgreesWithTheCompilersHalf) {
  SeededRandom random(3);
  for (int i = 0; i < 2'000'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random.next()));
    if (std::isnan(value)) continue;
    const auto want = std::bit_cast<uint16_t>(static_cast<Float16>(value));
    ASSERT_EQ(narrow(PARALLAX_F32, PARALLAX_F16, value), want) << std::hexfloat << value;
  }
  for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const auto half = std::bit_cast<Float16>(static_cast<uint16_t>(pattern));
    const float want = half;
    if (std::isnan(want)) continue;
    ASSERT_EQ(widen(Half{static_cast<uint16_t>(pattern)}), want);
  }
}
#endif

TEST(Number, WhatCanBeConverted) {
  EXPECT_TRUE(convertible(PARALLAX_F64, PARALLAX_BF16));
  EXPECT_TRUE(convertible(PARALLAX_I64, PARALLAX_I64));
  EXPECT_FALSE(convertible(PARALLAX_I32, PARALLAX_I64));
  EXPECT_FALSE(convertible(PARALLAX_F32, PARALLAX_I32));
  EXPECT_EQ(converter(PARALLAX_F16, PARALLAX_F16), nullptr) << "bytes as they are";
}

TEST(Number, IntegersWrap) {
  EXPECT_EQ(plus(INT32_MAX, int32_t{1}), INT32_MIN);
  EXPECT_EQ(plus(INT64_MIN, int64_t{-1}), INT64_MAX);
}

// What a sentence, a check or a command line says of dtypes is what parallax.h has.
TEST(Dtypes, FollowFromOneTable) {
  EXPECT_EQ(dtype_constants(is_dtype, "and"), "F32, F64, F16, BF16, I32 and I64");
  EXPECT_EQ(dtype_constants(is_floating, "or"), "F32, F64, F16 or BF16");
  EXPECT_TRUE(is_dtype(PARALLAX_I64));
  EXPECT_FALSE(is_dtype(PARALLAX_I64 + 1));
  EXPECT_STREQ(dtype_name(PARALLAX_I64 + 1), "unknown");
  struct Row {
    uint32_t dtype;
    const char* name;
    uint32_t bytes;
    SumType sum;
    bool floating;
  };
  const Row rows[] = {{PARALLAX_F32, "f32", 4, SumType::kF32, true},
                      {PARALLAX_F64, "f64", 8, SumType::kF64, true},
                      {PARALLAX_F16, "f16", 2, SumType::kF32, true},
                      {PARALLAX_BF16, "bf16", 2, SumType::kF32, true},
                      {PARALLAX_I32, "i32", 4, SumType::kI32, false},
                      {PARALLAX_I64, "i64", 8, SumType::kI64, false}};
  ASSERT_EQ(std::size(rows), kDtypeCount);
  for (const Row& row : rows) {
    EXPECT_STREQ(dtype_name(row.dtype), row.name);
    EXPECT_EQ(bytes_of_dtype(row.dtype), row.bytes) << row.name;
    EXPECT_EQ(sum_type_of(row.dtype), row.sum) << row.name;
    EXPECT_EQ(is_floating(row.dtype), row.floating) << row.name;
  }
}

}  // namespace
}  // namespace parallax
