// SPDX-License-Identifier: Apache-2.0
// In steady state a step allocates nothing, whatever the ids, up to rows_max; and a call that finds
// no memory leaves the step as it was. By standing in for malloc on this thread: what an engine
// asks for in its passes and in its calls is counted, or refused.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <new>

#include "support/engine_world.h"
#include "support/own_rules.h"
#include "unit/engine/watched_memory.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kVocabulary = 3000;
constexpr uint64_t kRowElements = 6;
constexpr uint64_t kRowsMax = 400;
constexpr uint64_t kPairedRows = 50;
constexpr uint32_t kWarmUpSteps = 40;
constexpr uint32_t kCountedSteps = 60;
enum : uint32_t {
  kEmbedding,
  kSoftmax,
  kWide,
  kBias,
  kHeldDense,
  kHeldRows,
  kOwnRuleRows,
  kOwnRuleDense,
  kTiedRows,
  kPairedForm,
  kTiedHeld,
  kManyFirst
};
constexpr uint64_t kFewChunksBytes = 60'000;  // in which held rows go in some rounds
constexpr uint32_t kManyBiases = 20;  // a push of more slices than a request first has room for
constexpr uint32_t kSmallFirst = kManyFirst + kManyBiases;
constexpr uint32_t kSmallTables = 5;  // they go as one
static_assert(kSmallTables >= kFusedMin);
constexpr uint32_t kHeldSmallFirst =
    kSmallFirst + kSmallTables;  // as many, which the framework holds

// Of the ranks of all jobs of this test: what they are called with is not looked at here.
OwnRule own_adagrad, own_adam;

std::vector<parallax_variable_t> every_form() {
  static const std::array<std::string, kManyBiases> names = [] {
    std::array<std::string, kManyBiases> made;
    for (uint32_t i = 0; i < kManyBiases; ++i) made[i] = "bias" + std::to_string(i);
    return made;
  }();
  std::vector<parallax_variable_t> all = {
      sparse_variable("embedding", kVocabulary, kRowElements, kRowsMax, PARALLAX_RULE_ADAGRAD),
      sparse_variable("softmax", kVocabulary, kRowElements, kRowsMax, PARALLAX_RULE_SGD),
      dense_variable("wide", 30, 900, PARALLAX_RULE_ADAGRAD),
      dense_variable("bias", 9, 1, PARALLAX_RULE_SGD),
      dense_variable("held_dense", 100, 7),
      sparse_variable("held_rows", kVocabulary, kRowElements, kRowsMax),
      own_adagrad.in_place_of(
          sparse_variable("own_rows", kVocabulary, kRowElements, kRowsMax, PARALLAX_RULE_ADAGRAD)),
      own_adam.in_place_of(dense_variable("own_dense", 30, 9, PARALLAX_RULE_ADAM)),
      sparse_variable("tied", kVocabulary, kRowElements, kRowsMax, PARALLAX_RULE_SGD),
      sparse_variable("paired", kPairedRows, kRowElements, kRowsMax, PARALLAX_RULE_SGD),
      dense_variable("tied_held", 100, 7)};
  all[kEmbedding].dtype = PARALLAX_F64;
  all[kSoftmax].dtype = PARALLAX_BF16;
  all[kSoftmax].rule = PARALLAX_RULE_ADAM;
  all[kSoftmax].reduction = PARALLAX_MEAN_ROW;
  all[kSoftmax].accumulate = 1;
  all[kWide].rule = PARALLAX_RULE_ADAM;
  all[kBias].dtype = PARALLAX_F64;
  all[kHeldDense].reduction = PARALLAX_MEAN_WORLD;
  all[kHeldRows].dtype = PARALLAX_F16;
  all[kHeldRows].reduction = PARALLAX_MEAN_ROW;
  for (const std::string& name : names) {
    all.push_back(dense_variable(name.c_str(), 5, 1, PARALLAX_RULE_SGD));
  }
  static const std::array<const char*, kSmallTables> small = {"s0", "s1", "s2", "s3", "s4"};
  for (const char* name : small) {
    all.push_back(sparse_variable(name, kPairedRows, kRowElements, kRowsMax, PARALLAX_RULE_ADAM));
    all.back().accumulate = 1;
    all.back().storage_dtype = PARALLAX_AS(PARALLAX_BF16);
    all.back().rounding = PARALLAX_ROUNDING_STOCHASTIC;
  }
  static const std::array<const char*, kSmallTables> held = {"h0", "h1", "h2", "h3", "h4"};
  for (const char* name : held) {
    all.push_back(sparse_variable(name, kPairedRows, kRowElements, kRowsMax));
  }
  return all;
}

