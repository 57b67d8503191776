// SPDX-License-Identifier: Apache-2.0
// The index of rows against a map of the standard library.
#include "aggregate/row_index.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

// An index of so many slots, laid out in an arena of the size that it measured.
struct LaidOut {
  explicit LaidOut(uint64_t slots_max, uint32_t first_number = 1) : index(first_number) {
    index.lay_out(arena, slots_max);
    EXPECT_TRUE(arena.reserve(arena.used_bytes()).ok());
    index.lay_out(arena, slots_max);
    EXPECT_EQ(arena.used_bytes(), arena.reserved_bytes());
  }
  Arena arena;
  RowIndex index;
};

// Given row keys near and far, many of them twice, expect the slots that a map counts up to, and
// in the next round none of this one's.
TEST(RowIndex, SlotsAreCountedUpAsAMapDoes) {
  LaidOut few(12), many(300);
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RowIndex& index = seed % 2 == 0 ? few.index : many.index;
    const size_t slots = seed % 2 == 0 ? 12 : 300;
    SeededRandom random(seed);
    const uint64_t span = uint64_t{1} << random.between(1, 32);
    std::map<uint32_t, uint32_t> naive;
    for (int i = 0; i < 1000 && naive.size() < slots; ++i) {
      const auto row_key = static_cast<uint32_t>(random.below(span));
      const auto known = naive.find(row_key);
      ASSERT_EQ(index.find(row_key), known == naive.end() ? kNoSlot : known->second);
      bool inserted = false;
      const uint32_t slot = index.find_or_insert(row_key, &inserted);
      ASSERT_EQ(inserted, known == naive.end());
      ASSERT_EQ(slot, naive.try_emplace(row_key, naive.size()).first->second);
      ASSERT_EQ(index.size(), naive.size());
    }
    for (const auto& [row_key, slot] : naive) ASSERT_EQ(index.find(row_key), slot);
    index.clear();
    EXPECT_EQ(index.size(), 0u);
    for (const auto& [row_key, slot] : naive) ASSERT_EQ(index.find(row_key), kNoSlot);
  }
}

// Given parts of which none has a row key of another, as far as it is told, expect each to find its
// own alone, and slots to go on; near the greatest number of a slot, too.
TEST(RowIndex, APartFindsItsOwn) {
  LaidOut few(14), many(900), late(900, RowIndex::kFirstMax - 5'000);
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SeededRandom random(seed);
    const bool is_few = seed % 5 == 0;
    const uint32_t slots = is_few ? 14 : 900;
    RowIndex& index = is_few ? few.index : seed % 2 == 0 ? many.index : late.index;
    index.clear_for(1 + random.below(slots));
    uint32_t before = 0;
    while (before < slots) {
      const auto bound = static_cast<uint32_t>(1 + random.below(slots - before));
      index.begin_part(bound);
      std::map<uint32_t, uint32_t> naive;
      const uint64_t span = 2 * bound;
      for (uint32_t i = 0; i < 2 * bound && naive.size() < bound; ++i) {
        const std::array row_keys = {static_cast<uint32_t>(random.below(span))};
        std::array<uint32_t, 1> found = {};
        ASSERT_TRUE(index.find_or_insert_each(row_keys.data(), 1, found.data()));
        const auto slot = static_cast<uint32_t>(before + naive.size());
        ASSERT_EQ(found[0], naive.try_emplace(row_keys[0], slot).first->second) << "seed " << seed;
        ASSERT_EQ(index.size(), before + naive.size());
      }
      for (uint32_t row_key = 0; row_key < span; ++row_key) {
        const auto known = naive.find(row_key);
        ASSERT_EQ(index.find(row_key), known == naive.end() ? kNoSlot : known->second);
      }
      before += static_cast<uint32_t>(naive.size());
    }
    index.clear();
    ASSERT_EQ(index.find(0), kNoSlot);
  }
}

// Given some row keys at a time, in an index that is cleared for as many slots as they need or for
// more, expect the slots that a map counts up to; and one more distinct row key to be refused.
TEST(RowIndex, SomeAtATimeAreCountedAlike) {
  LaidOut few(12), many(300);
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RowIndex& index = seed % 2 == 0 ? few.index : many.index;
    SeededRandom random(seed);
    const uint64_t slots_max = 1 + random.below(seed % 2 == 0 ? 12 : 300);
    index.clear_for(slots_max);
    const uint64_t span = slots_max + random.below(uint64_t{1} << random.between(1, 31));
    std::map<uint32_t, uint32_t> naive, noted;
    bool refused = false;
    for (int i = 0; i < 100 && !refused; ++i) {
      std::array<uint32_t, kRowsTogether> row_keys = {}, slots = {};
      const auto count = static_cast<uint32_t>(random.below(kRowsTogether + 1));
      for (uint32_t at = 0; at < count; ++at) {
        row_keys[at] = static_cast<uint32_t>(random.below(span));
        refused |= naive.size() == slots_max && naive.count(row_keys[at]) == 0;
        if (!refused) naive.try_emplace(row_keys[at], naive.size());
      }
      // Of each slot, the one that came with it.
      ASSERT_EQ(index.find_or_insert_each(
                    row_keys.data(), count, slots.data(),
                    [&](uint32_t slot, uint32_t at) { noted[slot] = row_keys[at]; }),
                !refused);
      for (uint32_t at = 0; at < count && !refused; ++at) {
        ASSERT_EQ(slots[at], naive.at(row_keys[at]));
      }
      ASSERT_EQ(index.size(), naive.size());
    }
    for (const auto& [row_key, slot] : naive) {
      ASSERT_EQ(index.find(row_key), slot);
      ASSERT_EQ(noted.at(slot), row_key);
    }
    index.clear();
    for (const auto& [row_key, slot] : naive) ASSERT_EQ(index.find(row_key), kNoSlot);
  }
}

