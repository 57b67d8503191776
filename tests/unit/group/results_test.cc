// SPDX-License-Identifier: Apache-2.0
// What a reduce hands back, from sums that are written down here.
#include "group/results.h"

#include <gtest/gtest.h>

#include <cstring>
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
    results_.give(runtime(variable), whole, {.ids = {}}, &rows_);
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
  results_.give(runtime(kDense), whole_of(sums), slice_into(&same), nullptr);
  EXPECT_EQ(same, sums);
  std::vector<double> wider(4);
  results_.give(runtime(kDense), whole_of(sums), slice_into(&wider, PARALLAX_F64), nullptr);
  EXPECT_EQ(wider, (std::vector<double>{1, 2.5, 3, -4}));
}

TEST_F(ResultsTest, AMeanIsDividedByTheWorld) {
  const std::vector<float> sums = {1, 2.5f, 3, -4};
  std::vector<float> means(4);
  results_.give(runtime(kMean), whole_of(sums), slice_into(&means), nullptr);
  EXPECT_EQ(means, (std::vector<float>{0.5f, 1.25f, 1.5f, -2}));
}

// Given a sum that the exchange has put into the caller's buffer, expect that a mean is made of it
// there, and that a plain sum stays.
TEST_F(ResultsTest, ASumThatIsInPlaceStays) {
  std::vector<float> values = {1, 2.5f, 3, -4};
  results_.give(runtime(kDense), whole_of(values), slice_into(&values), nullptr);
  EXPECT_EQ(values, (std::vector<float>{1, 2.5f, 3, -4}));
  results_.give(runtime(kMean), whole_of(values), slice_into(&values), nullptr);
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
  results_.give(runtime(kRows), whole, slice, &rows_);
  EXPECT_EQ(values, (std::vector<float>{0, 10, 1, 11, 2, 12, 3, 13, 4, 14}));
  EXPECT_TRUE(rows_.ids.empty());
}

TEST_F(ResultsTest, RoomIsMadeForTheLargestUnion) {
  const Variable& few = *runtime(kRowMeans).variable;  // 2 of 5 rows in one slice
  EXPECT_EQ(results_.most_rows(few), 4u);
  EXPECT_EQ(results_.most_rows(*runtime(kRows).variable), 5u);
  results_.reserve(few, PARALLAX_F64, &rows_);
  EXPECT_GE(rows_.ids.capacity(), 4u);
  EXPECT_GE(rows_.values.capacity(), 4 * 2 * sizeof(double));
  RowsResult none;
  results_.reserve(*runtime(kDense).variable, PARALLAX_F32, &none);
  EXPECT_EQ(none.ids.capacity(), 0u);
}

}  // namespace
}  // namespace parallax::testkit
