// SPDX-License-Identifier: Apache-2.0
// Every call of an engine with wrong arguments or at a wrong time: the status, the words, and that
// nothing was done.
#include <gtest/gtest.h>

#include <limits>

#include "support/engine_world.h"
#include "support/words.h"

namespace parallax::testkit {
namespace {

#define EXPECT_REFUSED(expression, status_code, word)                                  \
  do {                                                                                 \
    const Status refused_ = (expression);                                              \
    EXPECT_EQ(refused_.code(), status_code) << refused_.message();                     \
    EXPECT_TRUE(has(refused_, word)) << "'" << word << "' in: " << refused_.message(); \
  } while (0)

// One rank, committed, with each kind of variable.
class EngineCalls : public testing::Test {
 protected:
  enum : uint32_t { kDense, kRows, kHeldDense, kHeldRows, kParts };

  void SetUp() override {
    parallax_variable_t variables[] = {
        dense_variable("dense", 4, 2, PARALLAX_RULE_SGD),
        sparse_variable("rows", 10, 2, 3, PARALLAX_RULE_SGD),
        dense_variable("held_dense", 2, 2),
        sparse_variable("held_rows", 10, 2, 3),
        sparse_variable("parts", 10, 2, 3, PARALLAX_RULE_SUM),
    };
    variables[kParts].accumulate = 1;
    for (const Status& status : world_.commit(variables)) ASSERT_TRUE(status.ok());
  }

  Engine& engine() { return world_.engine(0); }
  uint64_t begin() {
    uint64_t step = 0;
    EXPECT_TRUE(engine().step_calls().begin(&step).ok());
    return step;
  }
  Status finish(Status posted) {
    if (!posted.ok()) return posted;
    EXPECT_TRUE(world_.run_until_done({&request_, 1}))
        << engine().reports().missing(*request_).message();
    const Status status = request_->status;
    EXPECT_TRUE(engine().release(request_).ok());
    return status;
  }
  Status end(uint64_t step) {
    return finish(engine().step_calls().end(step, end_options(1), &request_));
  }

