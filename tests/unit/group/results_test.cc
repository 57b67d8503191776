// SPDX-License-Identifier: Apache-2.0
// What a reduce hands back, from sums that are written down here.
#include "group/results.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "unit/group/group_world.h"

namespace parallax::testkit {
namespace {

constexpr uint32_t kWorld = 2;

Variable with_reduction(Variable variable, uint32_t reduction) {
  variable.reduction = reduction;
  return variable;
}

// What a reduction leaves, as an exchange tells it.
ReducedGradient whole_of(const std::vector<float>& values) {
  ReducedGradient whole;
  whole.contributed = whole.has_values = true;
  whole.values = reinterpret_cast<const std::byte*>(values.data());
  return whole;
}

template <typename T>
PullSlice slice_into(std::vector<T>* values, uint32_t dtype = PARALLAX_F32) {
  auto* bytes = reinterpret_cast<std::byte*>(values->data());
  return {.ids = {}, .values = bytes, .into = bytes, .dtype = dtype};
}

class ResultsTest : public testing::Test {
 protected:
  enum : uint32_t { kDense, kMean, kRows, kRowMeans };

  void SetUp() override { ASSERT_TRUE(world_.build().ok()); }
  const VariableRuntime& runtime(uint32_t variable) { return world_[0].group.runtime(variable); }
  uint32_t row_key_of(uint32_t variable, uint64_t row) {
    return runtime(variable).partition.row_key_of(row);
  }
  // The union that a slice of rows gets.
  std::vector<float> give_rows(uint32_t variable, const ReducedGradient& whole) {
    results_.give(runtime(variable), 1, whole, {.ids = {}}, &rows_);
    std::vector<float> values(rows_.values.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), rows_.values.data(), rows_.values.size());
    return values;
  }

