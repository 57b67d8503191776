// SPDX-License-Identifier: Apache-2.0
#include "aggregate/row_coalescer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <type_traits>
#include <vector>

#include "base/seeded_random.h"
#include "support/numbers.h"
#include "support/row_widths.h"
#include "support/vector_levels.h"
#include "unit/aggregate/coalescing.h"

namespace parallax {
namespace {

using namespace testkit;

// Given slices with duplicates and padding, of ids of both widths, with and without a count, expect
// each distinct row once, begun from +0, in its group, and nothing written behind the block.
TEST(RowCoalescer, CoalescesDuplicatesAndGroups) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SeededRandom random(seed);
    const uint64_t rows = 1 + random.below(200);
    const uint32_t width = draw_width(random);
    const uint64_t rows_max = 1 + random.below(120);
    const bool counted = random.chance(30);
    const Partition partition(rows, width, true, SlotMap::of_ranks(5, kSlotsPerOwner), 0);
    RowScratch scratch;
    Coalescing<> made(
        partition, rows_max,
        {.row_elements = width, .counted = counted, .scratch = lend(random, &scratch)});
    RowCoalescer& coalescer = made.coalescer;
    for (int round = 0; round < 4; ++round) {
      std::vector<int64_t> ids(random.chance(10) ? rows_max : random.below(rows_max + 1));
      for (int64_t& id : ids) {
        id = static_cast<int64_t>(random.below(random.chance(50) ? rows : 1 + rows / 8));
        if (random.chance(5)) id = kPaddingId;
      }
      std::vector<float> values(ids.size() * width);
      for (float& value : values)
        value = random.chance(5) ? -0.0f : static_cast<float>(random.unit() - 0.5);
      std::map<uint32_t, std::vector<float>> naive;
      for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] == kPaddingId) continue;
        const uint32_t row_key = partition.row_key_of(static_cast<uint64_t>(ids[i]));
        auto& sum = naive.try_emplace(row_key, width, 0.0f).first->second;
        for (uint32_t c = 0; c < width; ++c) sum[c] += values[i * width + c];
      }
      if (random.chance(50)) {
        coalescer.coalesce(partition, slice_of(ids, values), {}, group_of, made.block.data());
      } else {
        const std::vector<int32_t> narrow(ids.begin(), ids.end());
        coalescer.coalesce(partition, narrow_slice_of(narrow, values), {}, group_of,
                           made.block.data());
      }
      ASSERT_EQ(coalescer.item_count(), naive.size()) << "seed " << seed;
      uint32_t items = 0;
      for (uint32_t group = 0; group < kGroups; ++group) {
        ASSERT_EQ(coalescer.group_first(group), items);
        for (uint32_t i = 0; i < coalescer.group_count(group); ++i, ++items) {
          const uint32_t row_key = coalescer.row_keys()[items];
          ASSERT_EQ(group_of(row_key), group);
          ASSERT_EQ(naive.count(row_key), 1u) << "twice, or never given";
          const float* row = made.row(items);
          for (uint32_t c = 0; c < width; ++c) {
            ASSERT_EQ(std::bit_cast<uint32_t>(row[c]), std::bit_cast<uint32_t>(naive[row_key][c]))
                << "seed " << seed;
          }
          if (counted) {
            ASSERT_EQ(row[width], 1.0f);
          }
          naive.erase(row_key);
        }
      }
      ASSERT_TRUE(naive.empty());
      ASSERT_EQ(made.block[made.bytes], std::byte{0x5a});
    }
  }
}

