// SPDX-License-Identifier: Apache-2.0
// Steps that are called for before the one before is over. What makes a call ready moves it in the
// same pass: nobody calls again, no message comes, and the clock stands still.
#include <gtest/gtest.h>

#include <vector>

#include "support/engine_world.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kAheadRows = 8;
constexpr uint64_t kAheadSteps = 6;

struct AheadRank {
  std::vector<float> gradient = std::vector<float>(kAheadRows, 1.0f);
  std::vector<std::vector<float>> got{kAheadSteps + 1, std::vector<float>(kAheadRows)};
  std::vector<Request*> requests;
};

// Everything of a step, in the order in which a program calls for it.
void call_step(EngineWorld& world, uint32_t rank, bool managed, AheadRank* own) {
  Engine& engine = world.engine(rank);
  StepCalls& calls = engine.step_calls();
  uint64_t step = 0;
  ASSERT_TRUE(calls.begin(&step).ok());
  const parallax_slice_t given = dense_slice(0, own->gradient.data());
  const parallax_slice_t wanted = dense_slice(0, own->got[step].data());
  Request* request = nullptr;
  if (managed) {
    ASSERT_TRUE(calls.pull(step, {&wanted, 1}, &request).ok());
    own->requests.push_back(request);
    ASSERT_TRUE(calls.push(step, {&given, 1}, &request).ok());
  } else {
    parallax_slice_t both = given;
    both.into = own->got[step].data();
    ASSERT_TRUE(calls.reduce(step, {&both, 1}, &request).ok());
  }
  own->requests.push_back(request);
  ASSERT_TRUE(calls.end(step, end_options(1), &request).ok());
  own->requests.push_back(request);
  engine.kick();
}

void train_two_steps_at_once(const std::vector<uint32_t>& hosts, bool managed,
                             bool on_boards = false) {
  EngineWorld world({.hosts = hosts, .seed = on_boards ? 2u : 1u});
  const parallax_variable_t variable =
      dense_variable("v", kAheadRows, 1, managed ? PARALLAX_RULE_SGD : PARALLAX_RULE_NONE);
  for (const Status& status : world.commit({&variable, 1})) {
    ASSERT_TRUE(status.ok()) << status.message();
  }
  std::vector<AheadRank> ranks(world.size());
  for (uint64_t step = 1; step <= kAheadSteps; step += 2) {
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      for (int i = 0; i < 2; ++i) call_step(world, rank, managed, &ranks[rank]);
    }
    if (testing::Test::HasFatalFailure()) return;
    world.settle();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      for (Request* request : ranks[rank].requests) {
        ASSERT_TRUE(request->done()) << "rank " << rank << ", steps " << step << " and next";
        ASSERT_TRUE(request->status.ok()) << request->status.message();
        ASSERT_TRUE(world.engine(rank).release(request).ok());
      }
      ranks[rank].requests.clear();
    }
  }
  const auto each = static_cast<float>(world.size());
  for (const AheadRank& rank : ranks) {
    for (uint64_t step = 1; step <= kAheadSteps; ++step) {
      const float expected = managed ? -each * static_cast<float>(step - 1) : each;
      EXPECT_EQ(rank.got[step], std::vector<float>(kAheadRows, expected)) << "step " << step;
    }
  }
}

TEST(EngineAhead, AHeldVariablesNextStepStartsWhenItsStepIsOver) {
  train_two_steps_at_once({0, 0}, false);
  train_two_steps_at_once({0, 0, 0, 1}, false);
  train_two_steps_at_once({0, 0}, false, true);
  train_two_steps_at_once({0, 0, 0, 0}, false, true);
}

TEST(EngineAhead, AManagedVariablesNextStepStartsWhenItsStepIsOver) {
  train_two_steps_at_once({0, 0}, true);
  train_two_steps_at_once({0, 0, 0, 1}, true);
}

}  // namespace
}  // namespace parallax::testkit
