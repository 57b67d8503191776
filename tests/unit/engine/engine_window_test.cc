// SPDX-License-Identifier: Apache-2.0
// When the variables of one call leave.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/engine_world.h"
#include "support/words.h"

namespace parallax::testkit {
namespace {

// Given one call of many variables, reduced between hosts, expect the first to leave when few of
// them were looked at: each that was borrows its slice for its share.
TEST(EngineWindow, WhatIsGivenFirstLeavesBeforeTheRestIsLookedAt) {
  constexpr uint32_t kVariables = 64;
  constexpr uint64_t kElements = 16 * 1024;  // 64 KiB each
  EngineWorld world({.hosts = {0, 1}});
  std::vector<std::string> names;
  for (uint32_t i = 0; i < kVariables; ++i) names.push_back("v" + std::to_string(100 + i));
  std::vector<parallax_variable_t> variables;
  for (const std::string& name : names) {
    variables.push_back(dense_variable(name.c_str(), kElements, 1));
  }
  for (const Status& status : world.commit(variables)) ASSERT_TRUE(status.ok());
  world.settle();
  std::vector<std::vector<float>> values[2];
  std::vector<Request*> requests;
  std::vector<uint32_t> looked_at;  // as the messages of the call left
  for (uint32_t rank = 0; rank < 2; ++rank) {
    StepCalls& calls = world.engine(rank).step_calls();
    uint64_t step = 0;
    ASSERT_TRUE(calls.begin(&step).ok());
    std::vector<parallax_slice_t> slices;
    for (uint32_t i = 0; i < kVariables; ++i) {
      values[rank].emplace_back(kElements, static_cast<float>(rank + i));
    }
    for (uint32_t i = 0; i < kVariables; ++i) {
      slices.push_back(dense_slice(i, values[rank][i].data()));
    }
    Request*& reduce = requests.emplace_back();
    ASSERT_TRUE(calls.reduce(step, slices, &reduce).ok());
    if (rank == 0) {
      world.transport(0).tap([&looked_at, call = reduce](uint32_t, std::span<const Segment>) {
        looked_at.push_back(call->pending);
      });
      world.engine(0).kick();
      world.transport(0).tap({});
    }
    ASSERT_TRUE(calls.end(step, end_options(1), &requests.emplace_back()).ok());
  }
  ASSERT_FALSE(looked_at.empty());
  EXPECT_LE(looked_at[0], 8u);
  EXPECT_GE(looked_at[0], 1u);
  ASSERT_TRUE(world.run_until_done(requests));
  for (uint32_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(requests[i]->status.ok()) << requests[i]->status.message();
    EXPECT_TRUE(world.engine(i / 2).release(requests[i]).ok());
  }
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (uint32_t i = 0; i < kVariables; ++i) {
      ASSERT_EQ(values[rank][i], std::vector<float>(kElements, static_cast<float>(2 * i + 1)));
    }
  }
}

}  // namespace
}  // namespace parallax::testkit
