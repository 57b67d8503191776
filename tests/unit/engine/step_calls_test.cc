// SPDX-License-Identifier: Apache-2.0
// Calls of steps of whole jobs over a network of sections, without engines: which are refused, and
// what the request of step_end says.
#include "engine/step_calls.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "support/words.h"
#include "unit/engine/job_world.h"
#include "unit/server/layouts.h"

namespace parallax::testkit {
namespace {

parallax_slice_t dense(float* values) {
  parallax_slice_t slice = {};
  slice.size = sizeof slice;
  slice.variable = JobWorld::kDense;
  slice.values = values;
  return slice;
}

parallax_step_end_options_t ending(float learning_rate, float clip_norm = 0) {
  parallax_step_end_options_t options = {};
  options.size = sizeof options;
  options.learning_rate = learning_rate;
  options.clip_norm = clip_norm;
  return options;
}

uint64_t begin(JobWorld::Rank& rank) {
  uint64_t step = 0;
  EXPECT_TRUE(rank.steps.begin(&step).ok());
  return step;
}

Request* end(JobWorld::Rank& rank, uint64_t step, float learning_rate = 0.5f) {
  Request* request = nullptr;
  EXPECT_TRUE(rank.steps.end(step, ending(learning_rate), &request).ok());
  return request;
}

// Given a whole step of every rank, expect the pulled rows, the aggregate, and what was decided.
TEST(StepCalls, AStepFromItsBeginningToItsEnd) {
  for (const auto& hosts : layouts()) {
    JobWorld world(hosts);
    world.commit();
    const std::vector<int64_t> ids = {3};
    std::vector<std::vector<float>> before(world.size(), std::vector<float>(2));
    std::vector<std::vector<float>> after = before, gradients = before, sums = before;
    std::vector<Request*> requests;
    const auto pull = [&](uint32_t rank, uint64_t step, float* values) {
      const parallax_slice_t slice = slice_of_rows(ids, values);
      EXPECT_TRUE(world[rank].steps.pull(step, {&slice, 1}, &requests.emplace_back(nullptr)).ok());
    };
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_EQ(begin(world[rank]), 1u);
      pull(rank, 1, before[rank].data());
      gradients[rank] = {1.0f, 2.0f};
      sums[rank].assign(6, static_cast<float>(rank + 1));
      const parallax_slice_t pushed = slice_of_rows(ids, gradients[rank].data());
      const parallax_slice_t reduced = dense(sums[rank].data());
      ASSERT_TRUE(world[rank].steps.push(1, {&pushed, 1}, &requests.emplace_back(nullptr)).ok());
      ASSERT_TRUE(world[rank].steps.reduce(1, {&reduced, 1}, &requests.emplace_back(nullptr)).ok());
    }
    world.settle();
    std::vector<Request*> ends;
    for (uint32_t rank = 0; rank < world.size(); ++rank) ends.push_back(end(world[rank], 1));
    world.settle();
    const auto ranks = static_cast<float>(world.size());
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(ends[rank]->done() && ends[rank]->status.ok()) << "rank " << rank;
      EXPECT_EQ(ends[rank]->info.step, 1u);
      EXPECT_EQ(ends[rank]->info.committed, 1u);
      EXPECT_EQ(ends[rank]->info.contributors, world.size());
      EXPECT_EQ(ends[rank]->info.size, sizeof ends[rank]->info);
      EXPECT_EQ(sums[rank], std::vector<float>(6, ranks * (ranks + 1) / 2));
      EXPECT_EQ(begin(world[rank]), 2u);
      pull(rank, 2, after[rank].data());
    }
    world.settle();
    for (const Request* request : requests) EXPECT_TRUE(request->done() && request->status.ok());
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_FLOAT_EQ(after[rank][0], before[rank][0] - 0.5f * ranks);
      EXPECT_FLOAT_EQ(after[rank][1], before[rank][1] - 1.0f * ranks);
    }
  }
}

