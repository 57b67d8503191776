// SPDX-License-Identifier: Apache-2.0
#include "aggregate/row_slice.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

// Given ids of either width, or none, expect those, or every row's own.
TEST(RowSlice, IdsOfEitherWidthOrEveryRow) {
  const int64_t wide[] = {5, kPaddingId, 1};
  const int32_t narrow[] = {7, 2, -1};
  EXPECT_EQ(RowIds{.wide = wide}.at(0), 5);
  EXPECT_EQ(RowIds{.wide = wide}.at(1), kPaddingId);
  EXPECT_EQ(RowIds{.narrow = narrow}.at(1), 2);
  EXPECT_EQ(RowIds{.narrow = narrow}.at(2), kPaddingId);
  EXPECT_EQ(RowIds{}.at(3), 3);
}

// A contribution without them has none.
TEST(RowSlice, NoRowsAreDistinctAtFirst) {
  EXPECT_EQ(DistinctRows{}.row_keys, nullptr);
  EXPECT_EQ(DistinctRows{}.count, 0u);
}

}  // namespace
}  // namespace parallax
