// SPDX-License-Identifier: Apache-2.0
// Columns of rows, by both ways of owning them, beside the owner of each.
#include "collectives/row_columns.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "support/host_map_of.h"
#include "support/slot_maps.h"

namespace parallax {
namespace {

constexpr uint32_t kKeys = 1000;

// Given hosts of two and of three ranks, expect each row in the column of its owner, found alone or
// with others, and every row counted in one column.
TEST(RowColumns, AreThoseOfTheOwners) {
  const HostMap hosts = testkit::host_map({0, 0, 1, 1, 1});
  const Columns columns(hosts, 0);
  const Partition partition(kKeys, 600, true, testkit::even_slots(5), 3);
  std::vector<uint32_t> row_keys(kKeys), found(kKeys);
  std::iota(row_keys.begin(), row_keys.end(), 0u);
  for (const auto owners : {RowColumns::Owners::kHashed, RowColumns::Owners::kRanges}) {
    const RowColumns of_rows(columns, partition, owners);
    of_rows.find(row_keys.data(), kKeys, found.data());
    std::vector<uint64_t> counts(columns.count());
    for (const uint32_t row_key : row_keys) {
      const uint32_t owner = owners == RowColumns::Owners::kHashed
                                 ? partition.owner_of(row_key)
                                 : partition.range_owner_of(row_key);
      EXPECT_TRUE(of_rows.active(owner));
      EXPECT_EQ(of_rows.of(row_key), columns.column_of(owner));
      EXPECT_EQ(found[row_key], columns.column_of(owner));
      ++counts[found[row_key]];
    }
    for (uint32_t column = 0; column < columns.count(); ++column) {
      EXPECT_EQ(of_rows.rows_of(column), counts[column]);
    }
  }
}

// Given ranges of which the first ranks have none, expect these to own nothing.
TEST(RowColumns, WhoOwnsNothingIsNotActive) {
  const HostMap hosts = testkit::host_map({0, 0, 0});
  const Columns columns(hosts, 0);
  const Partition partition(1, 64, true, testkit::even_slots(3), 3);
  const RowColumns of_rows(columns, partition, RowColumns::Owners::kRanges);
  EXPECT_FALSE(of_rows.active(0));
  EXPECT_EQ(of_rows.rows_of(0), 0u);
  EXPECT_TRUE(of_rows.active(2));
  EXPECT_EQ(of_rows.rows_of(2), 1u);
}

}  // namespace
}  // namespace parallax