TEST(StepCalls, AStepThatRanksDoNotEndAlikeIsDiscardedAndSaysWhy) {
  JobWorld world({0, 0, 1});
  world.commit();
  std::vector<Request*> ends;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ends.push_back(end(world[rank], begin(world[rank]), rank == 2 ? 0.1f : 0.25f));
  }
  world.settle();
  for (const Request* request : ends) {
    ASSERT_TRUE(request->done());
    EXPECT_EQ(request->status.code(), PARALLAX_MISMATCH);
    EXPECT_TRUE(has(request->status, "step_end: step 1 was discarded: rank "));
    EXPECT_TRUE(has(request->status, "learning_rate 0.25 and clip_norm 0"));
    EXPECT_TRUE(
        has(request->status, "rank 2 (host host1) has learning_rate 0.100000001 and clip_norm 0"))
        << request->status.message();
    EXPECT_EQ(request->info.committed, 0u);
  }
}

TEST(StepCalls, RatesThatDifferAreNamedWithTheirGroup) {
  JobWorld world({0, 0, 1});
  world.commit();
  const auto discarded = [&](auto adjust) {
    std::vector<Request*> ends;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      std::array<parallax_rates_t, 2> rates = {};
      for (parallax_rates_t& each : rates) each.size = sizeof each;
      rates[1].weight_decay = 0.25f;
      parallax_step_end_options_t options = ending(0);
      options.rates = rates.data();
      options.rates_count = 2;
      if (rank == 2) adjust(rates[1], options);
      const uint64_t step = begin(world[rank]);
      EXPECT_TRUE(world[rank].steps.end(step, options, &ends.emplace_back(nullptr)).ok());
    }
    world.settle();
    for (const Request* request : ends) {
      EXPECT_EQ(request->status.code(), PARALLAX_MISMATCH);
      EXPECT_EQ(request->status.message(), ends[0]->status.message());
    }
    return ends[0]->status;
  };
  using Options = parallax_step_end_options_t;
  const Status decay =
      discarded([](parallax_rates_t& each, Options&) { each.weight_decay = 0.1f; });
  EXPECT_TRUE(has(decay, "has rates[1].weight_decay 0.25")) << decay.message();
  EXPECT_TRUE(has(decay, "rank 2 (host host1) has rates[1].weight_decay 0.100000001"))
      << decay.message();
  const Status sign = discarded([](parallax_rates_t& each, Options&) { each.maximize = 1; });
  EXPECT_TRUE(has(sign, "rank 2 (host host1) has rates[1].maximize 1")) << sign.message();
  const Status count = discarded([](parallax_rates_t&, Options& all) { all.rates_count = 1; });
  EXPECT_TRUE(
      has(count, "rank 2 (host host1) has learning_rate 0 and clip_norm 0 and rates_count 1"))
      << count.message();
}

TEST(StepCalls, AreTakenByARunningJobAlone) {
  JobWorld world({0});
  world.commit();
  StepCalls& steps = world[0].steps;
  uint64_t step = 0;
  Request* request = nullptr;
  const auto expect = [&](const char* why) {
    EXPECT_TRUE(has(steps.begin(&step), std::string("step_begin: ") + why));
    EXPECT_TRUE(has(steps.pull(0, {}, &request), std::string("pull: ") + why));
    EXPECT_TRUE(has(steps.pull(1, {}, &request), std::string("pull: ") + why));
    EXPECT_TRUE(has(steps.push(1, {}, &request), std::string("push: ") + why));
    EXPECT_TRUE(has(steps.reduce(1, {}, &request), std::string("reduce: ") + why));
    EXPECT_TRUE(has(steps.end(1, ending(1), &request), std::string("step_end: ") + why));
  };
  begin(world[0]);
  world[0].phase.commit();
  expect("a commit is under way");
  world[0].phase.close();
  expect("the job is closing");
  EXPECT_EQ(world[0].requests.outstanding(), 1u) << "the commit's";
}

TEST(StepCalls, AreTakenOfTheStepThatHasBegunAlone) {
  JobWorld world({0, 1});  // the other rank takes no part, so that no step is decided
  world.commit();
  StepCalls& steps = world[0].steps;
  uint64_t step = 0;
  Request* request = nullptr;
  EXPECT_TRUE(
      has(steps.pull(1, {}, &request), "pull: step 1 has not begun; the last one begun is 0"));
  begin(world[0]);
  EXPECT_TRUE(has(steps.begin(&step), "step_begin: step 1 has not ended; call step_end first"));
  EXPECT_TRUE(has(steps.push(2, {}, &request), "push: step 2 has not begun"));
  Request* first = end(world[0], 1);
  EXPECT_TRUE(has(steps.reduce(1, {}, &request), "reduce: step 1 has ended; begin the next one"));
  EXPECT_TRUE(has(steps.end(1, ending(1), &request), "step_end: step 1 has ended"));
  Request* second = end(world[0], begin(world[0]));
  EXPECT_TRUE(has(steps.begin(&step), "steps 1 and 2 are still ending; wait for the older"));
  world.settle();
  EXPECT_FALSE(first->done() || second->done());
  EXPECT_EQ(world[0].requests.outstanding(), 3u) << "those refused have taken none";
}

