// SPDX-License-Identifier: Apache-2.0
#include "variable/fused_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace parallax::testkit {
namespace {

Variable small_table(const std::string& name) {
  Variable table;
  table.name = name;
  table.rows = 100;
  table.row_elements = 4;
  table.rows_max = 10;
  table.rule = PARALLAX_RULE_SGD;
  table.fuse_tables = true;
  return table;
}

class Tables {
 public:
  Variable& add(const std::string& name) {
    kept_.push_back(small_table(name));
    kept_.back().id = static_cast<uint32_t>(kept_.size()) - 1;
    return kept_.back();
  }
  void add_some(
      const std::string& lead, size_t count,
      const std::function<void(Variable*)>& change = [](Variable*) {}) {
    for (size_t i = 0; i < count; ++i) change(&add(lead + std::to_string(i)));
  }
  std::deque<FusedTables> fuse() const {
    std::vector<const Variable*> all;
    for (const Variable& each : kept_) all.push_back(&each);
    return fuse_tables(all);
  }

 private:
  std::deque<Variable> kept_;
};

std::vector<std::string> names_of(const FusedTables& set) {
  std::vector<std::string> names;
  for (const FusedMember& member : set.members) names.push_back(member.variable->name);
  return names;
}

TEST(FusedTables, OfOneKindAreOneVariable) {
  Tables tables;
  tables.add_some("t", 12, [](Variable* table) {
    table->rows = 100 + table->id;
    table->init_seed = table->id;
    table->init = PARALLAX_INIT_UNIFORM;
    table->init_high = 1;
  });
  const auto sets = tables.fuse();
  ASSERT_EQ(sets.size(), 1u);
  const FusedTables& set = sets[0];
  ASSERT_EQ(set.members.size(), 12u);
  // 10 comes behind 9, not behind 1.
  EXPECT_EQ(names_of(set)[2], "t2");
  EXPECT_EQ(names_of(set)[11], "t11");
  uint64_t rows = 0;
  for (const FusedMember& member : set.members) {
    EXPECT_EQ(member.first_row, rows);
    rows += member.variable->rows;
  }
  EXPECT_EQ(set.whole.rows, rows);
  EXPECT_EQ(set.whole.rows_max, 120u);
  EXPECT_EQ(set.whole.name, "t0 and 11 more");
  EXPECT_EQ(set.whole.id, 0u);
  EXPECT_EQ(set.whole.fused.data(), set.members.data());
  for (const FusedMember& member : set.members) {
    EXPECT_EQ(&member_of(set.whole.fused, member.first_row), &member);
    EXPECT_EQ(&member_of(set.whole.fused, member.first_row + member.variable->rows - 1), &member);
  }
}

TEST(FusedTables, FewStayByThemselves) {
  Tables tables;
  tables.add_some("t", kFusedMin - 1);
  EXPECT_TRUE(tables.fuse().empty());
  tables.add("one more");
  EXPECT_EQ(tables.fuse().size(), 1u);
}

TEST(FusedTables, KindsStayApart) {
  const std::function<void(Variable*)> changes[] = {
      [](Variable* table) { table->row_elements = 8; },
      [](Variable* table) { table->rows = table->rows_max; },
      [](Variable* table) { table->pin.method = PARALLAX_METHOD_PUSH_PULL; },
      [](Variable* table) { table->pin.placement = PARALLAX_PLACEMENT_SHARDED; },
      [](Variable* table) { table->dtype = PARALLAX_BF16; },
      [](Variable* table) { table->rule = PARALLAX_RULE_NONE; },
      [](Variable* table) { table->rule = PARALLAX_RULE_ADAGRAD; },
      [](Variable* table) { table->rule = PARALLAX_RULE_ADAM; },
      [](Variable* table) { table->rounding = PARALLAX_ROUNDING_STOCHASTIC; },
      [](Variable* table) { table->reduction = PARALLAX_MEAN_ROW; },
      [](Variable* table) { table->epsilon = 0.5; },
      [](Variable* table) { table->rates = 1; },
      [](Variable* table) { table->penalties.l1 = 1; },
      [](Variable* table) { table->init = PARALLAX_INIT_BROADCAST; },
      [](Variable* table) { table->storage_dtype = PARALLAX_AS(PARALLAX_BF16); },
      [](Variable* table) { table->wire_dtype = PARALLAX_AS(PARALLAX_BF16); }};
  for (const auto& change : changes) {
    Tables tables;
    tables.add_some("a", kFusedMin);
    tables.add_some("b", kFusedMin, change);
    const auto sets = tables.fuse();
    ASSERT_EQ(sets.size(), 2u) << &change - changes;
    for (const FusedTables& set : sets) {
      const auto names = names_of(set);
      EXPECT_TRUE(std::all_of(names.begin(), names.end(),
                              [&](const std::string& name) { return name[0] == names[0][0]; }));
    }
  }
}

// Given initial values out of buffers beside computed ones, expect one set, which has none itself.
TEST(FusedTables, EachHasItsOwnInitialValues) {
  const std::vector<std::byte> bytes(100 * 4 * sizeof(float));
  Tables tables;
  tables.add_some("a", kFusedMin, [&bytes](Variable* table) {
    table->init = PARALLAX_INIT_BUFFER;
    table->initial = bytes.data();
  });
  tables.add_some("b", kFusedMin);
  const auto sets = tables.fuse();
  ASSERT_EQ(sets.size(), 1u);
  EXPECT_EQ(sets[0].members.size(), 2 * kFusedMin);
  EXPECT_EQ(sets[0].whole.initial, nullptr);
}

TEST(FusedTables, SomeStayByThemselves) {
  const std::function<void(Variable*)> changes[] = {
      [](Variable* table) { table->fuse_tables = false; },
      [](Variable* table) {
        table->rule = PARALLAX_RULE_NONE;
        table->reduction = PARALLAX_MEAN_CONTRIBUTORS;
      },
      [](Variable* table) {
        table->rule = PARALLAX_RULE_NONE;
        table->exchange_bytes_max = 1 << 20;
      },
      [](Variable* table) { table->rows_max = 0; },
      [](Variable* table) { table->rule = PARALLAX_RULE_CALLBACK; },
      [](Variable* table) { table->memory = PARALLAX_MEMORY_CUDA; },
      [](Variable* table) { table->table_memory = PARALLAX_MEMORY_CUDA; },
      [](Variable* table) {
        table->rows = 1 << 20;
        table->rows_max = kFusedSliceBytesMax / (4 * sizeof(float)) + 1;
      },
      [](Variable* table) { table->row_elements = kFusedRowBytesEnd / sizeof(float); },
      [](Variable* table) { table->rows = UINT32_MAX; }};
  for (const auto& change : changes) {
    Tables tables;
    tables.add_some("t", 2 * kFusedMin, change);
    EXPECT_TRUE(tables.fuse().empty()) << &change - changes;
  }
}

// Given more than a set may have, expect sets of about the same size, one behind the other.
TEST(FusedTables, ManyAreSeveralSets) {
  Tables tables;
  // Half of what each may have.
  constexpr uint64_t kRowsMax = kFusedSliceBytesMax / (4 * sizeof(float)) / 2;
  constexpr size_t kOfSet = kFusedSetBytesMax / (kFusedSliceBytesMax / 2);
  tables.add_some("t", 5 * kOfSet / 2, [](Variable* table) {
    table->rows = 1 << 20;
    table->rows_max = kRowsMax;
  });
  const auto sets = tables.fuse();
  ASSERT_EQ(sets.size(), 3u);
  size_t count = 0;
  for (const FusedTables& set : sets) {
    EXPECT_LE(set.members.size(), kOfSet);
    EXPECT_GE(set.members.size(), kOfSet * 5 / 6 - 1);
    EXPECT_EQ(set.members[0].variable->name, "t" + std::to_string(count));
    count += set.members.size();
  }
  EXPECT_EQ(count, 5 * kOfSet / 2);
}

TEST(FusedTables, RowsOfASetHaveRoom) {
  Tables tables;
  tables.add_some("t", 40, [](Variable* table) { table->rows = INT32_MAX / 10; });
  const auto sets = tables.fuse();
  size_t fused = 0;
  for (const FusedTables& set : sets) {
    EXPECT_LE(set.whole.rows, uint64_t{INT32_MAX});
    EXPECT_GE(set.members.size(), kFusedMin);
    fused += set.members.size();
  }
  EXPECT_EQ(fused, 40u);
}

// Given the same tables in another order, expect the same sets.
TEST(FusedTables, AnyOrderGivesTheSame) {
  std::vector<std::string> names;
  for (int i = 0; i < 30; ++i) {
    names.push_back("table." + std::to_string(i));
    names.push_back("table." + std::string(1, '0') + std::to_string(i));
  }
  names.insert(names.end(), {"", "9", "10", "010", "a9b", "a10", "a9", "\xc3\xa9"});
  std::vector<std::string> first;
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    Tables tables;
    for (const std::string& name : names) tables.add(name);
    const auto sets = tables.fuse();
    ASSERT_EQ(sets.size(), 1u);
    if (first.empty()) first = names_of(sets[0]);
    EXPECT_EQ(names_of(sets[0]), first);
    std::shuffle(names.begin(), names.end(), random);
  }
}

}  // namespace
}  // namespace parallax::testkit
