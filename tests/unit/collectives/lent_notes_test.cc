// SPDX-License-Identifier: Apache-2.0
// The order in which loans are read: of one operation as they came, of several a block each.
#include "collectives/lent_notes.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace parallax {
namespace {

using Reads = std::vector<std::pair<uint32_t, uint64_t>>;  // of which operation, how many

TEST(LentNotes, operations_take_turns_and_each_keeps_its_order) {
  LentNotes notes;
  EXPECT_TRUE(notes.empty());
  for (const auto& [op, count] : Reads{{7, 25}, {3, 10}, {7, 4}, {3, 1}}) {
    notes.add({.op = op, .part = {}, .count = count});
  }
  std::vector<Reads> rounds;
  const auto read = [&rounds](LentNote& note, uint64_t count) {
    note.count -= count;
    rounds.back().emplace_back(note.op, count);
    return true;
  };
  do {
    rounds.emplace_back();
  } while (notes.round(10, read));
  EXPECT_EQ(rounds,
            (std::vector<Reads>{{{7, 10}, {3, 10}, {3, 1}}, {{7, 10}}, {{7, 5}, {7, 4}}, {}}));
  EXPECT_TRUE(notes.empty());
}

TEST(LentNotes, what_may_not_be_read_stays) {
  LentNotes notes;
  notes.add({.op = 1, .part = {}, .count = 5});
  notes.add({.op = 2, .part = {}, .count = 5});
  const auto read_2 = [](LentNote& note, uint64_t count) {
    if (note.op != 2) return false;
    note.count -= count;
    return true;
  };
  EXPECT_TRUE(notes.round(100, read_2));
  EXPECT_FALSE(notes.empty());
  EXPECT_FALSE(notes.round(100, read_2));
  EXPECT_FALSE(notes.empty());
  notes.clear();
  EXPECT_TRUE(notes.empty());
}

}  // namespace
}  // namespace parallax
