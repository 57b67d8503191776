// SPDX-License-Identifier: Apache-2.0
#include "group/variable_runtime.h"

#include <gtest/gtest.h>

#include "unit/group/group_world.h"

namespace parallax::testkit {
namespace {

TEST(VariableRuntime, WhatIsInForceGoesByTheStep) {
  GroupWorld world({0, 1}, {managed("rows", 10, 4)});
  ASSERT_TRUE(world.build().ok());
  VariableRuntime& runtime = world[0].group.runtime(0);
  EXPECT_FALSE(runtime.changed_at(1)) << "no change is under way";
  EXPECT_EQ(&runtime.exchange_at(1), runtime.exchange.get());
  EXPECT_TRUE(runtime.sharded_at(1));

  runtime.change.step = 5;
  runtime.change.plan = {Placement::kMirrored, Method::kAllgatherv};
  runtime.change.exchange = world[0].group.new_exchange(runtime, Method::kAllgatherv);
  EXPECT_EQ(&runtime.exchange_at(4), runtime.exchange.get());
  EXPECT_EQ(&runtime.exchange_at(5), runtime.change.exchange.get());
  EXPECT_EQ(&runtime.exchange_at(6), runtime.change.exchange.get());
  EXPECT_TRUE(runtime.sharded_at(4));
  EXPECT_FALSE(runtime.sharded_at(5));
  EXPECT_EQ(runtime.plan_at(5), runtime.change.plan);
}

TEST(VariableRuntime, RowsOfAGradientMayEndInACount) {
  Variable variable = managed("rows", 10, 4);
  const SlotMap ranks = a_slot_each(2);
  EXPECT_EQ(VariableRuntime(0, variable, ranks, ranks).owned_gradient.row_elements(), 2u);
  variable.reduction = PARALLAX_MEAN_ROW;
  const VariableRuntime runtime(0, variable, ranks, ranks);
  EXPECT_EQ(runtime.owned_gradient.row_elements(), 3u);
  EXPECT_EQ(runtime.shared_gradient.row_elements(), 3u);
  EXPECT_EQ(runtime.partition.row_elements(), 2u);
}

// Given slots that rank 1 alone owns, expect it to sum what is pushed to owners, and both ranks
// what everybody gets back.
TEST(VariableRuntime, GradientsAreSummedAtOwnersOrByAllRanks) {
  const Variable variable = managed("rows", 10, 4);
  const VariableRuntime runtime(0, variable, SlotMap(std::vector<uint32_t>{1, 1}), a_slot_each(2));
  EXPECT_EQ(runtime.partition.rows_owned(0), 0u);
  EXPECT_EQ(runtime.gradient_partition(Method::kPushPull).rows_owned(0), 0u);
  EXPECT_EQ(runtime.gradient_partition(Method::kPushPull).rows_owned(1), 10u);
  for (const Method method : {Method::kReduceRows, Method::kAllgatherv, Method::kMadeDense}) {
    EXPECT_EQ(runtime.gradient_partition(method).rows_owned(0), 5u);
    EXPECT_EQ(runtime.gradient_partition(method).range_of(0).count, 10u);
  }
}

}  // namespace
}  // namespace parallax::testkit
