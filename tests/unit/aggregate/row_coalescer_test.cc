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

namespace parallax {
namespace {

constexpr uint32_t kGroups = 3;

// Those that have kernels of their own, and others.
uint32_t draw_width(SeededRandom& random) {
  constexpr uint32_t kNarrow[] = {8, 16, 32, 64};
  return random.chance(30) ? kNarrow[random.below(4)] : static_cast<uint32_t>(1 + random.below(5));
}

uint32_t group_of(uint32_t row_key) { return row_key * 7 % kGroups; }

// Or no scratch.
RowScratch* lend(SeededRandom& random, RowScratch* scratch) {
  return random.chance(50) ? scratch : nullptr;
}

// A coalescer and the block that it writes, with a mark behind the last byte that it may touch.
template <typename Sum = float>
struct Coalescing {
  Coalescing(const Partition& partition, uint64_t rows_max, RowCoalescerOptions options)
      : width(options.row_elements + (options.counted ? 1 : 0)) {
    options.rows_max = rows_max;
    options.groups = kGroups;
    options.sum = std::is_same_v<Sum, double> ? SumType::kF64 : SumType::kF32;
    Arena measure;
    coalescer.lay_out(measure, options);
    EXPECT_TRUE(arena.reserve(measure.used_bytes()).ok());
    coalescer.lay_out(arena, options);
    if (options.scratch != nullptr) {
      EXPECT_TRUE(options.scratch->reserve(rows_max).ok());
    }
    bytes = RowCoalescer::block_bytes(RowCoalescer::distinct_max(rows_max, partition),
                                      width * sizeof(Sum));
    EXPECT_TRUE(block_arena.reserve(Arena::bytes_for<std::byte>(bytes + 1)).ok());
    block = block_arena.take<std::byte>(bytes + 1);
    std::fill(block.begin(), block.end(), std::byte{0xff});  // not a number
    block[bytes] = std::byte{0x5a};
  }
  const Sum* row(uint32_t item) const {
    return reinterpret_cast<const Sum*>(block.data()) + coalescer.order()[item] * width;
  }

  const size_t width;
  Arena arena, block_arena;
  RowCoalescer coalescer;
  size_t bytes = 0;
  std::span<std::byte> block;
};

struct OfIdsAlone {
  explicit OfIdsAlone(uint64_t rows_max, RowScratch* scratch = nullptr) {
    const RowCoalescerOptions options = {
        .rows_max = rows_max, .groups = kGroups, .ids_alone = true, .scratch = scratch};
    if (scratch != nullptr) {
      EXPECT_TRUE(scratch->reserve(rows_max).ok());
    }
    Arena measure;
    coalescer.lay_out(measure, options);
    EXPECT_TRUE(arena.reserve(measure.used_bytes()).ok());
    coalescer.lay_out(arena, options);
  }
  Arena arena;
  RowCoalescer coalescer;
};

template <typename T>
RowSlice slice_of(const std::vector<int64_t>& ids, const std::vector<T>& values,
                  uint32_t dtype = PARALLAX_F32) {
  return {.ids = {.wide = ids.data()},
          .count = static_cast<uint32_t>(ids.size()),
          .values = {.rows = reinterpret_cast<const std::byte*>(values.data()), .dtype = dtype}};
}
RowSlice narrow_slice_of(const std::vector<int32_t>& ids, const std::vector<float>& values) {
  return {.ids = {.narrow = ids.data()},
          .count = static_cast<uint32_t>(ids.size()),
          .values = {.rows = reinterpret_cast<const std::byte*>(values.data())}};
}

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
      std::vector<int64_t> ids(random.below(rows_max + 1));
      for (int64_t& id : ids) {
        id = random.chance(10) ? kPaddingId : static_cast<int64_t>(random.below(rows));
      }
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

TEST(RowCoalescer, IdsAloneGiveTheFirstOfEach) {
  const Partition partition(50, 2, true, SlotMap::of_ranks(4, kSlotsPerOwner), 0);
  OfIdsAlone alone(6);
  RowCoalescer& coalescer = alone.coalescer;
  const std::vector<int64_t> ids = {7, 3, 7, 49, 3, 7};
  coalescer.begin(6);
  coalescer.add_ids(partition, {.wide = ids.data()}, 6, 0);
  coalescer.group([](uint32_t) { return 1u; });
  EXPECT_EQ(coalescer.item_count(), 3u);
  EXPECT_EQ(coalescer.group_count(1), 3u);
  const std::vector<uint32_t> first_rows = {0, 1, 0, 3, 1, 0};
  for (uint32_t row = 0; row < 6; ++row) {
    EXPECT_EQ(coalescer.first_row_of(row), first_rows[row]) << row;
  }
}

void expect_found(const RowCoalescer& found, const Partition& partition,
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
TEST(RowCoalescer, IdsThatWereFoundMakeTheBlockOfTheWhole) {
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
    RowCoalescer& found = alone.coalescer;
    EXPECT_FALSE(found.has({.ids = {}, .count = 1, .values = {}})) << "none were added";
    for (int round = 0; round < 3; ++round) {
      std::vector<int64_t> ids(random.below(rows_max + 1));
      for (int64_t& id : ids) {
        id = random.chance(10) ? kPaddingId : static_cast<int64_t>(random.below(rows));
      }
      // Of two slices.
      const auto before = static_cast<uint32_t>(random.below(ids.size() + 1));
      found.begin(ids.size());
      found.add_ids(partition, {.wide = ids.data()}, before, 0);
      found.add_ids(partition, {.wide = ids.data() + before},
                    static_cast<uint32_t>(ids.size()) - before, before);
      if (random.chance(50)) found.group([](uint32_t row_key) { return row_key % 2; });
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
      made.coalescer.coalesce_found(found, slice, group_of, made.block.data());
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

// Given every row, expect ids that say so one by one to be the same.
TEST(RowCoalescer, EveryRowIsFoundByItsIds) {
  const Partition partition(5, 1, true, SlotMap::of_ranks(2, kSlotsPerOwner), 0);
  OfIdsAlone alone(6);
  RowCoalescer& found = alone.coalescer;
  found.begin(5);
  found.add_ids(partition, {}, 5, 0);
  const std::vector<int64_t> ids = {0, 1, 2, 3, 4}, turned = {4, 3, 2, 1, 0};
  const std::vector<float> none;
  EXPECT_TRUE(found.has(slice_of(ids, none)));
  EXPECT_FALSE(found.has(slice_of(turned, none)));
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
