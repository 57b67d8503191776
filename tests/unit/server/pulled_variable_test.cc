// SPDX-License-Identifier: Apache-2.0
// The memory of a variable's pulls in every layout, and what is due from whom.
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
        pulled(id, columns, variable, partition, nullptr, nullptr) {
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
    EXPECT_EQ(pulled.answers.size(), rank.columns.count() + 1) << "and of the host's tables";
    EXPECT_EQ(pulled.asked.empty(), !pulled.owned_by(rank.columns.rank()));
    if (!pulled.by_rows()) return;
    for (uint32_t host = 0; host < pulled.asked.size(); ++host) {
      const uint64_t ranks = rank.hosts.ranks_of[host].size();
      EXPECT_EQ(
          pulled.asked[host].many.size(),
          std::min(rank.partition.rows_owned(rank.columns.rank()), rank.variable.rows_max * ranks));
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
          ASSERT_EQ(pulled.led.elements_before(owner),
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
  CoalescedIds& coalescer = rank.pulled.coalescer;
  coalescer.begin(ids.size());
  coalescer.add_ids(rank.partition, {.wide = ids.data()}, static_cast<uint32_t>(ids.size()), 0);
  coalescer.end_ids(rank.partition);
  coalescer.group(
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
  PulledVariables variables(nullptr);
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
