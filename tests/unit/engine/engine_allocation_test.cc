// SPDX-License-Identifier: Apache-2.0
// In steady state a step allocates nothing, whatever the ids, up to rows_max; and a call that finds
// no memory leaves the step as it was. By standing in for malloc on this thread: what an engine
// asks for in its passes and in its calls is counted, or refused.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "support/engine_world.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PARALLAX_TEST_COUNTS_MALLOC 0
#else
#define PARALLAX_TEST_COUNTS_MALLOC 1
#endif

namespace {
constinit thread_local bool counting = false;
constinit thread_local uint64_t allocations = 0;
constinit thread_local size_t refused_from = SIZE_MAX;  // bytes of one allocation
[[maybe_unused]] void count() {
  if (counting && !parallax::testkit::inside_transport) ++allocations;
}
}  // namespace

#if PARALLAX_TEST_COUNTS_MALLOC
// glibc's own, under the names that stay when a program defines malloc.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t items, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  count();
  if (bytes >= refused_from) return nullptr;
  return __libc_malloc(bytes);
}
void* calloc(size_t items, size_t bytes) {
  count();
  return __libc_calloc(items, bytes);
}
void* realloc(void* old, size_t bytes) {
  count();
  return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  *out = memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}
}
#endif

namespace parallax::testkit {
namespace {

// Counts as long as it lives.
class Counted {
 public:
  Counted() { counting = true; }
  ~Counted() { counting = false; }
};

constexpr uint64_t kVocabulary = 3000;
constexpr uint64_t kRowElements = 6;
constexpr uint64_t kRowsMax = 400;
constexpr uint32_t kWarmUpSteps = 40;
constexpr uint32_t kCountedSteps = 60;
enum : uint32_t { kEmbedding, kSoftmax, kWide, kBias, kHeldDense, kHeldRows, kManyFirst };
constexpr uint32_t kManyBiases = 20;  // a push of more slices than a request first has room for

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
      sparse_variable("held_rows", kVocabulary, kRowElements, kRowsMax)};
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
  return all;
}

// Every variable takes floats, whatever it is kept and summed in.
parallax_slice_t as_float(parallax_slice_t slice) {
  slice.as_dtype = PARALLAX_AS(PARALLAX_F32);
  return slice;
}

// One rank's buffers, made once.
struct RankBuffers {
  std::array<std::vector<int64_t>, 5> ids;
  std::array<std::vector<float>, 5> rows;
  std::vector<float> dense = std::vector<float>(27000, 0.5f);
  std::vector<float> pulled = std::vector<float>(27000);
  std::vector<float> held = std::vector<float>(700, 0.25f);
  std::array<Request*, 8> requests = {};
  size_t request_count = 0;
  RankBuffers() {
    for (auto& each : ids) each.reserve(kRowsMax);
    for (auto& each : rows) each.resize(kRowsMax * kRowElements, 1.0f);
  }
};

class SteadyState {
 public:
  SteadyState(parallax_plan_mode_t mode, bool deterministic)
      : world_({.hosts = {0, 0, 1, 1},
                .plan_mode = mode,
                .plan_after_steps = 4,
                .deterministic = deterministic,
                .seed = 17}),
        buffers_(world_.size()) {
    for (const Status& status : world_.commit(every_form())) EXPECT_TRUE(status.ok());
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
        as_float(dense_slice(kHeldDense, mine.held.data())),
        as_float(rows_slice(kHeldRows, mine.ids[4], mine.rows[4].data()))};
    parallax_step_end_options_t end = {};
    end.size = sizeof end;
    end.learning_rate = 0.01f;
    end.clip_norm = 3;
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
    const Counted counted;
    bool ok = engine.step_calls().begin(&step).ok();
    // Both kinds of steps.
    if (step % 2 == 0) {
      end.learning_rate = 0;
      end.rates = &rates;
      end.rates_count = 1;
    }
    ok = ok && engine.step_calls().pull(step, first_pull, next()).ok();
    ok = ok && engine.step_calls().pull(step, second_pull, next()).ok();
    ok = ok && engine.step_calls().push(step, early, next()).ok();
    ok = ok && engine.step_calls().push(step, push, next()).ok();
    ok = ok && engine.step_calls().reduce(step, reduce, next()).ok();
    ok = ok && engine.step_calls().end(step, end, next()).ok();
    engine.kick();
    EXPECT_TRUE(ok);
  }

  // One step of all ranks; what the engines allocated in it.
  uint64_t step(bool full) {
    allocations = 0;
    for (RankBuffers& mine : buffers_) draw(&mine, full);
    for (uint32_t rank = 0; rank < world_.size(); ++rank) post(rank);
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      RankBuffers& mine = buffers_[rank];
      for (size_t i = 0; i < mine.request_count; ++i) {
        for (int pass = 0; pass < 10000 && !mine.requests[i]->done(); ++pass) {
          for (uint32_t each = 0; each < world_.size(); ++each) {
            const Counted counted;
            world_.engine(each).run();
          }
        }
        EXPECT_TRUE(mine.requests[i]->done() && mine.requests[i]->status.ok());
        const Counted counted;
        EXPECT_TRUE(world_.engine(rank).release(mine.requests[i]).ok());
      }
    }
    return allocations;
  }

  Engine& engine(uint32_t rank) { return world_.engine(rank); }

 private:
  EngineWorld world_;
  std::vector<RankBuffers> buffers_;
};

class Allocation : public testing::TestWithParam<std::tuple<parallax_plan_mode_t, bool>> {};

TEST_P(Allocation, ASteadyStepAllocatesNothing) {
  if (!PARALLAX_TEST_COUNTS_MALLOC) GTEST_SKIP() << "a sanitizer owns malloc: run the dev preset";
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
  if (!PARALLAX_TEST_COUNTS_MALLOC) GTEST_SKIP() << "a sanitizer owns malloc: run the dev preset";
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
    refused_from = 16 * 1024;
    const Status refused = engine.step_calls().reduce(step, {&slice, 1}, &request);
    refused_from = SIZE_MAX;
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