// Given values that come front to back in pieces, with garbage where they do not yet lie, expect in
// the end the block of a slice that was there as a whole, byte for byte; and on the way each row,
// as it is in the end, as soon as the last that is added to it has come.
TEST(RowCoalescer, PiecesMakeTheBlockOfTheWhole) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SeededRandom random(seed);
    const uint64_t rows = 1 + random.below(100);
    const uint32_t width = draw_width(random);
    const uint64_t rows_max = 1 + random.below(120);
    const Partition partition(rows, width, true, SlotMap::of_ranks(5, kSlotsPerOwner), 0);
    RowScratch scratch;
    const RowCoalescerOptions options = {.row_elements = width,
                                         .counted = random.chance(30),
                                         .pieces = true,
                                         .scratch = lend(random, &scratch)};
    Coalescing<> whole(partition, rows_max, options), made(partition, rows_max, options);
    for (int round = 0; round < 3; ++round) {
      std::vector<int64_t> ids = draw_ids(random, rows_max, rows);
      std::vector<float> values(ids.size() * width), here(ids.size() * width, 1e30f);
      for (float& value : values)
        value = random.chance(5) ? -0.0f : static_cast<float>(random.unit() - 0.5);
      whole.coalescer.coalesce(partition, slice_of(ids, values), {}, group_of, whole.block.data());
      const RowSlice slice = slice_of(ids, here);
      RowCoalescer& coalescer = made.coalescer;
      coalescer.start(partition, slice, group_of, made.block.data());
      ASSERT_EQ(coalescer.item_count(), whole.coalescer.item_count());
      const size_t row_bytes = made.width * sizeof(float);
      uint32_t looked_at = 0;
      for (size_t at = 0; at < ids.size();) {
        const size_t end = std::min(ids.size(), at + 1 + random.below(40));
        std::copy(&values[at * width], &values[0] + end * width, &here[at * width]);
        coalescer.add(slice, static_cast<uint32_t>(at), static_cast<uint32_t>(end));
        at = end;
        for (; looked_at < coalescer.ready_count(); ++looked_at) {
          const uint32_t row_key = coalescer.ready_row_key(looked_at);
          const auto left = std::find_if(
              ids.begin() + static_cast<std::ptrdiff_t>(end), ids.end(), [&](int64_t id) {
                return id != kPaddingId &&
                       partition.row_key_of(static_cast<uint64_t>(id)) == row_key;
              });
          ASSERT_EQ(left, ids.end()) << "more comes to it; seed " << seed;
          const uint32_t* const keys = whole.coalescer.row_keys();
          const auto item = static_cast<uint32_t>(
              std::find(keys, keys + whole.coalescer.item_count(), row_key) - keys);
          ASSERT_LT(item, whole.coalescer.item_count());
          ASSERT_EQ(std::memcmp(coalescer.ready_row(looked_at), whole.row(item), row_bytes), 0)
              << "seed " << seed;
        }
      }
      ASSERT_EQ(looked_at, coalescer.item_count()) << "each of them, once";
      const uint64_t block = RowCoalescer::block_bytes(coalescer.item_count(), row_bytes);
      ASSERT_EQ(std::memcmp(made.block.data(), whole.block.data(), block), 0) << "seed " << seed;
      for (uint32_t group = 0; group < kGroups; ++group) {
        ASSERT_EQ(coalescer.group_first(group), whole.coalescer.group_first(group));
        ASSERT_EQ(coalescer.group_count(group), whole.coalescer.group_count(group));
      }
      ASSERT_EQ(made.block[made.bytes], std::byte{0x5a});
    }
  }
}

// Given every row of a variable and more rows by id, expect both summed.
TEST(RowCoalescer, MoreRowsAreAddedToEveryRow) {
  const Partition partition(5, 2, true, SlotMap::of_ranks(2, kSlotsPerOwner), 0);
  Coalescing<> made(partition, 8, {.row_elements = 2});
  const std::vector<float> every = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, more = {10, 20, 30, 40, 50, 60};
  const std::vector<int64_t> ids = {4, 0, 4};
  const RowSlice first = {
      .ids = {}, .count = 5, .values = {.rows = reinterpret_cast<const std::byte*>(every.data())}};
  made.coalescer.coalesce(
      partition, first, slice_of(ids, more), [](uint32_t) { return 0u; }, made.block.data());
  ASSERT_EQ(made.coalescer.item_count(), 5u);
  const float expected[5][2] = {{30, 41}, {2, 3}, {4, 5}, {6, 7}, {68, 89}};
  for (uint32_t item = 0; item < 5; ++item) {
    const uint64_t id = partition.row_of(made.coalescer.row_keys()[item]);
    EXPECT_EQ(made.row(item)[0], expected[id][0]);
    EXPECT_EQ(made.row(item)[1], expected[id][1]);
  }
}

// Given floats where the sum is of doubles, expect them converted before they are added.
TEST(RowCoalescer, SumsAreOfTheirOwnType) {
  const Partition partition(9, 1, true, SlotMap::of_ranks(2, kSlotsPerOwner), 0);
  Coalescing<double> made(partition, 3, {.row_elements = 1});
  const std::vector<int64_t> ids = {3, 3, 3};
  const std::vector<float> values = {16777216, 1, 1};
  made.coalescer.coalesce(
      partition, slice_of(ids, values), {}, [](uint32_t) { return 0u; }, made.block.data());
  ASSERT_EQ(made.coalescer.item_count(), 1u);
  EXPECT_EQ(*made.row(0), 16777218.0) << "which is no float";
}