  GroupWorld world_{
      {0, 1},
      {held("dense", 2), with_reduction(held("mean", 2), PARALLAX_MEAN_WORLD), held("rows", 5, 5),
       with_reduction(held("row means", 5, 2), PARALLAX_MEAN_ROW)}};
  Results results_{kWorld};
  RowsResult rows_;
};

TEST_F(ResultsTest, ADenseSumComesAsTheDtypeThatIsAskedFor) {
  const std::vector<float> sums = {1, 2.5f, 3, -4};
  std::vector<float> same(4);
  results_.give(runtime(kDense), 1, whole_of(sums), slice_into(&same), nullptr);
  EXPECT_EQ(same, sums);
  std::vector<double> wider(4);
  results_.give(runtime(kDense), 1, whole_of(sums), slice_into(&wider, PARALLAX_F64), nullptr);
  EXPECT_EQ(wider, (std::vector<double>{1, 2.5, 3, -4}));
}

TEST_F(ResultsTest, AMeanIsDividedByTheWorld) {
  const std::vector<float> sums = {1, 2.5f, 3, -4};
  std::vector<float> means(4);
  results_.give(runtime(kMean), 1, whole_of(sums), slice_into(&means), nullptr);
  EXPECT_EQ(means, (std::vector<float>{0.5f, 1.25f, 1.5f, -2}));
}

// Given a sum that the exchange has put into the caller's buffer, expect that a mean is made of it
// there, and that a plain sum stays.
TEST_F(ResultsTest, ASumThatIsInPlaceStays) {
  std::vector<float> values = {1, 2.5f, 3, -4};
  results_.give(runtime(kDense), 1, whole_of(values), slice_into(&values), nullptr);
  EXPECT_EQ(values, (std::vector<float>{1, 2.5f, 3, -4}));
  results_.give(runtime(kMean), 1, whole_of(values), slice_into(&values), nullptr);
  EXPECT_EQ(values, (std::vector<float>{0.5f, 1.25f, 1.5f, -2}));
}

TEST_F(ResultsTest, RowsComeByAscendingIds) {
  const std::vector<float> sums = {40, 41, 0, 1, 20, 21};
  const std::vector<uint32_t> row_keys = {row_key_of(kRows, 4), row_key_of(kRows, 0),
                                          row_key_of(kRows, 2)};
  ReducedGradient whole = whole_of(sums);
  whole.rows = true;
  whole.row_count = 3;
  whole.row_keys = row_keys.data();
  EXPECT_EQ(give_rows(kRows, whole), (std::vector<float>{0, 1, 20, 21, 40, 41}));
  EXPECT_EQ(rows_.ids, (std::vector<int64_t>{0, 2, 4}));
  // A step without any.
  whole.has_values = false;
  EXPECT_TRUE(give_rows(kRows, whole).empty());
  EXPECT_TRUE(rows_.ids.empty());
}

TEST_F(ResultsTest, RowsOfASumOfAllElementsAreThoseThatSomebodyGave) {
  std::vector<float> sums(10, -0.0f);
  for (const uint64_t row : {1, 3}) {
    sums[2 * row_key_of(kRows, row)] = static_cast<float>(row);
    sums[2 * row_key_of(kRows, row) + 1] = 0;
  }
  EXPECT_EQ(give_rows(kRows, whole_of(sums)), (std::vector<float>{1, 0, 3, 0}));
  EXPECT_EQ(rows_.ids, (std::vector<int64_t>{1, 3}));
}

TEST_F(ResultsTest, ARowMeanIsDividedByTheRanksThatGaveTheRow) {
  const std::vector<float> sums = {6, 8, 2, 5, 7, 1};
  const std::vector<uint32_t> row_keys = {row_key_of(kRowMeans, 1), row_key_of(kRowMeans, 3)};
  ReducedGradient whole = whole_of(sums);
  whole.rows = whole.counted = true;
  whole.row_count = 2;
  whole.row_keys = row_keys.data();
  whole.row_elements = 3;
  EXPECT_EQ(give_rows(kRowMeans, whole), (std::vector<float>{3, 4, 5, 7}));
}

// Given more rows than are sorted by comparisons, and a mean, as another dtype too, expect each
// row in its place, divided.
TEST(Results, ManyRowsAreSortedAndDivided) {
  constexpr uint64_t kRows = 5000;
  GroupWorld world({0, 1}, {with_reduction(held("rows", kRows, kRows), PARALLAX_MEAN_WORLD)});
  ASSERT_TRUE(world.build().ok());
  const VariableRuntime& runtime = world[0].group.runtime(0);
  for (const uint64_t step : {1, 3}) {  // every row, and every third
    std::vector<float> sums;
    std::vector<uint32_t> row_keys;
    for (uint64_t i = 0; i < kRows; i += step) {
      const uint64_t row = kRows - 1 - i;
      row_keys.push_back(runtime.partition.row_key_of(row));
      sums.insert(sums.end(), {static_cast<float>(row), 1});
    }
    ReducedGradient whole = whole_of(sums);
    whole.rows = true;
    whole.row_count = static_cast<uint32_t>(row_keys.size());
    whole.row_keys = row_keys.data();
    for (const uint32_t dtype : {PARALLAX_F32, PARALLAX_F64}) {
      Results results(kWorld);
      RowsResult rows;
      results.reserve(runtime, *runtime.variable, dtype, &rows);
      results.give(runtime, step, whole, {.ids = {}}, &rows);
      ASSERT_EQ(rows.ids.size(), row_keys.size());
      ASSERT_EQ(rows.values.size(), 2 * row_keys.size() * bytes_of_dtype(dtype));
      for (size_t i = 0; i < rows.ids.size(); ++i) {
        const uint64_t row = (kRows - 1) % step + i * step;
        ASSERT_EQ(rows.ids[i], static_cast<int64_t>(row));
        const auto number = [&](size_t at) {
          if (dtype == PARALLAX_F64) return reinterpret_cast<const double*>(rows.values.data())[at];
          return double{reinterpret_cast<const float*>(rows.values.data())[at]};
        };
        ASSERT_EQ(number(2 * i), static_cast<double>(row) / 2);
        ASSERT_EQ(number(2 * i + 1), 0.5);
      }
    }
  }
}

// Given fused tables, expect each slice to get the rows of its own, by its own ids, a dense one in
// its place; and of the next step that one's.
TEST(Results, OfFusedTablesEachGetsItsOwn) {
  std::deque<Variable> tables;
  std::vector<const Variable*> all;
  for (uint32_t i = 0; i < kFusedMin; ++i) {
    tables.push_back(held("table" + std::to_string(i), 3, 3));
    tables.back().fuse_tables = true;
    all.push_back(&tables.back());
  }
  const std::deque<FusedTables> sets = fuse_tables(all);
  ASSERT_EQ(sets.size(), 1u);
  GroupWorld world({0, 1}, {sets[0].whole});
  ASSERT_TRUE(world.build().ok());
  const VariableRuntime& runtime = world[0].group.runtime(0);
  Results results(kWorld);
  RowsResult rows;
  for (const uint64_t step : {1, 2}) {
    std::vector<float> sums;
    std::vector<uint32_t> row_keys;
    // Of table 0 nothing, of 1 its last row, of the others all.
    for (const uint64_t row : {11, 5, 6, 10, 9, 8, 7}) {
      row_keys.push_back(runtime.partition.row_key_of(row));
      sums.insert(sums.end(), {static_cast<float>(step * row), 1});
    }
    ReducedGradient whole = whole_of(sums);
    whole.rows = true;
    whole.row_count = static_cast<uint32_t>(row_keys.size());
    whole.row_keys = row_keys.data();
    const std::vector<std::vector<int64_t>> want = {{}, {2}, {0, 1, 2}, {0, 1, 2}};
    const int64_t some_id = 0;
    for (uint32_t table = 0; table < kFusedMin; ++table) {
      results.reserve(runtime, tables[table], PARALLAX_F32, &rows);
      const PullSlice slice = {.member = table, .ids = {.wide = &some_id}, .count = 1};
      results.give(runtime, step, whole, slice, &rows);
      EXPECT_EQ(rows.ids, want[table]);
      ASSERT_EQ(rows.values.size(), 2 * rows.ids.size() * sizeof(float));
      for (size_t i = 0; i < rows.ids.size(); ++i) {
        EXPECT_EQ(reinterpret_cast<const float*>(rows.values.data())[2 * i],
                  static_cast<float>(step * (3 * table + static_cast<uint64_t>(rows.ids[i]))));
      }
    }
    std::vector<float> every(6);
    PullSlice slice = slice_into(&every);
    slice.member = 2;
    slice.count = 3;
    results.give(runtime, step, whole, slice, &rows);
    const auto at = static_cast<float>(step);
    EXPECT_EQ(every, (std::vector<float>{6 * at, 1, 7 * at, 1, 8 * at, 1}));
    // Some rows twice, as no honest rank has it: nothing behind the table's own is written.
    row_keys[0] = row_keys[3] = row_keys[6];
    every.resize(8, -1);
    slice.values = slice.into = reinterpret_cast<std::byte*>(every.data());
    Results others(kWorld);
    others.reserve(runtime, tables[2], PARALLAX_F32, &rows);
    others.give(runtime, step, whole, slice, &rows);
    EXPECT_EQ(every[6], -1);
    EXPECT_EQ(every[7], -1);
  }
}

TEST_F(ResultsTest, EveryRowComesToItsPlace) {
  std::vector<float> sums;
  std::vector<uint32_t> row_keys;
  for (const uint64_t row : {3, 0, 4, 1, 2}) {
    row_keys.push_back(row_key_of(kRows, row));
    sums.insert(sums.end(), {static_cast<float>(row), 10 + static_cast<float>(row)});
  }
  ReducedGradient whole = whole_of(sums);
  whole.rows = true;
  whole.row_count = 5;
  whole.row_keys = row_keys.data();
  std::vector<float> values(10);
  PullSlice slice = slice_into(&values);
  slice.every_row = true;
  results_.give(runtime(kRows), 1, whole, slice, &rows_);
  EXPECT_EQ(values, (std::vector<float>{0, 10, 1, 11, 2, 12, 3, 13, 4, 14}));
  EXPECT_TRUE(rows_.ids.empty());
}

TEST_F(ResultsTest, RoomIsMadeForTheLargestUnion) {
  const Variable& few = *runtime(kRowMeans).variable;  // 2 of 5 rows in one slice
  EXPECT_EQ(results_.most_rows(few), 4u);
  EXPECT_EQ(results_.most_rows(*runtime(kRows).variable), 5u);
  results_.reserve(runtime(kRowMeans), few, PARALLAX_F64, &rows_);
  EXPECT_GE(rows_.ids.capacity(), 4u);
  EXPECT_GE(rows_.values.capacity(), 4 * 2 * sizeof(double));
  RowsResult none;
  results_.reserve(runtime(kDense), *runtime(kDense).variable, PARALLAX_F32, &none);
  EXPECT_EQ(none.ids.capacity(), 0u);
}

}  // namespace
}  // namespace parallax::testkit
