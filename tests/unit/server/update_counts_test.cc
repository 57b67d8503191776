// SPDX-License-Identifier: Apache-2.0
#include "server/update_counts.h"

#include <gtest/gtest.h>

#include <array>
#include <span>
#include <vector>

#include "variable/fused_tables.h"

namespace parallax::testkit {
namespace {

// Three tables of 10, 1 and 5 rows, of which the first is the fourth of all.
struct Fused {
  Fused() {
    const uint64_t rows[] = {10, 1, 5};
    for (size_t i = 0; i < std::size(rows); ++i) {
      members[i].variable = &tables[i];
      members[i].first_row = whole.rows;
      tables[i].rows = rows[i];
      whole.rows += rows[i];
    }
    whole.fused = members;
    whole.first_member = 3;
  }
  std::array<Variable, 3> tables;
  std::array<FusedMember, 3> members;
  Variable whole;
};

std::vector<uint64_t> counts_of(const UpdateCounts& counts) {
  return {counts.all().begin(), counts.all().end()};
}

TEST(UpdateCounts, OfATableByItself) {
  Variable variable;
  variable.rows = 7;
  UpdateCounts counts(variable);
  TablesLeftOut others;
  others.add(0);  // of other variables
  counts.add_step(others);
  counts.add_step({});
  EXPECT_TRUE(counts.alike());
  EXPECT_EQ(counts.of_first(), 2u);
  const UpdateCounts::Of of = counts.of_row(6);
  EXPECT_EQ(of.table, 0u);
  EXPECT_EQ(of.first_row, 0u);
  EXPECT_EQ(of.count, 2u);
}

TEST(UpdateCounts, OfFusedTablesEachHasItsOwn) {
  const Fused fused;
  UpdateCounts counts(fused.whole);
  TablesLeftOut left_out;
  left_out.add(2);  // of others
  left_out.add(4);
  counts.add_step({});
  EXPECT_TRUE(counts.alike());
  counts.add_step(left_out);
  EXPECT_FALSE(counts.alike());
  EXPECT_EQ(counts_of(counts), (std::vector<uint64_t>{2, 1, 2}));
  EXPECT_EQ(counts.of_row(9).count, 2u);
  const UpdateCounts::Of of = counts.of_row(10);
  EXPECT_EQ(of.table, 1u);
  EXPECT_EQ(of.first_row, 10u);
  EXPECT_EQ(of.count, 1u);
  EXPECT_EQ(counts.of_row(11).first_row, 11u);
  EXPECT_EQ(counts.of_row(15).table, 2u);
  counts.set(10, 2);
  EXPECT_TRUE(counts.alike());
  counts.set(15, 40);
  EXPECT_FALSE(counts.alike());
  EXPECT_EQ(counts_of(counts), (std::vector<uint64_t>{2, 2, 40}));
}

TEST(UpdateCounts, AreMovedInPieces) {
  const Fused fused;
  UpdateCounts counts(fused.whole);
  const std::array<uint64_t, 3> from = {5, 6, 6};
  const auto bytes = std::as_bytes(std::span(from));
  EXPECT_TRUE(counts.place(1, bytes.subspan(8)));
  EXPECT_EQ(counts_of(counts), (std::vector<uint64_t>{0, 6, 6}));
  EXPECT_TRUE(counts.place(0, bytes.first(8)));
  EXPECT_EQ(counts_of(counts), (std::vector<uint64_t>{5, 6, 6}));
  EXPECT_FALSE(counts.alike());
  // What a peer may say.
  EXPECT_FALSE(counts.place(1, bytes));
  EXPECT_FALSE(counts.place(UINT64_MAX, bytes));
  EXPECT_FALSE(counts.place(4, {}));
  EXPECT_TRUE(counts.place(3, {}));
  EXPECT_EQ(counts_of(counts), (std::vector<uint64_t>{5, 6, 6}));
}

}  // namespace
}  // namespace parallax::testkit
