// SPDX-License-Identifier: Apache-2.0
// Variables that move between placements over a network of sections: values, state and the count of
// updates arrive whole, nothing is freed too early, and what is not due is refused.
#include "group/migration.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/words.h"
#include "unit/group/group_world.h"

namespace parallax::testkit {
namespace {

// A row with its state, where it lies at a rank.
std::vector<float> row_of(const VariableRuntime& runtime, uint64_t row) {
  const Table& table = *runtime.table;
  const uint64_t here = table.row_of(runtime.partition.row_key_of(row));
  std::vector<float> numbers;
  for (uint32_t array = 0; array < table.array_count(); ++array) {
    const uint64_t width = table.array_width(array);
    const size_t before = numbers.size();
    numbers.resize(before + width);
    std::memcpy(&numbers[before], table.row_at(array, here), width * sizeof(float));
  }
  return numbers;
}

uint32_t owner_of(const VariableRuntime& runtime, uint64_t row) {
  return runtime.partition.owner_of(runtime.partition.row_key_of(row));
}

class MigrationTest : public testing::Test {
 protected:
  static constexpr uint64_t kRows = 300;  // several messages each
  static constexpr uint64_t kUpdates = 7;

  void SetUp() override {
    ASSERT_TRUE(world_.build().ok());
    world_.fill();
    float number = 0;
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      Table& table = *at(rank).table;
      table.updates().set(0, kUpdates);
      for (uint32_t array = 1; array < table.array_count(); ++array) {
        for (size_t i = 0; i < table.array(array).size(); i += sizeof number, ++number) {
          std::memcpy(&table.array(array)[i], &number, sizeof number);
        }
      }
    }
    for (uint64_t row = 0; row < kRows; ++row) {
      rows_.push_back(row_of(at(owner_of(at(0), row)), row));
    }
  }
  VariableRuntime& at(uint32_t rank) { return world_[rank].group.runtime(0); }
  Migration& migration(uint32_t rank) { return world_[rank].migration; }
  void begin(const VariablePlan& plan, uint64_t step) {
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      const Status begun = migration(rank).begin(at(rank), plan, step);
      ASSERT_TRUE(begun.ok()) << begun.message();
    }
  }

  GroupWorld world_{{0, 0, 1}, {managed("rows", kRows, 4, PARALLAX_RULE_ADAM)}};
  std::vector<std::vector<float>> rows_;  // at the start
};

TEST_F(MigrationTest, EveryMirrorHasEveryOwnersRowsStateAndUpdates) {
  begin(kMirroredPlan, 3);
  for (uint32_t rank = 0; rank < world_.size(); ++rank) {
    EXPECT_TRUE(migration(rank).moved(2)) << "nothing changes with step 2";
    EXPECT_FALSE(migration(rank).moved(3));
    migration(rank).move(2);
    EXPECT_EQ(at(rank).change.sends_to_be_packed, 0u);
    migration(rank).move(3);
    EXPECT_FALSE(migration(rank).moved(3));
  }
  world_.network().settle();
  EXPECT_TRUE(world_.network().refusals().empty()) << told(world_.network().refusals());
  for (uint32_t rank = 0; rank < world_.size(); ++rank) {
    EXPECT_TRUE(migration(rank).moved(3));
    EXPECT_EQ(at(rank).plan, kShardedPlan) << "until it is switched over";
    EXPECT_TRUE(migration(rank).switch_over(3));
    EXPECT_EQ(at(rank).plan, kMirroredPlan);
    EXPECT_FALSE(at(rank).table->sharded());
    EXPECT_EQ(at(rank).table->updates().of_first(), kUpdates);
    EXPECT_EQ(world_[rank].group.pulls().arena_of(0), nullptr) << "a mirror is not pulled";
    for (uint64_t row = 0; row < kRows; ++row) {
      ASSERT_EQ(row_of(at(rank), row), rows_[row]) << "rank " << rank << ", row " << row;
    }
  }
}

