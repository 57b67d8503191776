// SPDX-License-Identifier: Apache-2.0
// What changes in a group with the constants of its job.
#include "group/algorithm_costs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/group/group_world.h"

namespace parallax::testkit {
namespace {

std::string algorithm_of(const Group& group, uint32_t variable) {
  const VariableRuntime& runtime = group.runtime(variable);
  return group.algorithms()
      .of(dense_shape_of(group, runtime, runtime.plan.method), runtime.variable->sum_type())
      .name;
}

// Messages cost their ends much, and nothing else costs anything.
CostConstants busy() {
  CostConstants constants;
  constants.between = {0, 1'000'000, 1};
  return constants;
}

TEST(AlgorithmCosts, MatterWhereThereIsAChoice) {
  const std::vector<uint32_t> twelve = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const auto open = [](const std::vector<uint32_t>& hosts, const Variable& variable) {
    GroupWorld world(hosts, {variable});
    EXPECT_TRUE(world.build().ok());
    return choices_open(world[0].group, pointers_to(world.variables()));
  };
  EXPECT_TRUE(open(twelve, held("dense", 5000)));
  EXPECT_TRUE(open({0, 0}, held("few", 6)));
  EXPECT_FALSE(open({0}, held("few", 6)));
  EXPECT_FALSE(open({0, 0}, managed("dense", 6)));
  // Rows that the framework holds go by time, unless they are pinned or alone.
  EXPECT_TRUE(open({0, 0}, held("rows", 50, 5)));
  EXPECT_FALSE(open({0}, held("rows", 50, 5)));
  EXPECT_FALSE(open({0, 0}, managed("rows", 50, 5)));
  Variable pinned = held("rows", 50, 5);
  pinned.pin.method = PARALLAX_METHOD_ALLGATHERV;
  EXPECT_FALSE(open({0, 0}, pinned));
  // Between hosts rows may be coded.
  EXPECT_TRUE(open({0, 1}, managed("rows", 50, 5)));
  EXPECT_TRUE(open({0, 1}, pinned));
}

// Given other constants, expect exchanges of the new ways in place of the old where these differ,
// with their memory and their first steps, at every rank, and no others touched.
TEST(AlgorithmCosts, LayOutAnewWhatGoesAnotherWay) {
  GroupWorld world({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                   {held("dense", 5000), held("rows", 50, 5)});
  ASSERT_TRUE(world.build().ok());
  const std::vector<const Variable*> newest = pointers_to(world.variables());
  for (uint32_t rank = 0; rank < 12; ++rank) {
    Group& group = world[rank].group;
    const std::string before = algorithm_of(group, 0);
    const Exchange* rows = group.runtime(1).exchange.get();
    bool changed = false;
    ASSERT_TRUE(use_costs(group, busy(), newest, 0, &changed).ok());
    EXPECT_TRUE(changed);
    EXPECT_NE(algorithm_of(group, 0), before);
    EXPECT_GT(group.runtime(0).exchange->arena().reserved_bytes(), 0u);
    EXPECT_EQ(group.runtime(1).exchange.get(), rows);
    EXPECT_TRUE(group.runtime(0).exchange->missing(2).to_tell.empty());
    ASSERT_TRUE(use_costs(group, busy(), newest, 0, &changed).ok());
    EXPECT_FALSE(changed) << "the same once more";
  }
}

}  // namespace
}  // namespace parallax::testkit
