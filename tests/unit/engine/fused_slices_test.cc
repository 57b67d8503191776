// SPDX-License-Identifier: Apache-2.0
#include "engine/fused_slices.h"

#include <gtest/gtest.h>

namespace parallax::testkit {
namespace {

TEST(FusedSlices, SetsAreToldApart) {
  FusedSlices slices;
  slices.reserve(4);
  slices.add(2, 0, true);
  slices.add(9, 1, true);
  slices.add(2, 3, false);
  slices.add(2, 5, true);
  ASSERT_EQ(slices.all().size(), 2u);
  const FusedSlices::Set& first = slices.of(2);
  EXPECT_EQ(first.count, 3u);
  EXPECT_EQ(first.first, 0u);
  EXPECT_EQ(first.last, 5u);
  EXPECT_FALSE(first.alone) << "one of them was not";
  EXPECT_TRUE(slices.of(9).alone);
  EXPECT_EQ(slices.of(9).last, 1u);
}

// Given another call, expect nothing of the one before.
TEST(FusedSlices, ACallBeginsAnew) {
  FusedSlices slices;
  slices.add(3, 0, false);
  slices.add(1, 1, true);
  slices.clear();
  EXPECT_TRUE(slices.all().empty());
  slices.add(1, 4, true);
  slices.add(3, 5, true);
  EXPECT_EQ(slices.of(3).count, 1u);
  EXPECT_TRUE(slices.of(3).alone);
  EXPECT_EQ(slices.of(1).first, 4u);
}

}  // namespace
}  // namespace parallax::testkit
