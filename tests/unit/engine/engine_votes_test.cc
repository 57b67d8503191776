// SPDX-License-Identifier: Apache-2.0
// What a vote waits for, and what the end of a step does.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "support/engine_world.h"

namespace parallax::testkit {
namespace {

constexpr uint32_t kRanks = 3;
constexpr uint32_t kVotedRows = 300;
constexpr uint32_t kVotedWidth = 4;
constexpr uint32_t kHeld = 1'000'000;  // polls, for ever

// Three hosts of a rank each, of which the last can send nothing to the second in one step. All
// push all rows and end the step.
struct HeldStep {
  HeldStep() {
    const auto variable =
        sparse_variable("v", kVotedRows, kVotedWidth, kVotedRows, PARALLAX_RULE_SGD);
    for (const Status& status : world.commit({&variable, 1})) EXPECT_TRUE(status.ok());
    world.settle();
    std::iota(ids.begin(), ids.end(), 0);
    // Until the plan is settled votes tell how many rows were summed.
    for (int i = 0; i < 4; ++i) {
      post(0, 0);
      expect_done(pushes);
      expect_done(ends);
    }
  }

  void post(float factor, float clip_norm) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      StepCalls& calls = world.engine(rank).step_calls();
      uint64_t step = 0;
      ASSERT_TRUE(calls.begin(&step).ok());
      values[rank].assign(size_t{kVotedRows} * kVotedWidth, factor * static_cast<float>(rank + 1));
      const std::array slices = {rows_slice(0, ids, values[rank].data())};
      ASSERT_TRUE(calls.push(step, slices, &pushes[rank]).ok());
      ASSERT_TRUE(calls.end(step, end_options(1, clip_norm), &ends[rank]).ok());
    }
  }
  void expect_done(std::span<Request* const> requests) {
    ASSERT_TRUE(world.run_until_done(requests));
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(requests[rank]->status.ok()) << requests[rank]->status.message();
      EXPECT_TRUE(world.engine(rank).release(requests[rank]).ok());
    }
  }
  void end_held(float clip_norm) {
    world.transport(2).hold(1, kHeld);
    post(1, clip_norm);
  }
  bool done(uint32_t rank) const { return ends[rank]->done(); }

  // The link works again: the step ends, and the next one's pulls see it.
  void expect_all_ended(float value) {
    world.transport(2).hold(1, 0);
    expect_done(ends);
    expect_done(pushes);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      StepCalls& calls = world.engine(rank).step_calls();
      uint64_t step = 0;
      ASSERT_TRUE(calls.begin(&step).ok());
      values[rank].assign(values[rank].size(), 0);
      const std::array slices = {rows_slice(0, ids, values[rank].data())};
      ASSERT_TRUE(calls.pull(step, slices, &pushes[rank]).ok());
    }
    expect_done(pushes);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (const float each : values[rank]) ASSERT_FLOAT_EQ(each, value) << rank;
    }
  }

  EngineWorld world{{.hosts = {0, 1, 2}, .plan_mode = PARALLAX_PLAN_PS, .plan_after_steps = 1}};
  std::vector<int64_t> ids = std::vector<int64_t>(kVotedRows);
  std::array<std::vector<float>, kRanks> values;
  std::array<Request*, kRanks> pushes = {}, ends = {};
};

// Given an owner that waits for pushes, expect the step to be decided all the same, and to end
// where all pushes are there and gone: not at who has not sent them yet.
TEST(EngineVotes, WaitForNoPushesOfOthers) {
  HeldStep step;
  step.end_held(0);
  ASSERT_TRUE(step.world.run_until([&] { return step.done(0); }));
  step.world.settle();
  EXPECT_FALSE(step.done(1)) << "pushes of rank 2 are not there";
  EXPECT_FALSE(step.done(2)) << "and are read yet";
  step.expect_all_ended(-6);
}

// Given gradients that are clipped by their norm, expect no vote before all are summed.
TEST(EngineVotes, OfNormsWaitForSums) {
  HeldStep step;
  step.end_held(1e9F);
  step.world.settle();
  for (uint32_t rank = 0; rank < kRanks; ++rank) EXPECT_FALSE(step.done(rank)) << rank;
  step.expect_all_ended(-6);
}

}  // namespace
}  // namespace parallax::testkit
