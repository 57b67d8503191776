// SPDX-License-Identifier: Apache-2.0
// What a host wants of a variable: what is asked for in whose name, and when it is complete.
#include "server/led_variable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "support/slot_maps.h"
#include "unit/server/pull_job.h"

namespace parallax::testkit::led_variable {
namespace {

// Hosts {0, 1, 2} and {3, 4}: rank 0 leads column 0, whose owners are ranks 0, 2 and 3.
constexpr uint32_t kRows = 60, kWidth = 3, kRowsMax = 6;

class LedVariableTest : public testing::Test {
 protected:
  explicit LedVariableTest(bool dense = false)
      : partition_(dense ? 10 * kRows : kRows, kWidth, !dense, even_slots(5), 0),
        led_(columns_, partition_, dense ? 0 : kRowsMax, uint32_t{PARALLAX_F32}) {
    Arena measure;
    led_.lay_out(measure);
    EXPECT_TRUE(arena_.reserve(measure.used_bytes()).ok());
    led_.lay_out(arena_);
  }

  // The first rows of an owner, by row key.
  std::vector<uint32_t> rows_of(uint32_t owner, uint32_t first, uint32_t count) const {
    std::vector<uint32_t> rows;
    for (uint32_t i = first; i < first + count; ++i)
      rows.push_back(partition_.row_key_at(owner, i));
    return rows;
  }

  bool list(uint32_t local, const std::vector<uint32_t>& rows, uint32_t dtype = PARALLAX_F32,
            uint64_t step = 1) {
    SectionHeader header{.kind = SectionKind::kPullLocal, .encoding = Encoding::kIds};
    header.flags = static_cast<uint8_t>(dtype << kSectionDtypeShift);
    header.step = step;
    header.count = static_cast<uint32_t>(rows.size());
    return led_.add(local, ++pulls_[local], OwnedSection(header, as_payload(rows)).view());
  }
  // Row keys that an owner is asked for in the name of a rank, all its owners asked.
  std::vector<uint32_t> ask(uint32_t local) {
    LedVariable::HostList& list = led_.list(local);
    std::vector<uint32_t> asked;
    for (const uint32_t owner : led_.owners()) {
      const LedVariable::Ask ask = led_.ask(list, owner);
      for (uint32_t i = ask.first; i < ask.first + ask.count; ++i) asked.push_back(list.asked[i]);
      before_[owner] = ask.before;
    }
    led_.end_asking(list);
    return asked;
  }
  bool values(uint32_t owner, uint64_t first, uint32_t count, uint32_t dtype = PARALLAX_F32,
              uint64_t step = 1) {
    SectionHeader header{.kind = SectionKind::kValuesHost, .encoding = Encoding::kValues};
    header.flags = static_cast<uint8_t>(dtype << kSectionDtypeShift);
    header.step = step;
    header.first = first;
    header.count = count;
    const std::vector<std::byte> payload(size_t{count} * kWidth * bytes_of_dtype(dtype));
    return led_.on_values(owner, OwnedSection(header, payload).view());
  }
  void answered(uint32_t local) { led_.list(local).answered = true; }