// Every variable takes floats, whatever it is kept and summed in.
parallax_slice_t as_float(parallax_slice_t slice) {
  slice.as_dtype = PARALLAX_AS(PARALLAX_F32);
  return slice;
}

// One rank's buffers, made once.
struct RankBuffers {
  std::array<std::vector<int64_t>, 8> ids;
  std::array<std::vector<float>, 11> rows;
  std::vector<int64_t> paired_ids = {3, 11, 3, 49};
  std::vector<float> dense = std::vector<float>(27000, 0.5f);
  std::vector<float> pulled = std::vector<float>(27000);
  std::vector<float> held = std::vector<float>(700, 0.25f);
  std::array<std::vector<float>, 2> tied_held = {held, held};
  std::array<std::vector<float>, kSmallTables> small;
  std::array<Request*, 16> requests = {};
  size_t request_count = 0;
  RankBuffers() {
    for (auto& each : ids) each.reserve(kRowsMax);
    for (auto& each : rows) each.resize(kRowsMax * kRowElements, 1.0f);
    for (auto& each : small) each.resize(kPairedRows * kRowElements, 1.0f);
  }
};

// Several slices of a variable in one call (tied use): of rows, a dense one with one of rows, and
// of a rule of the caller's own. Distinct rows are rows_max at most together.
std::array<parallax_slice_t, 8> tied_to_push(RankBuffers& mine) {
  return {as_float(rows_slice(kOwnRuleRows, mine.ids[5], mine.rows[5].data())),
          as_float(dense_slice(kOwnRuleDense, mine.dense.data())),
          as_float(rows_slice(kTiedRows, mine.ids[6], mine.rows[6].data())),
          as_float(rows_slice(kTiedRows, mine.ids[6], mine.rows[7].data())),
          as_float(rows_slice(kTiedRows, mine.ids[6], mine.rows[6].data())),
          as_float(dense_slice(kPairedForm, mine.dense.data())),
          as_float(rows_slice(kPairedForm, mine.paired_ids, mine.rows[6].data())),
          as_float(rows_slice(kOwnRuleRows, mine.ids[5], mine.rows[7].data()))};
}

// Of up to twice rows_max rows: in one exchange and in two.
std::array<parallax_slice_t, 3> tied_to_pull(RankBuffers& mine) {
  return {as_float(rows_slice(kTiedRows, mine.ids[6], mine.rows[8].data())),
          as_float(rows_slice(kTiedRows, mine.ids[7], mine.rows[9].data())),
          as_float(rows_slice(kOwnRuleRows, mine.ids[5], mine.rows[10].data()))};
}

// Fused tables, of which the first is given whole.
std::array<parallax_slice_t, kSmallTables> small_tables(RankBuffers& mine) {
  std::array<parallax_slice_t, kSmallTables> all = {};
  for (uint32_t i = 0; i < kSmallTables; ++i) {
    all[i] = as_float(rows_slice(kSmallFirst + i, mine.paired_ids, mine.small[i].data()));
  }
  all[0] = as_float(dense_slice(kSmallFirst, mine.small[0].data()));
  return all;
}

