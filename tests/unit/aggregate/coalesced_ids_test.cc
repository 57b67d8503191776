// SPDX-License-Identifier: Apache-2.0
#include "aggregate/coalesced_ids.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <tuple>
#include <vector>

#include "base/seeded_random.h"
#include "unit/aggregate/coalescing.h"

namespace parallax {
namespace {

using namespace testkit;

TEST(CoalescedIds, TheyGiveTheFirstOfEach) {
  const Partition partition(50, 2, true, SlotMap::of_ranks(4, kSlotsPerOwner), 0);
  OfIdsAlone alone(6);
  CoalescedIds& coalescer = alone.coalescer;
  const std::vector<int64_t> ids = {7, 3, 7, 49, 3, 7};
  coalescer.begin(6);
  coalescer.add_ids(partition, {.wide = ids.data()}, 6, 0);
  coalescer.end_ids(partition);
  coalescer.group([](uint32_t) { return 1u; });
  EXPECT_EQ(coalescer.item_count(), 3u);
  EXPECT_EQ(coalescer.group_count(1), 3u);
  const std::vector<uint32_t> first_rows = {0, 1, 0, 3, 1, 0};
  for (uint32_t row = 0; row < 6; ++row) {
    EXPECT_EQ(coalescer.first_row_of(row), first_rows[row]) << row;
  }
}

void expect_found(const CoalescedIds& found, const Partition& partition,
                  const std::vector<int64_t>& ids) {
  for (size_t row = 0; row < ids.size(); ++row) {
    const uint32_t unique = found.uniques()[row];
    if (ids[row] == kPaddingId) {
      ASSERT_EQ(unique, kNoSlot);
    } else {
      const auto id = static_cast<uint64_t>(ids[row]);
      ASSERT_EQ(found.unique_row_keys()[unique], partition.row_key_of(id)) << row;
    }
  }
}

// Given ids that were coalesced alone, expect them to be told from others, and a slice of them, or
// of the first of them, to make the block of one whose ids are looked for, byte for byte.
TEST(CoalescedIds, TheyMakeTheBlockOfTheWhole) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SeededRandom random(seed);
    const uint64_t rows = 1 + random.below(random.chance(50) ? 100 : 900);
    const uint32_t width = draw_width(random);
    const uint64_t rows_max = 1 + random.below(random.chance(50) ? 120 : 700);
    const Partition partition(rows, width, true, SlotMap::of_ranks(5, kSlotsPerOwner), 0);
    RowScratch scratch;
    const RowCoalescerOptions options = {
        .row_elements = width, .counted = random.chance(30), .scratch = lend(random, &scratch)};
    Coalescing<> whole(partition, rows_max, options), made(partition, rows_max, options);
    OfIdsAlone alone(rows_max, lend(random, &scratch));
    CoalescedIds& found = alone.coalescer;
    EXPECT_FALSE(found.has({.ids = {}, .count = 1, .values = {}})) << "none were added";
    for (int round = 0; round < 3; ++round) {
      std::vector<int64_t> ids = draw_ids(random, rows_max, rows);
      // Of two slices.
      const auto before = static_cast<uint32_t>(random.below(ids.size() + 1));
      const bool grouped = random.chance(50);
      found.begin(ids.size(), grouped);
      found.prefetch();
      found.add_ids(partition, {.wide = ids.data()}, before, 0);
      found.add_ids(partition, {.wide = ids.data() + before},
                    static_cast<uint32_t>(ids.size()) - before, before);
      found.end_ids(partition);
      if (grouped) found.group([](uint32_t row_key) { return row_key % 2; });
      expect_found(found, partition, ids);
      std::vector<float> values(ids.size() * width);
      for (float& value : values)
        value = random.chance(5) ? -0.0f : static_cast<float>(random.unit() - 0.5);
      RowSlice slice = slice_of(ids, values);
      const std::vector<int32_t> narrow(ids.begin(), ids.end());
      if (random.chance(50)) slice.ids = {.narrow = narrow.data()};
      if (random.chance(50)) slice.count = static_cast<uint32_t>(random.below(ids.size() + 1));
      ASSERT_TRUE(found.has(slice)) << "seed " << seed;
      whole.coalescer.coalesce(partition, slice, {}, group_of, whole.block.data());
      made.coalescer.coalesce_found(found, {&slice, 1}, group_of, made.block.data());
      ASSERT_EQ(made.coalescer.item_count(), whole.coalescer.item_count()) << "seed " << seed;
      const uint64_t block =
          RowCoalescer::block_bytes(made.coalescer.item_count(), made.width * sizeof(float));
      ASSERT_EQ(std::memcmp(made.block.data(), whole.block.data(), block), 0) << "seed " << seed;
      for (uint32_t group = 0; group < kGroups; ++group) {
        ASSERT_EQ(made.coalescer.group_first(group), whole.coalescer.group_first(group));
        ASSERT_EQ(made.coalescer.group_count(group), whole.coalescer.group_count(group));
      }
      ASSERT_EQ(made.block[made.bytes], std::byte{0x5a});
      slice = slice_of(ids, values);
      ++slice.count;
      EXPECT_FALSE(found.has(slice)) << "one more";
      if (ids.empty()) continue;
      slice = slice_of(ids, values);
      int64_t& other = ids[random.below(ids.size())];
      other = other == kPaddingId ? 0 : random.chance(50) ? kPaddingId : other + 1;
      EXPECT_FALSE(found.has(slice)) << "one is another, where they lay; seed " << seed;
    }
  }
}

