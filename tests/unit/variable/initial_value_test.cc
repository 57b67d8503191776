// SPDX-License-Identifier: Apache-2.0
// Initial values: vectors of the formulas that a program in Python made from the text of parallax.h
// (initial_value_vectors.py), and the distributions of a million draws. What is drawn is the same
// on every machine, so no test here can fail by chance.
#include "variable/initial_value.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/sanitizers.h"

namespace parallax {
namespace {

// Vectors computed from the formula of parallax.h by a Python program.
TEST(InitialValue, FollowsTheFormula) {
  Variable variable;
  variable.init = PARALLAX_INIT_UNIFORM;
  variable.init_low = -1;
  variable.init_high = 2;
  struct Vector {
    uint64_t seed, row, column;
    float value;
  };
  const Vector vectors[] = {
      {0u, 0u, 0u, -0x1.3cdbd00000000p-3f},
      {0u, 0u, 1u, 0x1.bf90380000000p+0f},
      {0u, 1u, 0u, 0x1.685bf80000000p+0f},
      {7u, 3u, 5u, -0x1.d5e9f80000000p-3f},
      {123456789u, 793469u, 511u, 0x1.d815e40000000p+0f},
      {18446744073709551615u, 4294967294u, 0u, 0x1.231ed00000000p-3f},
      {42u, 2u, 1048575u, 0x1.5893b00000000p-1f},
  };
  for (const Vector& vector : vectors) {
    variable.init_seed = vector.seed;
    EXPECT_EQ(initial_value(variable, vector.row, vector.column), vector.value)
        << vector.seed << " " << vector.row << " " << vector.column;
  }
}

TEST(InitialValue, ConstantIsLow) {
  Variable variable;
  variable.init_low = 0.25f;
  variable.init_high = 9;
  EXPECT_EQ(initial_value(variable, 3, 4), 0.25f);
}

TEST(InitialValue, UniformFillsItsInterval) {
  Variable variable;
  variable.init = PARALLAX_INIT_UNIFORM;
  variable.init_low = 1;
  variable.init_high = 3;
  double sum = 0;
  for (uint64_t row = 0; row < 100; ++row) {
    for (uint64_t column = 0; column < 100; ++column) {
      const float value = initial_value(variable, row, column);
      ASSERT_GE(value, 1);
      ASSERT_LE(value, 3);
      sum += value;
    }
  }
  EXPECT_NEAR(sum / 10000, 2, 0.03);
}

Variable normal_of(uint32_t init, float mean, float std, uint64_t seed) {
  Variable variable;
  variable.init = init;
  variable.init_mean = mean;
  variable.init_std = std;
  variable.init_seed = seed;
  return variable;
}

TEST(InitialValue, NormalsFollowTheFormula) {
  struct Vector {
    uint64_t seed, row, column;
    double normal, truncated;
  };
  const Vector vectors[] = {
      {0u, 0u, 0u, -0x1.27bd70e1fd098p-1, -0x1.18ce89a3f4aa3p-1},
      {0u, 0u, 1u, 0x1.611982623249dp+0, 0x1.43fc1372d085bp+0},
      {0u, 1u, 0u, 0x1.b397ff7247bd8p-1, 0x1.9abb9c4d3e413p-1},
      {7u, 3u, 5u, -0x1.4e6179ddd6541p-1, -0x1.3cff688d7386ep-1},
      {123456789u, 793469u, 511u, 0x1.a0434fac00e59p+0, 0x1.755d6c43f6836p+0},
      {18446744073709551615u, 4294967294u, 0u, -0x1.36e2f82c172fap-2, -0x1.285454ae310f1p-2},
      {42u, 2u, 1048575u, 0x1.2913ec14d973bp-3, 0x1.1b78d1d5a4236p-3},
      {1u, 607203u, 0u, -0x1.4f826c8e0a865p+2, -0x1.ffffe87c62649p+0},
      {1u, 944308u, 0u, 0x1.2a7daae1b458cp+2, 0x1.fffe33eb9a627p+0},
  };
  for (const Vector& vector : vectors) {
    const Variable normal = normal_of(PARALLAX_INIT_NORMAL, 0, 1, vector.seed);
    EXPECT_EQ(initial_value(normal, vector.row, vector.column), vector.normal);
    const Variable truncated = normal_of(PARALLAX_INIT_TRUNCATED_NORMAL, 0, 1, vector.seed);
    EXPECT_EQ(initial_value(truncated, vector.row, vector.column), vector.truncated);
    const Variable placed = normal_of(PARALLAX_INIT_NORMAL, 3, 0.5f, vector.seed);
    EXPECT_EQ(initial_value(placed, vector.row, vector.column), 3 + 0.5 * vector.normal);
  }
}

TEST(InitialValue, QuantilesOfEveryBranch) {
  struct Vector {
    double centred, quantile;
  };
  const Vector vectors[] = {
      {0x1.0000000000000p-53, 0x1.40d931ff62707p-52},
      {0x1.0000000000000p-2, 0x1.5956b87528a49p-1},
      {0x1.b333333333333p-2, 0x1.7085226d3e523p+0},  // the last of the centre
      {0x1.b333333333335p-2, 0x1.7085226d3e526p+0},  // the first of the tail
      {0x1.e872b020c49bap-2, 0x1.fed21891d3f72p+0},
      {0x1.ffffffffd4050p-2, 0x1.ad2f7bb1cbde9p+2},  // of the far tail
      {0x1.ffffffffffffep-2, 0x1.06b48528cea51p+3},  // the farthest that is drawn
      {0x1.e8b4307d36278p-2, 0x1.ffffffffffff7p+0},  // and of a truncated one: below 2
  };
  for (const Vector& vector : vectors) {
    EXPECT_EQ(normal_quantile(vector.centred), vector.quantile) << vector.centred;
    EXPECT_EQ(normal_quantile(-vector.centred), -vector.quantile) << vector.centred;
  }
}

// Rows are filled as their elements are computed one by one, wherever a piece begins.
TEST(InitialValue, ARowIsItsElements) {
  for (uint32_t init = PARALLAX_INIT_CONSTANT; init <= PARALLAX_INIT_TRUNCATED_NORMAL; ++init) {
    Variable variable = normal_of(init, 1, 2, 9);
    variable.init_low = 3;
    variable.init_high = 5;
    for (const uint64_t first : {0u, 1u, 1000u}) {
      std::vector<float> narrow(37);
      std::vector<double> wide(37);
      fill_initial(variable, 4, first, std::span(narrow));
      fill_initial(variable, 4, first, std::span(wide));
      for (size_t i = 0; i < wide.size(); ++i) {
        ASSERT_EQ(wide[i], initial_value(variable, 4, first + i)) << kInitNames[init];
        ASSERT_EQ(narrow[i], static_cast<float>(wide[i]));
      }
    }
  }
}

TEST(InitialValue, WithoutDeviationAllAreTheMean) {
  for (const uint32_t init : {PARALLAX_INIT_NORMAL, PARALLAX_INIT_TRUNCATED_NORMAL}) {
    const Variable variable = normal_of(init, -0.75f, 0, 3);
    for (uint64_t column = 0; column < 1000; ++column) {
      ASSERT_EQ(initial_value(variable, 7, column), -0.75);
    }
  }
}

// P(Z < z).
double normal_below(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

struct Draws {
  std::vector<double> sorted;
  double mean = 0, deviation = 0, skew = 0, kurtosis = 0;

  explicit Draws(const Variable& variable) {
    constexpr uint64_t kRows = 1000;
    const uint64_t columns = testkit::kThreadSanitizer ? 100 : 1000;
    for (uint64_t row = 0; row < kRows; ++row) {
      for (uint64_t column = 0; column < columns; ++column) {
        sorted.push_back(initial_value(variable, row, column));
      }
    }
    std::sort(sorted.begin(), sorted.end());
    const auto count = static_cast<double>(sorted.size());
    for (const double each : sorted) mean += each / count;
    double powers[5] = {};
    for (const double each : sorted) {
      for (int power = 2; power <= 4; ++power)
        powers[power] += std::pow(each - mean, power) / count;
    }
    deviation = std::sqrt(powers[2]);
    skew = powers[3] / std::pow(deviation, 3);
    kurtosis = powers[4] / std::pow(deviation, 4);
  }
  // The largest distance of their distribution from another (Kolmogorov and Smirnov), times the
  // root of their number: above 1.63 in one sample of a hundred.
  template <typename Below>
  double distance(Below below) const {
    const auto count = static_cast<double>(sorted.size());
    double most = 0;
    for (size_t i = 0; i < sorted.size(); ++i) {
      const double want = below(sorted[i]);
      most = std::max(
          {most, want - static_cast<double>(i) / count, static_cast<double>(i + 1) / count - want});
    }
    return most * std::sqrt(count);
  }
  double at(double fraction) const {
    return sorted[static_cast<size_t>(fraction * static_cast<double>(sorted.size() - 1))];
  }
};

TEST(InitialValue, AMillionNormals) {
  for (const uint64_t seed : {0u, 1u, 77u}) {
    const Draws draws(normal_of(PARALLAX_INIT_NORMAL, 2, 0.5f, seed));
    const double wider = std::sqrt(1e6 / static_cast<double>(draws.sorted.size()));
    EXPECT_NEAR(draws.mean, 2, 0.002 * wider) << seed;
    EXPECT_NEAR(draws.deviation, 0.5, 0.0015 * wider) << seed;
    EXPECT_NEAR(draws.skew, 0, 0.01 * wider) << seed;
    EXPECT_NEAR(draws.kurtosis, 3, 0.02 * wider) << seed;
    EXPECT_LT(draws.distance([](double x) { return normal_below((x - 2) / 0.5); }), 1.63) << seed;
    // Both tails are there: of a million, the outermost lie 4.3 to 6 deviations away.
    EXPECT_LT(draws.sorted.front(), 2 - 0.5 * 3.7) << seed;
    EXPECT_GT(draws.sorted.back(), 2 + 0.5 * 3.7) << seed;
    EXPECT_NEAR(draws.at(0.001), 2 - 0.5 * 3.0902, 0.02 * wider) << seed;
    EXPECT_NEAR(draws.at(0.999), 2 + 0.5 * 3.0902, 0.02 * wider) << seed;
  }
}

// The distribution of tf.keras' TruncatedNormal and of torch's trunc_normal_ from two deviations
// below the mean to two above, whose own deviation is 0.8796 of the one it is cut from.
TEST(InitialValue, AMillionTruncatedNormals) {
  for (const uint64_t seed : {0u, 1u, 77u}) {
    const Draws draws(normal_of(PARALLAX_INIT_TRUNCATED_NORMAL, -1, 2, seed));
    const double wider = std::sqrt(1e6 / static_cast<double>(draws.sorted.size()));
    EXPECT_GE(draws.sorted.front(), -5) << seed;
    EXPECT_LE(draws.sorted.back(), 3) << seed;
    EXPECT_LT(draws.sorted.front(), -4.99) << seed;
    EXPECT_GT(draws.sorted.back(), 2.99) << seed;
    EXPECT_NEAR(draws.mean, -1, 0.006 * wider) << seed;
    EXPECT_NEAR(draws.deviation, 2 * 0.8796257, 0.004 * wider) << seed;
    const double least = normal_below(-2);
    EXPECT_LT(draws.distance([least](double x) {
      return (normal_below((x + 1) / 2) - least) / (1 - 2 * least);
    }),
              1.63)
        << seed;
  }
}

}  // namespace
}  // namespace parallax
