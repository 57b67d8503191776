// SPDX-License-Identifier: Apache-2.0
// Calls that find no memory for what they would say: a status comes back, and no exception.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <future>
#include <new>
#include <string>

#include "parallax/parallax.hpp"
#include "support/rank_threads.h"

// Sanitizers have an allocator of their own, which takes no other beside it.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

constinit thread_local bool no_memory = false;
constinit thread_local int64_t granted =
    -1;  // so many more, then one is refused; negative: all are

void* take(size_t bytes) {
  if (granted >= 0 && granted-- == 0) throw std::bad_alloc();
  void* const taken = no_memory ? nullptr : std::malloc(bytes);
  if (taken == nullptr) throw std::bad_alloc();
  return taken;
}

}  // namespace

// Not inlined: where only one of a pair is, GCC takes them for mismatched.
#define PARALLAX_TEST_NOINLINE __attribute__((noinline))
PARALLAX_TEST_NOINLINE void* operator new(size_t bytes) { return take(bytes); }
PARALLAX_TEST_NOINLINE void* operator new[](size_t bytes) { return take(bytes); }
PARALLAX_TEST_NOINLINE void operator delete(void* memory) noexcept { std::free(memory); }
PARALLAX_TEST_NOINLINE void operator delete[](void* memory) noexcept { std::free(memory); }
PARALLAX_TEST_NOINLINE void operator delete(void* memory, size_t) noexcept { std::free(memory); }
PARALLAX_TEST_NOINLINE void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
#undef PARALLAX_TEST_NOINLINE

