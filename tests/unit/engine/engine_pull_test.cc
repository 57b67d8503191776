// SPDX-License-Identifier: Apache-2.0
// Pulls in the ways that random scripts seldom make them.
#include <gtest/gtest.h>

#include "support/engine_world.h"
#include "variable/initial_value.h"

namespace parallax::testkit {
namespace {

// Ranks with one sharded and one mirrored variable whose values tell row and column.
class EnginePull : public testing::Test {
 protected:
  enum : uint32_t { kSharded, kOther, kMirrored };
  static constexpr uint64_t kRows = 40;
  static constexpr uint64_t kWidth = 3;

  void start(const std::vector<uint32_t>& hosts, uint64_t seed = 1, uint32_t slow_percent = 0) {
    world_ = std::make_unique<EngineWorld>(WorldOptions{
        .hosts = hosts, .plan_after_steps = 1000, .seed = seed, .slow_percent = slow_percent});
    parallax_variable_t sharded = sparse_variable("sharded", kRows, kWidth, 8, PARALLAX_RULE_SGD);
    sharded.init = PARALLAX_INIT_UNIFORM;
    sharded.init_high = 1;
    sharded.init_seed = 3;
    parallax_variable_t other = sparse_variable("other", kRows, 1, 4, PARALLAX_RULE_SGD);
    other.init_low = 5;
    parallax_variable_t mirrored = dense_variable("mirrored", 2, 2, PARALLAX_RULE_SGD);
    mirrored.init_low = 7;
    const parallax_variable_t all[] = {sharded, other, mirrored};
    for (const Status& status : world_->commit(all)) ASSERT_TRUE(status.ok()) << status.message();
  }

  uint64_t begin(uint32_t rank) {
    uint64_t step = 0;
    EXPECT_TRUE(world_->engine(rank).step_calls().begin(&step).ok());
    return step;
  }
  Request* pull(uint32_t rank, uint64_t step, const std::vector<parallax_slice_t>& slices) {
    Request* request = nullptr;
    const Status status = world_->engine(rank).step_calls().pull(step, slices, &request);
    EXPECT_TRUE(status.ok()) << status.message();
    return request;
  }
  Request* end(uint32_t rank, uint64_t step, float rate = 0) {
    parallax_step_end_options_t options = {};
    options.size = sizeof options;
    options.learning_rate = rate;
    Request* request = nullptr;
    EXPECT_TRUE(world_->engine(rank).step_calls().end(step, options, &request).ok());
    return request;
  }
  void finish(std::vector<Request*> requests) {
    ASSERT_TRUE(world_->run_until_done(requests));
    for (Request* request : requests)
      ASSERT_TRUE(request->status.ok()) << request->status.message();
  }
  float first_value(uint64_t row, uint64_t column) {
    Variable variable;
    variable.init = PARALLAX_INIT_UNIFORM;
    variable.init_high = 1;
    variable.init_seed = 3;
    return static_cast<float>(initial_value(variable, row, column));
  }

