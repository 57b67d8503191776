// SPDX-License-Identifier: Apache-2.0
#include "engine/fused_slices.h"

#include <gtest/gtest.h>

namespace parallax::testkit {
namespace {

TEST(FusedSlices, SetsAreToldApart) {
  FusedSlices slices;
  slices.reserve(4);
  slices.add(2, 0);
  slices.add(9, 1);
  slices.add(2, 3);
  slices.add(2, 5);
  ASSERT_EQ(slices.all().size(), 2u);
  const FusedSlices::Set& first = slices.of(2);
  EXPECT_EQ(first.count, 3u);
  EXPECT_EQ(first.first, 0u);
  EXPECT_EQ(first.last, 5u);
  EXPECT_EQ(slices.of(9).last, 1u);
}

// Given another call, expect nothing of the one before.
TEST(FusedSlices, ACallBeginsAnew) {
  FusedSlices slices;
  slices.add(3, 0);
  slices.add(1, 1);
  slices.clear();
  EXPECT_TRUE(slices.all().empty());
  slices.add(1, 4);
  slices.add(3, 5);
  EXPECT_EQ(slices.of(3).count, 1u);
  EXPECT_EQ(slices.of(1).first, 4u);
}

}  // namespace
}  // namespace parallax::testkit
