// SPDX-License-Identifier: Apache-2.0
// How rows of an accumulator are found: by an index of its own, by one that others use, or, as long
// as one source alone has given distinct ones, not at all.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "aggregate/accumulator.h"
#include "aggregate/row_scratch.h"
#include "base/seeded_random.h"

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

// Given rows that are found by an index of all that has no room for those behind them, expect these
// to be found by one that has, though they are more than the last step's.
TEST(RowAccumulator, WhatNoSharedIndexHasRoomForHasItsOwn) {
  constexpr uint32_t kFirst = 35, kBehind = 40;
  RowScratch scratch;
  ASSERT_TRUE(scratch.reserve(100).ok());
  OneNumberRows summed({.sources = 2,
                        .rows_max = 140,
                        .source_rows_max = 100,
                        .ordered = true,
                        .scratch = &scratch});
  std::vector<uint32_t> row_keys(kFirst + kBehind);
  std::iota(row_keys.begin(), row_keys.end(), 7u);
  const std::vector<float> numbers(kFirst + kBehind, 1);
  const auto keys = std::span<const uint32_t>(row_keys);
  // Held back until the first source has ended.
  ASSERT_TRUE(summed.add(1, keys.subspan(kFirst), std::span(numbers).first(kBehind)));
  std::vector<const std::byte*> rows;
  for (uint32_t i = 0; i < kFirst; ++i) {
    rows.push_back(reinterpret_cast<const std::byte*>(&numbers[i]));
  }
  ASSERT_TRUE(summed.rows.spend(0, kFirst));
  for (uint32_t first = 0; first < kFirst; first += kRowsTogether) {
    const uint32_t some = std::min(kFirst - first, kRowsTogether);
    ASSERT_TRUE(summed.rows.join(keys.subspan(first, some), &rows[first]));
  }
  summed.rows.end(0);
  ASSERT_EQ(summed.rows.row_count(), kFirst + kBehind);
  for (uint32_t slot = 0; slot < kFirst + kBehind; ++slot) {
    EXPECT_EQ(summed.rows.row_keys()[slot], row_keys[slot]);
    EXPECT_EQ(summed.number(slot), 1);
  }
}

enum class Scratch { kNone, kKept, kTaken };

// A sum of what another accumulator has of every second row, in two lots, and of what is sent.
class OwnAndSent {
 public:
  OwnAndSent(Scratch kind, RowScratch& scratch)
      : kind_(kind),
        scratch_(scratch),
        summed_({.sources = 2,
                 .rows_max = kMost,
                 .source_rows_max = kMost,
                 .rows_stay = true,
                 .scratch = kind == Scratch::kNone ? nullptr : &scratch}),
        other_({.rows_max = kMost, .source_rows_max = kMost}) {}

