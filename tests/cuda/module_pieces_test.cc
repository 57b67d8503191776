// SPDX-License-Identifier: Apache-2.0
// Calls whose slices come and go in pieces, beside the same calls with slices in host memory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cuda/double/control.h"
#include "cuda/module_row_slices.h"

namespace cuda_rows_test {
namespace {

constexpr uint64_t kPiece = 65536;  // the least that is pinned at once

class Pieces : public RowJobs {
 protected:
  void SetUp() override {
    RowJobs::SetUp();
    setenv("PARALLAX_DEVICE_COALESCE_MIN_BYTES", "0", 1);
    setenv("PARALLAX_PINNED_CALL_MAX_BYTES", "0", 1);
    setenv("PARALLAX_PINNED_MAX_BYTES", "192K", 1);
  }
  void TearDown() override {
    unsetenv("PARALLAX_DEVICE_COALESCE_MIN_BYTES");
    unsetenv("PARALLAX_DEVICE_SCRATCH_MAX_BYTES");
    unsetenv("PARALLAX_PINNED_CALL_MAX_BYTES");
    unsetenv("PARALLAX_PINNED_MAX_BYTES");
    RowJobs::TearDown();
  }
  static bool told(const std::string& words) {
    return std::string(parallax_last_error()).find(words) != std::string::npos;
  }