  EngineWorld world_{WorldOptions{}};
  Request* request_ = nullptr;
  std::vector<float> values_ = std::vector<float>(64, 1.0f);
  std::vector<int64_t> ids_ = {1, 2};
};

TEST(EngineBeforeCommit, CallsNameCommit) {
  EngineWorld world{WorldOptions{}};
  Engine& engine = world.engine(0);
  Request* request = nullptr;
  uint64_t step = 0;
  EXPECT_REFUSED(engine.step_calls().begin(&step), PARALLAX_STATE, "commit");
  EXPECT_REFUSED(engine.step_calls().pull(1, {}, &request), PARALLAX_STATE, "commit");
  EXPECT_REFUSED(engine.step_calls().push(1, {}, &request), PARALLAX_STATE, "commit");
  EXPECT_REFUSED(engine.step_calls().reduce(1, {}, &request), PARALLAX_STATE, "commit");
  EXPECT_REFUSED(engine.step_calls().end(1, end_options(1), &request), PARALLAX_STATE, "commit");
  EXPECT_REFUSED(engine.collective_calls().barrier(&request), PARALLAX_STATE, "commit");
  EXPECT_REFUSED(engine.collective_calls().broadcast(nullptr, 0, 0, &request), PARALLAX_STATE,
                 "commit");
}

TEST(EngineBeforeCommit, Registration) {
  EngineWorld world{WorldOptions{}};
  Engine& engine = world.engine(0);
  uint32_t id = 99;
  EXPECT_TRUE(engine.job_calls().register_variable(dense_variable("a", 1, 1), &id).ok());
  EXPECT_EQ(id, 0u);
  EXPECT_REFUSED(engine.job_calls().register_variable(dense_variable("a", 2, 1), &id),
                 PARALLAX_INVALID, "'a'");
  EXPECT_REFUSED(engine.job_calls().register_variable(dense_variable("b", 0, 1), &id),
                 PARALLAX_INVALID, "rows");
  EXPECT_TRUE(engine.job_calls().register_variable(dense_variable("b", 1, 1), &id).ok());
  EXPECT_EQ(id, 1u) << "what was refused took no number";
  EXPECT_TRUE(world
                  .everywhere([&](uint32_t, Request** request) {
                    return engine.job_calls().commit(request);
                  })[0]
                  .ok());
  Request* request = nullptr;
  uint64_t step = 0;
  ASSERT_TRUE(engine.step_calls().begin(&step).ok());
  EXPECT_REFUSED(engine.job_calls().commit(&request), PARALLAX_STATE, "wait for its step_end");
  EXPECT_REFUSED(engine.job_calls().register_variable(dense_variable("c", 1, 1), &id),
                 PARALLAX_STATE, "register: step 1 is under way");
}

TEST(EngineBeforeCommit, TooManyVariables) {
  EngineWorld world{WorldOptions{}};
  uint32_t id = 0;
  for (uint32_t i = 0; i < PARALLAX_VARIABLES_MAX; ++i) {
    const std::string name = "v" + std::to_string(i);
    ASSERT_TRUE(world.engine(0)
                    .job_calls()
                    .register_variable(dense_variable(name.c_str(), 1, 1), &id)
                    .ok());
  }
  EXPECT_REFUSED(world.engine(0).job_calls().register_variable(dense_variable("more", 1, 1), &id),
                 PARALLAX_LIMIT, "4096");
}

TEST_F(EngineCalls, StepsBeginOneAfterAnother) {
  EXPECT_REFUSED(engine().step_calls().push(1, {}, &request_), PARALLAX_STATE, "not begun");
  const uint64_t first = begin();
  EXPECT_EQ(first, 1u);
  uint64_t step = 0;
  EXPECT_REFUSED(engine().step_calls().begin(&step), PARALLAX_STATE, "step_end");
  EXPECT_REFUSED(engine().step_calls().push(2, {}, &request_), PARALLAX_STATE, "not begun");
  EXPECT_REFUSED(engine().step_calls().push(0, {}, &request_), PARALLAX_STATE, "not begun");
  EXPECT_TRUE(end(first).ok());
  EXPECT_REFUSED(engine().step_calls().end(first, end_options(1), &request_), PARALLAX_STATE,
                 "ended");
  EXPECT_REFUSED(engine().step_calls().pull(first, {}, &request_), PARALLAX_STATE, "ended");
  EXPECT_EQ(begin(), 2u);
  EXPECT_EQ(engine().window().finished(), 1u);
}

TEST_F(EngineCalls, TwoStepsMayEndAThirdMayNotBegin) {
  EngineWorld world{WorldOptions{.hosts = {0, 1}}};
  const parallax_variable_t variable = dense_variable("v", 1, 1, PARALLAX_RULE_SGD);
  ASSERT_TRUE(world.commit({&variable, 1})[0].ok());
  Request* ends[2] = {};
  uint64_t step = 0;
  for (Request*& end : ends) {
    ASSERT_TRUE(world.engine(0).step_calls().begin(&step).ok());
    ASSERT_TRUE(world.engine(0).step_calls().end(step, end_options(1), &end).ok());
  }
  world.settle();
  EXPECT_REFUSED(world.engine(0).step_calls().begin(&step), PARALLAX_STATE, "still ending");
  EXPECT_FALSE(ends[0]->done()) << "rank 1 has not come";
  EXPECT_TRUE(has(world.engine(0).reports().missing(*ends[0]), "rank 1"));
  EXPECT_TRUE(has(world.engine(0).reports().missing(*ends[0]), "host1"));
}

// Given a reduce whose sends are held back, expect it to have started, nothing to have left, and
// one message with the vote once its step ends; and that only few bytes for other hosts are little.
TEST_F(EngineCalls, AHeldReduceLeavesWithTheEndOfItsStep) {
  EngineWorld world{WorldOptions{.hosts = {0, 1}}};
  const parallax_variable_t variables[] = {dense_variable("v", 4096, 1), dense_variable("w", 1, 1)};
  for (const Status& status : world.commit(variables)) ASSERT_TRUE(status.ok());
  world.settle();
  uint32_t messages = 0;
  world.transport(0).tap([&](uint32_t, std::span<const Segment>) { ++messages; });
  std::vector<float> values[2] = {std::vector<float>(4096, 1), std::vector<float>(4096, 2)};
  Request* requests[4] = {};
  for (const uint32_t rank : {0u, 1u}) {
    Engine& engine = world.engine(rank);
    uint64_t step = 0;
    ASSERT_TRUE(engine.step_calls().begin(&step).ok());
    engine.kick();
    messages = 0;
    const parallax_slice_t slice = dense_slice(0, values[rank].data());
    ASSERT_TRUE(engine.step_calls().reduce(step, {&slice, 1}, &requests[2 * rank]).ok());
    EXPECT_TRUE(engine.step_calls().sends_little(*requests[2 * rank]));
    engine.kick(Engine::Kick::kHolds);
    EXPECT_TRUE(requests[2 * rank]->started);
    EXPECT_EQ(messages, 0u);
    ASSERT_TRUE(engine.step_calls().end(step, end_options(1), &requests[2 * rank + 1]).ok());
    engine.kick();
    EXPECT_EQ(messages, rank == 0 ? 1u : 0u);
  }
  ASSERT_TRUE(world.run_until_done(requests));
  EXPECT_EQ(values[0][4095], 3.0f);
  for (uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(world.engine(i / 2).release(requests[i]).ok());
}

// Little is what a message takes longer for than its bytes do, and goes to another host.
TEST_F(EngineCalls, OnlyFewBytesForOtherHostsAreLittle) {
  for (const uint32_t other : {0u, 1u}) {
    for (const uint64_t elements : {4096, 4097}) {
      EngineWorld world{WorldOptions{.hosts = {0, other}}};
      const parallax_variable_t variable = dense_variable("v", elements, 1);
      for (const Status& status : world.commit({&variable, 1})) ASSERT_TRUE(status.ok());
      std::vector<float> values(elements);
      const parallax_slice_t slice = dense_slice(0, values.data());
      uint64_t step = 0;
      Request* request = nullptr;
      ASSERT_TRUE(world.engine(0).step_calls().begin(&step).ok());
      ASSERT_TRUE(world.engine(0).step_calls().reduce(step, {&slice, 1}, &request).ok());
      EXPECT_EQ(world.engine(0).step_calls().sends_little(*request),
                other == 1 && elements == 4096);
    }
  }
}

TEST_F(EngineCalls, SlicesAreChecked) {
  const uint64_t step = begin();
  const auto refused = [&](parallax_slice_t slice, parallax_status_t code, const char* word) {
    Request* untouched = nullptr;
    EXPECT_REFUSED(engine().step_calls().push(step, {&slice, 1}, &untouched), code, word);
    EXPECT_EQ(untouched, nullptr);
  };
  parallax_slice_t slice = dense_slice(9, values_.data());
  refused(slice, PARALLAX_INVALID, "variable is 9");
  slice = dense_slice(kDense, nullptr);
  refused(slice, PARALLAX_INVALID, "values is null");
  slice =
      dense_slice(kDense, reinterpret_cast<float*>(reinterpret_cast<char*>(values_.data()) + 1));
  refused(slice, PARALLAX_INVALID, "aligned");
  slice = dense_slice(kDense, values_.data());
  slice.form = 2;
  refused(slice, PARALLAX_INVALID, "form is 2");
  slice = rows_slice(kDense, ids_, values_.data());
  refused(slice, PARALLAX_INVALID, "declared no row ids");
  slice = dense_slice(kRows, values_.data());
  refused(slice, PARALLAX_LIMIT, "rows_max >= rows");
  slice = rows_slice(kRows, ids_, values_.data());
  slice.row_count = 4;
  refused(slice, PARALLAX_LIMIT, "rows_max 3");
  slice = rows_slice(kRows, ids_, nullptr);
  refused(slice, PARALLAX_INVALID, "values is null");
  slice = rows_slice(kRows, ids_, values_.data());
  slice.ids = nullptr;
  refused(slice, PARALLAX_INVALID, "ids is null");
  slice.ids = reinterpret_cast<const int64_t*>(reinterpret_cast<const char*>(ids_.data()) + 4);
  refused(slice, PARALLAX_INVALID, "aligned to 8");
  for (const int64_t bad : {int64_t{-2}, int64_t{10}, std::numeric_limits<int64_t>::max(),
                            std::numeric_limits<int64_t>::min()}) {
    ids_[1] = bad;
    refused(rows_slice(kRows, ids_, values_.data()), PARALLAX_INVALID, "ids[1]");
  }
  ids_[1] = 2;
  const std::vector<parallax_slice_t> many(PARALLAX_SLICES_MAX + 1,
                                           dense_slice(kDense, values_.data()));
  EXPECT_REFUSED(engine().step_calls().push(step, many, &request_), PARALLAX_INVALID, "4096");
  // After all of that the step is as it was.
  slice = rows_slice(kRows, ids_, values_.data());
  EXPECT_TRUE(finish(engine().step_calls().push(step, {&slice, 1}, &request_)).ok());
  EXPECT_TRUE(end(step).ok());
}

TEST_F(EngineCalls, EachVariableHasItsCall) {
  const uint64_t step = begin();
  parallax_slice_t slice = dense_slice(kHeldDense, values_.data());
  EXPECT_REFUSED(engine().step_calls().push(step, {&slice, 1}, &request_), PARALLAX_INVALID,
                 "use reduce");
  EXPECT_REFUSED(engine().step_calls().pull(step, {&slice, 1}, &request_), PARALLAX_INVALID,
                 "framework-held");
  slice = dense_slice(kDense, values_.data());
  EXPECT_REFUSED(engine().step_calls().reduce(step, {&slice, 1}, &request_), PARALLAX_INVALID,
                 "use push");
  EXPECT_TRUE(finish(engine().step_calls().push(step, {&slice, 1}, &request_)).ok());
  EXPECT_REFUSED(engine().step_calls().push(step, {&slice, 1}, &request_), PARALLAX_INVALID,
                 "already");
  EXPECT_TRUE(end(step).ok());
  const uint64_t next = begin();
  EXPECT_TRUE(finish(engine().step_calls().push(next, {&slice, 1}, &request_)).ok())
      << "in the next step again";
}

TEST_F(EngineCalls, PartsAreChecked) {
  const uint64_t step = begin();
  const auto push = [&](parallax_slice_t slice) {
    return finish(engine().step_calls().push(step, {&slice, 1}, &request_));
  };
  const auto slice_of = [&](const std::vector<int64_t>& ids, uint32_t more) {
    parallax_slice_t slice = rows_slice(kParts, ids, values_.data());
    slice.more = more;
    return slice;
  };
  parallax_slice_t slice = rows_slice(kRows, ids_, values_.data());
  slice.more = 1;
  EXPECT_REFUSED(push(slice), PARALLAX_INVALID, "register it with accumulate");
  const std::vector<int64_t> three = {1, 2, 3}, others = {3, -1, 4}, same = {3, 2, 1};
  EXPECT_REFUSED(push(slice_of(three, 2)), PARALLAX_INVALID, "more is 2");
  slice = slice_of(three, 1);
  EXPECT_REFUSED(engine().step_calls().pull(step, {&slice, 1}, &request_), PARALLAX_INVALID,
                 "'parts': more");
  EXPECT_TRUE(push(slice_of(three, 1)).ok());
  EXPECT_REFUSED(push(slice_of(others, 1)), PARALLAX_LIMIT, "'parts'");
  EXPECT_REFUSED(push(slice_of(others, 0)), PARALLAX_LIMIT, "rows_max = 3");
  EXPECT_TRUE(push(slice_of(same, 1)).ok()) << "what was refused was not added";
  parallax_step_end_options_t absent = end_options(1);
  absent.absent = 1;
  EXPECT_REFUSED(engine().step_calls().end(step, absent, &request_), PARALLAX_INVALID,
                 "'parts' was given");
  EXPECT_TRUE(push(slice_of(three, 0)).ok());
  EXPECT_REFUSED(push(slice_of(three, 0)), PARALLAX_INVALID, "already");
  EXPECT_REFUSED(push(slice_of(three, 1)), PARALLAX_INVALID, "already");
  EXPECT_TRUE(end(step).ok());
  std::vector<float> got(6);
  slice = rows_slice(kParts, others, got.data());
  EXPECT_TRUE(finish(engine().step_calls().pull(0, {&slice, 1}, &request_)).ok());
  EXPECT_EQ(got, (std::vector<float>{3, 3, 0, 0, 0, 0}));
}

TEST_F(EngineCalls, EndOptionsAreChecked) {
  const uint64_t step = begin();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinity, -1.0f}) {
    EXPECT_REFUSED(engine().step_calls().end(step, end_options(bad), &request_), PARALLAX_INVALID,
                   "learning_rate");
    EXPECT_REFUSED(engine().step_calls().end(step, end_options(1, bad), &request_),
                   PARALLAX_INVALID, "clip_norm");
  }
  EXPECT_TRUE(end(step).ok());
}

TEST_F(EngineCalls, EmptyCallsAreLegal) {
  const uint64_t step = begin();
  EXPECT_TRUE(finish(engine().step_calls().pull(step, {}, &request_)).ok());
  EXPECT_TRUE(finish(engine().step_calls().push(step, {}, &request_)).ok());
  EXPECT_TRUE(finish(engine().step_calls().reduce(step, {}, &request_)).ok());
  const std::vector<int64_t> none;
  const parallax_slice_t nothing = rows_slice(kRows, none, nullptr);
  EXPECT_TRUE(finish(engine().step_calls().pull(step, {&nothing, 1}, &request_)).ok());
  EXPECT_TRUE(finish(engine().step_calls().push(step, {&nothing, 1}, &request_)).ok());
  EXPECT_TRUE(end(step).ok());
}

TEST_F(EngineCalls, BroadcastIsChecked) {
  std::byte byte{1};
  EXPECT_REFUSED(engine().collective_calls().broadcast(&byte, 1, 1, &request_), PARALLAX_INVALID,
                 "root is 1");
  EXPECT_REFUSED(engine().collective_calls().broadcast(nullptr, 1, 0, &request_), PARALLAX_INVALID,
                 "null");
  EXPECT_REFUSED(engine().collective_calls().broadcast(&byte, (1ull << 40) + 1, 0, &request_),
                 PARALLAX_INVALID, "2^40");
  EXPECT_TRUE(finish(engine().collective_calls().broadcast(&byte, 1, 0, &request_)).ok());
  EXPECT_TRUE(finish(engine().collective_calls().barrier(&request_)).ok());
}

TEST_F(EngineCalls, PendingRequestsAreNotReleased) {
  EngineWorld world{WorldOptions{.hosts = {0, 1}}};
  ASSERT_TRUE(world.commit({})[0].ok());
  ASSERT_TRUE(world.engine(0).collective_calls().barrier(&request_).ok());
  world.settle();
  EXPECT_REFUSED(world.engine(0).release(request_), PARALLAX_STATE, "pending");
}

TEST_F(EngineCalls, RequestsAreBounded) {
  std::vector<Request*> requests(PARALLAX_REQUESTS_MAX);
  for (Request*& request : requests)
    ASSERT_TRUE(engine().collective_calls().barrier(&request).ok());
  EXPECT_REFUSED(engine().collective_calls().barrier(&request_), PARALLAX_LIMIT, "1024");
  EXPECT_TRUE(world_.run_until_done(requests));
  EXPECT_REFUSED(engine().collective_calls().barrier(&request_), PARALLAX_LIMIT, "release");
  ASSERT_TRUE(engine().release(requests.back()).ok());
  EXPECT_TRUE(engine().collective_calls().barrier(&request_).ok());
}

TEST_F(EngineCalls, AfterCloseNothingIsTaken) {
  ASSERT_TRUE(finish(engine().job_calls().close(&request_)).ok());
  uint64_t step = 0;
  EXPECT_REFUSED(engine().step_calls().begin(&step), PARALLAX_STATE, "clos");
  EXPECT_REFUSED(engine().collective_calls().barrier(&request_), PARALLAX_STATE, "clos");
  EXPECT_REFUSED(engine().job_calls().close(&request_), PARALLAX_STATE, "already");
}

TEST_F(EngineCalls, AfterAbortEveryCallSaysWhy) {
  engine().job_calls().abort("out of coffee");
  uint64_t step = 0;
  uint32_t id = 0;
  EXPECT_REFUSED(engine().step_calls().begin(&step), PARALLAX_ABORTED, "out of coffee");
  EXPECT_REFUSED(engine().step_calls().push(1, {}, &request_), PARALLAX_ABORTED, "out of coffee");
  EXPECT_REFUSED(engine().collective_calls().barrier(&request_), PARALLAX_ABORTED, "out of coffee");
  EXPECT_REFUSED(engine().job_calls().register_variable(dense_variable("x", 1, 1), &id),
                 PARALLAX_ABORTED, "out of coffee");
  EXPECT_REFUSED(finish(engine().job_calls().close(&request_)), PARALLAX_ABORTED, "out of coffee");
}

// Given many variables to fill, expect their initial values to be filled in by bounded
// pieces, with a pass of the engine after each.
TEST(EngineCommit, TablesAreFilledInPieces) {
  constexpr uint64_t kRows = Group::kFillElements / 16;
  constexpr int kVariables = 12;
  EngineWorld world({});
  for (int i = 0; i < kVariables; ++i) {
    const std::string name = "v" + std::to_string(i);
    parallax_variable_t variable = dense_variable(name.c_str(), kRows, 4, PARALLAX_RULE_SGD);
    variable.init = PARALLAX_INIT_UNIFORM;
    variable.init_high = 1;
    uint32_t id = 0;
    ASSERT_TRUE(world.engine(0).job_calls().register_variable(variable, &id).ok());
  }
  Request* commit = nullptr;
  ASSERT_TRUE(world.engine(0).job_calls().commit(&commit).ok());
  uint64_t passes = 0;
  for (; !commit->done() && passes < 100; ++passes) {
    world.engine(0).run();
    EXPECT_TRUE(commit->done() || world.engine(0).next_deadline_ns() == world.clock().now_ns());
  }
  ASSERT_TRUE(commit->status.ok());
  EXPECT_GE(passes, kVariables * 4 / 16) << "of a quarter of a piece each";
  EXPECT_LE(passes, kVariables);
}

}  // namespace
}  // namespace parallax::testkit