TEST(StepCalls, APullOfNoStepIsAnEvaluation) {
  JobWorld world({0, 1});
  world.commit();
  std::vector<float> values(2, 77.0f);
  const std::vector<int64_t> ids = {-1};
  const parallax_slice_t slice = slice_of_rows(ids, values.data());
  Request* request = nullptr;
  uint64_t step = 0;
  ASSERT_TRUE(world[0].steps.pull(0, {&slice, 1}, &request).ok());
  EXPECT_TRUE(has(world[0].steps.begin(&step), "a read or write of rows is pending"));
  world.settle();
  ASSERT_TRUE(request->done() && request->status.ok());
  EXPECT_EQ(request->kind, RequestKind::kEvaluate);
  EXPECT_EQ(values, std::vector<float>(2));
  begin(world[0]);
  EXPECT_TRUE(has(world[0].steps.pull(0, {&slice, 1}, &request), "step 1 is not over"));
}

TEST(StepCalls, RefuseAnEndThatCannotBe) {
  JobWorld world({0, 1});
  world.commit();
  StepCalls& steps = world[0].steps;
  Request* request = nullptr;
  begin(world[0]);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(has(steps.end(1, ending(-1), &request), "learning_rate must be finite"));
  EXPECT_TRUE(has(steps.end(1, ending(kNan), &request), "learning_rate must be finite"));
  EXPECT_TRUE(has(steps.end(1, ending(1, -1), &request), "clip_norm must be finite"));
  EXPECT_TRUE(has(steps.end(1, ending(1, kNan), &request), "clip_norm must be finite"));
  std::vector<float> values(6);
  const parallax_slice_t slice = dense(values.data());
  ASSERT_TRUE(steps.reduce(1, {&slice, 1}, &request).ok());
  parallax_step_end_options_t absent = ending(1);
  absent.absent = 1;
  EXPECT_TRUE(
      has(steps.end(1, absent, &request), "absent is 1, but variable 'dense' was given in step 1"));
  EXPECT_TRUE(world[0].pipeline.window().takes_calls(1)) << "the step goes on";
}

// Given a push whose buffers a send still reads, expect that it waits on when the job fails, and
// all others do not.
TEST(StepCalls, TheEndOfTheJobCompletesWhatNobodyReads) {
  JobWorld world({0, 0});
  world.commit();
  world.network().hold(0, 1);
  const std::vector<int64_t> ids = {0, 1, 2, 3, 4};  // some are of the column of rank 1
  std::vector<float> values(2 * ids.size());
  const parallax_slice_t slice = slice_of_rows(ids, values.data());
  Request* pull = nullptr;
  Request* push = nullptr;
  begin(world[0]);
  ASSERT_TRUE(world[0].steps.pull(1, {&slice, 1}, &pull).ok());
  ASSERT_TRUE(world[0].steps.push(1, {&slice, 1}, &push).ok());
  Request* ended = end(world[0], 1);
  world.settle();
  ASSERT_FALSE(pull->done() || push->done() || ended->done());
  ASSERT_NE(push->pending, 0u);
  world[0].steps.finish_unborrowed(peer_lost("rank 1 is lost"));
  ASSERT_TRUE(pull->done() && ended->done());
  EXPECT_EQ(pull->status.code(), PARALLAX_PEER_LOST);
  EXPECT_EQ(ended->status.code(), PARALLAX_PEER_LOST);
  EXPECT_FALSE(push->done());
  world[0].steps.finish_all(Status(PARALLAX_ABORTED, "closed"));
  ASSERT_TRUE(push->done());
  EXPECT_EQ(push->status.code(), PARALLAX_ABORTED);
  EXPECT_EQ(pull->status.code(), PARALLAX_PEER_LOST) << "a request is completed once";
}

}  // namespace
}  // namespace parallax::testkit
