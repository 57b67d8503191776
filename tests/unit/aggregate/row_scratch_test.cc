// SPDX-License-Identifier: Apache-2.0
// The index that several share.
#include "aggregate/row_scratch.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

// Given two who begin in turn, expect the index of the last one alone to be there, and each to have
// begun with an empty one.
TEST(RowScratch, WhoBeginsTakesIt) {
  for (const uint64_t rows : {3u, 100u}) {
    RowScratch scratch;
    const int one = 1, other = 2;
    EXPECT_EQ(scratch.begin(&one, 1), nullptr) << "there is no room yet";
    ASSERT_TRUE(scratch.reserve(rows).ok());
    ASSERT_TRUE(scratch.reserve(1).ok());
    bool inserted = false;
    RowIndex* const index = scratch.begin(&one, rows);
    ASSERT_NE(index, nullptr);
    EXPECT_EQ(index->find_or_insert(7, &inserted), 0u);
    EXPECT_EQ(scratch.of(&one), index);
    EXPECT_EQ(scratch.of(&other), nullptr);
    EXPECT_EQ(scratch.begin(&other, rows + 1), nullptr);
    EXPECT_EQ(scratch.of(&one), index) << "there was no room for the other";
    ASSERT_EQ(scratch.begin(&other, 2), index);
    EXPECT_EQ(scratch.of(&one), nullptr);
    EXPECT_EQ(index->find(7), kNoSlot);
    EXPECT_EQ(index->find_or_insert(8, &inserted), 0u);
    EXPECT_EQ(index->find_or_insert(9, &inserted), 1u);
    EXPECT_EQ(index->find_or_insert(10, &inserted), kNoSlot) << "it was begun for two";
    scratch.first_numbers()[rows - 1] = 5;
    scratch.second_numbers()[0] = 6;
    EXPECT_EQ(scratch.first_numbers()[rows - 1], 5u);
  }
}

// Given a scratch that grows, expect whoever had it to have lost it; one that need not stays.
TEST(RowScratch, IsLostWhenItGrows) {
  RowScratch scratch;
  const int one = 1;
  ASSERT_TRUE(scratch.reserve(20).ok());
  RowIndex* const index = scratch.begin(&one, 20);
  ASSERT_TRUE(scratch.reserve(20).ok());
  EXPECT_EQ(scratch.of(&one), index);
  ASSERT_TRUE(scratch.reserve(21).ok());
  EXPECT_EQ(scratch.of(&one), nullptr);
  EXPECT_NE(scratch.begin(&one, 21), nullptr);
}

}  // namespace
}  // namespace parallax