// In one call, in two, or without the first; or in micro-batches.
bool push_small(Engine& engine, uint64_t step, RankBuffers& mine) {
  std::array<parallax_slice_t, kSmallTables> all = small_tables(mine);
  const std::span<const parallax_slice_t> given = all;
  const auto push = [&](std::span<const parallax_slice_t> slices) {
    return engine.step_calls().push(step, slices, &mine.requests[mine.request_count++]).ok();
  };
  if (step % 4 == 0) return push(given);
  if (step % 4 == 1) return push(given.first(2)) && push(given.subspan(2));
  if (step % 4 == 2) return push(given.subspan(1));
  for (parallax_slice_t& each : all) each.more = 1;
  if (!push(given) || !push(given)) return false;
  for (parallax_slice_t& each : all) each.more = 0;
  return push(given);
}

// In one call, or in two, or without the first.
bool reduce_small(Engine& engine, uint64_t step, RankBuffers& mine) {
  std::array<parallax_slice_t, kSmallTables> all = {};
  for (uint32_t i = 0; i < kSmallTables; ++i) {
    all[i] = as_float(rows_slice(kHeldSmallFirst + i, mine.paired_ids, mine.small[i].data()));
  }
  const std::span<const parallax_slice_t> given = all;
  const auto reduce = [&](std::span<const parallax_slice_t> slices) {
    return engine.step_calls().reduce(step, slices, &mine.requests[mine.request_count++]).ok();
  };
  if (step % 4 == 0) return reduce(given.first(2)) && reduce(given.subspan(2));
  return reduce(given.subspan(step % 2));
}

class SteadyState {
 public:
  SteadyState(parallax_plan_mode_t mode, bool deterministic)
      : world_({.hosts = {0, 0, 1, 1},
                .plan_mode = mode,
                .plan_after_steps = 4,
                .deterministic = deterministic,
                .seed = 17,
                .adjust = [](uint32_t,
                             EngineOptions* options) { options->fuse_tables = FuseTables::kAll; }}),
        buffers_(world_.size()) {
    std::vector<parallax_variable_t> variables = every_form();
    if (deterministic) variables[kHeldRows].exchange_bytes_max = kFewChunksBytes;
    for (const Status& status : world_.commit(variables)) EXPECT_TRUE(status.ok());
  }

  // Ids of every count: none, all that rows_max allows, anything between.
  void draw(RankBuffers* mine, bool full) {
    SeededRandom& random = world_.random();
    for (auto& ids : mine->ids) {
      uint64_t count = random.chance(10) ? 0 : random.below(kRowsMax + 1);
      if (full || random.chance(10)) count = kRowsMax;
      const uint64_t rows = random.chance(20) ? 10 : kVocabulary;  // few: nearly all are duplicates
      ids.clear();
      for (uint64_t i = 0; i < count; ++i) {
        ids.push_back(static_cast<int64_t>(full ? (i * 7 + random.below(7)) % kVocabulary
                                                : random.below(rows)));
      }
    }
  }

