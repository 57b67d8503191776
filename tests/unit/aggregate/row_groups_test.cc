// SPDX-License-Identifier: Apache-2.0
#include "aggregate/row_groups.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "unit/aggregate/coalescing.h"

namespace parallax {
namespace {

using namespace testkit;

// Given distinct rows, expect each once in its group, in the order in which they came, whether they
// were coalesced alone or with their rows.
TEST(RowGroups, AreInTheOrderOfTheirRows) {
  const Partition partition(50, 1, true, SlotMap::of_ranks(4, kSlotsPerOwner), 0);
  const std::vector<int64_t> ids = {7, 3, 7, 49, 12, 3, 30, 8};
  const std::vector<float> values(ids.size());
  OfIdsAlone alone(ids.size());
  Coalescing<> made(partition, ids.size(), {.row_elements = 1});
  alone.coalescer.begin(ids.size());
  alone.coalescer.add_ids(partition, {.wide = ids.data()}, static_cast<uint32_t>(ids.size()), 0);
  alone.coalescer.end_ids(partition);
  alone.coalescer.group(group_of);
  made.coalescer.coalesce(partition, slice_of(ids, values), {}, group_of, made.block.data());
  std::vector<std::vector<uint32_t>> expected(kGroups);
  for (const int64_t id : {7, 3, 49, 12, 30, 8}) {
    const uint32_t row_key = partition.row_key_of(static_cast<uint64_t>(id));
    expected[group_of(row_key)].push_back(row_key);
  }
  for (const RowGroups* each : {static_cast<const RowGroups*>(&alone.coalescer),
                                static_cast<const RowGroups*>(&made.coalescer)}) {
    EXPECT_EQ(each->item_count(), 6u);
    for (uint32_t group = 0; group < kGroups; ++group) {
      const uint32_t* const first = each->row_keys() + each->group_first(group);
      EXPECT_EQ(std::vector<uint32_t>(first, first + each->group_count(group)), expected[group]);
    }
  }
}

}  // namespace
}  // namespace parallax
