// SPDX-License-Identifier: Apache-2.0
#include "aggregate/step_sum.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

Variable variable_of(uint64_t rows, uint64_t width, uint64_t rows_max) {
  Variable variable;
  variable.rows = rows;
  variable.row_elements = width;
  variable.rows_max = rows_max;
  variable.accumulate = true;
  return variable;
}

RowSlice summand_of(const std::vector<int64_t>& ids, const std::vector<float>& values) {
  return {.ids = {.wide = ids.data()},
          .count = static_cast<uint32_t>(ids.size()),
          .values = {.rows = reinterpret_cast<const std::byte*>(values.data())}};
}

std::map<int64_t, std::vector<float>> rows_of(const StepSum& sum, uint64_t width) {
  std::map<int64_t, std::vector<float>> rows;
  const RowSlice slice = sum.rows();
  const auto* values = reinterpret_cast<const float*>(slice.values.rows);
  for (uint32_t i = 0; i < slice.count; ++i) {
    const bool fresh = rows.emplace(slice.ids.at(i), std::vector<float>(values + i * width,
                                                                        values + (i + 1) * width))
                           .second;
    EXPECT_TRUE(fresh) << "row " << slice.ids.at(i) << " twice";
  }
  return rows;
}

TEST(StepSum, SumsInTheOrderOfTheCallsUpToTheBound) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SeededRandom random(seed);
    const uint64_t rows = 1 + random.below(60), width = 1 + random.below(5);
    const uint64_t rows_max = 1 + random.below(80);
    StepSum sum(variable_of(rows, width, rows_max));
    ASSERT_TRUE(sum.reserve().ok());
    for (uint64_t step = 1; step <= 3; ++step) {
      sum.clear(step);
      std::map<int64_t, std::vector<float>> naive;
      for (uint64_t call = random.below(6); call > 0; --call) {
        std::vector<int64_t> ids(random.below(rows_max + 1));
        for (int64_t& id : ids) id = static_cast<int64_t>(random.below(rows + 1)) - 1;
        std::vector<float> values(ids.size() * width);
        for (float& value : values) value = static_cast<float>(random.unit() - 0.5);
        std::map<int64_t, std::vector<float>> after = naive;
        for (size_t i = 0; i < ids.size(); ++i) {
          if (ids[i] < 0) continue;
          std::vector<float>& row = after[ids[i]];
          row.resize(width, 0.0f);
          for (uint64_t k = 0; k < width; ++k) row[k] += values[i * width + k];
        }
        const RowSlice slice = summand_of(ids, values);
        const bool fits = after.size() <= rows_max;
        ASSERT_EQ(sum.fits({&slice, 1}), fits) << seed;
        ASSERT_EQ(rows_of(sum, width), naive) << seed << ": looking changed something";
        if (!fits) continue;
        sum.add_rows(slice);
        naive = after;
        ASSERT_EQ(rows_of(sum, width), naive) << seed;
      }
      EXPECT_EQ(sum.step(), step);
    }
  }
}

// Several slices fit as they would one behind the other, and none of them is added by asking.
TEST(StepSum, SeveralSlicesFitByTheirDistinctRows) {
  StepSum sum(variable_of(10, 1, 4));
  ASSERT_TRUE(sum.reserve().ok());
  sum.clear(1);
  const std::vector<float> values(4, 1.0f);
  const std::vector<int64_t> first = {1, 2, 1, -1}, same = {2, 1, 3, 3}, other = {4, 5, 5, 4};
  const RowSlice fitting[] = {summand_of(first, values), summand_of(same, values)};
  EXPECT_TRUE(sum.fits(fitting));
  const RowSlice three[] = {fitting[0], fitting[1], summand_of(other, values)};
  EXPECT_FALSE(sum.fits(three));
  EXPECT_EQ(sum.rows().count, 0u);
  sum.add_rows(fitting[0]);
  const RowSlice two[] = {summand_of(other, values), summand_of(same, values)};
  EXPECT_TRUE(sum.fits({two, 1}));
  EXPECT_FALSE(sum.fits(two));
  EXPECT_EQ(rows_of(sum, 1).size(), 2u);
}

TEST(StepSum, DenseInAnyDtype) {
  Variable variable = variable_of(2, 3, 0);
  variable.dtype = PARALLAX_F64;
  StepSum sum(variable);
  ASSERT_TRUE(sum.reserve().ok());
  const std::vector<float> first = {-0.0f, 1, 2, 3, 4, 5};
  const std::vector<double> second = {0.25, 1e-300, 0, 1, 1, 1};
  for (uint64_t step = 1; step <= 2; ++step) {
    sum.clear(step);
    sum.add_dense({reinterpret_cast<const std::byte*>(first.data()), PARALLAX_F32});
    sum.add_dense({reinterpret_cast<const std::byte*>(second.data()), PARALLAX_F64});
    ASSERT_EQ(sum.dense().dtype, uint32_t{PARALLAX_F64});
    const auto* got = reinterpret_cast<const double*>(sum.dense().rows);
    EXPECT_EQ(std::vector<double>(got, got + 6), (std::vector<double>{0.25, 1, 2, 4, 5, 6}));
  }
}

TEST(StepSum, ReservesWhatItSays) {
  const StepSum rows(variable_of(100, 8, 7)), dense(variable_of(100, 8, 0));
  EXPECT_GE(rows.needed_bytes(), 7u * 8 * 4);
  EXPECT_LT(rows.needed_bytes(), 4096u);
  EXPECT_GE(dense.needed_bytes(), 100u * 8 * 4);
}

}  // namespace
}  // namespace parallax
