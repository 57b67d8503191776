// SPDX-License-Identifier: Apache-2.0
// Engines with a staleness: how many steps may be open, what they refuse, what a wait that is in
// vain tells; and tables that are read while jobs on threads update them. Values at any timing:
// tests/sim/staleness_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "support/engine_world.h"
#include "support/words.h"

namespace parallax::testkit::staleness {
namespace {

constexpr uint64_t kRows = 64, kWidth = 16;

WorldOptions world_with(uint32_t staleness, const std::vector<uint32_t>& hosts,
                        parallax_plan_mode_t mode = PARALLAX_PLAN_PS) {
  WorldOptions options = {.hosts = hosts, .plan_mode = mode};
  options.adjust = [staleness](uint32_t, EngineOptions* engine) { engine->staleness = staleness; };
  return options;
}

// What a rank has under way in a step, and the buffers.
struct StepOfRank {
  std::vector<int64_t> ids;
  std::vector<float> pulled, given;
  std::vector<Request*> requests;
  Request* pull = nullptr;
};

class StaleEngine : public testing::Test {
 protected:
  void open(const WorldOptions& options) {
    world_ = std::make_unique<EngineWorld>(options);
    const parallax_variable_t variables[] = {
        sparse_variable("rows", kRows, kWidth, kRows, PARALLAX_RULE_SGD),
        dense_variable("dense", kRows, kWidth, PARALLAX_RULE_SGD)};
    for (const Status& status : world_->commit(variables)) {
      ASSERT_TRUE(status.ok()) << status.message();
    }
    steps_.resize(world_->size());
  }
  StepCalls& calls(uint32_t rank) { return world_->engine(rank).step_calls(); }

  // All of a step, in the order in which a program calls for it, but without a wait. Every gradient
  // is -1.
  void call_step(uint32_t rank) {
    auto& own = *steps_[rank].emplace_back(std::make_unique<StepOfRank>());
    for (uint64_t row = 0; row < kRows; ++row) own.ids.push_back(static_cast<int64_t>(row));
    own.pulled.resize(2 * kRows * kWidth);
    own.given.assign(kRows * kWidth, -1.0f);
    uint64_t step = 0;
    ASSERT_TRUE(calls(rank).begin(&step).ok());
    const parallax_slice_t wanted[] = {rows_slice(0, own.ids, own.pulled.data()),
                                       dense_slice(1, own.pulled.data() + kRows * kWidth)};
    const parallax_slice_t given[] = {rows_slice(0, own.ids, own.given.data()),
                                      dense_slice(1, own.given.data())};
    own.requests.resize(3);
    ASSERT_TRUE(calls(rank).pull(step, wanted, &own.requests[0]).ok());
    ASSERT_TRUE(calls(rank).push(step, given, &own.requests[1]).ok());
    ASSERT_TRUE(calls(rank).end(step, end_options(1), &own.requests[2]).ok());
    own.pull = own.requests[0];
    world_->engine(rank).kick();
  }
  void finish(uint32_t rank) {
    for (const auto& each : steps_[rank]) {
      ASSERT_TRUE(world_->run_until_done(each->requests));
      for (Request* request : each->requests) {
        ASSERT_TRUE(request->status.ok()) << request->status.message();
        ASSERT_TRUE(world_->engine(rank).release(request).ok());
      }
      each->requests.clear();
    }
  }

  std::unique_ptr<EngineWorld> world_;
  std::vector<std::vector<std::unique_ptr<StepOfRank>>> steps_;  // by rank
};

// Given a rank that is alone in calling, expect its pulls to be answered as far as staleness lets
// be, its steps to begin two further, and then words that help.
TEST_F(StaleEngine, StepsBeginAsFarAsItLetsBe) {
  open(world_with(2, {0, 0, 1}));
  for (int i = 0; i < 4; ++i) call_step(0);
  world_->settle();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(steps_[0][i]->pull->done(), i < 3) << "step " << i + 1;
  }
  uint64_t step = 0;
  const Status refused = calls(0).begin(&step);
  EXPECT_EQ(refused.code(), PARALLAX_STATE);
  EXPECT_TRUE(
      has(refused, "steps 1 to 4 are still ending; wait for the step_end request of step 1"))
      << refused.message();
  const Reports reports = world_->engine(0).reports();
  const Status missing = reports.missing(*steps_[0][3]->pull);
  EXPECT_TRUE(has(missing, "step 4 waits for the decision of step 1: rank")) << missing.message();
  const Status end = reports.missing(*steps_[0][2]->requests[2]);
  EXPECT_TRUE(has(end, "step 3 waits for the decision of step 1")) << end.message();
  for (uint32_t rank : {1u, 2u}) {
    for (int i = 0; i < 4; ++i) call_step(rank);
  }
  for (uint32_t rank = 0; rank < 3; ++rank) finish(rank);
  EXPECT_EQ(world_->engine(0).window().finished(), 4u);
}

// Asynchronously as far as there is room.
TEST_F(StaleEngine, AsynchronouslyEveryPullIsAnswered) {
  open(world_with(StepWindow::kAsync, {0, 1}));
  for (uint64_t i = 0; i < StepWindow::kDepthMax; ++i) call_step(0);
  world_->settle();
  for (const auto& each : steps_[0]) EXPECT_TRUE(each->pull->done());
  uint64_t step = 0;
  EXPECT_EQ(calls(0).begin(&step).code(), PARALLAX_STATE);
  for (uint64_t i = 0; i < StepWindow::kDepthMax; ++i) call_step(1);
  for (uint32_t rank = 0; rank < 2; ++rank) finish(rank);
}

// The plan stays the first, whatever is pushed, also dense slices of a variable with row ids; and
// says why.
TEST_F(StaleEngine, ThePlanStays) {
  WorldOptions options = world_with(1, {0, 1}, PARALLAX_PLAN_AUTO);
  options.plan_after_steps = 1;
  open(options);
  for (int turn = 0; turn < 6; ++turn) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      uint64_t step = 0;
      ASSERT_TRUE(calls(rank).begin(&step).ok());
      auto& own = *steps_[rank].emplace_back(std::make_unique<StepOfRank>());
      own.given.assign(kRows * kWidth, -1.0f);
      own.requests.resize(2);
      const parallax_slice_t given = dense_slice(0, own.given.data());
      ASSERT_TRUE(calls(rank).push(step, {&given, 1}, &own.requests[0]).ok());
      ASSERT_TRUE(calls(rank).end(step, end_options(1), &own.requests[1]).ok());
    }
    for (uint32_t rank = 0; rank < 2; ++rank) finish(rank);
  }
  const std::string plan = world_->engine(0).reports().plan_json();
  EXPECT_NE(plan.find(R"("placement":"sharded","method":"push_pull")"), std::string::npos) << plan;
  EXPECT_NE(plan.find("by form, since nothing was measured"), std::string::npos) << plan;
}

