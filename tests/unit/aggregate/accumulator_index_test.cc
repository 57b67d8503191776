// SPDX-License-Identifier: Apache-2.0
// How rows of an accumulator are found: by an index of its own, by one that others use, or, as long
// as one source alone has given distinct ones, not at all.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "aggregate/accumulator.h"
#include "aggregate/row_scratch.h"

namespace parallax {
namespace {

struct OneNumberRows {
  explicit OneNumberRows(const RowAccumulatorOptions& options) {
    Arena measure;
    rows.lay_out(measure, options);
    EXPECT_TRUE(arena.reserve(measure.used_bytes()).ok());
    rows.lay_out(arena, options);
    rows.clear();
  }
  // Of rows of one number.
  bool add(uint32_t source, std::span<const uint32_t> row_keys, std::span<const float> numbers) {
    return rows.add(source, static_cast<uint32_t>(row_keys.size()), std::as_bytes(row_keys),
                    std::as_bytes(numbers));
  }
  float number(uint32_t slot) const { return *reinterpret_cast<const float*>(rows.row(slot)); }

  Arena arena;
  RowAccumulator rows;
};

// Given many more rows than the last step had, expect each once, with the sum of what two sources
// gave of it.
TEST(RowAccumulator, AStepMayHaveManyMoreThanTheLast) {
  constexpr uint32_t kRows = 5000;
  OneNumberRows summed({.sources = 2, .rows_max = kRows, .source_rows_max = kRows + 1});
  for (const uint32_t rows : {10u, kRows, 70u, 200u}) {
    summed.rows.clear();
    std::vector<uint32_t> row_keys;
    std::vector<float> numbers;
    for (uint32_t row = 0; row < rows; ++row) {
      row_keys.push_back(row * 7919);
      numbers.push_back(static_cast<float>(row));
    }
    for (const uint32_t source : {0u, 1u}) {
      ASSERT_TRUE(summed.add(source, row_keys, numbers));
    }
    ASSERT_EQ(summed.rows.row_count(), rows);
    for (uint32_t row = 0; row < rows; ++row) {
      ASSERT_EQ(summed.rows.index().find(row_keys[row]), row);
      ASSERT_EQ(summed.number(row), 2 * numbers[row]);
    }
  }
  summed.rows.clear();
  std::vector<uint32_t> row_keys(kRows + 1);
  std::iota(row_keys.begin(), row_keys.end(), 0u);
  const std::vector<float> numbers(kRows + 1);
  EXPECT_FALSE(summed.add(0, row_keys, numbers)) << "more distinct rows than there may be";
}

// Given rows that another accumulator has, and others that are sent before or behind them: expect
// each that comes from there alone to stay there, and the sums of both elsewhere, whether they are
// found by a scratch, which somebody may take in between, or not.
TEST(RowAccumulator, RowsOfAnotherStayThere) {
  enum class Scratch { kNone, kKept, kTaken };
  for (const auto kind : {Scratch::kNone, Scratch::kKept, Scratch::kTaken}) {
    RowScratch scratch;
    ASSERT_TRUE(scratch.reserve(100).ok());
    RowAccumulatorOptions options = {.sources = 2,
                                     .rows_max = 100,
                                     .source_rows_max = 60,
                                     .row_elements = 1,
                                     .rows_stay = true,
                                     .scratch = kind == Scratch::kNone ? nullptr : &scratch};
    OneNumberRows summed(options);
    options.sources = 1;
    options.rows_stay = false;
    options.scratch = nullptr;
    OneNumberRows other(options);
    for (const bool sent_first : {false, true}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + (sent_first ? " sent first" : ""));
      summed.rows.clear();
      other.rows.clear();
      const auto row = [](uint32_t i) { return static_cast<float>(i) + 0.5f; };
      std::vector<uint32_t> row_keys, slots;
      std::vector<float> numbers;
      for (uint32_t i = 0; i < 50; ++i) {
        row_keys.push_back(1000 - i);
        numbers.push_back(row(i));
        if (i % 2 == 0) slots.push_back(i);
      }
      ASSERT_TRUE(other.add(0, row_keys, numbers));
      const auto send = [&](uint32_t row_key, float added) {
        if (kind == Scratch::kTaken) scratch.begin(&scratch, 50);
        ASSERT_TRUE(summed.add(0, {&row_key, 1}, {&added, 1}));
      };
      const auto send_both = [&] {
        send(1000, 100);
        send(7, 200);
      };
      if (sent_first) send_both();
      std::vector<uint32_t> taken_keys;
      for (const uint32_t slot : slots) taken_keys.push_back(row_keys[slot]);
      summed.rows.join_rows_of(1, other.rows, taken_keys, slots);
      if (!sent_first) send_both();
      ASSERT_EQ(summed.rows.row_count(), 26u);
      EXPECT_NE(summed.rows.index().find(7), kNoSlot);
      for (uint32_t i = 0; i < slots.size(); ++i) {
        const uint32_t slot = summed.rows.index().find(taken_keys[i]);
        ASSERT_NE(slot, kNoSlot);
        const bool stays = summed.rows.row(slot) == other.rows.row(slots[i]);
        EXPECT_EQ(stays, i > 0) << i;
        EXPECT_EQ(summed.number(slot), row(slots[i]) + (i == 0 ? 100 : 0));
        EXPECT_EQ(other.number(slots[i]), row(slots[i])) << "it is the other's";
      }
    }
  }
}

// Given rows that their first source gives once each: expect them to stay, in its order, and to be
// found by who asks.
TEST(RowAccumulator, DistinctRowsStay) {
  OneNumberRows summed({.rows_max = 4, .source_rows_max = 4, .rows_stay = true});
  for (const bool again : {false, true}) {
    summed.rows.clear();
    const std::array<float, 3> numbers = {10, 20, 30};
    std::vector<const std::byte*> rows;
    for (const float& each : numbers) rows.push_back(reinterpret_cast<const std::byte*>(&each));
    const std::vector<uint32_t> row_keys = {7, 3, 5};
    ASSERT_TRUE(summed.rows.spend(0, 3));
    summed.rows.join_distinct(std::span(row_keys).first(2), rows.data());
    summed.rows.join_distinct(std::span(row_keys).last(1), rows.data() + 2);
    summed.rows.end(0);
    ASSERT_EQ(summed.rows.row_count(), 3u) << again;
    for (uint32_t slot = 0; slot < 3; ++slot) {
      EXPECT_EQ(summed.rows.index().find(row_keys[slot]), slot);
      EXPECT_EQ(summed.rows.row_keys()[slot], row_keys[slot]);
      EXPECT_EQ(summed.rows.row(slot), rows[slot]);
    }
  }
}

}  // namespace
}  // namespace parallax
