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
  EXPECT_EQ(VariableRuntime(0, variable, 2).gradient_partition.row_elements(), 2u);
  variable.reduction = PARALLAX_MEAN_ROW;
  const VariableRuntime runtime(0, variable, 2);
  EXPECT_EQ(runtime.gradient_partition.row_elements(), 3u);
  EXPECT_EQ(runtime.partition.row_elements(), 2u);
}

}  // namespace
}  // namespace parallax::testkit