// Given as many row keys as there is room for, expect the next one to be refused, and nothing that
// is there to be lost.
TEST(RowIndex, OneMoreThanTheBoundIsRefused) {
  for (const uint64_t slots_max : {0u, 1u, 7u, 8u, 9u, 15u, 16u, 17u, 64u}) {
    SCOPED_TRACE(slots_max);
    LaidOut laid_out(slots_max);
    RowIndex& index = laid_out.index;
    bool inserted = false;
    for (uint32_t i = 0; i < slots_max; ++i) {
      ASSERT_EQ(index.find_or_insert(UINT32_MAX - i, &inserted), i);
      ASSERT_TRUE(inserted);
    }
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(index.find_or_insert(5, &inserted), kNoSlot);
      EXPECT_EQ(index.find(5), kNoSlot);
      EXPECT_EQ(index.size(), slots_max);
    }
    for (uint32_t i = 0; i < slots_max; ++i) {
      ASSERT_EQ(index.find_or_insert(UINT32_MAX - i, &inserted), i);
      ASSERT_FALSE(inserted);
    }
  }
}

// Given row keys that all begin their search at one place, expect each to be found.
TEST(RowIndex, PositionsThatCollideAreToldApart) {
  constexpr uint32_t kSlots = 32;         // more than a list has
  constexpr uint32_t kStride = 1u << 31;  // an odd multiplier moves its top bit alone
  LaidOut laid_out(kSlots);
  RowIndex& index = laid_out.index;
  for (uint32_t i = 0; i < kSlots; ++i) {
    bool inserted = false;
    ASSERT_EQ(index.find_or_insert(i / 2 + i % 2 * kStride, &inserted), i);
    ASSERT_TRUE(inserted);
  }
  for (uint32_t i = 0; i < kSlots; ++i) EXPECT_EQ(index.find(i / 2 + i % 2 * kStride), i);
}

// Given numbers of slots that run out, expect what was there before to be forgotten all the same,
// by who asks for one row and by who asks for some.
TEST(RowIndex, NumbersBeginAnew) {
  constexpr uint32_t kSlots = 100;
  Arena measure;
  RowIndex index(RowIndex::kFirstMax - 3 * kSlots);
  index.lay_out(measure, kSlots);
  Arena arena;
  ASSERT_TRUE(arena.reserve(measure.used_bytes()).ok());
  index.lay_out(arena, kSlots);
  for (uint32_t round = 0; round < 9; ++round) {
    index.clear();
    std::vector<uint32_t> row_keys(kSlots), slots(kSlots);
    for (uint32_t i = 0; i < kSlots; ++i) row_keys[i] = i * 977 + round % 2;
    for (const uint32_t row_key : row_keys) ASSERT_EQ(index.find(row_key), kNoSlot) << round;
    ASSERT_TRUE(index.find_or_insert_each(row_keys.data(), kSlots / 2, slots.data()));
    for (uint32_t i = kSlots / 2; i < kSlots; ++i) {
      bool inserted = false;
      slots[i] = index.find_or_insert(row_keys[i], &inserted);
      ASSERT_TRUE(inserted) << round;
    }
    for (uint32_t i = 0; i < kSlots; ++i) {
      ASSERT_EQ(slots[i], i) << round;
      ASSERT_EQ(index.find(row_keys[i]), i) << round;
    }
    bool inserted = false;
    EXPECT_EQ(index.find_or_insert(1'000'000, &inserted), kNoSlot) << "one more than there may be";
  }
}

// Given an index whose memory was lent, and comes back full of what looks like entries, expect it
// to be empty; and what has something in it, or not as much room, to lend nothing.
TEST(RowIndex, WhatItLentIsFreeAgain) {
  constexpr uint32_t kSlots = 100;
  for (const uint32_t first : {1u, RowIndex::kFirstMax - 2 * kSlots}) {
    Arena measure, arena;
    RowIndex index(first);
    index.lay_out(measure, kSlots);
    ASSERT_TRUE(arena.reserve(measure.used_bytes()).ok());
    index.lay_out(arena, kSlots);
    EXPECT_TRUE(index.lend(1000).empty());
    for (uint32_t round = 0; round < 9; ++round) {
      const std::span<uint64_t> lent = index.lend(kSlots);
      ASSERT_EQ(lent.size(), 2 * kSlots);
      for (uint32_t i = 0; i < lent.size(); ++i) lent[i] = uint64_t{i} << 32 | i % kSlots;
      EXPECT_EQ(index.find(round), kNoSlot);
      bool inserted = false;
      for (uint32_t i = 0; i < kSlots; ++i) {
        ASSERT_EQ(index.find_or_insert(2 * i, &inserted), i) << round;
        ASSERT_TRUE(inserted) << round;
      }
      EXPECT_EQ(index.find(1), kNoSlot);
      EXPECT_TRUE(index.lend(kSlots).empty());
      index.clear_for(kSlots);
    }
  }
  LaidOut of_a_list(8);
  EXPECT_TRUE(of_a_list.index.lend(8).empty());
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