  // A dense variable of each kind, of several pieces each.
  static constexpr uint64_t kDense = 5 * kPiece / sizeof(float) + 77;
  static void add_dense(parallax_job_t* job) {
    for (const bool managed : {false, true}) {
      auto variable = sized<parallax_variable_t>();
      variable.name = managed ? "table" : "held";
      variable.rows = kDense;
      variable.row_elements = 1;
      if (managed) {
        variable.rule = PARALLAX_RULE_SGD;
        variable.init = PARALLAX_INIT_UNIFORM;
        variable.init_low = -1;
        variable.init_high = 1;
      }
      uint32_t id = 0;
      check(parallax_register(job, &variable, &id));
    }
  }
  static std::vector<float> numbers(uint64_t seed) {
    Draw draw(seed);
    std::vector<float> made(kDense);
    for (float& each : made) each = draw.number();
    return made;
  }
};

TEST_F(Pieces, RowsHaveTheBitsOfTheHost) {
  for (const bool managed : {true, false}) {
    cuda_double_set_delay(managed ? 7 : 8, 50);
    // 3,000 rows of 36 bytes are two pieces; none is coalesced where there is no scratch memory.
    expect_same({.managed = managed, .world = 2, .count = 3000}, kRowSteps);
    setenv("PARALLAX_DEVICE_SCRATCH_MAX_BYTES", "0", 1);
    expect_same({.managed = managed, .world = 2, .count = 3000}, 0);
    expect_same({.managed = managed, .calls = 2, .tied = 2, .world = 1, .count = 1500}, 0);
    unsetenv("PARALLAX_DEVICE_SCRATCH_MAX_BYTES");
  }
  // With one block there is none for the counts: the host coalesces.
  setenv("PARALLAX_PINNED_MAX_BYTES", "64K", 1);
  expect_same({.world = 2, .count = 3000}, 0);
  EXPECT_EQ(cuda_double_pageable_copies(), 0u);
}

// What was summed and pulled, given and asked for on devices, by two ranks.
TEST_F(Pieces, DenseThereAndBack) {
  NcclJobs::run(
      2, [&](DeviceRank& rank) { add_dense(rank.job); },
      [&](DeviceRank& rank) {
        const Stream stream;
        const std::vector<float> one = numbers(1), two = numbers(2);
        const DeviceNumbers<float> source(rank.rank == 0 ? one : two);
        const DeviceNumbers<float> given(std::vector<float>(kDense, -9)),
            summed(std::vector<float>(kDense, -9)), before(std::vector<float>(kDense, -9)),
            after(std::vector<float>(kDense, -9));
        std::vector<float> initial(kDense), expected(kDense);
        for (uint64_t i = 0; i < kDense; ++i) expected[i] = one[i] + two[i];
        const uint64_t bytes = kDense * sizeof(float);
        for (int i = 0; i < 2; ++i) {
          cuda_double_set_delay(static_cast<uint64_t>(i) + 1, 50);
          const uint64_t step = rank.begin();
          EXPECT_EQ(cuMemcpyDtoDAsync(given.pointer(), source.pointer(), bytes, stream.get()),
                    CUDA_SUCCESS);
          parallax_slice_t reduce = rank.slice(0, given.address(), stream.get());
          reduce.into = summed.address();
          const parallax_slice_t push = rank.slice(1, given.address(), stream.get());
          const parallax_slice_t pull =
              rank.slice(1, (i == 0 ? before : after).address(), stream.get());
          parallax_request_t *pulled = nullptr, *pushed = nullptr;
          check(parallax_pull(rank.job, step, &pull, 1, &pulled));
          parallax_request_t* reduced = rank.reduce(step, reduce);
          check(parallax_push(rank.job, step, &push, 1, &pushed));
          auto options = sized<parallax_step_end_options_t>();
          options.learning_rate = 0.5f;
          parallax_request_t* ended = nullptr;
          check(parallax_step_end(rank.job, step, &options, &ended));
          rank.finish({pulled, reduced, pushed, ended});
          ASSERT_EQ(cuda_double_drain(20000), 1);
          EXPECT_TRUE(summed.values() == expected);
        }
        const std::vector<float> was = before.values(), is = after.values();
        EXPECT_GT(*std::max_element(was.begin(), was.end()), 0.9f);
        for (uint64_t i = 0; i < kDense; ++i) {
          ASSERT_EQ(is[i], was[i] - 0.5f * (one[i] + two[i])) << i;
        }
      });
}

// A call of more than may be pinned at all goes in pieces by itself; where not even one can be
// pinned it is refused, and nothing is left behind.
TEST_F(Pieces, OfWhatIsMoreThanMayBePinned) {
  unsetenv("PARALLAX_PINNED_CALL_MAX_BYTES");
  NcclJobs::run(
      1, [&](DeviceRank& rank) { add_dense(rank.job); },
      [&](DeviceRank& rank) {
        const DeviceNumbers<float> given(numbers(1));
        const uint64_t step = rank.begin();
        rank.finish({rank.reduce(step, rank.slice(0, given.address())), rank.end(step)});
        EXPECT_TRUE(given.values() == numbers(1));
      });
  setenv("PARALLAX_PINNED_MAX_BYTES", "60K", 1);
  NcclJobs::run(
      1, [&](DeviceRank& rank) { add_dense(rank.job); },
      [&](DeviceRank& rank) {
        const DeviceNumbers<float> given(numbers(1));
        const uint64_t step = rank.begin();
        const parallax_slice_t slice = rank.slice(0, given.address());
        parallax_request_t* request = nullptr;
        EXPECT_EQ(parallax_reduce(rank.job, step, &slice, 1, &request), PARALLAX_LIMIT);
        EXPECT_TRUE(told("reduce: its slices need 65536 bytes of pinned host memory") &&
                    told("pinned_max_bytes is 61440"))
            << parallax_last_error();
        rank.finish({rank.end(step)});
      });
}

// Given one call behind a stream that is held, expect that it has no piece meanwhile: the other,
// with one piece for both, goes past it.
TEST_F(Pieces, AHeldStreamHoldsNoPiece) {
  setenv("PARALLAX_PINNED_MAX_BYTES", "64K", 1);
  NcclJobs::run(
      1, [&](DeviceRank& rank) { add_dense(rank.job); },
      [&](DeviceRank& rank) {
        const Stream held, free;
        const DeviceNumbers<float> one(numbers(1)), two(numbers(2));
        const uint64_t step = rank.begin();
        cuda_double_hold(held.get(), 1);
        parallax_request_t* first = rank.reduce(step, rank.slice(0, one.address(), held.get()));
        parallax_request_t* second = nullptr;
        const parallax_slice_t push = rank.slice(1, two.address(), free.get());
        check(parallax_push(rank.job, step, &push, 1, &second));
        EXPECT_EQ(rank.wait(second), PARALLAX_OK) << parallax_last_error();
        EXPECT_EQ(rank.wait(first, 20), PARALLAX_TIMEOUT);
        cuda_double_hold(held.get(), 0);
        rank.finish({first, second, rank.end(step)});
      });
}

// Given each call of the driver failing in its turn, expect a call or a request that ends with the
// device's words, or a step that did without; and a job that goes on.
TEST_F(Pieces, EveryCallOfTheDriverMayFail) {
  const char* const functions[] = {"cuMemHostAlloc",       "cuStreamCreateWithPriority",
                                   "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2",
                                   "cuStreamWaitEvent",    "cuEventRecord",
                                   "cuEventCreate",        "cuEventQuery",
                                   "cuLaunchHostFunc",     "operation"};
  uint32_t failed = 0;
  for (const char* function : functions) {
    for (const uint64_t nth : {1, 2, 3, 5, 8}) {
      SCOPED_TRACE(std::string(function) + " " + std::to_string(nth));
      NcclJobs::run(
          1, [&](DeviceRank& rank) { add_dense(rank.job); },
          [&](DeviceRank& rank) {
            const DeviceNumbers<float> given(numbers(1));
            const uint64_t step = rank.begin();
            const parallax_slice_t slice = rank.slice(0, given.address());
            cuda_double_fail(function, nth, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 0);
            parallax_request_t* request = nullptr;
            parallax_status_t status = parallax_reduce(rank.job, step, &slice, 1, &request);
            if (status == PARALLAX_OK) status = rank.wait(request);
            const std::string words = parallax_last_error();
            cuda_double_clear_failures();
            if (request != nullptr) check(parallax_request_release(request));
            if (status != PARALLAX_OK) {
              ++failed;
              EXPECT_TRUE(status == PARALLAX_IO || status == PARALLAX_LIMIT) << status;
              EXPECT_TRUE(words.find("device 0") != std::string::npos ||
                          words.find("pinned host memory") != std::string::npos)
                  << words;
            } else {
              EXPECT_TRUE(given.values() == numbers(1));
            }
            cuda_double_poison(0, CUDA_SUCCESS);
            rank.finish({rank.end(step)});
          });
      EXPECT_EQ(leaks(), "") << function;
    }
  }
  EXPECT_GE(failed, 20u);
}

// Given a job that is given up while pieces come, and one while they go, expect requests that end
// with it, and nothing left behind.
TEST_F(Pieces, AJobThatEndsBetweenThem) {
  for (const bool there : {true, false}) {
    NcclJobs::run(
        1, [&](DeviceRank& rank) { add_dense(rank.job); },
        [&](DeviceRank& rank) {
          cuda_double_set_delay(5, 3000);
          const DeviceNumbers<float> given(numbers(1));
          const uint64_t step = rank.begin();
          const parallax_slice_t slice = rank.slice(there ? 0 : 1, given.address());
          parallax_request_t* request = nullptr;
          check((there ? parallax_reduce : parallax_pull)(rank.job, step, &slice, 1, &request));
          rank.wait(request, 4);
          check(parallax_abort(rank.job, "the test ends it"));
          const parallax_status_t status = rank.wait(request);
          EXPECT_TRUE(status == PARALLAX_ABORTED || (!there && status == PARALLAX_OK)) << status;
          check(parallax_request_release(request));
          EXPECT_NE(parallax_close(rank.job), PARALLAX_OK);
          rank.job = nullptr;
        },
        {}, false);
    cuda_double_set_delay(0, 0);
    EXPECT_EQ(leaks(), "");
  }
}

}  // namespace
}  // namespace cuda_rows_test
