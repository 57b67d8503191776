// SPDX-License-Identifier: Apache-2.0
#include "aggregate/rows_in_place.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "base/seeded_random.h"
#include "unit/aggregate/coalescing.h"

namespace parallax {
namespace {

using namespace testkit;

// Given distinct rows by number, expect those that come once to be named where they lie, and the
// others to be numbered, and given in their order.
TEST(RowsInPlace, OnceOrMoreOften) {
  const std::vector<uint32_t> numbers = {0, 1, kNoSlot, 0, 2, 3, 2, 0, kNoSlot, 4};
  std::vector<uint32_t> places(6), times(5), given_places, given_rows;
  const std::vector<std::byte> values(numbers.size());
  const RowsInPlace rows(numbers.data(), static_cast<uint32_t>(numbers.size()), 5, places.data(),
                         times.data());
  EXPECT_EQ(rows.distinct(), 5u);
  EXPECT_EQ(rows.repeated(), 2u);
  const std::vector<uint32_t> expected = {0, RowsInPlace::kInSlice | 1, 1,
                                          RowsInPlace::kInSlice | 5, RowsInPlace::kInSlice | 9};
  for (uint32_t number = 0; number < 5; ++number) EXPECT_EQ(rows.place(number), expected[number]);
  rows.each_repeated(values.data(), 1,
                     [&](const uint32_t* some, const uint32_t* of_slice, uint32_t count) {
                       given_places.insert(given_places.end(), some, some + count);
                       given_rows.insert(given_rows.end(), of_slice, of_slice + count);
                     });
  EXPECT_EQ(given_places, (std::vector<uint32_t>{0, 0, 1, 1, 0}));
  EXPECT_EQ(given_rows, (std::vector<uint32_t>{0, 3, 4, 6, 7}));
}

struct InPlaceCounts {
  uint64_t stayed = 0, moved = 0;
};

// The items of both are the same; a row that comes once is that of the slice, and any other has the
// bits of the block of the whole.
void expect_same(const Partition& partition, const RowSlice& slice, const Coalescing<>& whole,
                 const Coalescing<>& made, InPlaceCounts* counts) {
  const uint32_t items = whole.coalescer.item_count();
  ASSERT_EQ(made.coalescer.item_count(), items);
  std::map<int64_t, uint32_t> times;
  for (uint32_t i = 0; i < slice.count; ++i) ++times[slice.ids.at(i)];
  const auto* const values = reinterpret_cast<const float*>(slice.values.rows);
  uint32_t repeated = 0;
  for (uint32_t item = 0; item < items; ++item) {
    const uint32_t row_key = whole.coalescer.row_keys()[item];
    ASSERT_EQ(made.coalescer.row_keys()[item], row_key);
    const uint32_t place = made.coalescer.order()[item];
    const float* const sum = whole.row(item);
    const bool stays = times[static_cast<int64_t>(partition.row_of(row_key))] == 1;
    ASSERT_EQ((place & RowsInPlace::kInSlice) != 0, stays);
    ++(stays ? counts->stayed : counts->moved);
    if (!stays) {
      ++repeated;
      ASSERT_EQ(std::memcmp(made.row(item), sum, made.width * sizeof(float)), 0);
      continue;
    }
    const uint32_t at = place & ~RowsInPlace::kInSlice;
    ASSERT_LT(at, slice.count);
    for (uint32_t i = 0; i < made.width; ++i) EXPECT_EQ(values[at * made.width + i], sum[i]);
  }
  EXPECT_EQ(made.coalescer.block_rows(), repeated);
  for (uint32_t group = 0; group < kGroups; ++group) {
    ASSERT_EQ(made.coalescer.group_first(group), whole.coalescer.group_first(group));
    ASSERT_EQ(made.coalescer.group_count(group), whole.coalescer.group_count(group));
  }
  ASSERT_EQ(made.block[made.bytes], std::byte{0x5a});
}

// Given slices whose ids were found by a pull or are looked for, expect what is made of them in
// place to be what is made of them whole.
TEST(RowsInPlace, ABlockHasTheOthers) {
  InPlaceCounts counts;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    const uint64_t rows = 1 + random.below(random.chance(50) ? 100 : 900);
    const uint32_t width = draw_width(random);
    const uint64_t rows_max = 1 + random.below(random.chance(50) ? 120 : 700);
    const Partition partition(rows, width, true, SlotMap::of_ranks(5, kSlotsPerOwner), 0);
    RowScratch scratch;
    const RowCoalescerOptions options = {.row_elements = width, .scratch = &scratch};
    Coalescing<> whole(partition, rows_max, options), made(partition, rows_max, options);
    OfIdsAlone alone(rows_max, lend(random, &scratch));
    for (int round = 0; round < 3; ++round) {
      std::vector<int64_t> ids = draw_ids(random, rows_max, rows);
      std::vector<float> values(ids.size() * width);
      for (float& value : values) {
        value = random.chance(5) ? -0.0f : static_cast<float>(random.unit() - 0.5);
      }
      RowSlice slice = slice_of(ids, values);
      const CoalescedIds* found = nullptr;
      if (random.chance(50)) {
        alone.coalescer.begin(ids.size());
        alone.coalescer.add_ids(partition, slice.ids, slice.count, 0);
        alone.coalescer.end_ids(partition);
        slice.count = static_cast<uint32_t>(random.below(ids.size() + 1));
        found = &alone.coalescer;
      }
      whole.coalescer.coalesce(partition, slice, {}, group_of, whole.block.data());
      ASSERT_TRUE(made.coalescer.may_stay(slice.count));
      made.coalescer.coalesce_in_place(partition, slice, found, group_of, made.block.data());
      expect_same(partition, slice, whole, made, &counts);
    }
  }
  EXPECT_GT(counts.stayed, 1000u);
  EXPECT_GT(counts.moved, 1000u);
}

// What has no scratch, or a row that ends in a count, has no such places.
TEST(RowsInPlace, OnlyWithScratch) {
  const Partition partition(10, 4, true, SlotMap::of_ranks(5, kSlotsPerOwner), 0);
  RowScratch scratch;
  EXPECT_FALSE(Coalescing<>(partition, 8, {.row_elements = 4}).coalescer.may_stay(1));
  EXPECT_FALSE(Coalescing<>(partition, 8, {.row_elements = 4, .counted = true, .scratch = &scratch})
                   .coalescer.may_stay(1));
  const Coalescing<> made(partition, 8, {.row_elements = 4, .scratch = &scratch});
  EXPECT_TRUE(made.coalescer.may_stay(8));
  EXPECT_FALSE(made.coalescer.may_stay(9));
}

}  // namespace
}  // namespace parallax