TEST_F(MigrationTest, AndBackItIsALocalCopy) {
  begin(kMirroredPlan, 3);
  for (uint32_t rank = 0; rank < world_.size(); ++rank) migration(rank).move(3);
  world_.network().settle();
  for (uint32_t rank = 0; rank < world_.size(); ++rank) migration(rank).switch_over(3);
  for (uint32_t rank = 0; rank < world_.size(); ++rank) migration(rank).switch_over(4);
  begin(kShardedPlan, 6);
  const size_t delivered = world_.network().delivered();
  for (uint32_t rank = 0; rank < world_.size(); ++rank) {
    migration(rank).move(6);
    EXPECT_TRUE(migration(rank).moved(6));
    EXPECT_TRUE(migration(rank).switch_over(6));
    EXPECT_TRUE(at(rank).table->sharded());
    EXPECT_EQ(at(rank).table->updates().of_first(), kUpdates);
    EXPECT_NE(world_[rank].group.pulls().arena_of(0), nullptr);
  }
  world_.network().settle();
  EXPECT_EQ(world_.network().delivered(), delivered) << "nothing travels";
  for (uint64_t row = 0; row < kRows; ++row) {
    ASSERT_EQ(row_of(at(owner_of(at(0), row)), row), rows_[row]) << "row " << row;
  }
}

// Of fused tables each has its own count, also where a rank owns nothing and has to be told.
TEST(Migration, FusedTablesHaveTheirCounts) {
  std::deque<Variable> tables;
  std::vector<const Variable*> all;
  for (uint32_t i = 0; i < kFusedMin; ++i) {
    tables.push_back(managed("table" + std::to_string(i), 50, 4, PARALLAX_RULE_ADAM));
    tables.back().rows_max = 5;
    tables.back().fuse_tables = true;
    all.push_back(&tables.back());
  }
  const std::deque<FusedTables> sets = fuse_tables(all);
  ASSERT_EQ(sets.size(), 1u);
  const SlotMap slots(std::vector<uint32_t>{2, 1, 2, 2, 1, 2});
  GroupWorld world({0, 0, 1}, {sets[0].whole}, {}, slots);
  ASSERT_TRUE(world.build().ok());
  world.fill();
  for (const bool mirrored : {true, false}) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      VariableRuntime& runtime = world[rank].group.runtime(0);
      for (uint64_t i = 0; mirrored && rank > 0 && i < kFusedMin; ++i) {
        runtime.table->updates().set(50 * i + 7, 3 + i);
      }
      const VariablePlan plan = mirrored ? kMirroredPlan : kShardedPlan;
      ASSERT_TRUE(world[rank].migration.begin(runtime, plan, 3).ok());
      world[rank].migration.move(3);
    }
    world.network().settle();
    EXPECT_TRUE(world.network().refusals().empty()) << told(world.network().refusals());
    for (uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(world[rank].migration.moved(3));
      EXPECT_TRUE(world[rank].migration.switch_over(3));
      world[rank].migration.switch_over(4);  // nothing is left of the change
      const Table& table = *world[rank].group.runtime(0).table;
      EXPECT_EQ(table.sharded(), !mirrored);
      for (uint64_t i = 0; i < kFusedMin; ++i) EXPECT_EQ(table.updates().all()[i], 3 + i);
    }
  }
}

// Given owners that are some of the ranks, one with more rows than the other, expect mirrors that
// are whole and, on the way back, a shard where slots are and nothing elsewhere.
TEST(Migration, RanksWithoutSlotsSendNothingAndGetAll) {
  constexpr uint64_t kRows = 300;
  const SlotMap slots(std::vector<uint32_t>{3, 1, 3, 3, 1, 3});
  GroupWorld world({0, 0, 1, 1}, {managed("rows", kRows, 4, PARALLAX_RULE_ADAM)}, {}, slots);
  ASSERT_TRUE(world.build().ok());
  world.fill();
  const auto at = [&](uint32_t rank) -> VariableRuntime& { return world[rank].group.runtime(0); };
  std::vector<std::vector<float>> rows;
  for (uint64_t row = 0; row < kRows; ++row) rows.push_back(row_of(at(owner_of(at(0), row)), row));
  const auto change_to = [&](const VariablePlan& plan, uint64_t step) {
    for (uint32_t rank = 0; rank < 4; ++rank) {
      ASSERT_TRUE(world[rank].migration.begin(at(rank), plan, step).ok());
      world[rank].migration.move(step);
    }
    world.network().settle();
    EXPECT_TRUE(world.network().refusals().empty()) << told(world.network().refusals());
    for (uint32_t rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(world[rank].migration.moved(step));
      EXPECT_TRUE(world[rank].migration.switch_over(step));
      world[rank].migration.switch_over(step + 1);  // nothing is left of the change
    }
  };
  EXPECT_EQ(at(0).table->array(0).size() + at(2).table->array(0).size(), 0u);
  EXPECT_EQ(at(3).table->array(0).size(), 2 * at(1).table->array(0).size());
  for (const uint32_t owner : slots.owners()) at(owner).table->updates().set(0, 7);
  ASSERT_NO_FATAL_FAILURE(change_to(kMirroredPlan, 3));
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(at(rank).table->updates().of_first(), 7u);
    for (uint64_t row = 0; row < kRows; ++row) ASSERT_EQ(row_of(at(rank), row), rows[row]);
  }
  ASSERT_NO_FATAL_FAILURE(change_to(kShardedPlan, 6));
  EXPECT_EQ(at(0).table->array(0).size() + at(2).table->array(0).size(), 0u);
  for (uint64_t row = 0; row < kRows; ++row) {
    ASSERT_EQ(row_of(at(owner_of(at(0), row)), row), rows[row]) << "row " << row;
  }
}

