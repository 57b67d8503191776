// SPDX-License-Identifier: Apache-2.0
// What a vote waits for, and what the end of a step does.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "support/engine_world.h"

namespace parallax::testkit {
namespace {

constexpr uint32_t kVotedWidth = 4;
constexpr uint32_t kHeld = 1'000'000;  // polls, for ever

// Ranks of which one can send nothing to another in one step. All push all rows, unless one pushes
// none, and end the step.
struct HeldStep {
  HeldStep(std::vector<uint32_t> hosts, uint32_t rows, uint32_t from, uint32_t to)
      : ranks(static_cast<uint32_t>(hosts.size())),
        held_from(from),
        held_to(to),
        world({.hosts = std::move(hosts),
               .plan_mode = PARALLAX_PLAN_PS,
               .plan_after_steps = 1,
               .message_bytes_max = 4096}),
        ids(rows),
        values(ranks),
        pushes(ranks),
        ends(ranks) {
    const auto variable = sparse_variable("v", rows, kVotedWidth, rows, PARALLAX_RULE_SGD);
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
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      StepCalls& calls = world.engine(rank).step_calls();
      uint64_t step = 0;
      ASSERT_TRUE(calls.begin(&step).ok());
      values[rank].assign(ids.size() * kVotedWidth, factor * static_cast<float>(rank + 1));
      const std::array slices = {rows_slice(0, rank == idle ? none : ids, values[rank].data())};
      ASSERT_TRUE(calls.push(step, slices, &pushes[rank]).ok());
      ASSERT_TRUE(calls.end(step, end_options(1, clip_norm), &ends[rank]).ok());
    }
  }
  void expect_done(std::span<Request* const> requests) {
    ASSERT_TRUE(world.run_until_done(requests));
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_TRUE(requests[rank]->status.ok()) << requests[rank]->status.message();
      EXPECT_TRUE(world.engine(rank).release(requests[rank]).ok());
    }
  }
  void end_held(float clip_norm) {
    world.transport(held_from).hold(held_to, kHeld);
    post(1, clip_norm);
  }
  bool done(uint32_t rank) const { return ends[rank]->done(); }

  // The link works again: the step ends, and the next one's pulls see it.
  void expect_all_ended(float value) {
    world.transport(held_from).hold(held_to, 0);
    expect_done(ends);
    expect_done(pushes);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      StepCalls& calls = world.engine(rank).step_calls();
      uint64_t step = 0;
      ASSERT_TRUE(calls.begin(&step).ok());
      values[rank].assign(values[rank].size(), 0);
      const std::array slices = {rows_slice(0, ids, values[rank].data())};
      ASSERT_TRUE(calls.pull(step, slices, &pushes[rank]).ok());
    }
    expect_done(pushes);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      for (const float each : values[rank]) ASSERT_FLOAT_EQ(each, value) << rank;
    }
  }

  const uint32_t ranks, held_from, held_to;
  uint32_t idle = UINT32_MAX;  // pushes no row
  EngineWorld world;
  std::vector<int64_t> ids;
  const std::vector<int64_t> none = {};
  std::vector<std::vector<float>> values;
  std::vector<Request*> pushes, ends;
};

// Given an owner that waits for pushes, expect the step to be decided all the same, and to end
// where all pushes are there and gone: not at who has not sent them yet.
TEST(EngineVotes, WaitForNoPushesOfOthers) {
  HeldStep step({0, 1, 2}, 300, 2, 1);
  step.end_held(0);
  ASSERT_TRUE(step.world.run_until([&] { return step.done(0); }));
  step.world.settle();
  EXPECT_FALSE(step.done(1)) << "pushes of rank 2 are not there";
  EXPECT_FALSE(step.done(2)) << "and are read yet";
  step.expect_all_ended(-6);
}

// Given gradients that are clipped by their norm, expect no vote before all are summed.
TEST(EngineVotes, OfNormsWaitForSums) {
  HeldStep step({0, 1, 2}, 300, 2, 1);
  step.end_held(1e9F);
  step.world.settle();
  for (uint32_t rank = 0; rank < step.ranks; ++rank) EXPECT_FALSE(step.done(rank)) << rank;
  step.expect_all_ended(-6);
}

// Given a leader of a column of which other hosts own all rows, which waits for rows of its host,
// or to hear that there are none, expect it to vote no sooner than it has sent them on.
TEST(EngineVotes, OfLeadersThatOwnNothingWaitForTheirHost) {
  for (const bool pushes_none : {false, true}) {
    SCOPED_TRACE(pushes_none);
    HeldStep step({0, 0, 0, 1, 1, 1}, 3, 5, 4);
    if (pushes_none) step.idle = 5;
    step.end_held(0);
    step.world.settle();
    for (uint32_t rank = 0; rank < step.ranks; ++rank) EXPECT_FALSE(step.done(rank)) << rank;
    step.expect_all_ended(pushes_none ? -15 : -21);
  }
}

}  // namespace
}  // namespace parallax::testkit