  void post(uint32_t rank) {
    RankBuffers& mine = buffers_[rank];
    Engine& engine = world_.engine(rank);
    mine.request_count = 0;
    uint64_t step = 0;
    const auto next = [&mine] { return &mine.requests[mine.request_count++]; };
    const parallax_slice_t first_pull[] = {
        as_float(rows_slice(kEmbedding, mine.ids[0], mine.rows[0].data())),
        as_float(dense_slice(kWide, mine.pulled.data()))};
    const parallax_slice_t second_pull[] = {
        as_float(rows_slice(kSoftmax, mine.ids[1], mine.rows[1].data()))};
    std::array<parallax_slice_t, 4 + kManyBiases> push = {
        as_float(rows_slice(kEmbedding, mine.ids[2], mine.rows[2].data())),
        as_float(rows_slice(kSoftmax, mine.ids[3], mine.rows[3].data())),
        as_float(dense_slice(kWide, mine.dense.data())),
        as_float(dense_slice(kBias, mine.dense.data()))};
    for (uint32_t i = 0; i < kManyBiases; ++i) {
      push[4 + i] = as_float(dense_slice(kManyFirst + i, mine.dense.data()));
    }
    const parallax_slice_t reduce[] = {
        as_float(dense_slice(kTiedHeld, mine.tied_held[0].data())),
        as_float(dense_slice(kTiedHeld, mine.tied_held[1].data())),
        as_float(dense_slice(kHeldDense, mine.held.data())),
        as_float(rows_slice(kHeldRows, mine.ids[4], mine.rows[4].data()))};
    const std::array<parallax_slice_t, 8> tied_push = tied_to_push(mine);
    const std::array<parallax_slice_t, 3> tied_pull = tied_to_pull(mine);
    const std::array<parallax_slice_t, kSmallTables> small_pull = small_tables(mine);
    parallax_step_end_options_t end = end_options(0.01f, 3);
    parallax_rates_t rates = {};
    rates.size = sizeof rates;
    rates.learning_rate = end.learning_rate;
    rates.weight_decay = 0.01f;
    rates.clip_norm = 2;
    // Half the rows of a micro-batch that the push below completes.
    std::array<parallax_slice_t, 1> early = {push[1]};
    early[0].row_count /= 2;
    early[0].more = 1;
    push[1].row_count = mine.ids[3].size() - early[0].row_count;
    push[1].ids += early[0].row_count;
    const CountedMemory counted;
    bool ok = engine.step_calls().begin(&step).ok();
    // Both kinds of steps.
    end.learning_rate = step % 2 == 0 ? 0 : end.learning_rate;
    end.rates = step % 2 == 0 ? &rates : nullptr;
    end.rates_count = step % 2 == 0 ? 1 : 0;
    ok = ok && engine.step_calls().pull(step, first_pull, next()).ok();
    ok = ok && engine.step_calls().pull(step, second_pull, next()).ok();
    ok = ok && engine.step_calls().pull(step, tied_pull, next()).ok();
    ok = ok && engine.step_calls().pull(step, small_pull, next()).ok();
    ok = ok && engine.step_calls().push(step, early, next()).ok();
    ok = ok && push_small(engine, step, mine);
    ok = ok && engine.step_calls().push(step, tied_push, next()).ok();
    ok = ok && engine.step_calls().push(step, push, next()).ok();
    ok = ok && engine.step_calls().reduce(step, reduce, next()).ok();
    ok = ok && reduce_small(engine, step, mine);
    ok = ok && engine.step_calls().end(step, end, next()).ok();
    engine.kick();
    EXPECT_TRUE(ok);
  }

  // One step of all ranks; what the engines allocated in it.
  uint64_t step(bool full) {
    memory_watch().allocations = 0;
    for (RankBuffers& mine : buffers_) draw(&mine, full);
    for (uint32_t rank = 0; rank < world_.size(); ++rank) post(rank);
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      RankBuffers& mine = buffers_[rank];
      for (size_t i = 0; i < mine.request_count; ++i) {
        for (int pass = 0; pass < 10000 && !mine.requests[i]->done(); ++pass) {
          for (uint32_t each = 0; each < world_.size(); ++each) {
            const CountedMemory counted;
            world_.engine(each).run();
          }
        }
        EXPECT_TRUE(mine.requests[i]->done() && mine.requests[i]->status.ok());
        const CountedMemory counted;
        EXPECT_TRUE(world_.engine(rank).release(mine.requests[i]).ok());
      }
    }
    return memory_watch().allocations;
  }

  Engine& engine(uint32_t rank) { return world_.engine(rank); }

 private:
  EngineWorld world_;
  std::vector<RankBuffers> buffers_;
};

class Allocation : public testing::TestWithParam<std::tuple<parallax_plan_mode_t, bool>> {};

