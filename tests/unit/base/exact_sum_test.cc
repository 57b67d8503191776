// SPDX-License-Identifier: Apache-2.0
// The exact sum against two independent references: vectors summed as rational numbers by Python's
// fractions and rounded once, and Shewchuk's expansions (the algorithm of math.fsum).
#include "base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace parallax {
namespace {

using Terms = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kDenormMin = std::numeric_limits<double>::denorm_min();

double sum_of(const Terms& terms) {
  ExactSum sum;
  for (const double term : terms) sum.add(term);
  return sum.value();
}

// Shewchuk 1997, as in CPython's math.fsum: partials that do not overlap, rounded half to even.
double shewchuk(const Terms& terms) {
  std::vector<double> partials;
  for (double x : terms) {
    size_t kept = 0;
    for (double y : partials) {
      if (std::fabs(x) < std::fabs(y)) std::swap(x, y);
      const double high = x + y;
      const double low = y - (high - x);
      if (low != 0) partials[kept++] = low;
      x = high;
    }
    partials.resize(kept);
    partials.push_back(x);
  }
  size_t n = partials.size();
  if (n == 0) return 0;
  double high = partials[--n];
  double low = 0;
  while (n > 0) {
    const double x = high;
    const double y = partials[--n];
    high = x + y;
    low = y - (high - x);
    if (low != 0) break;
  }
  if (n > 0 && ((low < 0 && partials[n - 1] < 0) || (low > 0 && partials[n - 1] > 0))) {
    const double twice = low * 2;
    const double rounded = high + twice;
    if (twice == rounded - high) high = rounded;
  }
  return high;
}

TEST(ExactSum, NothingIsZero) {
  EXPECT_EQ(std::bit_cast<uint64_t>(ExactSum().value()), 0u);
  EXPECT_TRUE(ExactSum().zero());
  EXPECT_EQ(std::bit_cast<uint64_t>(sum_of({0.0, -0.0, 0.0})), 0u);
  ExactSum one;
  one.add(kDenormMin);
  EXPECT_FALSE(one.zero());
}

TEST(ExactSum, OneTermComesBackWhateverItsExponent) {
  for (int exponent = -1074; exponent < 1024; ++exponent) {
    const double power = std::ldexp(1.0, exponent);
    EXPECT_EQ(sum_of({power}), power) << exponent;
    const double ones = std::ldexp(0x1.fffffffffffffp0, exponent);
    EXPECT_EQ(sum_of({ones}), ones) << exponent;
  }
  EXPECT_EQ(sum_of({kMax}), kMax);
}

// Sums by Python: float(sum(Fraction(x) for x in terms)), which rounds half to even.
TEST(ExactSum, RoundsOnceToNearestEven) {
  EXPECT_EQ(sum_of({1.0, 0x1p-53}), 1.0) << "a tie goes to even, down";
  EXPECT_EQ(sum_of({0x1.0000000000001p0, 0x1p-53}), 0x1.0000000000002p0) << "and up";
  EXPECT_EQ(sum_of({1.0, 0x1p-53, kDenormMin}), 0x1.0000000000001p0) << "beyond the tie";
  EXPECT_EQ(sum_of({1.0, 0x1p-54, 0x1p-54, 0x1p-1000}), 0x1.0000000000001p0);
  EXPECT_EQ(sum_of({1.0, 0x1.fffffffffffffp-54}), 1.0) << "just below the tie";
  EXPECT_EQ(sum_of({0x1p100, 1.0, 0x1p-100}), 0x1p100);
  EXPECT_EQ(sum_of({0.1, 0.2, 0.3}), 0x1.3333333333333p-1) << "0.6, not 0.6000000000000001";
  EXPECT_EQ(sum_of(Terms(10, 0.1)), 1.0);
  EXPECT_EQ(sum_of(Terms(3000000, 0.1)), 300000.0 + 0x1p-34 * 0) << "carries";
}

TEST(ExactSum, Subnormals) {
  EXPECT_EQ(sum_of({kDenormMin, kDenormMin}), 2 * kDenormMin);
  EXPECT_EQ(sum_of(Terms(1000, kDenormMin)), 1000 * kDenormMin);
  const double largest = 0x0.fffffffffffffp-1022;
  EXPECT_EQ(sum_of({largest, kDenormMin}), 0x1p-1022) << "into the normal numbers";
  EXPECT_EQ(sum_of({largest, largest}), 2 * largest);
}

TEST(ExactSum, Overflow) {
  EXPECT_EQ(sum_of({kMax, kMax}), kInfinity);
  EXPECT_EQ(sum_of({kMax, 0x1p969}), kMax) << "less than half an ulp above";
  EXPECT_EQ(sum_of({kMax, 0x1p970}), kInfinity) << "half an ulp above is a tie, to even";
  EXPECT_EQ(sum_of(Terms(100000, kMax)), kInfinity);
}

TEST(ExactSum, InfinityAndNan) {
  EXPECT_EQ(sum_of({1.0, kInfinity, 2.0}), kInfinity);
  EXPECT_TRUE(std::isnan(sum_of({1.0, kNan})));
  EXPECT_TRUE(std::isnan(sum_of({kInfinity, kNan})));
  ExactSum infinite;
  infinite.add(kInfinity);
  EXPECT_FALSE(infinite.zero());
  ExactSum total;
  total.add(1.0);
  total.add(infinite);
  EXPECT_EQ(total.value(), kInfinity) << "through the sum of sums";
}

// Given random terms in a range of exponents, expect Shewchuk's sum, in any order and grouping.
TEST(ExactSum, AgreesWithShewchukInAnyOrder) {
  std::mt19937_64 random(42);
  for (int round = 0; round < 400; ++round) {
    const int low = static_cast<int>(random() % 2000) - 1040;
    const int spread = static_cast<int>(random() % 120) + 1;
    Terms terms(1 + random() % 60);
    for (double& term : terms) {
      const int exponent = std::min(low + static_cast<int>(random()) % spread, 1000);
      term = std::ldexp(static_cast<double>(random() >> 11), exponent - 53);
    }
    const double want = shewchuk(terms);
    ASSERT_EQ(sum_of(terms), want) << "round " << round;
    std::shuffle(terms.begin(), terms.end(), random);
    ASSERT_EQ(sum_of(terms), want) << "round " << round << ", shuffled";
    std::vector<ExactSum> parts(1 + random() % 5);
    for (const double term : terms) parts[random() % parts.size()].add(term);
    ExactSum total;
    for (const ExactSum& part : parts) total.add(part);
    ASSERT_EQ(total.value(), want) << "round " << round << ", in parts";
  }
}

// The bound of the limbs: the carries of many parts of many terms.
TEST(ExactSum, ManyTermsByDoubling) {
  ExactSum sum;
  sum.add(0x1.fffffffffffffp0);
  for (int doubled = 0; doubled < 30; ++doubled) {
    const ExactSum same = sum;
    sum.add(same);
    EXPECT_EQ(sum.value(), std::ldexp(0x1.fffffffffffffp0, doubled + 1));
  }
}

__extension__ typedef __float128 Wide;  // holds the square of a double exactly

TEST(ExactSum, SquaresOfDoublesAreExact) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 2000; ++round) {
    ExactSum sum;
    Wide want = 0;
    for (int i = 0; i < 40; ++i) {
      // 34 digits within a few powers of two: the wide sum is exact too.
      const double term = std::ldexp(static_cast<double>(random() >> 30),
                                     static_cast<int>(random() % 5) - 600 * (round % 2));
      sum.add_square(random() % 2 == 0 ? term : -term);
      want += static_cast<Wide>(term) * static_cast<Wide>(term);
      if (i % 7 == 0) sum.carry();
    }
    ASSERT_EQ(sum.value(), static_cast<double>(want)) << round;
  }
  ExactSum one;  // 1 + 2^-104 + ... is rounded once, where products rounded one by one lose a bit
  const double term = 1 + 0x1p-52;
  one.add_square(term);
  one.add(0x1p-53);
  EXPECT_EQ(one.value(), static_cast<double>(static_cast<Wide>(term) * static_cast<Wide>(term) +
                                             static_cast<Wide>(0x1p-53)));
}

TEST(ExactSum, SquaresBeyondTheRangeOfDouble) {
  const auto square = [](double term) {
    ExactSum sum;
    sum.add_square(term);
    return sum.value();
  };
  EXPECT_EQ(square(1e200), kInfinity);
  EXPECT_EQ(square(-kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(square(kNan)));
  EXPECT_EQ(square(1e-200), 0);
  EXPECT_EQ(square(-0.0), 0);
  EXPECT_EQ(square(0x1.8p-520), 0x1.8p-520 * 0x1.8p-520);
  EXPECT_EQ(square(0x1.fffffp511), 0x1.fffffp511 * 0x1.fffffp511);
}

TEST(ExactSum, CarryKeepsTheSum) {
  ExactSum sum;
  for (int i = 0; i < 1000; ++i) {
    sum.add(kMax / 2048);
    sum.add(kDenormMin);
    sum.carry();
  }
  ExactSum plain;
  for (int i = 0; i < 1000; ++i) plain.add(kMax / 2048);
  for (int i = 0; i < 1000; ++i) plain.add(kDenormMin);
  EXPECT_EQ(sum.value(), plain.value());
}

}  // namespace
}  // namespace parallax
