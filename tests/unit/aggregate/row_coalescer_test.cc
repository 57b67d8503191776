// SPDX-License-Identifier: Apache-2.0
#include "aggregate/row_coalescer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

constexpr uint32_t kGroups = 3;

void reserve_coalescer(Arena* arena, RowCoalescer* coalescer, uint64_t rows_max, uint32_t width,
                       bool values) {
  Arena measure;
  const RowCoalescerOptions options = {.rows_max = rows_max,
                                       .row_elements = width,
                                       .groups = kGroups,
                                       .coalesced_max = values ? rows_max / 2 : 0};
  coalescer->lay_out(measure, options);
  ASSERT_TRUE(arena->reserve(measure.used_bytes()).ok());
  coalescer->lay_out(*arena, options);
}

RowSlice slice_of(const std::vector<int64_t>& ids, const std::vector<float>& values) {
  return {.ids = {.wide = ids.data()},
          .count = static_cast<uint32_t>(ids.size()),
          .values = {.rows = reinterpret_cast<const std::byte*>(values.data())}};
}

const float* row_of(const RowCoalescer& coalescer, const std::vector<float>& values, uint32_t item,
                    uint32_t width) {
  const uint32_t slot = coalescer.order()[item];
  const auto* coalesced = reinterpret_cast<const float*>(coalescer.coalesced());
  return (slot & kCoalescedSlot) != 0 ? coalesced + (slot & ~kCoalescedSlot) * width
                                      : values.data() + slot * width;
}

TEST(RowCoalescer, CoalescesDuplicatesAndGroups) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SeededRandom random(seed);
    const uint64_t rows = 1 + random.below(200);
    const auto width = static_cast<uint32_t>(1 + random.below(5));
    const uint64_t rows_max = 1 + random.below(120);
    const Partition partition(rows, width, true, SlotMap::of_ranks(5, kSlotsPerOwner), 0);
    const auto group_of = [](uint32_t row_key) { return row_key * 7 % kGroups; };
    Arena arena;
    RowCoalescer coalescer;
    reserve_coalescer(&arena, &coalescer, rows_max, width, true);
    for (int round = 0; round < 4; ++round) {
      std::vector<int64_t> ids(random.chance(10) ? rows_max : random.below(rows_max + 1));
      for (int64_t& id : ids)
        id = static_cast<int64_t>(random.below(random.chance(50) ? rows : 1 + rows / 8));
      std::vector<float> values(ids.size() * width);
      for (float& value : values)
        value = random.chance(5) ? -0.0f : static_cast<float>(random.unit() - 0.5);
      std::map<uint32_t, std::vector<float>> naive;
      std::map<uint32_t, int> times;
      for (size_t i = 0; i < ids.size(); ++i) {
        const uint32_t row_key = partition.row_key_of(static_cast<uint64_t>(ids[i]));
        auto& sum = naive.try_emplace(row_key, width, 0.0f).first->second;
        for (uint32_t c = 0; c < width; ++c) sum[c] += values[i * width + c];
        ++times[row_key];
      }
      coalescer.coalesce(partition, slice_of(ids, values), {}, group_of);
      ASSERT_EQ(coalescer.item_count(), naive.size()) << "seed " << seed;
      uint32_t items = 0;
      for (uint32_t group = 0; group < kGroups; ++group) {
        ASSERT_EQ(coalescer.group_first(group), items);
        for (uint32_t i = 0; i < coalescer.group_count(group); ++i, ++items) {
          const uint32_t row_key = coalescer.row_keys()[items];
          ASSERT_EQ(group_of(row_key), group);
          ASSERT_EQ(naive.count(row_key), 1u) << "twice, or never given";
          const float* row = row_of(coalescer, values, items, width);
          for (uint32_t c = 0; c < width; ++c) {
            // A row without duplicates is sent as it lies: -0 stays, and turns +0 in the next sum.
            ASSERT_EQ(std::bit_cast<uint32_t>(0.0f + row[c]),
                      std::bit_cast<uint32_t>(naive[row_key][c]))
                << "seed " << seed;
          }
          ASSERT_EQ((coalescer.order()[items] & kCoalescedSlot) != 0, times[row_key] > 1);
          naive.erase(row_key);
        }
      }
      ASSERT_TRUE(naive.empty());
    }
  }
}

