// SPDX-License-Identifier: Apache-2.0
// What a probe of rows measures is what it says: rows that are added, and rows that are ordered.
#include "engine/row_probe.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace parallax {
namespace {

// Given pass after pass, expect each to add as many rows, of which every second is there already.
TEST(RowProbe, EachPassAddsAnew) {
  RowProbe probe;
  for (int pass = 0; pass < 3; ++pass) {
    probe.add();
    EXPECT_EQ(probe.sum().row_count(), RowProbe::kRows / 2);
  }
}

TEST(RowProbe, EachPassOrdersAnew) {
  RowProbe probe;
  for (int pass = 0; pass < 3; ++pass) {
    probe.put_in_order();
    ASSERT_EQ(probe.order().size(), RowProbe::kRows);
    EXPECT_TRUE(std::is_sorted(probe.order().begin(), probe.order().end()));
    const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
    EXPECT_EQ(std::adjacent_find(probe.order().begin(), probe.order().end(), same),
              probe.order().end());
  }
}

}  // namespace
}  // namespace parallax