namespace {

// Runs a call of which the library gets no memory.
template <typename Call>
parallax_status_t without_memory(Call call) {
  no_memory = true;
  const parallax_status_t status = call();
  no_memory = false;
  return status;
}

// Given bad arguments whose sentences need memory, expect LIMIT from every call that would refuse
// them, and the calls that need none to work.
TEST(OutOfMemory, IsAStatusOfEveryCall) {
  using parallax::sized;
  parallax::Job job(sized<parallax_options_t>());
  job.commit();
  parallax_job_t* const handle = job.get();
  parallax::Request request = job.barrier();
  request.wait();
  parallax_request_t* raw = request.get();
  auto error = sized<parallax_error_info_t>();
  parallax_request_t* none = nullptr;
  void* pointer = nullptr;
  int word = 0;

  EXPECT_EQ(without_memory([] { return parallax_last_error_info(nullptr); }), PARALLAX_LIMIT);
  error.size = 3;
  EXPECT_EQ(without_memory([&] { return parallax_last_error_info(&error); }), PARALLAX_LIMIT);
  error.size = sizeof error;
  const auto refused = [&](const char* call, auto body) {
    EXPECT_EQ(without_memory(body), PARALLAX_LIMIT) << call;
    EXPECT_EQ(without_memory([&] { return parallax_last_error_info(&error); }), PARALLAX_OK);
    EXPECT_EQ(error.status, PARALLAX_LIMIT) << call;
    EXPECT_STRNE(parallax_last_error(), "") << call;
  };
  refused("open", [] { return parallax_open(nullptr, nullptr); });
  refused("query", [&] { return parallax_query(handle, nullptr); });
  refused("set", [&] { return parallax_set(handle, "milk", "1"); });
  refused("split", [&] { return parallax_split(handle, nullptr, 1, nullptr); });
  refused("report", [&] { return parallax_report(handle, 0, nullptr, nullptr); });
  refused("register", [&] { return parallax_register(handle, nullptr, nullptr); });
  refused("step_begin", [&] { return parallax_step_begin(handle, nullptr); });
  refused("pull", [&] { return parallax_pull(handle, 1, nullptr, 1, &none); });
  refused("barrier", [&] { return parallax_barrier(handle, nullptr); });
  refused("collective", [&] { return parallax_collective(handle, nullptr, &none); });
  refused("read", [&] { return parallax_read(handle, nullptr, &none); });
  refused("buffer_alloc", [&] { return parallax_buffer_alloc(handle, 8, nullptr, &pointer); });
  refused("buffer_free", [&] { return parallax_buffer_free(handle, &word); });
  refused("buffer_register", [&] { return parallax_buffer_register(handle, &word, 4); });
  refused("buffer_unregister", [&] { return parallax_buffer_unregister(handle, &word); });
  refused("wait", [&] { return parallax_wait(&none, 1, 0); });
  refused("request_step", [&] { return parallax_request_step(raw, nullptr); });
  refused("request_error_info", [&] { return parallax_request_error_info(raw, nullptr); });
  refused("release", [&] { return parallax_request_cancel(nullptr); });
  EXPECT_EQ(pointer, nullptr);

  EXPECT_EQ(without_memory([&] { return parallax_request_test(raw); }), PARALLAX_OK);
  EXPECT_EQ(without_memory([&] { return parallax_wait(&raw, 1, 0); }), PARALLAX_OK);
  void* kept = nullptr;
  parallax::check(parallax_buffer_alloc(handle, 8, nullptr, &kept));
  EXPECT_EQ(without_memory([&] { return parallax_buffer_free(handle, kept); }), PARALLAX_OK);
}

// Refuses this thread the allocation of that number, from 0 on, and no other.
class OneRefusal {
 public:
  explicit OneRefusal(int64_t allocation) { granted = allocation; }
  ~OneRefusal() { granted = -1; }
  OneRefusal(const OneRefusal&) = delete;
  OneRefusal& operator=(const OneRefusal&) = delete;
  bool happened() const { return granted < 0; }
};

void expect_told_of_rank_0(parallax_status_t status, int64_t allocation) {
  const std::string sentence = status == PARALLAX_OK ? "OK" : parallax_last_error();
  EXPECT_EQ(status, PARALLAX_LIMIT) << "allocation " << allocation << ": " << sentence;
  EXPECT_NE(sentence.find("out of memory at rank 0"), std::string::npos) << sentence;
}

// Given one allocation of rank 0's commit that is refused, whichever, expect rank 1 to hear of it
// where the job ends with that, and else another commit to do.
TEST(OutOfMemory, ACommitIsToldToTheOtherRanks) {
  using parallax::Job;
  constexpr int64_t kMost = 2000;  // allocations of a commit
  int told = 0;
  bool whole = false;
  for (int64_t allocation = 0; allocation < kMost && !whole && !testing::Test::HasFailure();
       ++allocation) {
    std::promise<void> registered;  // by rank 1
    std::promise<bool> ended;       // whether the job has
    std::future<void> ready = registered.get_future();
    std::future<bool> outcome = ended.get_future();
    parallax::testkit::on_ranks(2, [&](uint32_t rank, Job& job) {
      auto variable = parallax::sized<parallax_variable_t>();
      variable.name = "table";
      variable.rows = 100;
      variable.row_elements = 4;
      variable.rows_max = 8;
      variable.rule = PARALLAX_RULE_ADAM;
      job.register_variable(variable);
      uint64_t step = 0;
      if (rank == 1) {
        registered.set_value();
        const parallax_status_t status = parallax_commit(job.get());
        const std::string sentence = parallax_last_error();
        if (!outcome.get()) {
          EXPECT_EQ(status, PARALLAX_OK) << "allocation " << allocation << ": " << sentence;
        } else if (status != PARALLAX_OK) {
          expect_told_of_rank_0(status, allocation);
        } else {  // it was refused once all had committed
          parallax_request_t* barrier = nullptr;
          parallax_status_t later = parallax_barrier(job.get(), &barrier);
          if (later == PARALLAX_OK) later = parallax_wait(&barrier, 1, PARALLAX_WAIT_DEFAULT);
          expect_told_of_rank_0(later, allocation);
          parallax_request_release(barrier);
        }
        return;
      }
      ready.wait();
      parallax_status_t status = PARALLAX_OK;
      {
        const OneRefusal refusal(allocation);
        status = parallax_commit(job.get());
        whole = !refusal.happened();
      }
      EXPECT_TRUE(status == PARALLAX_OK || (status == PARALLAX_LIMIT && !whole))
          << "allocation " << allocation << ": " << parallax_last_error();
      const bool failed = parallax_step_begin(job.get(), &step) == PARALLAX_LIMIT;
      told += failed ? 1 : 0;
      ended.set_value(failed);
      if (!failed && status != PARALLAX_OK) job.commit();
    });
  }
  EXPECT_GT(told, 0);
  EXPECT_TRUE(whole);
}

}  // namespace

#endif