  std::unique_ptr<EngineWorld> world_;
  std::vector<int64_t> ids_ = {4, 39, 4, 0};
  std::vector<float> values_ = std::vector<float>(12);
  std::vector<float> mirror_ = std::vector<float>(4);
};

TEST_F(EnginePull, DuplicatesAreAllFilledIn) {
  for (const std::vector<uint32_t>& hosts :
       {std::vector<uint32_t>{0}, {0, 0}, {0, 1}, {0, 0, 1, 1}, {0, 1, 1, 1}}) {
    start(hosts);
    std::vector<Request*> requests;
    for (uint32_t rank = 0; rank < world_->size(); ++rank) begin(rank);
    requests.push_back(pull(0, 1, {rows_slice(kSharded, ids_, values_.data())}));
    for (uint32_t rank = 0; rank < world_->size(); ++rank) requests.push_back(end(rank, 1));
    finish(requests);
    for (size_t i = 0; i < ids_.size(); ++i) {
      for (uint64_t c = 0; c < kWidth; ++c) {
        EXPECT_EQ(values_[i * kWidth + c], first_value(static_cast<uint64_t>(ids_[i]), c));
      }
    }
  }
}

// A rank's pull is answered whatever the other ranks of its host ask for, or whether they do.
TEST_F(EnginePull, PullsOfOtherVariablesOrOfNothing) {
  start({0, 0, 1});
  for (uint32_t rank = 0; rank < 3; ++rank) begin(rank);
  Request* first = pull(0, 1, {rows_slice(kSharded, ids_, values_.data())});
  finish({first});
  Request* mirrored = pull(1, 1, {dense_slice(kMirrored, mirror_.data())});
  finish({mirrored});
  EXPECT_EQ(mirror_[3], 7);
  Request* second = pull(0, 1, {rows_slice(kSharded, ids_, values_.data())});
  Request* nothing = pull(1, 1, {});
  finish({second, nothing});
}

TEST_F(EnginePull, RanksPullAsOftenAsTheyLike) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    start({0, 0, 0, 1}, seed, 20);
    std::vector<Request*> requests;
    for (uint32_t rank = 0; rank < 4; ++rank) begin(rank);
    std::vector<std::vector<float>> outs(30, std::vector<float>(12));
    for (uint32_t i = 0; i < 7; ++i) {
      requests.push_back(pull(0, 1, {rows_slice(kSharded, ids_, outs[i].data())}));
    }
    for (uint32_t i = 0; i < 3; ++i) {
      requests.push_back(pull(2, 1, {rows_slice(kSharded, ids_, outs[10 + i].data())}));
    }
    const std::vector<int64_t> none;
    for (uint32_t i = 0; i < 9; ++i) {
      requests.push_back(pull(3, 1, {rows_slice(kSharded, none, nullptr)}));
    }
    // Whether a neighbour ends the step or not.
    finish(requests);
    for (uint32_t rank = 0; rank < 4; ++rank) requests.push_back(end(rank, 1));
    finish(requests);
    EXPECT_EQ(outs[6][11], first_value(0, 2));
    EXPECT_EQ(outs[12][0], first_value(4, 0));
  }
}

TEST_F(EnginePull, HundredsOfPullsInOneStep) {
  start({0, 0, 1});
  for (uint32_t rank = 0; rank < 3; ++rank) begin(rank);
  constexpr uint32_t kPulls = 600;
  const std::vector<int64_t> one = {3};
  std::vector<float> out(kWidth);
  float other = 0;
  for (uint32_t i = 0; i < kPulls; ++i) {
    const bool seldom = i % 256 == 0;
    std::vector<Request*> requests;
    out.assign(kWidth, 0);
    other = 0;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      std::vector<parallax_slice_t> slices;
      if (rank == 0) slices.push_back(rows_slice(kSharded, one, out.data()));
      if (rank == 2 && seldom) slices.push_back(rows_slice(kOther, one, &other));
      requests.push_back(pull(rank, 1, slices));
    }
    finish(requests);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(world_->engine(rank).release(requests[rank]).ok());
    }
    ASSERT_EQ(out[1], first_value(3, 1)) << i;
    ASSERT_EQ(other, seldom ? 5.0f : 0.0f) << i;
  }
}

// Given a pull of step 2 posted while step 1 ends, expect it to see step 1, once.
TEST_F(EnginePull, OfTheNextStepSeesThisOne) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    start({0, 0, 1, 1}, seed, 30);
    std::vector<std::vector<float>> gradients(4, std::vector<float>(12, 1.0f));
    std::vector<std::vector<float>> outs(4, std::vector<float>(12));
    std::vector<std::vector<float>> mirrors(4, std::vector<float>(4));
    std::vector<Request*> requests;
    for (uint32_t rank = 0; rank < 4; ++rank) {
      begin(rank);
      const parallax_slice_t push[] = {rows_slice(kSharded, ids_, gradients[rank].data()),
                                       dense_slice(kMirrored, gradients[rank].data())};
      requests.push_back(nullptr);
      ASSERT_TRUE(world_->engine(rank).step_calls().push(1, push, &requests.back()).ok());
      requests.push_back(end(rank, 1, 0.5f));
      begin(rank);
      requests.push_back(pull(rank, 2,
                              {rows_slice(kSharded, ids_, outs[rank].data()),
                               dense_slice(kMirrored, mirrors[rank].data())}));
      world_->shuffle(seed);
    }
    finish(requests);
    for (uint32_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(mirrors[rank][2], 7 - 0.5f * 4);
      EXPECT_EQ(outs[rank][3], first_value(39, 0) - 0.5f * 4);
      EXPECT_EQ(outs[rank][0], first_value(4, 0) - 0.5f * 8) << "row 4 was given twice by each";
      EXPECT_EQ(outs[rank][6], outs[rank][0]);
    }
  }
}

