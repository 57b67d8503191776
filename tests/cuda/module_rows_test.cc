// SPDX-License-Identifier: Apache-2.0
// Rows that their devices coalesce before they are copied, beside the same rows in host memory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cuda/double/control.h"
#include "cuda/module_row_slices.h"

namespace cuda_rows_test {
namespace {

bool told(const std::string& words) {
  return std::string(parallax_last_error()).find(words) != std::string::npos;
}

class Rows : public RowJobs {
 protected:
  void SetUp() override {
    RowJobs::SetUp();
    setenv("PARALLAX_DEVICE_COALESCE_MIN_BYTES", "0", 1);
  }
  void TearDown() override {
    unsetenv("PARALLAX_DEVICE_COALESCE_MIN_BYTES");
    unsetenv("PARALLAX_DEVICE_SCRATCH_MAX_BYTES");
    RowJobs::TearDown();
  }
};

constexpr uint64_t kAll = kRowSteps;

// Given rows whose every order of summing has bits of its own, expect those of slices in host
// memory, with the streams of the ranks and the library's late in ways that a seed draws.
TEST_F(Rows, HaveTheBitsOfTheHost) {
  for (const bool managed : {true, false}) {
    for (const bool narrow : {true, false}) {
      cuda_double_set_delay(managed ? 3 : 4, 100);
      expect_same({.managed = managed, .narrow_ids = narrow, .world = 3}, kAll);
      expect_same({.managed = managed, .narrow_ids = narrow, .world = 1, .width = 1}, kAll);
    }
    expect_same({.managed = managed, .world = 2, .plan = PARALLAX_PLAN_PS, .deterministic = 0},
                kAll);
    expect_same({.managed = managed, .reduction = PARALLAX_MEAN_ROW, .world = 3}, kAll);
  }
  expect_same({.world = 3, .plan = PARALLAX_PLAN_AR}, kAll);
  EXPECT_EQ(cuda_double_pageable_copies(), 0u);
}

// f16 and bf16 are widened on the device and f64 is rounded, and their sums come in float; a reduce
// hands back rows in the dtype of the slice all the same.
TEST_F(Rows, OfEveryDtype) {
  for (const uint32_t dtype : {PARALLAX_F32, PARALLAX_F16, PARALLAX_BF16}) {
    for (const uint32_t as : {PARALLAX_F32, PARALLAX_F16, PARALLAX_BF16, PARALLAX_F64}) {
      expect_same({.dtype = dtype, .as = as, .world = 2}, kAll);
      expect_same({.dtype = dtype, .as = as, .managed = false, .world = 2}, kAll);
    }
  }
  expect_same({.dtype = PARALLAX_F64, .as = PARALLAX_F32}, 0);
}

// What a rank has summed before goes on with each row in its turn: the slices of the first call of
// a step are coalesced, as one, and those of later calls are copied as they are.
TEST_F(Rows, TheSlicesOfTheFirstCallOfAStep) {
  for (const bool managed : {true, false}) {
    cuda_double_set_delay(managed ? 5 : 6, 100);
    expect_same({.managed = managed, .calls = 3, .world = 2}, kAll);
    expect_same({.managed = managed, .tied = 2, .world = 2}, 2 * kAll);
    expect_same({.managed = managed, .calls = 2, .tied = 3}, 3 * kAll);
    expect_same({.dtype = PARALLAX_BF16,
                 .as = PARALLAX_F16,
                 .managed = managed,
                 .narrow_ids = true,
                 .reduction = PARALLAX_MEAN_ROW,
                 .tied = 3,
                 .world = 2},
                3 * kAll);
    expect_same({.as = PARALLAX_F64, .managed = managed, .tied = 2, .deterministic = 0}, 2 * kAll);
  }
}

// So is a slice of every row, and one in host memory: rows behind it go on with its sum.
TEST_F(Rows, BehindASliceThatIsNotOfThemTheHostSums) {
  expect_same({.before = Before::kEveryRow, .world = 2}, 0);
  expect_same({.tied = 2, .before = Before::kEveryRow}, 0);
  for (const bool managed : {true, false}) {
    expect_same({.managed = managed, .tied = 2, .before = Before::kRowsInHostMemory, .world = 2},
                0);
  }
}

TEST_F(Rows, NumbersThatAreToBeFiniteAreLookedAtByTheHost) {
  expect_same({.refuse_nonfinite = 1}, 0);
}

// A row that several slices of a call have comes once.
TEST_F(Rows, OfSlicesOfACallDistinctRowsAreCopiedOnce) {
  const RowSteps of = {.tied = 4, .distinct = 5, .count = 1024};
  const uint64_t before = cuda_double_bytes_to_host();
  run_steps(of, true);
  EXPECT_EQ(cuda_double_bytes_to_host() - before,
            kRowSteps * (5 * (sizeof(int64_t) + 7 * sizeof(float)) + 8));
}

// Of padding alone nothing is copied but the counts.
TEST_F(Rows, PaddingAlone) { expect_same({.world = 2, .distinct = 0}, kAll); }

// Given a slice of `count` rows with few distinct ones, expect that these alone come to the host,
// and that the stats say so; and one without duplicates as it is.
TEST_F(Rows, OnlyDistinctRowsAreCopied) {
  constexpr uint64_t kRowBytes = sizeof(int64_t) + 7 * sizeof(float);
  RowSteps of = {.distinct = 5, .count = 4096};
  const uint64_t before = cuda_double_bytes_to_host();
  std::vector<std::string> stats;
  run_steps(of, true, &stats);
  const uint64_t copied = cuda_double_bytes_to_host() - before;
  EXPECT_EQ(copied, kRowSteps * (5 * kRowBytes + 8));
  EXPECT_EQ(coalesced(stats[0], "rows"), kRowSteps * of.count);
  EXPECT_EQ(coalesced(stats[0], "copied_rows"), kRowSteps * 5u);
  EXPECT_EQ(coalesced(stats[0], "saved_bytes"), kRowSteps * (of.count - 5) * kRowBytes);
}

// A small slice is copied as it is, and so is every one where there is no scratch memory.
TEST_F(Rows, SettingsKeepThemToTheHost) {
  setenv("PARALLAX_DEVICE_COALESCE_MIN_BYTES", "1M", 1);
  expect_same({}, 0);
  setenv("PARALLAX_DEVICE_COALESCE_MIN_BYTES", "0", 1);
  setenv("PARALLAX_DEVICE_SCRATCH_MAX_BYTES", "0", 1);
  expect_same({}, 0);
  std::vector<std::string> stats;
  setenv("PARALLAX_DEVICE_SCRATCH_MAX_BYTES", "4096", 1);
  expect_same({}, 0);
  run_steps({}, true, &stats);
  EXPECT_EQ(coalesced(stats[0], "slices_by_host"), kAll);
  EXPECT_NE(stats[0].find("device_scratch_max_bytes is 4096"), std::string::npos) << stats[0];
}

TEST_F(Rows, ADeviceThatIsFullLeavesThemToTheHost) {
  const RowSteps of;
  NcclJobs::run(
      1, [&](DeviceRank& rank) { add(of, rank.job); },
      [&](DeviceRank& rank) {
        const Stream stream;
        const uint64_t number = rank.begin();
        const Call call(of, rank, 1, true, false, stream.get());
        cuda_double_fail_always("cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY);
        parallax_request_t* request = call.make(of, rank, number);
        cuda_double_clear_failures();
        rank.finish({request, rank.end(number)});
        const std::string told = rank.report(PARALLAX_REPORT_STATS);
        EXPECT_EQ(coalesced(told, "slices"), 0u);
        EXPECT_EQ(coalesced(told, "slices_by_host"), 1u);
        EXPECT_NE(told.find("has no memory for"), std::string::npos) << told;
      });
}

TEST_F(Rows, ADeviceWithoutKernelsLeavesThemToTheHost) {
  cuda_double_fail_always("cuModuleLoadData", CUDA_ERROR_NO_BINARY_FOR_GPU);
  std::vector<std::string> stats;
  run_steps({}, true, &stats);
  EXPECT_EQ(coalesced(stats[0], "slices"), 0u);
  EXPECT_EQ(coalesced(stats[0], "slices_by_host"), kAll);
  EXPECT_NE(stats[0].find("has no kernels in this libparallax_cuda.so"), std::string::npos)
      << stats[0];
}

// An id that is no row: the slice comes whole, and the host names it as ever.
TEST_F(Rows, AnIdThatIsNoRowIsNamed) {
  for (const bool narrow : {true, false}) {
    RowSteps of = {.narrow_ids = narrow, .tied = 2};
    NcclJobs::run(
        1, [&](DeviceRank& rank) { add(of, rank.job); },
        [&](DeviceRank& rank) {
          const Stream stream;
          const uint64_t number = rank.begin();
          for (const int64_t wrong : {int64_t{97}, int64_t{-2}}) {
            GivenRows given(of, 1);
            const auto small = static_cast<int32_t>(wrong);
            for (const uint64_t at : {77, 41}) {
              const size_t width = narrow ? sizeof small : sizeof wrong;
              std::memcpy(&given.ids[at * width],
                          narrow ? static_cast<const void*>(&small) : &wrong, width);
            }
            const RowsOnDevice there(given, stream.get());
            auto slice = sized<parallax_slice_t>();
            slice.form = PARALLAX_FORM_ROWS;
            slice.memory = PARALLAX_MEMORY_CUDA;
            slice.stream = stream.get();
            slice.row_count = of.count;
            slice.values = there.values();
            if (narrow) {
              slice.ids_i32 = static_cast<const int32_t*>(there.ids());
            } else {
              slice.ids = static_cast<const int64_t*>(there.ids());
            }
            parallax_request_t* request = nullptr;
            check(parallax_push(rank.job, number, &slice, 1, &request));
            EXPECT_EQ(rank.wait(request), PARALLAX_INVALID);
            EXPECT_TRUE(told("push, slice 0 (variable 'rows'): ") &&
                        told(std::string(narrow ? "ids_i32[" : "ids[") + "41] is " +
                             std::to_string(wrong) + ", the variable has rows 0..96"))
                << parallax_last_error();
            check(parallax_request_release(request));
          }
          // Nothing of it was done: the step takes another, and it is the first.
          const Call call(of, rank, 1, true, false, stream.get());
          rank.finish({call.make(of, rank, number), rank.end(number)});
          EXPECT_EQ(coalesced(rank.report(PARALLAX_REPORT_STATS), "slices"), 4u);
        });
  }
}

// Given each call of the driver that it takes failing in its turn, expect a request that ends with
// the device's words, or a step that did without it; and a job that goes on.
TEST_F(Rows, EveryCallOfTheDriverMayFail) {
  const char* const functions[] = {
      "cuModuleLoadData", "cuModuleGetFunction", "cuMemAlloc_v2",          "cuMemsetD8Async",
      "cuLaunchKernel",   "cuStreamWaitEvent",   "cuMemcpyDtoHAsync_v2",   "cuEventRecord",
      "cuEventQuery",     "cuLaunchHostFunc",    "cuPointerGetAttributes", "cuMemcpyDtoDAsync_v2",
      "operation"};
  const RowSteps of = {.tied = 2};
  uint32_t failed = 0;
  for (const char* function : functions) {
    for (const uint64_t nth : {1, 2, 3, 4, 7, 12}) {
      SCOPED_TRACE(std::string(function) + " " + std::to_string(nth));
      NcclJobs::run(
          1, [&](DeviceRank& rank) { add(of, rank.job); },
          [&](DeviceRank& rank) {
            const Stream stream;
            const Call call(of, rank, 1, true, false, stream.get());
            ASSERT_EQ(cuda_double_drain(20000), 1);
            const uint64_t number = rank.begin();
            // A device's failure stays with its context: those of streams are the test's own here.
            cuda_double_fail(function, nth, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 0);
            parallax_request_t* request = nullptr;
            parallax_status_t status =
                parallax_push(rank.job, number, call.slices().data(), of.tied, &request);
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
            }
            cuda_double_poison(0, CUDA_SUCCESS);
            rank.finish({rank.end(number)});
          });
      EXPECT_EQ(leaks(), "") << function;
    }
  }
  EXPECT_GE(failed, 20u);
}

// Given a stream that is held, expect that nothing is coalesced before it has come to the call; and
// a job that is given up meanwhile, that it ends, and begins no copy of what was coalesced.
TEST_F(Rows, AHeldStreamAndAJobThatEnds) {
  const RowSteps of;
  NcclJobs::run(
      1, [&](DeviceRank& rank) { add(of, rank.job); },
      [&](DeviceRank& rank) {
        const Stream stream;
        const uint64_t number = rank.begin();
        cuda_double_hold(stream.get(), 1);
        const Call call(of, rank, 1, true, false, stream.get());
        parallax_request_t* request = call.make(of, rank, number);
        EXPECT_EQ(rank.wait(request, 30), PARALLAX_TIMEOUT);
        EXPECT_TRUE(told("waits for device 0: the work that was on its stream"))
            << parallax_last_error();
        check(parallax_abort(rank.job, "the test ends it"));
        const uint64_t before = cuda_double_bytes_to_host();
        cuda_double_hold(stream.get(), 0);
        EXPECT_EQ(rank.wait(request), PARALLAX_ABORTED) << parallax_last_error();
        EXPECT_EQ(cuda_double_bytes_to_host(), before);
        check(parallax_request_release(request));
        EXPECT_NE(parallax_close(rank.job), PARALLAX_OK);
        rank.job = nullptr;
      },
      {}, false);
}

}  // namespace
}  // namespace cuda_rows_test