// The exchange that a switch leaves may still be sending: it stays until the next one.
TEST_F(MigrationTest, TheOldExchangeIsKeptOneMoreStep) {
  EXPECT_FALSE(migration(0).frees_memory(3));
  EXPECT_FALSE(migration(0).switch_over(3)) << "nothing changes";
  begin(kMirroredPlan, 3);
  EXPECT_FALSE(migration(0).frees_memory(2));
  EXPECT_TRUE(migration(0).frees_memory(3));
  const Exchange* before = at(0).exchange.get();
  for (uint32_t rank = 0; rank < world_.size(); ++rank) migration(rank).move(3);
  world_.network().settle();
  EXPECT_TRUE(migration(0).switch_over(3));
  EXPECT_EQ(at(0).old_exchange.get(), before);
  EXPECT_TRUE(migration(0).frees_memory(4));
  EXPECT_FALSE(migration(0).switch_over(4));
  EXPECT_EQ(at(0).old_exchange, nullptr);
  EXPECT_FALSE(migration(0).frees_memory(5));
}

TEST_F(MigrationTest, RefusesWhatIsNotDue) {
  const std::vector<std::byte> bytes(2 * sizeof(float));
  SectionHeader header;
  header.kind = SectionKind::kMigrate;
  header.encoding = Encoding::kDense;
  header.step = 3;
  header.count = 2;
  const auto refused = [&](const SectionHeader& as, uint32_t from) {
    return !migration(0).on_section(from, {as, bytes});
  };
  EXPECT_TRUE(refused(header, 1)) << "no change is under way";
  begin(kMirroredPlan, 3);
  SectionHeader other = header;
  other.tag = 1;
  EXPECT_TRUE(refused(other, 1)) << "of no variable";
  other = header;
  other.step = 4;
  EXPECT_TRUE(refused(other, 1)) << "of another change";
  other = header;
  other.part = 9;
  EXPECT_TRUE(refused(other, 1)) << "of an array that the rule does not keep";
  other = header;
  other.first = 2 * kRows;
  EXPECT_TRUE(refused(other, 1)) << "beyond the owner's shard";
  other = header;
  other.count = 3;
  EXPECT_TRUE(refused(other, 1)) << "more numbers than it brings";
  EXPECT_FALSE(refused(header, 1));
}

TEST(Migration, APlanThatDoesNotFitNamesVariableRankAndRemedy) {
  const std::vector<Variable> variables = {managed("rows", 1 << 16, 4)};
  GroupWorld unlimited({0, 1, 2, 3}, variables);
  ASSERT_TRUE(unlimited.build().ok());
  const Group& group = unlimited[0].group;
  const uint64_t most = 2 * group.memory_use(group.runtime(0)).reserved_bytes;
  GroupWorld world({0, 1, 2, 3}, variables, {.memory_max_bytes = most});
  ASSERT_TRUE(world.build().ok());
  const Status refused = world[2].migration.begin(world[2].group.runtime(0), kMirroredPlan, 3);
  EXPECT_EQ(refused.code(), PARALLAX_LIMIT);
  EXPECT_TRUE(has(refused, "plan: moving variable 'rows' of rank 2")) << refused.message();
  EXPECT_TRUE(has(refused, std::to_string(most))) << refused.message();
  EXPECT_TRUE(has(refused, "or pin the plan")) << refused.message();
}

}  // namespace
}  // namespace parallax::testkit
