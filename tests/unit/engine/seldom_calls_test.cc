// SPDX-License-Identifier: Apache-2.0
// What besides steps a pass has to look at: all of it while there is some, and none else.
#include "engine/seldom_calls.h"

#include <gtest/gtest.h>

#include "unit/engine/job_world.h"

namespace parallax::testkit {
namespace {

SeldomCalls seldom_calls_of(JobWorld::Rank& rank) {
  static const SteadyClock clock;
  return SeldomCalls({.clock = clock,
                      .group = rank.group,
                      .phase = rank.phase,
                      .failure = rank.failure,
                      .job_calls = rank.job,
                      .row_calls = rank.rows,
                      .collective_calls = rank.collectives,
                      .step_calls = rank.steps});
}

// Given a commit, a barrier and a close, expect work until each is over here, and none between.
TEST(SeldomCalls, AreAtRestWhileThereAreStepsAlone) {
  JobWorld world({0, 0});
  const SeldomCalls calls = seldom_calls_of(world[0]);
  EXPECT_FALSE(calls.at_rest()) << "nobody has called commit";
  world.commit();
  EXPECT_TRUE(calls.at_rest());
  EXPECT_FALSE(calls.devices_busy());
  Request* barriers[2] = {};
  ASSERT_TRUE(world[0].collectives.barrier(&barriers[0]).ok());
  EXPECT_FALSE(calls.at_rest());
  world.settle();
  EXPECT_FALSE(calls.at_rest()) << "the other one has not called it";
  ASSERT_TRUE(world[1].collectives.barrier(&barriers[1]).ok());
  world.settle();
  EXPECT_TRUE(barriers[0]->done() && barriers[1]->done());
  EXPECT_TRUE(calls.at_rest());
  Request* closing = nullptr;
  ASSERT_TRUE(world[1].job.close(&closing).ok());
  world.settle();
  EXPECT_FALSE(calls.at_rest()) << "a rank below has closed";
}

}  // namespace
}  // namespace parallax::testkit
