// SPDX-License-Identifier: Apache-2.0
// What a group lays out and reserves for its variables, and what it refuses.
#include "group/group.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/words.h"
#include "unit/group/group_world.h"

namespace parallax::testkit {
namespace {

enum : uint32_t { kHeldDense, kHeldRows, kDense, kRows };

std::vector<Variable> each_kind() {
  return {held("held_dense", 6), held("held_rows", 50, 5), managed("dense", 7),
          managed("rows", 60, 5)};
}

TEST(Group, LaysVariablesOutByTheirForm) {
  GroupWorld world({0, 0, 1}, each_kind());
  ASSERT_TRUE(world.build().ok());
  const Group& group = world[1].group;
  ASSERT_EQ(group.size(), 4u);
  EXPECT_EQ(group.with_ids(), (std::vector<uint32_t>{kHeldRows, kRows}));
  for (uint32_t variable = 0; variable < group.size(); ++variable) {
    const VariableRuntime& runtime = group.runtime(variable);
    EXPECT_EQ(runtime.id, variable);
    EXPECT_EQ(runtime.variable, &world.variables()[variable]);
    EXPECT_EQ(runtime.table != nullptr, variable == kDense || variable == kRows);
    EXPECT_NE(runtime.exchange, nullptr);
    EXPECT_EQ(group.pulls().arena_of(variable) != nullptr, variable == kRows)
        << "only a sharded variable is pulled";
  }
  EXPECT_FALSE(group.runtime(kDense).table->sharded());
  EXPECT_TRUE(group.runtime(kRows).table->sharded());
  EXPECT_EQ(group.plan()[kRows].method, Method::kPushPull);
  EXPECT_EQ(group.plan()[kHeldRows].placement, Placement::kFramework);
  EXPECT_EQ(group.facts()[kRows].name, "rows");
  EXPECT_EQ(group.topology().hosts, 2u);
  EXPECT_EQ(group.topology().ranks, 3u);
  EXPECT_EQ(group.name(), "rank 1 (host host0)");
}

// Given a host of two domains of memory, expect the plan to say that rows are summed in each, where
// sums need no order, and what is reserved to have room for them.
TEST(Group, RowsAreSummedInDomains) {
  for (const bool deterministic : {false, true}) {
    const std::vector<Variable> variables = {managed("dense", 7), managed("rows", 60, 5)};
    GroupWorld world({0, 0, 0, 0, 1, 1, 1, 1}, variables, {.deterministic = deterministic}, {},
                     {0, 0, 1, 1, 0, 0, 0, 0});
    ASSERT_TRUE(world.build().ok());
    EXPECT_EQ(world[1].group.topology().domains, deterministic ? 1u : 2u);
    EXPECT_EQ(world[4].group.topology().domains, 1u) << "another host's";
    const auto reserved = [&](uint32_t rank) {
      return world[rank].group.runtime(1).exchange->arena().used_bytes();
    };
    EXPECT_EQ(reserved(0) > reserved(4), !deterministic);
  }
}

// What is there stays where it is, and its steps open; what is new opens with the next ones.
TEST(Group, VariablesAreAddedToThoseThatAreThere) {
  GroupWorld world({0, 0, 1}, each_kind());
  ASSERT_TRUE(world.build().ok());
  Group& group = world[1].group;
  while (!group.fill()) {
  }
  const VariableRuntime* before = &group.runtime(kRows);
  const Exchange* exchange = before->exchange.get();
  const std::vector<Variable> late = {managed("late", 60, 5), held("late_held", 6)};
  ASSERT_TRUE(group.add(pointers_to(late), 7).ok());
  ASSERT_EQ(group.size(), 6u);
  EXPECT_EQ(&group.runtime(kRows), before);
  EXPECT_EQ(before->exchange.get(), exchange);
  EXPECT_EQ(group.with_ids(), (std::vector<uint32_t>{kHeldRows, kRows, 4}));
  EXPECT_EQ(group.runtime(4).id, 4u);
  EXPECT_NE(group.pulls().arena_of(4), nullptr);
  while (!group.fill()) {
  }
  float value = 0;
  std::memcpy(&value, group.runtime(4).table->array(0).data(), sizeof value);
  EXPECT_NE(value, 0.0f);
  ASSERT_TRUE(group.add({}, 7).ok());
  EXPECT_EQ(group.size(), 6u);
}

TEST(Group, TheLimitCountsWhatIsThere) {
  const std::vector<Variable> first = {managed("first", 1 << 15)};
  const std::vector<Variable> late = {managed("late", 1 << 15)};
  GroupWorld unlimited({0}, first);
  ASSERT_TRUE(unlimited.build().ok());
  const Group& alone = unlimited[0].group;
  const uint64_t bytes = alone.memory_use(alone.runtime(0)).reserved_bytes;
  for (const uint64_t times : {3, 5}) {
    GroupWorld world({0}, first, {.memory_max_bytes = times * bytes / 2});
    ASSERT_TRUE(world.build().ok());
    const Status added = world[0].group.add(pointers_to(late), 1);
    EXPECT_EQ(added.code(), times == 3 ? PARALLAX_LIMIT : PARALLAX_OK) << added.message();
  }
}

TEST(Group, APinnedPlanIsLaidOut) {
  GroupWorld world({0, 1}, each_kind(), {.plan_mode = PARALLAX_PLAN_AR});
  ASSERT_TRUE(world.build().ok());
  EXPECT_FALSE(world[0].group.runtime(kRows).table->sharded());
}

TEST(Group, FillsInInitialValuesByPieces) {
  GroupWorld world({0}, {managed("large", Group::kFillElements), managed("small", 4)});
  ASSERT_TRUE(world.build().ok());
  Group& group = world[0].group;
  int pieces = 1;
  while (!group.fill()) ++pieces;
  EXPECT_GE(pieces, 2) << "twice as many elements as one piece has";
  EXPECT_LE(pieces, 4);
  EXPECT_TRUE(group.fill()) << "nothing is left";
  for (const uint32_t variable : {0u, 1u}) {
    float last = 0;
    const Table& table = *group.runtime(variable).table;
    std::memcpy(&last, table.element(world.variables()[variable].elements() - 1), sizeof last);
    EXPECT_NE(last, 0.0f) << "variable " << variable;
  }
}

TEST(Group, RefusesWhatPassesTheLimitAndNamesTheLargest) {
  GroupWorld world({0, 1}, {managed("small", 8), managed("enormous", 1 << 20)},
                   {.memory_max_bytes = 1 << 20});
  const Status refused = world.build();
  EXPECT_EQ(refused.code(), PARALLAX_LIMIT);
  EXPECT_TRUE(has(refused, "commit: rank 1 (host host1) would reserve")) << refused.message();
  EXPECT_TRUE(has(refused, "variable 'enormous' takes")) << refused.message();
  EXPECT_TRUE(has(refused, "or raise memory_max_bytes")) << refused.message();
}

// Sharded over four ranks each holds a quarter; mirrored, all of it.
TEST(Group, ANewPlanMustFitBesideWhatThereIs) {
  const std::vector<uint32_t> hosts = {0, 1, 2, 3};
  const std::vector<Variable> variables = {managed("rows", 1 << 16, 4)};
  const VariablePlan mirrored = {Placement::kMirrored, Method::kAllgatherv};
  GroupWorld unlimited(hosts, variables);
  ASSERT_TRUE(unlimited.build().ok());
  const Group& group = unlimited[0].group;
  EXPECT_TRUE(group.fits_memory(group.runtime(0), mirrored));
  const Group::MemoryUse use = group.memory_use(group.runtime(0));
  EXPECT_GT(use.reserved_bytes, (uint64_t{1} << 16) * 2 * sizeof(float) / 4);
  for (const uint64_t times : {2, 16}) {
    GroupWorld limited(hosts, variables, {.memory_max_bytes = times * use.reserved_bytes});
    ASSERT_TRUE(limited.build().ok());
    const Group& within = limited[0].group;
    EXPECT_EQ(within.fits_memory(within.runtime(0), mirrored), times == 16);
    EXPECT_TRUE(within.fits_memory(within.runtime(0), within.runtime(0).plan));
  }
}

}  // namespace
}  // namespace parallax::testkit