TEST_F(EnginePull, DenseVariablesAreShardedUnderPs) {
  for (const std::vector<uint32_t>& hosts :
       {std::vector<uint32_t>{0}, {0, 0, 1}, {0, 1, 2}, {0, 1, 1, 1, 1}}) {
    EngineWorld world({.hosts = hosts, .plan_mode = PARALLAX_PLAN_PS, .message_bytes_max = 4096});
    parallax_variable_t wide = dense_variable("wide", 50, 60, PARALLAX_RULE_SGD);
    wide.init = PARALLAX_INIT_UNIFORM;
    wide.init_high = 1;
    wide.init_seed = 3;
    ASSERT_TRUE(world.commit({&wide, 1})[0].ok());
    EXPECT_EQ(world.engine(0).group().plan()[0].placement, Placement::kSharded);
    std::vector<std::vector<float>> outs(world.size(), std::vector<float>(3000));
    for (const Status& status : world.everywhere([&](uint32_t rank, Request**request) -> Status {
           uint64_t step = 0;
           PARALLAX_RETURN_IF_ERROR(world.engine(rank).step_calls().begin(&step));
           const parallax_slice_t slice = dense_slice(0, outs[rank].data());
           return world.engine(rank).step_calls().pull(step, {&slice, 1}, request);
         })) {
      ASSERT_TRUE(status.ok()) << status.message();
    }
    for (const auto& out : outs) {
      for (uint64_t at = 0; at < out.size(); ++at)
        ASSERT_EQ(out[at], first_value(at / 60, at % 60));
    }
  }
}

// Given a rank that pulls once more than its neighbour, while the neighbour waits for what it
// gives after that pull, expect the pull to be answered, and the neighbour's wait to name the rank
// that has not given.
TEST_F(EnginePull, APullIsAnsweredWhileTheNeighbourWaits) {
  world_ = std::make_unique<EngineWorld>(WorldOptions{.hosts = {0, 0}});
  const parallax_variable_t all[] = {sparse_variable("table", kRows, kWidth, 8, PARALLAX_RULE_SGD),
                                     dense_variable("whole", 2, 2)};
  for (const Status& status : world_->commit(all)) ASSERT_TRUE(status.ok()) << status.message();
  for (uint32_t rank = 0; rank < 2; ++rank) begin(rank);
  std::vector<float> other(12), own(4);
  const auto reduce = [&](uint32_t rank, float* values) {
    const parallax_slice_t slice = dense_slice(1, values);
    Request* request = nullptr;
    EXPECT_TRUE(world_->engine(rank).step_calls().reduce(1, {&slice, 1}, &request).ok());
    return request;
  };
  finish({pull(0, 1, {rows_slice(0, ids_, values_.data())}),
          pull(1, 1, {rows_slice(0, ids_, other.data())})});
  Request* held = reduce(1, mirror_.data());
  values_.assign(values_.size(), -1);
  finish({pull(0, 1, {rows_slice(0, ids_, values_.data())})});
  EXPECT_EQ(values_[3], 0) << "what the table begins with";
  world_->settle();
  EXPECT_EQ(world_->engine(1).reports().missing(*held).message(),
            "step 1 waits for variable 'whole': rank 0 (host host0) to give it or end the step");
  finish({reduce(0, own.data()), held, end(0, 1), end(1, 1)});
}

}  // namespace
}  // namespace parallax::testkit