// Given a block cut by a number of each row key, expect each cut, taken by itself, to be the rows
// of that number, their bits and counts as they were, grouped anew.
TEST(RowCoalescer, DistinctRowsAreTakenAsTheyAre) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SeededRandom random(seed);
    const uint64_t rows = 1 + random.below(200);
    const uint32_t width = draw_width(random);
    const uint64_t rows_max = 1 + random.below(300);
    const Partition partition(rows, width, true, SlotMap::of_ranks(5, kSlotsPerOwner), 0);
    const RowCoalescerOptions options = {.row_elements = width, .counted = random.chance(50)};
    Coalescing<> cut(partition, rows_max, options), taken(partition, rows_max, options);
    std::vector<int64_t> ids(random.below(rows_max + 1));
    for (int64_t& id : ids) id = static_cast<int64_t>(random.below(rows));
    std::vector<float> values(ids.size() * width);
    for (float& value : values) value = static_cast<float>(random.unit() - 0.5);
    const auto cut_of = [](uint32_t row_key) { return row_key % kGroups; };
    cut.coalescer.coalesce(partition, slice_of(ids, values), {}, cut_of, cut.block.data());
    for (uint32_t each = 0; each < kGroups; ++each) {
      const uint32_t first = cut.coalescer.group_first(each);
      const uint32_t count = cut.coalescer.group_count(each);
      taken.coalescer.take({.row_keys = cut.coalescer.row_keys() + first,
                            .order = cut.coalescer.order() + first,
                            .rows = cut.block.data(),
                            .count = count},
                           group_of, taken.block.data());
      ASSERT_EQ(taken.coalescer.item_count(), count);
      std::map<uint32_t, const float*> expected;
      for (uint32_t item = first; item < first + count; ++item) {
        expected[cut.coalescer.row_keys()[item]] = cut.row(item);
      }
      for (uint32_t item = 0; item < count; ++item) {
        const uint32_t row_key = taken.coalescer.row_keys()[item];
        ASSERT_EQ(expected.count(row_key), 1u) << "seed " << seed;
        ASSERT_EQ(std::memcmp(taken.row(item), expected[row_key], cut.width * sizeof(float)), 0);
        const uint32_t group = group_of(row_key);
        ASSERT_GE(item, taken.coalescer.group_first(group));
        ASSERT_LT(item, taken.coalescer.group_first(group) + taken.coalescer.group_count(group));
        expected.erase(row_key);
      }
      ASSERT_EQ(taken.block[taken.bytes], std::byte{0x5a});
    }
  }
}

// Given rows of any width and float type, whose ids are looked for or are there already, at each
// level of vector code: expect the bits of one addition at a time, in the order of the slice, begun
// from +0.
TEST(RowCoalescer, RowsOfAnyWidthAreThoseOfOneAdditionAtATime) {
  const std::vector<int64_t> ids = {3, 0, 3, kPaddingId, 6, 3, 0, 5};
  for (const uint32_t width : kRowWidths) {
    const Partition partition(7, width, true, SlotMap::of_ranks(2, kSlotsPerOwner), 0);
    for (const uint32_t dtype : {PARALLAX_F32, PARALLAX_F16, PARALLAX_BF16}) {
      SeededRandom random(width);
      testkit::Numbers values(dtype, ids.size() * width);
      std::map<int64_t, std::vector<float>> naive;
      for (size_t i = 0; i < values.size(); ++i) {
        values.set(i, random.chance(5) ? -0.0 : random.unit() - 0.5);
        auto& sum = naive.try_emplace(ids[i / width], width, 0.0f).first->second;
        const volatile float next = sum[i % width] + static_cast<float>(values[i]);
        sum[i % width] = next;
      }
      const RowSlice slice = {
          .ids = {.wide = ids.data()},
          .count = static_cast<uint32_t>(ids.size()),
          .values = {.rows = static_cast<const std::byte*>(values.data()), .dtype = dtype}};
      OfIdsAlone alone(ids.size());
      alone.coalescer.begin(ids.size());
      alone.coalescer.add_ids(partition, slice.ids, slice.count, 0);
      alone.coalescer.end_ids(partition);
      at_each_vector_level([&] {
        for (const bool are_there : {false, true}) {
          Coalescing<> made(partition, ids.size(), {.row_elements = width});
          if (are_there) {
            made.coalescer.coalesce_found(alone.coalescer, {&slice, 1}, group_of,
                                          made.block.data());
          } else {
            made.coalescer.coalesce(partition, slice, {}, group_of, made.block.data());
          }
          ASSERT_EQ(made.coalescer.item_count(), 4u);
          for (uint32_t item = 0; item < 4; ++item) {
            const uint64_t id = partition.row_of(made.coalescer.row_keys()[item]);
            const std::vector<float>& want = naive.at(static_cast<int64_t>(id));
            ASSERT_EQ(std::memcmp(made.row(item), want.data(), width * sizeof(float)), 0)
                << dtype_name(dtype) << " " << width << ", row " << id;
          }
          ASSERT_EQ(made.block[made.bytes], std::byte{0x5a});
        }
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST(RowCoalescer, NanSpreadsToItsRowAlone) {
  const Partition partition(9, 1, true, SlotMap::of_ranks(2, kSlotsPerOwner), 0);
  Coalescing<> made(partition, 4, {.row_elements = 1});
  const std::vector<int64_t> ids = {1, 2, 1, 2};
  const std::vector<float> values = {std::numeric_limits<float>::quiet_NaN(), 1, 2, 3};
  made.coalescer.coalesce(
      partition, slice_of(ids, values), {}, [](uint32_t) { return 0u; }, made.block.data());
  for (uint32_t item = 0; item < 2; ++item) {
    const float value = *made.row(item);
    if (partition.row_of(made.coalescer.row_keys()[item]) == 1) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, 4);
    }
  }
}

}  // namespace
}  // namespace parallax
