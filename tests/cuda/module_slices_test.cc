// SPDX-License-Identifier: Apache-2.0
// Jobs whose slices lie on devices: libparallax.so, the module that it finds, and the double of the
// driver, whose memory no host reads by accident and whose streams are queues with threads.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "cuda/module_job.h"

namespace parallax {
namespace {

using namespace module_test;

using ModuleSlices = ModuleTest;

// What one rank has on its device.
struct OnDevice {
  DeviceNumbers<float> source{{0, 0, 0, 0}}, values{{0, 0, 0, 0}}, into{{0, 0, 0, 0}};
  DeviceNumbers<float> rows{{1, 2, 3, 4}}, pulled{{0, 0, 0, 0}};
  DeviceNumbers<int64_t> ids{{5, 0}};
};

void copy(const DeviceNumbers<float>& to, const DeviceNumbers<float>& from, CUstream stream) {
  EXPECT_EQ(cuMemcpyDtoDAsync(to.pointer(), from.pointer(), 4 * sizeof(float), stream),
            CUDA_SUCCESS);
}

// One step of one rank: a pull and a push of rows, and a reduce that gives `given`, which work on
// the stream writes before the calls.
void run_step(parallax_job_t* job, uint32_t rank, CUstream stream, const OnDevice& mine,
              float given) {
  uint64_t step = 0;
  check(parallax_step_begin(job, &step));
  for (int i = 0; i < 4; ++i) mine.source.host()[i] = given;
  copy(mine.values, mine.source, stream);
  parallax_slice_t dense = held(mine.values.address(), stream, rank);
  dense.into = mine.into.address();
  parallax_slice_t push = held(mine.rows.address(), stream, rank);
  push.variable = 1;
  push.form = PARALLAX_FORM_ROWS;
  push.ids = static_cast<const int64_t*>(mine.ids.address());
  push.row_count = 2;
  parallax_slice_t pull = push;
  pull.values = mine.pulled.address();
  auto end = sized<parallax_step_end_options_t>();
  end.learning_rate = 0.5f;
  parallax_request_t* requests[4] = {};
  check(parallax_pull(job, step, &pull, 1, &requests[0]));
  check(parallax_push(job, step, &push, 1, &requests[1]));
  check(parallax_reduce(job, step, &dense, 1, &requests[2]));
  check(parallax_step_end(job, step, &end, &requests[3]));
  check(parallax_wait(requests, 4, kWait));
  for (parallax_request_t* request : requests) check(parallax_request_release(request));
}

void run_rank(uint32_t rank) {
  auto options = sized<parallax_options_t>();
  options.rank = rank;
  options.world = 2;
  options.rendezvous = "inproc:module_slices";
  parallax_job_t* job = nullptr;
  check(parallax_open(&options, &job));
  One::variables(job);
  check(parallax_commit(job));
  const Current current(static_cast<int>(rank));
  const Stream stream;
  const OnDevice mine;
  for (uint32_t t = 1; t <= 6; ++t) {
    const auto given = static_cast<float>(t * (rank + 1));
    run_step(job, rank, stream.get(), mine, given);
    // What is put on the stream now sees the result.
    copy(mine.source, mine.into, stream.get());
    EXPECT_EQ(cuda_double_drain(60000), 1);
    EXPECT_EQ(mine.source.values(), std::vector<float>(4, static_cast<float>(3 * t)));
    EXPECT_EQ(mine.values.values(), std::vector<float>(4, given));
    const auto before = static_cast<float>(t - 1);
    EXPECT_EQ(mine.pulled.values(),
              (std::vector<float>{10 - before, 10 - 2 * before, 10 - 3 * before, 10 - 4 * before}));
  }
  check(parallax_close(job));
}

// Given two ranks with a device each, whose gradients and ids lie there, written by work on their
// streams that takes its time, expect on the devices what slices in host memory would have got, in
// every step.
TEST_F(ModuleSlices, StepsOfTwoRanksFollowTheirStreams) {
  for (const uint64_t seed : {1, 2, 3}) {
    cuda_double_set_delay(seed, 300);
    std::thread other(run_rank, 1);
    run_rank(0);
    other.join();
  }
  EXPECT_EQ(cuda_double_pageable_copies(), 0u) << "all copies are to and from pinned memory";
}

TEST_F(ModuleSlices, AHeldStreamHoldsTheCallAndNothingElse) {
  One one;
  const Current current(0);
  const Stream stream;
  const DeviceNumbers<float> values({1, 2, 3, 4}), later({5, 6, 7, 8});
  cuda_double_hold(stream.get(), 1);
  ASSERT_EQ(cuMemcpyDtoDAsync(values.pointer(), later.pointer(), 16, stream.get()), CUDA_SUCCESS);
  ASSERT_EQ(one.reduce(held(values.address(), stream.get())), PARALLAX_OK);
  EXPECT_EQ(one.wait(20), PARALLAX_TIMEOUT);
  EXPECT_TRUE(told("waits for device 0: the work that was on its stream")) << parallax_last_error();
  auto info = sized<parallax_job_info_t>();
  EXPECT_EQ(parallax_query(one.job, &info), PARALLAX_OK);
  cuda_double_hold(stream.get(), 0);
  EXPECT_EQ(one.wait(), PARALLAX_OK) << parallax_last_error();
  EXPECT_EQ(values.values(), (std::vector<float>{5, 6, 7, 8}));
}

TEST_F(ModuleSlices, WhatTheDriverRefusesIsNamed) {
  One one;
  const Current current(0);
  const Stream stream;
  const DeviceNumbers<float> values({1, 2, 3, 4});
  float host[4] = {};
  EXPECT_EQ(one.reduce(held(host)), PARALLAX_INVALID);
  EXPECT_TRUE(told("values is in host memory"));
  EXPECT_EQ(one.reduce(held(values.address(), nullptr, 1)), PARALLAX_INVALID);
  EXPECT_TRUE(told("memory of device 0, and device is 1"));
  EXPECT_EQ(one.reduce(held(values.address(), nullptr, 2)), PARALLAX_UNSUPPORTED);
  EXPECT_TRUE(told("device is 2, and the CUDA driver shows 2 devices"));
  EXPECT_EQ(one.reduce(held(values.address(), stream.get(), 1)), PARALLAX_UNSUPPORTED)
      << "a stream of another device";
  parallax_slice_t slice = held(values.address());
  slice.memory = PARALLAX_MEMORY_HOST;
  EXPECT_EQ(one.reduce(slice), PARALLAX_INVALID);
  EXPECT_TRUE(told("it has a buffer on device 0"));
  cuda_double_set_capture(stream.get(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(one.reduce(held(values.address(), stream.get())), PARALLAX_UNSUPPORTED);
  EXPECT_TRUE(told("is being captured into a graph"));
  cuda_double_set_capture(stream.get(), CU_STREAM_CAPTURE_STATUS_NONE);
  cuda_double_fail("cuMemcpyDtoHAsync_v2", 1, CUDA_ERROR_INVALID_VALUE, 0);
  EXPECT_EQ(one.reduce(held(values.address(), stream.get())), PARALLAX_IO);
  EXPECT_TRUE(told("device 0: cuMemcpyDtoHAsync: CUDA_ERROR_INVALID_VALUE"))
      << parallax_last_error();
  EXPECT_EQ(one.reduce(held(values.address(), stream.get())), PARALLAX_OK);
  EXPECT_EQ(one.wait(), PARALLAX_OK) << "the job goes on";
}

// Given every driver call of a device slice failing in its turn, expect a call or a request that
// fails with IO, UNSUPPORTED or LIMIT, or that does without it; nothing hangs, and nothing is left.
TEST_F(ModuleSlices, EveryCallOfTheDriverMayFail) {
  const char* const functions[] = {"cuCtxPushCurrent_v2",
                                   "cuDevicePrimaryCtxRetain",
                                   "cuStreamCreateWithPriority",
                                   "cuStreamIsCapturing",
                                   "cuStreamGetCtx",
                                   "cuEventCreate",
                                   "cuEventRecord",
                                   "cuPointerGetAttributes",
                                   "cuMemHostAlloc",
                                   "cuStreamWaitEvent",
                                   "cuMemcpyDtoHAsync_v2",
                                   "cuMemcpyHtoDAsync_v2",
                                   "cuLaunchHostFunc",
                                   "cuEventQuery"};
  for (const char* function : functions) {
    for (const uint64_t nth : {1, 2, 3}) {
      One one;
      const Current current(0);
      const DeviceNumbers<float> values({1, 2, 3, 4});
      cuda_double_fail(function, nth, CUDA_ERROR_OUT_OF_MEMORY, 0);
      const parallax_status_t called = one.reduce(held(values.address()));
      const parallax_status_t status = called == PARALLAX_OK ? one.wait() : called;
      cuda_double_clear_failures();
      EXPECT_TRUE(status == PARALLAX_OK || status == PARALLAX_IO || status == PARALLAX_LIMIT ||
                  status == PARALLAX_INVALID)
          << function << " " << nth << ": " << parallax_last_error();
    }
    EXPECT_EQ(leaks(), "") << function;
  }
}

// Given a context that fails while a copy is under way, so that no host function is called any
// more, expect the request to end with the error all the same.
TEST_F(ModuleSlices, AContextThatFailsEndsItsRequests) {
  One one;
  auto options = sized<parallax_buffer_options_t>();
  options.memory = PARALLAX_MEMORY_CUDA;
  options.device = 1;
  void* buffer = nullptr;
  ASSERT_EQ(parallax_buffer_alloc(one.job, 16, &options, &buffer), PARALLAX_OK);
  cuda_double_hold_all(1);
  ASSERT_EQ(one.reduce(held(buffer, nullptr, 1)), PARALLAX_OK) << parallax_last_error();
  cuda_double_poison(1, CUDA_ERROR_ILLEGAL_ADDRESS);
  cuda_double_hold_all(0);
  EXPECT_EQ(one.wait(), PARALLAX_IO);
  EXPECT_TRUE(told("CUDA_ERROR_ILLEGAL_ADDRESS")) << parallax_last_error();
  // So that the end of the job can give back what it has there.
  cuda_double_poison(1, CUDA_SUCCESS);
}

TEST_F(ModuleSlices, BuffersOfADevice) {
  One one;
  auto options = sized<parallax_buffer_options_t>();
  options.memory = PARALLAX_MEMORY_CUDA;
  options.device = 1;
  void* buffer = nullptr;
  ASSERT_EQ(parallax_buffer_alloc(one.job, 16, &options, &buffer), PARALLAX_OK)
      << parallax_last_error();
  auto* there =
      static_cast<float*>(cuda_double_alias(reinterpret_cast<CUdeviceptr>(buffer), 16, 1));
  ASSERT_NE(there, nullptr);
  EXPECT_EQ((std::vector<float>{there, there + 4}), std::vector<float>(4)) << "zeros";
  for (int i = 0; i < 4; ++i) there[i] = 3;
  cuda_double_hold_all(1);
  ASSERT_EQ(one.reduce(held(buffer, nullptr, 1)), PARALLAX_OK) << parallax_last_error();
  EXPECT_EQ(parallax_buffer_free(one.job, buffer), PARALLAX_STATE) << "a request borrows it";
  cuda_double_hold_all(0);
  ASSERT_EQ(one.wait(), PARALLAX_OK) << parallax_last_error();
  EXPECT_EQ(parallax_buffer_free(one.job, buffer), PARALLAX_OK) << parallax_last_error();
  EXPECT_EQ(parallax_buffer_free(one.job, buffer), PARALLAX_INVALID);
  cuda_double_set_memory(1, 1 << 20);
  EXPECT_EQ(parallax_buffer_alloc(one.job, 1 << 21, &options, &buffer), PARALLAX_LIMIT);
  EXPECT_TRUE(told("device 1 has no memory for 2097152 bytes"));
  ASSERT_EQ(parallax_buffer_alloc(one.job, 64, &options, &buffer), PARALLAX_OK);  // left to close
}

TEST_F(ModuleSlices, TheReportSaysWhatWasFound) {
  One one;
  const Current current(0);
  const DeviceNumbers<float> values({1, 2, 3, 4});
  ASSERT_EQ(one.reduce(held(values.address())), PARALLAX_OK) << parallax_last_error();
  ASSERT_EQ(one.wait(), PARALLAX_OK);
  size_t bytes = 0;
  EXPECT_EQ(parallax_report(one.job, PARALLAX_REPORT_TOPOLOGY, nullptr, &bytes), PARALLAX_LIMIT);
  std::string report(bytes, 0);
  ASSERT_EQ(parallax_report(one.job, PARALLAX_REPORT_TOPOLOGY, report.data(), &bytes), PARALLAX_OK);
  for (const char* words : {"\"driver\":\"CUDA driver 13.0\"", "libparallax_cuda.so", "NCCL 2."}) {
    EXPECT_NE(report.find(words), std::string::npos) << words << " in " << report;
  }
}

}  // namespace
}  // namespace parallax
