// SPDX-License-Identifier: Apache-2.0
// Slots of held rows, given and taken back, against a map.
#include "server/held_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "base/bits.h"
#include "base/seeded_random.h"

namespace parallax::testkit::held_rows {
namespace {

struct Held {
  explicit Held(uint64_t rows_max) {
    Arena measure;
    rows.lay_out(measure, rows_max, sizeof(uint32_t));
    EXPECT_TRUE(arena.reserve(measure.used_bytes()).ok());
    rows.lay_out(arena, rows_max, sizeof(uint32_t));
    rows.clear();
  }
  uint32_t value(uint32_t slot) const {
    uint32_t read;
    std::memcpy(&read, rows.values() + slot * sizeof read, sizeof read);
    return read;
  }
  void put(uint32_t slot, uint32_t value) {
    rows.put(slot, reinterpret_cast<const std::byte*>(&value), sizeof value, 1);
  }
  Arena arena;
  HeldRows rows;
};

TEST(HeldRows, ARowIsTakenOnceAndThenHere) {
  Held held(4);
  bool taken = false;
  const uint32_t slot = held.rows.find_or_take(7, &taken);
  EXPECT_TRUE(taken);
  EXPECT_FALSE(held.rows.here(slot));
  EXPECT_EQ(held.rows.row_key(slot), 7u);
  EXPECT_EQ(held.rows.find_or_take(7, &taken), slot);
  EXPECT_FALSE(taken);
  held.put(slot, 70);
  EXPECT_TRUE(held.rows.here(slot));
  EXPECT_EQ(held.value(slot), 70u);
  held.rows.clear();
  const uint32_t anew = held.rows.find_or_take(7, &taken);
  EXPECT_TRUE(taken);
  EXPECT_FALSE(held.rows.here(anew)) << "nothing is left of what was before";
}

// Given distinct rows that were taken all at once, and moved: expect each to be found where it is,
// others not, and those that are kept to stay.
TEST(HeldRows, WhatIsTakenAtOnceIsFound) {
  Held held(6);
  EXPECT_TRUE(held.rows.empty());
  const std::vector<uint32_t> row_keys = {40, 10, 30, 20};
  held.rows.take_all(row_keys);
  EXPECT_FALSE(held.rows.empty());
  for (uint32_t slot = 0; slot < 4; ++slot) {
    EXPECT_EQ(held.rows.row_key(slot), row_keys[slot]);
    EXPECT_FALSE(held.rows.here(slot));
    held.rows.move(row_keys[3 - slot], slot);
    held.put(slot, row_keys[3 - slot]);
  }
  bool taken = false;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t slot = held.rows.find_or_take(row_keys[i], &taken);
    EXPECT_FALSE(taken);
    EXPECT_EQ(slot, 3 - i);
    EXPECT_EQ(held.value(slot), row_keys[i]);
  }
  EXPECT_EQ(held.rows.find_or_take(50, &taken), 4u);
  EXPECT_TRUE(taken);
  held.rows.clear();
  held.rows.take_all(row_keys);
  held.put(1, 10);
  held.rows.begin_forgetting();
  held.rows.keep(1);
  held.rows.end_forgetting();
  EXPECT_EQ(held.rows.find_or_take(10, &taken), 1u);
  EXPECT_FALSE(taken);
  held.rows.find_or_take(40, &taken);
  EXPECT_TRUE(taken) << "it was forgotten";
  held.rows.clear();
  held.rows.find_or_take(30, &taken);
  EXPECT_TRUE(taken);
}

// Given many more rows than the last step had, expect each to be found where it was taken, and as
// many as there is room for.
TEST(HeldRows, AStepMayHaveManyMoreThanTheLast) {
  constexpr uint32_t kRows = 3000;
  Held held(kRows);
  bool taken;
  for (const uint32_t rows : {5u, kRows, 70u, 200u}) {
    for (const bool at_once : {false, true}) {
      held.rows.clear();
      std::vector<uint32_t> row_keys;
      for (uint32_t row = 0; row < rows; ++row) row_keys.push_back(row * 7919);
      const uint32_t first = at_once ? rows / 2 : 0;
      if (at_once) held.rows.take_all(std::span(row_keys).first(first));
      for (uint32_t row = first; row < rows; ++row) {
        ASSERT_EQ(held.rows.find_or_take(row_keys[row], &taken), row);
        ASSERT_TRUE(taken);
      }
      for (uint32_t row = 0; row < rows; ++row) {
        ASSERT_EQ(held.rows.find_or_take(row_keys[row], &taken), row);
        ASSERT_FALSE(taken);
      }
    }
  }
  held.rows.clear();
  for (uint32_t row = 0; row < kRows; ++row) held.rows.find_or_take(row, &taken);
  EXPECT_EQ(held.rows.find_or_take(kRows, &taken), kNoSlot);
}

// Given rows on their way, expect runs of slots as long as they follow each other, and no longer
// than is asked for.
TEST(HeldRows, SlotsThatFollowEachOtherArePoppedTogether) {
  Held held(20);
  bool taken;
  for (uint32_t row = 0; row < 20; ++row) held.rows.find_or_take(row, &taken);
  HeldRows::Queue queue;
  for (const uint32_t slot : {3u, 4u, 5u, 9u, 8u, 7u, 10u, 11u, 19u}) held.rows.push(queue, slot);
  std::vector<std::pair<uint32_t, uint32_t>> runs;
  for (uint32_t left = 9, count = 0; left > 0; left -= count) {
    const uint32_t slot = held.rows.pop_run(queue, std::min(left, 2u), &count);
    runs.emplace_back(slot, count);
  }
  const std::vector<std::pair<uint32_t, uint32_t>> want = {{3, 2}, {5, 1},  {9, 1}, {8, 1},
                                                           {7, 1}, {10, 2}, {19, 1}};
  EXPECT_EQ(runs, want);
}

// Receive values in the order in which their rows were asked for, of two owners in turns.
TEST(HeldRows, AQueueKeepsItsOrder) {
  Held held(20);
  bool taken;
  HeldRows::Queue queues[2];
  for (uint32_t row = 0; row < 20; ++row) {
    held.rows.push(queues[row % 2], held.rows.find_or_take(row, &taken));
  }
  for (uint32_t row = 0; row < 10; ++row) {
    for (uint32_t of = 0; of < 2; ++of) {
      EXPECT_EQ(held.rows.row_key(held.rows.pop(queues[of])), 2 * row + of);
    }
  }
  held.rows.push(queues[0], 3);
  EXPECT_EQ(held.rows.pop(queues[0]), 3u);
}

// Given a queue, marks on rows behind some of its first, and rows behind those: expect the marked
// ones first among these, in their order, and a row that comes later last.
TEST(HeldRows, MarkedRowsAreBroughtForward) {
  SeededRandom random(1);
  for (uint32_t round = 0; round < 300; ++round) {
    Held held(40);
    HeldRows::Queue queue;
    std::vector<uint32_t> expected;
    const auto push = [&](uint32_t row_key) {
      bool taken;
      held.rows.push(queue, held.rows.find_or_take(row_key, &taken));
      expected.push_back(row_key);
    };
    for (uint64_t left = random.below(38), row_key = 0; row_key < left; ++row_key) {
      push(static_cast<uint32_t>(row_key));
    }
    const uint64_t skipped = random.below(expected.size() + 1);
    std::vector<std::byte> bits(random.below(6));
    for (std::byte& each : bits) each = static_cast<std::byte>(random.next());
    held.rows.bring_forward(queue, skipped, bits);
    const auto first = expected.begin() + static_cast<std::ptrdiff_t>(skipped);
    const auto end = first + std::min<std::ptrdiff_t>(expected.end() - first,
                                                      static_cast<std::ptrdiff_t>(bits.size() * 8));
    std::stable_partition(first, end, [&](uint32_t row_key) {
      const uint64_t i = row_key - skipped;
      return bit_at(bits, i);
    });
    push(39);
    for (const uint32_t row_key : expected) {
      ASSERT_EQ(held.rows.row_key(held.rows.pop(queue)), row_key) << "round " << round;
    }
    EXPECT_EQ(queue.head, kNoSlot);
  }
}

// Given rows taken until no slot is free, and some kept, time and again: expect the kept ones to
// stay where they are with what they hold, the others to be gone, and a free slot for each of them.
TEST(HeldRows, WhatIsNotKeptIsForgotten) {
  for (const uint64_t rows_max : {3, 16, 17, 50}) {
    SeededRandom random(rows_max);
    Held held(rows_max);
    std::map<uint32_t, uint32_t> slots;  // by row key
    uint32_t forgotten = 0;
    for (uint32_t i = 0; i < 2000; ++i) {
      const auto row_key = static_cast<uint32_t>(random.below(3 * rows_max));
      bool taken;
      uint32_t slot = held.rows.find_or_take(row_key, &taken);
      if (slot == kNoSlot) {
        EXPECT_EQ(slots.size(), rows_max);
        EXPECT_EQ(slots.count(row_key), 0u);
        ++forgotten;
        held.rows.begin_forgetting();
        std::map<uint32_t, uint32_t> kept;
        for (const auto& [key, at] : slots) {
          if (random.chance(50) || kept.size() + 1 == rows_max) continue;
          kept.emplace(key, at);
          held.rows.keep(at);
          if (random.chance(20)) held.rows.keep(at);  // wanted by two
        }
        held.rows.end_forgetting();
        slots = kept;
        slot = held.rows.find_or_take(row_key, &taken);
        ASSERT_NE(slot, kNoSlot);
      }
      EXPECT_EQ(taken, slots.count(row_key) == 0);
      if (taken) {
        for (const auto& [key, at] : slots) ASSERT_NE(at, slot) << key;
        ASSERT_LT(slot, rows_max);
        slots[row_key] = slot;
        held.put(slot, row_key * 10);
      }
      ASSERT_EQ(slots[row_key], slot);
      for (const auto& [key, at] : slots) ASSERT_EQ(held.value(at), key * 10);
    }
    EXPECT_GT(forgotten, 5u);
  }
}

}  // namespace
}  // namespace parallax::testkit::held_rows