// Slices and tables on devices are refused by name.
TEST_F(StaleEngine, DevicesAreRefused) {
  open(world_with(1, {0}));
  parallax_variable_t variable = dense_variable("device", 2, 2, PARALLAX_RULE_SGD);
  uint32_t id = 0;
  variable.table_memory = PARALLAX_MEMORY_CUDA;
  JobCalls& job = world_->engine(0).job_calls();
  Status refused = job.register_variable(variable, &id);
  EXPECT_EQ(refused.code(), PARALLAX_UNSUPPORTED);
  EXPECT_EQ(refused.facts().field, "table_memory");
  EXPECT_TRUE(has(refused, "staleness")) << refused.message();
  uint64_t step = 0;
  ASSERT_TRUE(calls(0).begin(&step).ok());
  std::vector<float> values(kRows * kWidth);
  parallax_slice_t slice = dense_slice(1, values.data());
  slice.memory = PARALLAX_MEMORY_CUDA;
  Request* request = nullptr;
  refused = calls(0).push(step, {&slice, 1}, &request);
  EXPECT_EQ(refused.code(), PARALLAX_UNSUPPORTED);
  EXPECT_EQ(refused.facts().field, "memory");
  EXPECT_TRUE(has(refused, "staleness")) << refused.message();
}

// Given updates that run on threads, while ranks pull as they like, expect whole rows, each as of a
// commit that may be seen. (A data race is for ThreadSanitizer to find.)
TEST_F(StaleEngine, RowsAreWholeWhileThreadsUpdateThem) {
  constexpr uint64_t kSteps = 40, kStaleness = 2;
  const std::vector<std::vector<uint32_t>> layouts = {{0, 0}, {0, 1}, {0, 0, 1}};
  for (const parallax_plan_mode_t mode : {PARALLAX_PLAN_PS, PARALLAX_PLAN_AR}) {
    for (const std::vector<uint32_t>& hosts : layouts) {
      WorldOptions options = world_with(kStaleness, hosts, mode);
      options.compute_threads = 2;
      options.message_bytes_max = 4096;
      options.slow_percent = 30;
      steps_.clear();
      open(options);
      SeededRandom random(hosts.size());
      std::vector<uint64_t> called(world_->size());
      const auto all_called = [&] {
        return std::all_of(called.begin(), called.end(),
                           [](uint64_t each) { return each == kSteps; });
      };
      for (int turn = 0; turn < 200'000 && !all_called(); ++turn) {
        const auto rank = static_cast<uint32_t>(random.below(world_->size()));
        const bool may = called[rank] < kSteps &&
                         called[rank] < world_->engine(rank).window().finished() + kStaleness + 2;
        if (may) {
          call_step(rank);
          ++called[rank];
        }
        world_->shuffle(random.below(20));
      }
      ASSERT_TRUE(all_called());
      for (uint32_t rank = 0; rank < world_->size(); ++rank) finish(rank);
      const auto ranks = static_cast<float>(world_->size());
      for (const auto& of_rank : steps_) {
        for (uint64_t step = 1; step <= kSteps; ++step) {
          const std::vector<float>& pulled = of_rank[step - 1]->pulled;
          for (uint64_t row = 0; row < 2 * kRows; ++row) {
            const float value = pulled[row * kWidth];
            ASSERT_LE(value, ranks * static_cast<float>(step - 1));
            ASSERT_GE(value + ranks * kStaleness, ranks * static_cast<float>(step - 1));
            for (uint64_t i = 1; i < kWidth && row < kRows; ++i) {
              ASSERT_EQ(pulled[row * kWidth + i], value) << "torn: row " << row;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace parallax::testkit::staleness
