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