TEST(RowCoalescer, IdsAloneGiveTheFirstOfEach) {
  const Partition partition(50, 2, true, SlotMap::of_ranks(4, kSlotsPerOwner), 0);
  Arena arena;
  RowCoalescer coalescer;
  reserve_coalescer(&arena, &coalescer, 6, 2, false);
  const std::vector<int64_t> ids = {7, 3, 7, 49, 3, 7};
  coalescer.coalesce(partition, slice_of(ids, {}), {}, [](uint32_t) { return 1u; });
  EXPECT_EQ(coalescer.item_count(), 3u);
  EXPECT_EQ(coalescer.group_count(1), 3u);
  EXPECT_EQ(coalescer.first_item_of(partition, 7), 0u);
  EXPECT_EQ(coalescer.first_item_of(partition, 3), 1u);
  EXPECT_EQ(coalescer.first_item_of(partition, 49), 3u);
}

TEST(RowCoalescer, NanSpreadsToItsRowAlone) {
  const Partition partition(9, 1, true, SlotMap::of_ranks(2, kSlotsPerOwner), 0);
  Arena arena;
  RowCoalescer coalescer;
  reserve_coalescer(&arena, &coalescer, 4, 1, true);
  const std::vector<int64_t> ids = {1, 2, 1, 2};
  const std::vector<float> values = {std::numeric_limits<float>::quiet_NaN(), 1, 2, 3};
  coalescer.coalesce(partition, slice_of(ids, values), {}, [](uint32_t) { return 0u; });
  for (uint32_t item = 0; item < 2; ++item) {
    const float value = *row_of(coalescer, values, item, 1);
    if (partition.row_of(coalescer.row_keys()[item]) == 1) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, 4);
    }
  }
}

TEST(RowCoalescer, EveryRowTheSameAndEveryRowTwice) {
  const Partition partition(1000, 1, true, SlotMap::of_ranks(2, kSlotsPerOwner), 0);
  Arena arena;
  RowCoalescer coalescer;
  reserve_coalescer(&arena, &coalescer, 100, 1, true);
  std::vector<int64_t> ids(100, 5);
  const std::vector<float> values(100, 1.0f);
  coalescer.coalesce(partition, slice_of(ids, values), {}, [](uint32_t) { return 2u; });
  ASSERT_EQ(coalescer.item_count(), 1u);
  EXPECT_EQ(*row_of(coalescer, values, 0, 1), 100);
  for (size_t i = 0; i < 100; ++i) ids[i] = static_cast<int64_t>(i / 2);
  coalescer.coalesce(partition, slice_of(ids, values), {}, [](uint32_t) { return 2u; });
  ASSERT_EQ(coalescer.item_count(), 50u) << "as many coalesced rows as there is room for";
  for (uint32_t item = 0; item < 50; ++item) EXPECT_EQ(*row_of(coalescer, values, item, 1), 2);
}

TEST(RowIndex, FindsWhatWasInsertedAndNothingElse) {
  Arena measure;
  RowIndex index;
  index.lay_out(measure, 100);
  Arena arena;
  ASSERT_TRUE(arena.reserve(measure.used_bytes()).ok());
  index.lay_out(arena, 100);
  for (int round = 0; round < 5; ++round) {
    index.clear();
    for (uint32_t i = 0; i < 100; ++i) {
      bool inserted = false;
      ASSERT_EQ(index.find_or_insert(i * 977, &inserted), i);
      ASSERT_TRUE(inserted);
      ASSERT_EQ(index.find_or_insert(i * 977, &inserted), i);
      ASSERT_FALSE(inserted);
    }
    bool inserted = false;
    EXPECT_EQ(index.find_or_insert(1, &inserted), kNoSlot) << "beyond the bound";
    EXPECT_EQ(index.find_or_insert(977, &inserted), 1u) << "what is there is still found";
    EXPECT_EQ(index.find(976), kNoSlot);
    EXPECT_EQ(index.find(99 * 977), 99u);
    EXPECT_EQ(index.size(), 100u);
  }
}

}  // namespace
}  // namespace parallax