TEST_P(Allocation, ASteadyStepAllocatesNothing) {
  if (!PARALLAX_TEST_WATCHES_MEMORY) GTEST_SKIP() << "a sanitizer owns malloc: run the dev preset";
  const auto [mode, deterministic] = GetParam();
  SteadyState job(mode, deterministic);
  uint64_t first = 0;
  for (uint32_t i = 0; i < kWarmUpSteps; ++i) first += job.step(i % 2 == 0);
  EXPECT_GT(first, 0u) << "the counter counts";
  const uint64_t grown = job.engine(0).reports().growth_count();
  for (uint32_t i = 0; i < kCountedSteps; ++i) {
    ASSERT_EQ(job.step(false), 0u) << "in step " << i << " after the warm-up";
    if (HasFailure()) return;
  }
  EXPECT_EQ(job.engine(0).reports().growth_count(), grown);
}

// Given a reduce that finds no memory for what it has to give back, expect LIMIT with the
// remedy, no request, and the variable still to be given in that step.
TEST(AllocationRefused, AReduceWithoutRoomIsNotGiven) {
  if (!PARALLAX_TEST_WATCHES_MEMORY) GTEST_SKIP() << "a sanitizer owns malloc: run the dev preset";
  EngineWorld world({});
  const std::vector<parallax_variable_t> held = {sparse_variable("held", 4096, 8, 1024)};
  ASSERT_TRUE(world.commit(held)[0].ok());
  Engine& engine = world.engine(0);
  uint64_t step = 0;
  ASSERT_TRUE(engine.step_calls().begin(&step).ok());
  const std::vector<int64_t> ids = {7};
  std::vector<float> gradient(8, 2);
  const parallax_slice_t slice = rows_slice(0, ids, gradient.data());
  const uint32_t outstanding = engine.outstanding_requests();
  for (int i = 0; i < 2; ++i) {
    Request* request = nullptr;
    memory_watch().refused_from = 16 * 1024;
    const Status refused = engine.step_calls().reduce(step, {&slice, 1}, &request);
    memory_watch().refused_from = SIZE_MAX;
    EXPECT_EQ(refused.code(), PARALLAX_LIMIT) << refused.message();
    EXPECT_NE(refused.message().find("'held'"), std::string::npos) << refused.message();
    EXPECT_NE(refused.message().find("rows_max"), std::string::npos) << refused.message();
    EXPECT_EQ(request, nullptr);
    EXPECT_EQ(engine.outstanding_requests(), outstanding);
  }
  std::array<Request*, 2> requests = {};
  ASSERT_TRUE(engine.step_calls().reduce(step, {&slice, 1}, &requests[0]).ok());
  ASSERT_TRUE(engine.step_calls().end(step, {}, &requests[1]).ok());
  ASSERT_TRUE(world.run_until_done(requests));
  ASSERT_TRUE(requests[0]->status.ok()) << requests[0]->status.message();
  EXPECT_EQ(requests[0]->rows[0].ids, ids);
}

// A rank alone, and a pool of requests none of which has been used yet.
class LostRequests : public testing::Test {
 protected:
  void SetUp() override {
    if (!PARALLAX_TEST_WATCHES_MEMORY) GTEST_SKIP() << "a sanitizer owns malloc: run dev";
    std::vector<parallax_variable_t> variables = every_form();
    variables.erase(variables.begin() + kTiedRows, variables.end());
    ASSERT_TRUE(world_.commit(variables)[0].ok());
  }
  // Calls `call` once for each allocation that it makes, that of a new request too, which is
  // refused; and expects that no request is lost with it, and that the last call, to which nothing
  // is refused, is as if nothing had been.
  template <typename Call>
  void expect_none_by(const char* name, Call call) {
    Engine& engine = world_.engine(0);
    for (uint64_t passed = 0; !HasFatalFailure(); ++passed) {
      // What the pool has is used up.
      ASSERT_TRUE(engine.collective_calls().barrier(&used_.emplace_back()).ok());
      const uint32_t outstanding = engine.outstanding_requests();
      Request* request = nullptr;
      bool thrown = false;
      Status status;
      RefusedMemory refused(passed);
      try {
        status = call(engine, &request);
      } catch (const std::bad_alloc&) {
        thrown = true;
      }
      if (!refused.end()) {
        ASSERT_TRUE(!thrown && status.ok()) << name << ": " << status.message();
        ASSERT_TRUE(world_.run_until_done({&request, 1})) << name;
        EXPECT_TRUE(request->status.ok()) << name << ": " << request->status.message();
        return;
      }
      ASSERT_TRUE(thrown || status.code() == PARALLAX_LIMIT) << name << " after " << passed;
      ASSERT_EQ(engine.outstanding_requests(), outstanding) << name << " after " << passed;
      ASSERT_EQ(request, nullptr) << name << " after " << passed;
    }
  }
  void TearDown() override { EXPECT_TRUE(world_.run_until_done(used_)); }