  void begin(uint32_t rows) {
    summed_.rows.clear();
    other_.rows.clear();
    row_keys_.clear();
    slots_.clear();
    taken_keys_.clear();
    std::vector<float> numbers;
    for (uint32_t i = 0; i < rows; ++i) {
      row_keys_.push_back(10'000 - i);
      numbers.push_back(number_of(i));
      if (i % 2 == 0) slots_.push_back(i);
      if (i % 2 == 0) taken_keys_.push_back(row_keys_[i]);
    }
    ASSERT_TRUE(other_.add(0, row_keys_, numbers));
    sent_ = 0;
  }
  void take(bool second) {
    const size_t half = slots_.size() / 2, first = second ? half : 0;
    const size_t count = second ? slots_.size() - half : half;
    summed_.rows.join_rows_of(1, other_.rows, std::span(taken_keys_).subspan(first, count),
                              std::span(slots_).subspan(first, count));
  }
  // Of two that are taken, and two that are not.
  void send() {
    const std::vector<uint32_t> keys = {taken_keys_.front(), 2 * sent_ + 1, 2 * sent_ + 2,
                                        taken_keys_.back()};
    if (kind_ == Scratch::kTaken) scratch_.begin(&scratch_, 50);
    ASSERT_TRUE(summed_.add(0, keys, std::vector<float>{100, 1, 2, 1000}));
    ++sent_;
  }
  void expect_sums() {
    ASSERT_EQ(summed_.rows.row_count(), slots_.size() + 2 * sent_);
    for (uint32_t i = 0; i < slots_.size(); ++i) {
      const uint32_t slot = summed_.rows.index().find(taken_keys_[i]);
      ASSERT_NE(slot, kNoSlot);
      const float once = i == 0 ? 100 : i + 1 == slots_.size() ? 1000 : 0;
      EXPECT_EQ(summed_.rows.row(slot) == other_.rows.row(slots_[i]), once == 0) << i;
      EXPECT_EQ(summed_.number(slot), number_of(slots_[i]) + once * static_cast<float>(sent_)) << i;
      EXPECT_EQ(other_.number(slots_[i]), number_of(slots_[i])) << "it is the other's";
    }
    EXPECT_NE(summed_.rows.index().find(2), kNoSlot);
  }

 private:
  static constexpr uint32_t kMost = 2000;
  static float number_of(uint32_t i) { return static_cast<float>(i) + 0.5f; }

  const Scratch kind_;
  RowScratch& scratch_;
  OneNumberRows summed_, other_;
  std::vector<uint32_t> row_keys_, slots_, taken_keys_;
  uint32_t sent_ = 0;
};

// Given rows that are sent before the others, between their lots or behind them, many more than in
// the step before: expect each that comes from the other alone to stay there, and the sums of both
// elsewhere, whether they are found by a scratch, which somebody may take in between, or not.
TEST(RowAccumulator, RowsOfAnotherStayThere) {
  for (const auto kind : {Scratch::kNone, Scratch::kKept, Scratch::kTaken}) {
    RowScratch scratch;
    ASSERT_TRUE(scratch.reserve(2000).ok());
    OwnAndSent both(kind, scratch);
    for (const char* const order : {"sttss", "tstss", "ttss"}) {
      for (const uint32_t rows : {50u, 600u, 4u}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + ", " + std::to_string(rows) + ", " +
                     order);
        both.begin(rows);
        bool second = false;
        for (const char* at = order; *at != '\0'; ++at) {
          if (*at == 's') {
            both.send();
          } else {
            both.take(std::exchange(second, true));
          }
        }
        both.expect_sums();
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

// Given rows of widths that are added each in a way of its own, by several sources, some of them
// twice by one: expect the sums of whole numbers, and -0 of a single source alone.
TEST(RowAccumulator, StayingRowsOfAnyWidth) {
  for (const uint32_t width : {1u, 8u, 16u, 32u, 48u, 64u, 100u}) {
    SCOPED_TRACE(width);
    SeededRandom random(width);
    constexpr uint32_t kSources = 4, kKeys = 50, kGiven = kRowsTogether;
    OneNumberRows summed({.sources = kSources,
                          .rows_max = kKeys,
                          .source_rows_max = kGiven,
                          .row_elements = width,
                          .rows_stay = true});
    std::vector<float> given(size_t{kSources} * kGiven * width);
    for (float& number : given) number = random.chance(20) ? -0.0F : random.between(-99, 99);
    const std::vector<float> before = given;
    std::vector<std::vector<const float*>> of_key(kKeys);
    for (uint32_t source = 0; source < kSources; ++source) {
      std::vector<uint32_t> row_keys(kGiven);
      std::vector<const std::byte*> rows(kGiven);
      for (uint32_t i = 0; i < kGiven; ++i) {
        row_keys[i] = static_cast<uint32_t>(random.below(kKeys));
        const float* const row = &given[(size_t{source} * kGiven + i) * width];
        rows[i] = reinterpret_cast<const std::byte*>(row);
        of_key[row_keys[i]].push_back(row);
      }
      ASSERT_TRUE(summed.rows.spend(source, kGiven));
      ASSERT_TRUE(summed.rows.join(row_keys, rows.data()));
      summed.rows.end(source);
    }
    EXPECT_EQ(std::memcmp(given.data(), before.data(), given.size() * sizeof(float)), 0);
    for (uint32_t slot = 0; slot < summed.rows.row_count(); ++slot) {
      const std::vector<const float*>& addends = of_key[summed.rows.row_keys()[slot]];
      const auto* const sum = reinterpret_cast<const float*>(summed.rows.row(slot));
      EXPECT_EQ(sum == addends[0], addends.size() == 1) << "who alone gave a row has it";
      for (uint32_t column = 0; column < width; ++column) {
        float expected = addends.size() == 1 ? -0.0F : 0.0F;
        for (const float* const addend : addends) expected += addend[column];
        ASSERT_EQ(std::bit_cast<uint32_t>(sum[column]), std::bit_cast<uint32_t>(expected));
      }
    }
    size_t keys = 0;
    for (const auto& addends : of_key) keys += addends.empty() ? 0 : 1;
    EXPECT_EQ(summed.rows.row_count(), keys);
  }
}

}  // namespace
}  // namespace parallax
