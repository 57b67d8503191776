// SPDX-License-Identifier: Apache-2.0
// The memory of a variable's pulls in every layout, what is due from whom, and what a host wants.
#include "server/pulled_variable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "support/slot_maps.h"
#include "unit/server/pull_job.h"

namespace parallax::testkit::pulled_variable_test {
namespace {

const std::vector<Variable>& every_form() {
  static const std::vector<Variable> all = {
      pulled_variable(60, 3, 16, PARALLAX_F32), pulled_variable(3, 1, 3, PARALLAX_F64),
      pulled_variable(17, 100, 0, PARALLAX_F32), pulled_variable(3, 1, 0, PARALLAX_BF16)};
  return all;
}

struct Rank {
  Rank(const std::vector<uint32_t>& layout, uint32_t rank, uint32_t id)
      : hosts(host_map(layout)),
        columns(hosts, rank),
        variable(every_form()[id]),
        partition(variable.rows, variable.row_elements, variable.ids_declared(),
                  testkit::even_slots(static_cast<uint32_t>(layout.size())), id),
        pulled(id, columns, variable, partition) {
    EXPECT_TRUE(pulled.reserve().ok());
  }
  const HostMap hosts;
  const Columns columns;
  const Variable& variable;
  const Partition partition;
  PulledVariable pulled;
};

template <typename Check>
void each_rank(Check check) {
  for (const std::vector<uint32_t>& layout : layouts()) {
    for (uint32_t id = 0; id < every_form().size(); ++id) {
      for (uint32_t rank = 0; rank < layout.size(); ++rank) {
        Rank made(layout, rank, id);
        check(made);
      }
    }
  }
}

// Expect what is reserved to be what was said to be needed, and every list to have its bound.
TEST(PulledVariable, MemoryIsThatOfItsParts) {
  each_rank([](Rank& rank) {
    const PulledVariable& pulled = rank.pulled;
    EXPECT_EQ(pulled.arena.used_bytes(),
              PulledVariable::needed_bytes(rank.columns, rank.variable, rank.partition));
    EXPECT_EQ(pulled.answers.size(), rank.columns.count());
    EXPECT_EQ(pulled.asked.empty(), !pulled.owned_by(rank.columns.rank()));
    if (!pulled.led()) return;
    uint64_t column_rows = 0, column_elements = 0;
    for (const uint32_t owner : pulled.owners) {
      EXPECT_TRUE(pulled.owned_by(owner));
      EXPECT_EQ(rank.columns.column_of(owner), rank.columns.my_column());
      column_rows += rank.partition.rows_owned(owner);
      column_elements += rank.partition.range_of(owner).count;
    }
    const uint64_t ranks = rank.columns.locals().size();
    const size_t element_bytes = bytes_of_sum(pulled.master);
    for (const PulledVariable::Wanted& wanted : pulled.wanted) {
      if (!pulled.by_rows()) {
        EXPECT_EQ(wanted.values.size(), column_elements * element_bytes);
        continue;
      }
      const uint64_t rows = std::min(column_rows, rank.variable.rows_max * ranks);
      EXPECT_EQ(wanted.values.size(), rows * rank.variable.row_elements * element_bytes);
      EXPECT_EQ(wanted.row_keys.size(), rows);
      EXPECT_EQ(wanted.lists.size(), ranks);
    }
  });
}

// Expect the elements of all columns to be the variable's, each once, in pieces that lie together.
TEST(PulledVariable, ColumnsShareTheElements) {
  each_rank([](Rank& rank) {
    PulledVariable& pulled = rank.pulled;
    if (pulled.by_rows()) return;
    pulled.expect_answers();
    std::vector<uint32_t> seen(rank.partition.elements());
    for (uint32_t column = 0; column < rank.columns.count(); ++column) {
      EXPECT_EQ(pulled.has_owner_in(column), pulled.answers[column].due > 0);
      uint64_t at = 0;
      for (; at < pulled.answers[column].due; ++at) {
        const Range here = pulled.elements_of_column(column, at);
        ASSERT_GT(here.count, 0u);
        ++seen[here.first];
        if (rank.columns.is_leader() && column == rank.columns.my_column()) {
          uint32_t owner = 0;
          while (here.first - rank.partition.range_of(owner).first >=
                 rank.partition.range_of(owner).count) {
            ++owner;
          }
          ASSERT_EQ(pulled.elements_before(owner),
                    at - (here.first - rank.partition.range_of(owner).first));
        }
      }
      EXPECT_EQ(pulled.elements_of_column(column, at).count, 0u);
    }
    for (const uint32_t times : seen) ASSERT_EQ(times, 1u);
  });
}

// Given rows of a slice, expect each leader to owe those of its column.
TEST(PulledVariable, LeadersOweTheRowsOfTheirColumns) {
  Rank rank({0, 0, 0, 1, 1}, 1, 0);
  const std::vector<int64_t> ids = {1, 2, 3, 3, 4, 5, -1};
  rank.pulled.coalescer.coalesce(
      rank.partition, {{.wide = ids.data()}, static_cast<uint32_t>(ids.size()), {}}, {},
      [&](uint32_t row_key) { return rank.columns.column_of(rank.partition.owner_of(row_key)); });
  rank.pulled.expect_answers();
  uint64_t due = 0;
  for (uint32_t column = 0; column < rank.columns.count(); ++column) {
    EXPECT_EQ(rank.pulled.answers[column].due, rank.pulled.coalescer.group_count(column));
    EXPECT_EQ(rank.pulled.answers[column].came, 0u);
    due += rank.pulled.answers[column].due;
  }
  EXPECT_EQ(due, 5u) << "distinct, and no padding";
}

// Given lists of two ranks with rows in common, expect their union by owner, and each rank's items
// in its order; a list beyond its bound is refused, and a new round starts empty.
TEST(PulledVariable, WhatAHostWantsIsItsUnion) {
  Rank rank({0, 0, 0, 1, 1}, 0, 0);
  PulledVariable::Wanted& wanted = rank.pulled.wanted[0];
  PullRound round = {.opening = 5};
  EXPECT_FALSE(wanted.is_of(round));
  wanted.begin(round);
  EXPECT_TRUE(wanted.is_of(round));
  const std::vector<std::vector<uint32_t>> lists = {{3, 0, 8}, {5, 3, 2}};  // of ranks 0, 2 and 3
  for (uint32_t local = 0; local < lists.size(); ++local) {
    for (const uint32_t row_key : lists[local]) ASSERT_TRUE(wanted.add(local, row_key));
  }
  EXPECT_EQ(wanted.index.size(), 5u);
  wanted.group(rank.partition, rank.columns);
  for (uint32_t place = 0; place < 3; ++place) {
    for (uint32_t item = wanted.offsets[place]; item < wanted.offsets[place + 1]; ++item) {
      const uint32_t owner = rank.partition.owner_of(wanted.grouped[item]);
      EXPECT_EQ(rank.columns.place_in_column(owner), place);
    }
  }
  for (uint32_t local = 0; local < lists.size(); ++local) {
    ASSERT_EQ(wanted.list_counts[local], lists[local].size());
    for (size_t i = 0; i < lists[local].size(); ++i) {
      EXPECT_EQ(wanted.grouped[wanted.lists[local][i]], lists[local][i]);
    }
  }
  round.opening = 6;
  EXPECT_FALSE(wanted.is_of(round));
  wanted.begin(round);
  EXPECT_EQ(wanted.index.size(), 0u);
  for (uint32_t i = 0; i < 16; ++i) ASSERT_TRUE(wanted.add(1, i % 2 == 0 ? 0 : 3));
  EXPECT_FALSE(wanted.add(1, 0)) << "rows_max is 16";
}

TEST(AskPosition, StartsAfreshWithEachStep) {
  AskPosition position;
  EXPECT_EQ(position.in(1), 0u);
  position.advance(1, 5);
  position.advance(1, 2);
  EXPECT_EQ(position.in(1), 7u);
  EXPECT_EQ(position.in(2), 0u);
  position.advance(2, 3);
  EXPECT_EQ(position.in(2), 3u);
}

TEST(PulledVariables, AreFoundByNumber) {
  const HostMap hosts = host_map({0, 1});
  const Columns columns(hosts, 0);
  const Partition partition(60, 3, true, SlotMap::of_ranks(2, kSlotsPerOwner), 4);
  PulledVariables variables;
  EXPECT_EQ(variables.find(0), nullptr);
  ASSERT_TRUE(variables.add(4, columns, every_form()[0], partition).ok());
  ASSERT_NE(variables.find(4), nullptr);
  EXPECT_EQ(variables.find(4)->id, 4u);
  EXPECT_EQ(variables.all().size(), 5u);
  for (const uint32_t unknown : {0u, 3u, 5u, UINT32_MAX}) {
    EXPECT_EQ(variables.find(unknown), nullptr);
  }
  variables.remove(4);
  variables.remove(99);
  EXPECT_EQ(variables.find(4), nullptr);
}

}  // namespace
}  // namespace parallax::testkit::pulled_variable_test