  // Of a request more than it has room for at first.
  static constexpr size_t kSlices = 100;
  EngineWorld world_{WorldOptions()};
  const std::vector<int64_t> ids_ = {7};
  std::vector<float> row_ = std::vector<float>(kRowElements);
  std::vector<float> dense_ = std::vector<float>(27000);
  const std::vector<parallax_slice_t> many_ =
      std::vector<parallax_slice_t>(kSlices, as_float(rows_slice(kEmbedding, ids_, row_.data())));
  std::vector<Request*> used_;
};

TEST_F(LostRequests, NoneByACallBetweenSteps) {
  expect_none_by("barrier", [](Engine& engine, Request** request) {
    return engine.collective_calls().barrier(request);
  });
  expect_none_by("broadcast", [this](Engine& engine, Request** request) {
    auto* bytes = reinterpret_cast<std::byte*>(dense_.data());
    return engine.collective_calls().broadcast(bytes, 4, 0, request);
  });
  expect_none_by("evaluation", [this](Engine& engine, Request** request) {
    return engine.step_calls().pull(0, many_, request);
  });
  std::vector<double> values(kRowElements);
  parallax_rows_t rows = {};
  rows.size = sizeof rows;
  rows.row_count = 1;
  rows.values = values.data();
  expect_none_by("read", [&rows](Engine& engine, Request** request) {
    return engine.row_calls().post(rows, false, request);
  });
}

TEST_F(LostRequests, NoneByACallOfAStep) {
  uint64_t step = 0;
  ASSERT_TRUE(world_.engine(0).step_calls().begin(&step).ok());
  expect_none_by("pull", [&](Engine& engine, Request** request) {
    return engine.step_calls().pull(step, many_, request);
  });
  expect_none_by("push", [&](Engine& engine, Request** request) {
    return engine.step_calls().push(step, {many_.data(), 1}, request);
  });
  const std::vector<parallax_slice_t> tied(20,
                                           as_float(rows_slice(kOwnRuleRows, ids_, row_.data())));
  expect_none_by("push of many", [&](Engine& engine, Request** request) {
    return engine.step_calls().push(step, tied, request);
  });
  const parallax_slice_t held = as_float(dense_slice(kHeldDense, dense_.data()));
  expect_none_by("reduce", [&](Engine& engine, Request** request) {
    return engine.step_calls().reduce(step, {&held, 1}, request);
  });
  expect_none_by("step_end", [&](Engine& engine, Request** request) {
    return engine.step_calls().end(step, {}, request);
  });
}

INSTANTIATE_TEST_SUITE_P(Pins, Allocation,
                         testing::Combine(testing::Values(PARALLAX_PLAN_HYBRID, PARALLAX_PLAN_AR,
                                                          PARALLAX_PLAN_PS),
                                          testing::Bool()),
                         [](const auto& info) {
                           return mode_name(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "_deterministic" : "_default");
                         });

}  // namespace
}  // namespace parallax::testkit
