// SPDX-License-Identifier: Apache-2.0
#include "engine/fused_slices.h"

#include <gtest/gtest.h>

namespace parallax::testkit {
namespace {

TEST(FusedSlices, SetsAreToldApart) {
  FusedSlices slices;
  slices.reserve(4);
  slices.add(2, 0, 0 == 3, 0 == 1);
  slices.add(9, 1, 1 == 3, 1 == 1);
  slices.add(2, 3, 3 == 3, 3 == 1);
  slices.add(2, 5, 5 == 3, 5 == 1);
  ASSERT_EQ(slices.all().size(), 2u);
  const FusedSlices::Set& first = slices.of(2);
  EXPECT_EQ(first.count, 3u);
  EXPECT_EQ(first.first, 0u);
  EXPECT_EQ(first.last, 5u);
  EXPECT_TRUE(first.tied && !first.more) << "one of them was";
  EXPECT_EQ(slices.of(9).last, 1u);
  EXPECT_TRUE(slices.of(9).more && !slices.of(9).tied);
}

// Given another call, expect nothing of the one before.
TEST(FusedSlices, ACallBeginsAnew) {
  FusedSlices slices;
  slices.add(3, 0, 0 == 3, 0 == 1);
  slices.add(1, 1, 1 == 3, 1 == 1);
  slices.clear();
  EXPECT_TRUE(slices.all().empty());
  slices.add(1, 4, 4 == 3, 4 == 1);
  slices.add(3, 5, 5 == 3, 5 == 1);
  EXPECT_EQ(slices.of(3).count, 1u);
  EXPECT_EQ(slices.of(1).first, 4u);
}

}  // namespace
}  // namespace parallax::testkit
