// SPDX-License-Identifier: Apache-2.0
#include "variable/tables_left_out.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/seeded_random.h"

namespace parallax::testkit {
namespace {

TablesLeftOut left_out(const std::set<uint32_t>& tables) {
  TablesLeftOut all;
  for (const uint32_t table : tables) all.add(table);
  return all;
}

std::set<uint32_t> tables_of(const TablesLeftOut& left_out) {
  std::set<uint32_t> all;
  for (uint32_t table = 0; table < PARALLAX_VARIABLES_MAX; ++table) {
    if (left_out.has(table)) all.insert(table);
  }
  return all;
}

TEST(TablesLeftOut, AreThoseThatWereAdded) {
  EXPECT_FALSE(TablesLeftOut().any());
  const std::set<uint32_t> some = {0, 63, 64, 700, PARALLAX_VARIABLES_MAX - 1};
  EXPECT_EQ(tables_of(left_out(some)), some);
  TablesLeftOut again = left_out(some);
  again.clear();
  EXPECT_FALSE(again.any());
  again.add(200);
  EXPECT_EQ(tables_of(again), std::set<uint32_t>{200}) << "nothing of before is left";
}

// Given lists of several ranks, in any order, expect those that are in all; and of none no word.
TEST(TablesLeftOut, OfSeveralThoseThatAllLeaveOut) {
  SeededRandom random(7);
  for (int round = 0; round < 200; ++round) {
    const auto end = static_cast<uint32_t>(1 + random.below(300));
    std::set<uint32_t> want;
    for (uint32_t table = 0; table < end; ++table) want.insert(table);
    TablesLeftOut merged = left_out(want);
    for (uint64_t ranks = random.below(4); ranks > 0; --ranks) {
      std::set<uint32_t> said;
      for (uint32_t table = 0; table < end + 70; ++table) {
        if (random.chance(70)) said.insert(table);
      }
      std::erase_if(want, [&said](uint32_t table) { return !said.contains(table); });
      merged.keep_those_of(left_out(said));
    }
    ASSERT_EQ(tables_of(merged), want);
    ASSERT_EQ(merged.any(), !want.empty());
    ASSERT_EQ(merged.words().size(), want.empty() ? 0 : *want.rbegin() / 64 + 1);
  }
}

}  // namespace
}  // namespace parallax::testkit