// Slices of tables of so many rows, which lie one behind the other, and one slice of all their
// rows.
struct OfTables {
  OfTables(SeededRandom& random, uint64_t tables, uint64_t rows, uint64_t most, uint32_t width)
      : ids(tables), narrow(tables) {
    std::vector<bool> is_whole(tables);
    for (uint64_t table = 0; table < tables; ++table) {
      ids[table] = draw_ids(random, most, rows);
      is_whole[table] = most >= rows && random.chance(30);
      if (is_whole[table]) {
        ids[table].resize(rows);
        std::iota(ids[table].begin(), ids[table].end(), 0);
      }
      narrow[table].assign(ids[table].begin(), ids[table].end());
      for (const int64_t id : ids[table]) {
        all.push_back(id == kPaddingId ? id : id + static_cast<int64_t>(table * rows));
      }
    }
    values.resize(all.size() * width);
    for (float& value : values) value = static_cast<float>(random.unit() - 0.5);
    const auto* at = reinterpret_cast<const std::byte*>(values.data());
    for (uint64_t table = 0; table < tables; ++table) {
      RowIds of_table = {.wide = ids[table].data()};
      if (random.chance(50)) of_table = {.narrow = narrow[table].data()};
      if (is_whole[table]) of_table = {};
      of_table.first = static_cast<uint32_t>(table * rows);
      const auto count = static_cast<uint32_t>(ids[table].size());
      parts.push_back({.ids = of_table, .count = count, .values = {at}});
      at += size_t{count} * width * sizeof(float);
    }
  }

  std::vector<std::vector<int64_t>> ids;
  std::vector<std::vector<int32_t>> narrow;
  std::vector<int64_t> all;
  std::vector<float> values;
  std::vector<RowSlice> parts;
};

// Given slices of several tables, expect each to be found among its own, and what comes of them,
// and of a push of them, in one call or in two, to be that of one slice of all their rows.
TEST(CoalescedIds, SlicesApartAreThoseOfOneTable) {
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    SeededRandom random(seed);
    const uint64_t tables = 1 + random.below(12), rows = 1 + random.below(60);
    const uint64_t most = 1 + random.below(40), rows_max = tables * most;
    const uint32_t width = draw_width(random);
    const Partition partition(tables * rows, width, true, SlotMap::of_ranks(5, kSlotsPerOwner), 0);
    RowScratch scratch;
    ASSERT_TRUE(scratch.reserve(rows_max).ok());
    const RowCoalescerOptions options = {.row_elements = width, .scratch = lend(random, &scratch)};
    Coalescing<> whole(partition, rows_max, options), made(partition, rows_max, options);
    OfIdsAlone alone(rows_max, lend(random, &scratch));
    CoalescedIds& found = alone.coalescer;
    OfTables given(random, tables, rows, most, width);
    std::vector<RowSlice>& parts = given.parts;
    found.begin(given.all.size(), true, true);
    uint32_t before = 0;
    for (const RowSlice& part : parts) {
      found.add_ids(partition, part.ids, part.count, before);
      before += part.count;
    }
    found.end_ids(partition);
    expect_found(found, partition, given.all);
    ASSERT_TRUE(found.has(parts)) << "seed " << seed;
    whole.coalescer.coalesce(partition, slice_of(given.all, given.values), {}, group_of,
                             whole.block.data());
    const uint64_t block =
        RowCoalescer::block_bytes(whole.coalescer.item_count(), width * sizeof(float));
    for (const bool are_there : {true, false}) {
      if (are_there) {
        made.coalescer.coalesce_found(found, parts, group_of, made.block.data());
      } else {
        // Between the calls others use the scratch.
        const size_t some = random.below(parts.size() + 1);
        made.coalescer.begin_parts(made.block.data());
        made.coalescer.add_parts(partition, std::span(parts).first(some));
        std::ignore = scratch.begin(nullptr, rows_max);
        std::fill_n(scratch.first_numbers(), rows_max, 77u);
        made.coalescer.add_parts(partition, std::span(parts).subspan(some));
        made.coalescer.end_parts(group_of);
      }
      ASSERT_EQ(made.coalescer.item_count(), whole.coalescer.item_count()) << "seed " << seed;
      ASSERT_EQ(std::memcmp(made.block.data(), whole.block.data(), block), 0) << "seed " << seed;
    }
    // One of them is of other rows, unless all of it is padding.
    if (parts.back().count == 0) continue;
    parts.back().ids.first += 1;
    const auto& last = given.ids.back();
    const bool padding =
        std::all_of(last.begin(), last.end(), [](int64_t id) { return id == kPaddingId; });
    EXPECT_EQ(found.has(parts), padding) << "seed " << seed;
  }
}

// Given every row, expect ids that say so one by one to be the same.
TEST(CoalescedIds, EveryRowIsFoundByItsIds) {
  const Partition partition(5, 1, true, SlotMap::of_ranks(2, kSlotsPerOwner), 0);
  OfIdsAlone alone(6);
  CoalescedIds& found = alone.coalescer;
  found.begin(5);
  found.add_ids(partition, {}, 5, 0);
  found.end_ids(partition);
  const std::vector<int64_t> ids = {0, 1, 2, 3, 4}, turned = {4, 3, 2, 1, 0};
  const std::vector<float> none;
  EXPECT_TRUE(found.has(slice_of(ids, none)));
  EXPECT_FALSE(found.has(slice_of(turned, none)));
}

}  // namespace
}  // namespace parallax