  const HostMap hosts_ = host_map({0, 0, 0, 1, 1});
  const Columns columns_{hosts_, 0};
  const Partition partition_;
  LedVariable led_;
  Arena arena_;
  uint64_t pulls_[3] = {};
  uint64_t before_[5] = {};
};

TEST_F(LedVariableTest, WhatIsWantedTwiceIsAskedForOnce) {
  std::vector<uint32_t> first = rows_of(0, 0, 3), second = rows_of(0, 2, 3);
  const std::vector<uint32_t> more = rows_of(3, 0, 2);
  first.insert(first.begin(), more.begin(), more.end());
  second.push_back(more[1]);
  ASSERT_TRUE(list(0, first));
  ASSERT_TRUE(led_.take(led_.list(0), 1));
  EXPECT_EQ(ask(0).size(), 5u);
  ASSERT_TRUE(list(1, second));
  ASSERT_TRUE(led_.take(led_.list(1), 1));
  EXPECT_EQ(ask(1), rows_of(0, 3, 2));
  EXPECT_EQ(before_[0], 3u) << "rows of that owner in this step";
  EXPECT_FALSE(led_.owes(2));
  EXPECT_TRUE(led_.owes(0) && led_.owes(3));
  EXPECT_TRUE(values(0, 0, 5));
  EXPECT_FALSE(led_.complete(led_.list(0)) || led_.complete(led_.list(1)))
      << "rank 3's are to come";
  EXPECT_TRUE(values(3, 0, 2));
  EXPECT_TRUE(led_.complete(led_.list(0)) && led_.complete(led_.list(1)));
  // Held: nothing more is to be asked for.
  ASSERT_TRUE(list(2, second));
  ASSERT_TRUE(led_.take(led_.list(2), 1));
  EXPECT_TRUE(ask(2).empty());
  EXPECT_TRUE(led_.complete(led_.list(2)));
}

TEST_F(LedVariableTest, ANewStepHoldsNothing) {
  ASSERT_TRUE(list(0, rows_of(0, 0, 2)));
  ASSERT_TRUE(led_.take(led_.list(0), 1));
  EXPECT_EQ(ask(0).size(), 2u);
  ASSERT_TRUE(list(1, rows_of(0, 0, 2), PARALLAX_F32, 2));
  EXPECT_FALSE(led_.take(led_.list(1), 2)) << "what is due of step 1 comes first";
  EXPECT_TRUE(values(0, 0, 2));
  ASSERT_TRUE(led_.take(led_.list(1), 2));
  EXPECT_EQ(ask(1).size(), 2u);
  EXPECT_EQ(before_[0], 0u);
  EXPECT_FALSE(values(0, 0, 2)) << "of step 1";
  EXPECT_TRUE(values(0, 0, 2, PARALLAX_F32, 2));
}

// Given an owner of 12 rows: it lists no more of them than that before it has answered all.
TEST_F(LedVariableTest, AnOwnerIsAskedForNoMoreThanItHasRoomFor) {
  ASSERT_EQ(partition_.rows_owned(2), 12u);
  ASSERT_EQ(asked_rows_max(columns_, partition_, kRowsMax, 2, 0), 12u);
  ASSERT_EQ(asked_rows_max(columns_, partition_, kRowsMax, 2, 1), 12u);
  ASSERT_EQ(asked_rows_max(columns_, partition_, 3, 2, 0), 9u);
  ASSERT_EQ(asked_rows_max(columns_, partition_, 3, 2, 1), 6u);
  for (uint32_t local = 0; local < 2; ++local) {
    ASSERT_TRUE(list(local, rows_of(2, 6 * local, 6)));
    ASSERT_TRUE(led_.take(led_.list(local), 1));
    EXPECT_EQ(ask(local).size(), 6u);
  }
  EXPECT_TRUE(values(2, 0, 6));
  ASSERT_TRUE(led_.complete(led_.list(0)));
  answered(0);
  // 18 rows are held: room is made of those of rank 0, and one of them is wanted again.
  ASSERT_TRUE(list(0, rows_of(0, 0, 6)));
  ASSERT_TRUE(led_.take(led_.list(0), 1));
  EXPECT_EQ(ask(0).size(), 6u);
  ASSERT_TRUE(list(2, rows_of(2, 0, 1)));
  std::vector<uint32_t> others = rows_of(3, 0, 6);
  EXPECT_TRUE(led_.take(led_.list(2), 1));
  EXPECT_TRUE(ask(2).empty()) << "held still";
  answered(2);
  ASSERT_TRUE(list(2, others));
  ASSERT_TRUE(led_.take(led_.list(2), 1));
  EXPECT_EQ(ask(2).size(), 6u) << "and what nobody needs was forgotten";
  EXPECT_TRUE(values(3, 0, 6));
  ASSERT_TRUE(led_.complete(led_.list(2)));
  answered(2);
  ASSERT_TRUE(list(2, rows_of(2, 0, 1)));
  EXPECT_FALSE(led_.take(led_.list(2), 1)) << "12 of rank 2's rows are listed, 6 to come";
  EXPECT_TRUE(values(2, 6, 6));
  EXPECT_TRUE(led_.take(led_.list(2), 1));
  EXPECT_EQ(ask(2).size(), 1u);
  EXPECT_EQ(before_[2], 12u);
}

// Given two types in one step: expect what the first does not serve to be held in the master's,
// once nothing is under way in the other; and in the next step all of it.
TEST_F(LedVariableTest, OneTypeIsUnderWayAtATime) {
  const std::vector<uint32_t> rows = rows_of(0, 0, 2);
  ASSERT_TRUE(list(0, rows, PARALLAX_F16));
  ASSERT_TRUE(led_.take(led_.list(0), 1));
  EXPECT_EQ(ask(0), rows);
  EXPECT_EQ(led_.dtype_of_values(led_.list(0)), uint32_t{PARALLAX_F16});
  ASSERT_TRUE(list(1, rows, PARALLAX_BF16));
  EXPECT_FALSE(led_.take(led_.list(1), 1));
  EXPECT_FALSE(values(0, 0, 2, PARALLAX_F32));
  EXPECT_TRUE(values(0, 0, 2, PARALLAX_F16));
  ASSERT_TRUE(led_.take(led_.list(1), 1));
  EXPECT_EQ(ask(1), rows);
  EXPECT_EQ(led_.dtype_of_values(led_.list(1)), uint32_t{PARALLAX_F32});
  EXPECT_FALSE(values(0, 2, 2, PARALLAX_F16));
  EXPECT_TRUE(values(0, 2, 2, PARALLAX_F32));
  for (const uint32_t local : {0u, 1u}) answered(local);
  ASSERT_TRUE(list(0, rows, PARALLAX_F16, 2));
  ASSERT_TRUE(led_.take(led_.list(0), 2));
  EXPECT_EQ(led_.dtype_of_values(led_.list(0)), uint32_t{PARALLAX_F32});
  EXPECT_EQ(ask(0), rows);
  ASSERT_TRUE(list(1, rows, PARALLAX_F16, 2));
  ASSERT_TRUE(led_.take(led_.list(1), 2));
  EXPECT_TRUE(ask(1).empty());
  EXPECT_TRUE(values(0, 0, 2, PARALLAX_F32, 2));
  for (const uint32_t local : {0u, 1u}) answered(local);
  // Only one is wanted now: the step after holds it.
  ASSERT_TRUE(list(0, rows, PARALLAX_F16, 3));
  ASSERT_TRUE(led_.take(led_.list(0), 3));
  EXPECT_EQ(led_.dtype_of_values(led_.list(0)), uint32_t{PARALLAX_F16});
}

// Receive a list before the last one was answered, or its answer packed: expect it refused.
TEST_F(LedVariableTest, ARankHasOneList) {
  ASSERT_TRUE(list(1, rows_of(0, 0, 2)));
  EXPECT_FALSE(list(1, rows_of(0, 0, 2)));
  led_.list(1).unpacked = 1;
  answered(1);
  EXPECT_FALSE(list(1, rows_of(0, 0, 2)));
  led_.list(1).unpacked = 0;
  EXPECT_TRUE(list(1, rows_of(0, 0, 2)));
}

class LedElementsTest : public LedVariableTest {
 protected:
  LedElementsTest() : LedVariableTest(true) {}
  bool want(uint32_t local, uint32_t dtype) {
    SectionHeader header{.kind = SectionKind::kPullLocal};
    header.flags = static_cast<uint8_t>(dtype << kSectionDtypeShift);
    header.step = 1;
    return led_.add(local, ++pulls_[local], OwnedSection(header, {}).view());
  }
  bool elements(uint32_t owner, uint32_t dtype) {
    const Range range = partition_.range_of(owner);
    SectionHeader header{.kind = SectionKind::kValuesHost, .encoding = Encoding::kDense};
    header.flags = static_cast<uint8_t>(dtype << kSectionDtypeShift);
    header.step = 1;
    header.first = range.first;
    header.count = static_cast<uint32_t>(range.count);
    const std::vector<std::byte> payload(range.count * bytes_of_dtype(dtype));
    return led_.on_values(owner, OwnedSection(header, payload).view());
  }
};

TEST_F(LedElementsTest, ADenseVariableIsAskedForOnceInAType) {
  ASSERT_TRUE(want(0, PARALLAX_F16));
  ASSERT_TRUE(led_.take(led_.list(0), 1));
  for (const uint32_t owner : led_.owners()) {
    const LedVariable::Ask ask = led_.ask(led_.list(0), owner);
    EXPECT_EQ(ask.count, 1u);
    EXPECT_EQ(ask.before, 0u);
  }
  led_.end_asking(led_.list(0));
  ASSERT_TRUE(want(1, PARALLAX_F16));
  ASSERT_TRUE(led_.take(led_.list(1), 1));
  for (const uint32_t owner : led_.owners()) EXPECT_EQ(led_.ask(led_.list(1), owner).count, 0u);
  led_.end_asking(led_.list(1));
  ASSERT_TRUE(want(2, PARALLAX_F32));
  EXPECT_FALSE(led_.take(led_.list(2), 1));
  for (const uint32_t owner : led_.owners()) {
    EXPECT_FALSE(led_.complete(led_.list(0)));
    EXPECT_TRUE(elements(owner, PARALLAX_F16));
  }
  EXPECT_TRUE(led_.complete(led_.list(0)) && led_.complete(led_.list(1)));
  ASSERT_TRUE(led_.take(led_.list(2), 1));
  for (const uint32_t owner : led_.owners()) {
    const LedVariable::Ask ask = led_.ask(led_.list(2), owner);
    EXPECT_EQ(ask.count, 1u);
    EXPECT_EQ(ask.before, 1u);
  }
  led_.end_asking(led_.list(2));
  EXPECT_NE(led_.values(led_.list(2)), led_.values(led_.list(0)));
  for (const uint32_t owner : led_.owners()) EXPECT_TRUE(elements(owner, PARALLAX_F32));
  EXPECT_TRUE(led_.complete(led_.list(2)));
}

// Expect the memory of a leader to follow from what its host's ranks may ask for, and none to be
// taken by who leads nothing of it.
TEST(LedVariable, MemoryIsThatOfWhatMayBeWanted) {
  for (const std::vector<uint32_t>& layout : layouts()) {
    const auto world = static_cast<uint32_t>(layout.size());
    const HostMap hosts = host_map(layout);
    for (uint32_t rank = 0; rank < world; ++rank) {
      const Columns columns(hosts, rank);
      const Partition partition(3, kWidth, true, even_slots(world), 0);
      LedVariable led(columns, partition, kRowsMax, uint32_t{PARALLAX_F32});
      Arena measure;
      led.lay_out(measure);
      uint64_t column_rows = 0;
      for (const uint32_t owner : led.owners()) {
        EXPECT_GT(partition.rows_owned(owner), 0u);
        EXPECT_EQ(columns.column_of(owner), columns.my_column());
        column_rows += partition.rows_owned(owner);
      }
      EXPECT_EQ(led.led(), column_rows > 0);
      if (led.led()) {
        EXPECT_EQ(led.lists().size(), columns.locals().size());
      } else {
        EXPECT_EQ(measure.used_bytes(), 0u);
      }
    }
  }
}

}  // namespace
}  // namespace parallax::testkit::led_variable
