// SPDX-License-Identifier: Apache-2.0
// Ids found by a sort: against a map of the standard library, and, where they are so many that the
// coalescers take it, against coalescers that have an index alone.
#include "aggregate/sorted_ids.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/seeded_random.h"
#include "unit/aggregate/coalescing.h"

namespace parallax {
namespace {

using namespace testkit;

// Given ids near and far, many of them twice, and padding, expect the numbers that a map counts up
// to, and what is left of the room to be what an index may be lent for.
TEST(SortedIds, AreNumberedAsAMapDoes) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    const uint64_t span = uint64_t{1} << random.between(0, 32);
    std::vector<int64_t> ids(random.below(random.chance(50) ? 40 : 3000));
    for (int64_t& id : ids) {
      id = random.chance(10) ? kPaddingId
                             : static_cast<int64_t>(UINT32_MAX - 1 - random.below(span));
      if (id < kPaddingId) id = 0;  // of all 2^32 there are
    }
    std::map<int64_t, uint32_t> naive;
    std::vector<uint32_t> expected, firsts;
    for (uint32_t at = 0; at < ids.size(); ++at) {
      const auto [found, is_new] = naive.try_emplace(ids[at], firsts.size());
      if (ids[at] == kPaddingId) {
        naive.erase(found);
        expected.push_back(kNoSlot);
        continue;
      }
      if (is_new) firsts.push_back(at);
      expected.push_back(found->second);
    }
    const auto count = static_cast<uint32_t>(ids.size());
    std::vector<uint64_t> room(2 * ids.size() + random.below(3), UINT64_MAX);
    std::vector<uint32_t> uniques(ids.size(), 7), noted;
    const auto note = [&noted](uint32_t number, uint32_t at) {
      EXPECT_EQ(number, noted.size());
      noted.push_back(at);
    };
    ASSERT_EQ(find_by_sort(ids, count, room, uniques.data(), note), firsts.size());
    EXPECT_EQ(uniques, expected);
    EXPECT_EQ(noted, firsts);
    for (const uint64_t left : room) {
      EXPECT_TRUE(left == UINT64_MAX || static_cast<uint32_t>(left) < count);
    }
  }
}

struct Many {
  explicit Many(uint64_t seed) : random(seed) {
    ids.resize(kSortedIdsMin + random.below(1000));
    const uint64_t hot = random.chance(50) ? rows : 1000;
    for (int64_t& id : ids) {
      id = random.chance(5) ? kPaddingId : static_cast<int64_t>(random.below(hot));
    }
    values.resize(ids.size());
    for (float& value : values) value = static_cast<float>(random.unit() - 0.5);
  }
  static constexpr uint64_t rows = kSortedIdsMin + 5;
  const Partition partition{rows, 1, true, SlotMap::of_ranks(4, kSlotsPerOwner), 0};
  SeededRandom random;
  std::vector<int64_t> ids;
  std::vector<float> values;
};

void expect_alike(const Coalescing<>& made, const Coalescing<>& right) {
  ASSERT_EQ(made.coalescer.item_count(), right.coalescer.item_count());
  ASSERT_EQ(made.coalescer.block_rows(), right.coalescer.block_rows());
  const uint64_t bytes = RowCoalescer::block_bytes(right.coalescer.block_rows(), sizeof(float),
                                                   right.coalescer.item_count());
  ASSERT_EQ(std::memcmp(made.block.data(), right.block.data(), bytes), 0);
}

// Given so many ids that they are sorted, expect the block of a coalescer that looks for each in
// its index, byte for byte, and few ids behind them to be found as ever.
TEST(SortedIds, MakeTheBlockOfAnIndex) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Many many(seed);
    const auto count = static_cast<uint32_t>(many.ids.size());
    RowScratch scratch;
    Coalescing<> made(many.partition, count, {.scratch = &scratch}),
        right(many.partition, count, {});
    OfIdsAlone alone(count, &scratch);
    RowSlice slice = slice_of(many.ids, many.values);
    for (const uint32_t of : {count, 100u, count - 1, count}) {
      slice.count = of;
      right.coalescer.coalesce(many.partition, slice, {}, group_of, right.block.data());
      made.coalescer.coalesce(many.partition, slice, {}, group_of, made.block.data());
      expect_alike(made, right);
      alone.coalescer.begin(of, many.random.chance(50));
      alone.coalescer.add_ids(many.partition, slice.ids, of, 0);
      alone.coalescer.end_ids(many.partition);
      ASSERT_TRUE(alone.coalescer.has(slice));
      ASSERT_TRUE(alone.coalescer.padded());
      made.coalescer.coalesce_found(alone.coalescer, {&slice, 1}, group_of, made.block.data());
      expect_alike(made, right);
    }
    // And rows that stay where they are.
    Coalescing<> stays(many.partition, count, {.scratch = &scratch});
    made.coalescer.coalesce_in_place(many.partition, slice, nullptr, group_of, made.block.data());
    stays.coalescer.coalesce_in_place(many.partition, slice, &alone.coalescer, group_of,
                                      stays.block.data());
    expect_alike(stays, made);
  }
}

// Given ids of which some come of another slice, which a sort would number anew, expect none to be
// sorted.
TEST(SortedIds, AreThoseOfOneSlice) {
  Many many(1);
  const auto count = static_cast<uint32_t>(many.ids.size());
  RowScratch scratch;
  Coalescing<> made(many.partition, count + 3, {.scratch = &scratch});
  Coalescing<> right(many.partition, count + 3, {});
  const RowSlice slice = slice_of(many.ids, many.values);
  const std::vector<int64_t> few = {1, many.ids[0], 2};
  const std::vector<float> ones = {1, 1, 1};
  const RowSlice more = slice_of(few, ones);
  right.coalescer.coalesce(many.partition, more, slice, group_of, right.block.data());
  made.coalescer.coalesce(many.partition, more, slice, group_of, made.block.data());
  expect_alike(made, right);
  OfIdsAlone alone(count + 3, &scratch), alone_right(count + 3);
  for (OfIdsAlone* each : {&alone, &alone_right}) {
    each->coalescer.begin(count + 3);
    each->coalescer.add_ids(many.partition, slice.ids, count, 0);
    each->coalescer.add_ids(many.partition, more.ids, 3, count);
    each->coalescer.end_ids(many.partition);
  }
  for (uint32_t row = 0; row < count + 3; ++row) {
    ASSERT_EQ(alone.coalescer.first_row_of(row), alone_right.coalescer.first_row_of(row)) << row;
  }
}

}  // namespace
}  // namespace parallax
