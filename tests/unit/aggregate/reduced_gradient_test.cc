// SPDX-License-Identifier: Apache-2.0
// What a part of a sum counts for: its squared norm and its rows, against sums in plain doubles of
// numbers whose squares are exact.
#include "aggregate/reduced_gradient.h"

#include <gtest/gtest.h>

#include <vector>

#include "aggregate/accumulator.h"

namespace parallax {
namespace {

ReducedGradient part_of(const std::vector<float>& values) {
  ReducedGradient part;
  part.contributed = part.has_values = part.counts_once = true;
  part.values = reinterpret_cast<const std::byte*>(values.data());
  part.count = values.size();
  return part;
}

double squared_norm(const ReducedGradient& part) {
  ExactSum sum;
  add_squared_norm(part, &sum);
  return sum.value();
}

TEST(ReducedGradient, ElementsAreSquaredAndSummed) {
  const std::vector<float> values = {3, -4, 0.5f, 0};
  EXPECT_EQ(squared_norm(part_of(values)), 9 + 16 + 0.25);
  EXPECT_EQ(union_rows(part_of(values)), 0u) << "no variable of rows";
}

// Given a part that another rank counts, or one without values, or of integers, expect nothing.
TEST(ReducedGradient, NothingCountsTwice) {
  const std::vector<float> values = {1, 2};
  ReducedGradient part = part_of(values);
  part.by_rows = true;
  part.counts_once = false;
  EXPECT_EQ(squared_norm(part), 0);
  EXPECT_EQ(union_rows(part), 0u);
  part.counts_once = true;
  part.has_values = false;
  EXPECT_EQ(squared_norm(part), 0);
  EXPECT_EQ(union_rows(part), 0u);
  part.has_values = true;
  part.sum = SumType::kI32;
  EXPECT_EQ(squared_norm(part), 0);
}

// Given rows each of which lies in a place of its own, with a count or without, expect the norm of
// those one behind the other, to the bit.
TEST(ReducedGradient, RowsMayLieApart) {
  const std::vector<float> values = {0.1f, 0.7f, 2, 0.3f, 1e-3f, 1, 5e5f, 0.9f, 3};
  const std::vector<uint32_t> keys = {7, 2, 9};
  ReducedGradient part = part_of(values);
  part.rows = part.by_rows = true;
  part.row_count = 3;
  part.row_keys = keys.data();
  part.row_elements = 3;
  for (const bool counted : {false, true}) {
    part.counted = counted;
    ReducedGradient apart = part;
    std::vector<std::vector<float>> rows;
    std::vector<const std::byte*> places;
    for (size_t i = 0; i < 3; ++i) {
      rows.emplace_back(values.begin() + 3 * static_cast<ptrdiff_t>(i),
                        values.begin() + 3 * static_cast<ptrdiff_t>(i + 1));
      places.push_back(reinterpret_cast<const std::byte*>(rows.back().data()));
    }
    apart.values = nullptr;
    apart.places = places.data();
    EXPECT_EQ(squared_norm(apart), squared_norm(part));
    EXPECT_EQ(union_rows(apart), 3u);
    for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(apart.row(i), places[i]);
  }
}

TEST(ReducedGradient, RowsCountThemselves) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::vector<uint32_t> keys = {7, 2, 9};
  ReducedGradient part = part_of(values);
  part.count = 0;
  part.rows = part.by_rows = true;
  part.row_count = 3;
  part.row_keys = keys.data();
  part.row_elements = 2;
  EXPECT_EQ(squared_norm(part), 1 + 4 + 9 + 16 + 25 + 36);
  EXPECT_EQ(union_rows(part), 3u);
}

// Given rows that end in the number of ranks that gave them, expect the mean over those ranks: the
// count is no element, and divides the row before it is squared.
TEST(ReducedGradient, CountedRowsAreMeans) {
  const std::vector<float> values = {6, 8, 2, 3, 5, 1};
  ReducedGradient part = part_of(values);
  part.count = 0;
  part.rows = part.by_rows = part.counted = true;
  part.row_count = 2;
  part.row_elements = 3;
  EXPECT_EQ(squared_norm(part), 9 + 16 + 9 + 25);
}

// Given rows made dense of which some were given by nobody, expect those to count as nothing, and a
// row that adds up to zero to count as a row.
TEST(ReducedGradient, RowsThatNobodyGaveAreNone) {
  std::vector<float> values = {1, 2, 0, 0, 0, 0, 3, 4};
  fill_no_row(SumType::kF32, reinterpret_cast<std::byte*>(&values[2]), 2);
  ReducedGradient part = part_of(values);
  part.by_rows = true;
  part.row_elements = 2;
  EXPECT_EQ(squared_norm(part), 1 + 4 + 9 + 16);
  EXPECT_EQ(union_rows(part), 3u);
}

}  // namespace
}  // namespace parallax
