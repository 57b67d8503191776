// SPDX-License-Identifier: Apache-2.0
// parallax_stream_wait: a stream of the caller's waits for results in the place of its thread. What
// is put on the stream behind the call reads them, while what they come of is held: a wait that is
// missing is seen as numbers of before.
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "cuda/module_job.h"
#include "cuda/module_ranks.h"
#include "support/environment_variable.h"

namespace cuda_double_test::stream_wait {
namespace {

parallax_status_t wait_on(parallax_request_t* request, CUstream stream, uint32_t device,
                          int64_t timeout_ms = PARALLAX_WAIT_DEFAULT) {
  return parallax_stream_wait(&request, 1, device, stream, timeout_ms);
}
parallax_status_t wait_on(parallax_request_t* request, const Stream& stream, uint32_t device = 0,
                          int64_t timeout_ms = PARALLAX_WAIT_DEFAULT) {
  return wait_on(request, stream.get(), device, timeout_ms);
}

bool told(const std::string& words) {
  return std::string(parallax_last_error()).find(words) != std::string::npos;
}

void settle(const Stream& stream) {
  while (cuStreamQuery(stream.get()) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
}

// Whether the stream stands still: for so long that one that waits for nothing would be through.
bool stands_still(const Stream& stream) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return cuStreamQuery(stream.get()) == CUDA_ERROR_NOT_READY;
}

// ---- sums that devices make among themselves

class StreamWaitNccl : public NcclJobs {
 protected:
  // Rank 1 gives its gradient late: its stream is held until rank 0 has put a reader of the result
  // behind its wait. Steps go on by streams alone; the host waits at their ends.
  static void run_with_a_late_rank(uint64_t steps,
                                   const std::function<void(parallax_options_t*)>& adjust = {}) {
    std::atomic<uint64_t> released{0};
    run(
        2, [](DeviceRank& own) { own.add("w"); },
        [&](DeviceRank& own) {
          const Stream stream, reader;
          const std::vector<float> zeros(kCount);
          const DeviceNumbers<float> source(zeros), values(zeros), into(zeros), seen(zeros);
          for (uint64_t t = 1; t <= steps; ++t) {
            source.host()[0] = static_cast<float>(10 * t + own.rank);
            if (own.rank == 1) cuda_double_hold(stream.get(), 1);
            enqueue_copy(values, source, stream.get());
            const uint64_t step = own.begin();
            parallax_slice_t slice = own.slice(0, values.address(), stream.get());
            slice.into = into.address();
            parallax_request_t* request = own.reduce(step, slice);
            EXPECT_EQ(wait_on(request, reader, own.rank), PARALLAX_OK) << parallax_last_error();
            enqueue_copy(seen, into, reader.get());
            if (own.rank == 0) {
              EXPECT_EQ(parallax_request_test(request), PARALLAX_PENDING) << "no thread waited";
              EXPECT_TRUE(stands_still(reader)) << "the reader waits for the sum";
              released = t;
            }
            while (released < t) std::this_thread::yield();
            if (own.rank == 1) cuda_double_hold(stream.get(), 0);
            DeviceRank::finish({request, own.end(step)});
            settle(reader);
            EXPECT_EQ(seen.host()[0], static_cast<float>(20 * t + 1)) << "rank " << own.rank;
          }
        },
        adjust);
  }
};

TEST_F(StreamWaitNccl, WorkBehindItReadsTheSumThatNoThreadWaitedFor) { run_with_a_late_rank(3); }

// What is in progress is not on the stream of reductions yet, whose end no stream can wait for.
TEST_F(StreamWaitNccl, ALaunchInProgressIsSettledFirst) {
  nccl_double_set_launch_in_progress(3);
  run_with_a_late_rank(2);
}

TEST_F(StreamWaitNccl, SumsInOrderAreWaitedForToTheirKernels) {
  run_with_a_late_rank(2, [](parallax_options_t* options) { options->deterministic = 1; });
}

// Given a variable whose launch has to wait for one that this rank has not given, expect a timeout
// that names it, a stream that waits for nothing, and the order once it is given.
TEST_F(StreamWaitNccl, ALaunchThatIsNotDueTimesOutAndMayBeAskedForAgain) {
  run(
      1,
      [](DeviceRank& own) {
        own.add("w");
        own.add("v");
      },
      [](DeviceRank& own) {
        const Stream stream, reader;
        const DeviceNumbers<float> w(std::vector<float>(kCount, 1)),
            v(std::vector<float>(kCount, 2)), into(std::vector<float>(kCount, 0)),
            seen(std::vector<float>(kCount, 0));
        const uint64_t step = own.begin();
        parallax_slice_t slice = own.slice(1, v.address());
        slice.into = into.address();
        parallax_request_t* second = own.reduce(step, slice);
        EXPECT_EQ(wait_on(second, reader, 0, 20), PARALLAX_TIMEOUT);
        EXPECT_TRUE(told("stream_wait: after 20 ms")) << parallax_last_error();
        EXPECT_TRUE(told("not launched before variable 'w'")) << parallax_last_error();
        EXPECT_EQ(cuStreamQuery(reader.get()), CUDA_SUCCESS);
        cuda_double_hold(stream.get(), 1);
        EXPECT_EQ(cuMemsetD8Async(w.pointer(), 0, 4, stream.get()), CUDA_SUCCESS);
        // Asked for by another thread, while the call that it waits for is made.
        std::thread waiter(
            [&] { EXPECT_EQ(wait_on(second, reader), PARALLAX_OK) << parallax_last_error(); });
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        parallax_request_t* first = own.reduce(step, own.slice(0, w.address(), stream.get()));
        waiter.join();
        EXPECT_EQ(parallax_request_test(second), PARALLAX_PENDING);
        enqueue_copy(seen, into, reader.get());
        EXPECT_TRUE(stands_still(reader));
        cuda_double_hold(stream.get(), 0);
        DeviceRank::finish({first, second, own.end(step)});
        settle(reader);
        EXPECT_EQ(seen.host()[kCount - 1], 2.f);
      });
}

// Given a rank that aborts while a stream waits for its sum, expect the stream to go on once the
// reduction is given up, and the request to say what became of it.
TEST_F(StreamWaitNccl, AFailureLetsTheStreamGoOnAndIsTheRequests) {
  std::atomic<bool> waits{false};
  run(
      2, [](DeviceRank& own) { own.add("w"); },
      [&](DeviceRank& own) {
        const DeviceNumbers<float> values(std::vector<float>(kCount, 1)),
            seen(std::vector<float>(kCount, 0));
        const uint64_t first = own.begin();
        DeviceRank::finish({own.reduce(first, own.slice(0, values.address())), own.end(first)});
        if (own.rank == 1) {
          while (!waits) std::this_thread::yield();
          EXPECT_EQ(parallax_abort(own.job, "enough"), PARALLAX_OK);
          return;
        }
        const Stream reader;
        parallax_request_t* request = own.reduce(own.begin(), own.slice(0, values.address()));
        EXPECT_EQ(wait_on(request, reader), PARALLAX_OK) << parallax_last_error();
        enqueue_copy(seen, values, reader.get());
        EXPECT_TRUE(stands_still(reader));
        waits = true;
        EXPECT_EQ(DeviceRank::wait(request), PARALLAX_ABORTED);
        settle(reader);
        // A request that has failed is told, whichever stream asks.
        EXPECT_EQ(wait_on(request, reader), PARALLAX_ABORTED);
        EXPECT_TRUE(told("enough")) << parallax_last_error();
        check(parallax_request_release(request));
      },
      {}, false);
}

// Given hosts that sum by messages, expect a stream to wait for the leg that brings the total,
// whose copies stand still here, and not for the one before it.
TEST_F(StreamWaitNccl, OfTwoLegsTheSecondIsWaitedFor) {
  const parallax::testkit::EnvironmentVariable by_host("PARALLAX_NCCL", "host");
  std::atomic<uint32_t> stood{0};
  cuda_double_hold_operation("cuMemcpyHtoDAsync");
  run(
      4, [](DeviceRank& own) { own.add("w"); },
      [&](DeviceRank& own) {
        const Stream reader;
        const DeviceNumbers<float> values(std::vector<float>(kCount, 1)),
            seen(std::vector<float>(kCount, 0));
        const uint64_t step = own.begin();
        parallax_request_t* request = own.reduce(step, own.slice(0, values.address()));
        EXPECT_EQ(wait_on(request, reader, own.rank), PARALLAX_OK) << parallax_last_error();
        enqueue_copy(seen, values, reader.get());
        EXPECT_TRUE(stands_still(reader));
        if (++stood == 4) cuda_double_hold_operation(nullptr);
        DeviceRank::finish({request, own.end(step)});
        settle(reader);
        EXPECT_EQ(seen.values(), std::vector<float>(kCount, 4));
      },
      [](parallax_options_t* options) { options->host = options->rank < 2 ? "alpha" : "beta"; });
}

// A stream may be another device's than the slices'.
TEST_F(StreamWaitNccl, AStreamOfAnotherDeviceMayWait) {
  run(
      1, [](DeviceRank& own) { own.add("w"); },
      [](DeviceRank& own) {
        const Stream stream;
        const DeviceNumbers<float> values(std::vector<float>(kCount, 4));
        const Current second(1);
        const Stream reader;
        cuda_double_hold(stream.get(), 1);
        parallax_request_t* request = nullptr;
        const uint64_t step = own.begin();
        {
          const Current first(0);
          EXPECT_EQ(cuMemsetD8Async(values.pointer(), 0, 4, stream.get()), CUDA_SUCCESS);
          request = own.reduce(step, own.slice(0, values.address(), stream.get()));
        }
        EXPECT_EQ(wait_on(request, reader, 0), PARALLAX_UNSUPPORTED) << "it is device 1's";
        EXPECT_TRUE(told("not of the primary context of device 0")) << parallax_last_error();
        EXPECT_EQ(wait_on(request, reader, 1), PARALLAX_OK) << parallax_last_error();
        EXPECT_EQ(cuStreamQuery(reader.get()), CUDA_ERROR_NOT_READY);
        cuda_double_hold(stream.get(), 0);
        DeviceRank::finish({request, own.end(step)});
        settle(reader);
        EXPECT_EQ(values.host()[0], 0.f);
      });
}

const std::array<CUstream, 3> kDefaults = {nullptr, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};

// Asks both devices' stream of this name, which the current context tells apart.
void expect_only_second_waits(CUstream stream) {
  for (const int device : {0, 1}) {
    const Current current(device);
    EXPECT_EQ(cuStreamQuery(stream), device == 1 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS)
        << "device " << device;
  }
}

// A default stream is that of the device that is named.
TEST_F(StreamWaitNccl, ADefaultStreamOfAnotherDeviceMayWait) {
  run(
      1, [](DeviceRank& own) { own.add("w"); },
      [](DeviceRank& own) {
        const Stream stream;
        const DeviceNumbers<float> values(std::vector<float>(kCount, 4));
        for (const CUstream reader : kDefaults) {
          SCOPED_TRACE(reader);
          cuda_double_hold(stream.get(), 1);
          EXPECT_EQ(cuMemsetD8Async(values.pointer(), 0, 4, stream.get()), CUDA_SUCCESS);
          const uint64_t step = own.begin();
          parallax_request_t* request =
              own.reduce(step, own.slice(0, values.address(), stream.get()));
          EXPECT_EQ(wait_on(request, reader, 1), PARALLAX_OK) << parallax_last_error();
          expect_only_second_waits(reader);
          cuda_double_hold(stream.get(), 0);
          DeviceRank::finish({request, own.end(step)});
        }
      });
}

// ---- results that come by host memory

using parallax::module_test::held;
using parallax::module_test::ModuleTest;
using parallax::module_test::One;

class StreamWaitByHost : public ModuleTest {
 protected:
  void TearDown() override {
    cuda_double_hold_operation(nullptr);
    ModuleTest::TearDown();
  }
};

// Given copies to the device that do not move, expect the call to return once they have begun, and
// what is behind it on the stream to come after them.
TEST_F(StreamWaitByHost, AggregatesAndPulledRowsAreWaitedForByTheStream) {
  One one;
  const Current current(0);
  const Stream stream, reader;
  const DeviceNumbers<float> values({1, 2, 3, 4}), into({0, 0, 0, 0}), pulled({0, 0, 0, 0}),
      seen({0, 0, 0, 0}), seen_rows({0, 0, 0, 0});
  const DeviceNumbers<int64_t> ids({5, 0});
  cuda_double_hold_operation("cuMemcpyHtoDAsync");
  parallax_slice_t slice = held(values.address(), stream.get());
  slice.into = into.address();
  ASSERT_EQ(one.reduce(slice), PARALLAX_OK);
  parallax_slice_t rows = held(pulled.address(), stream.get());
  rows.variable = 1;
  rows.form = PARALLAX_FORM_ROWS;
  rows.ids = static_cast<const int64_t*>(ids.address());
  rows.row_count = 2;
  one.requests.push_back(nullptr);
  ASSERT_EQ(parallax_pull(one.job, 1, &rows, 1, &one.requests[1]), PARALLAX_OK);
  EXPECT_EQ(parallax_stream_wait(one.requests.data(), 2, 0, reader.get(), 5000), PARALLAX_OK)
      << parallax_last_error();
  for (parallax_request_t* each : one.requests) {
    EXPECT_EQ(parallax_request_test(each), PARALLAX_PENDING) << "no thread waited";
  }
  for (const auto& [to, from] : {std::pair(&seen, &into), std::pair(&seen_rows, &pulled)}) {
    EXPECT_EQ(cuMemcpyDtoDAsync(to->pointer(), from->pointer(), 16, reader.get()), CUDA_SUCCESS);
  }
  EXPECT_TRUE(stands_still(reader));
  cuda_double_hold_operation(nullptr);
  settle(reader);
  EXPECT_EQ(seen.values(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(seen_rows.values(), (std::vector<float>{10, 10, 10, 10}));
  EXPECT_EQ(parallax_wait(one.requests.data(), 2, 5000), PARALLAX_OK) << parallax_last_error();
}

TEST_F(StreamWaitByHost, ADefaultStreamOfAnotherDeviceMayWait) {
  for (const CUstream reader : kDefaults) {
    SCOPED_TRACE(reader);
    One one;
    const Current current(0);
    const Stream stream;
    const DeviceNumbers<float> values({1, 2, 3, 4});
    cuda_double_hold_operation("cuMemcpyHtoDAsync");
    ASSERT_EQ(one.reduce(held(values.address(), stream.get())), PARALLAX_OK);
    EXPECT_EQ(wait_on(one.requests[0], reader, 1), PARALLAX_OK) << parallax_last_error();
    expect_only_second_waits(reader);
    cuda_double_hold_operation(nullptr);
    EXPECT_EQ(one.wait(), PARALLAX_OK) << parallax_last_error();
  }
}

// Given a gradient that is not here yet, expect no order, since the copies of its aggregate have
// not begun; the request is then waited for as ever, and not taken for complete by the question.
TEST_F(StreamWaitByHost, WhatIsNotHereYetTimesOut) {
  One one;
  const Current current(0);
  const Stream stream, reader;
  const DeviceNumbers<float> values({1, 2, 3, 4}), other({0});
  cuda_double_hold(stream.get(), 1);
  EXPECT_EQ(cuMemsetD8Async(other.pointer(), 0, 4, stream.get()), CUDA_SUCCESS);
  ASSERT_EQ(one.reduce(held(values.address(), stream.get())), PARALLAX_OK);
  EXPECT_EQ(wait_on(one.requests[0], reader, 0, 20), PARALLAX_TIMEOUT);
  EXPECT_TRUE(told("the work that was on its stream before the call")) << parallax_last_error();
  EXPECT_EQ(cuStreamQuery(reader.get()), CUDA_SUCCESS) << "it waits for nothing";
  EXPECT_EQ(one.wait(20), PARALLAX_TIMEOUT);
  // Its copies begin, and an order could be had, which nobody asks for any more.
  cuda_double_hold_operation("cuMemcpyHtoDAsync");
  cuda_double_hold(stream.get(), 0);
  EXPECT_EQ(one.wait(50), PARALLAX_TIMEOUT);
  cuda_double_hold_operation(nullptr);
  EXPECT_EQ(one.wait(), PARALLAX_OK) << parallax_last_error();
  EXPECT_EQ(wait_on(one.requests[0], reader), PARALLAX_OK) << "it is complete: nothing to wait for";
  EXPECT_EQ(cuStreamQuery(reader.get()), CUDA_SUCCESS);
}

TEST_F(StreamWaitByHost, StreamsThatCannotWaitAreRefusedByName) {
  One one;
  const Current current(0);
  const Stream stream, reader;
  const DeviceNumbers<float> values({1, 2, 3, 4}), other({0});
  cuda_double_hold(stream.get(), 1);
  EXPECT_EQ(cuMemsetD8Async(other.pointer(), 0, 4, stream.get()), CUDA_SUCCESS);
  ASSERT_EQ(one.reduce(held(values.address(), stream.get())), PARALLAX_OK);
  cuda_double_set_capture(reader.get(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(wait_on(one.requests[0], reader), PARALLAX_UNSUPPORTED);
  EXPECT_TRUE(told("stream_wait: its stream is being captured")) << parallax_last_error();
  cuda_double_set_capture(reader.get(), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(wait_on(one.requests[0], reader, 7), PARALLAX_UNSUPPORTED);
  EXPECT_TRUE(told("device is 7, and the CUDA driver shows 2")) << parallax_last_error();
  cuda_double_fail("cuStreamIsCapturing", 1, CUDA_ERROR_UNKNOWN, 0);
  EXPECT_EQ(wait_on(one.requests[0], reader), PARALLAX_IO);
  EXPECT_TRUE(told("CUDA_ERROR_UNKNOWN")) << parallax_last_error();
  cuda_double_hold(stream.get(), 0);
  EXPECT_EQ(one.wait(), PARALLAX_OK) << parallax_last_error();
}

// The driver refuses the wait itself: IO, and the request goes on as if nobody had asked.
TEST_F(StreamWaitByHost, AWaitThatTheDriverRefusesIsIo) {
  One one;
  const Current current(0);
  const Stream reader;
  const DeviceNumbers<float> values({1, 2, 3, 4});
  cuda_double_hold_operation("cuMemcpyHtoDAsync");
  ASSERT_EQ(one.reduce(held(values.address())), PARALLAX_OK);
  EXPECT_EQ(wait_on(one.requests[0], reader), PARALLAX_OK) << "its copies have begun";
  cuda_double_fail("cuStreamWaitEvent", 1, CUDA_ERROR_UNKNOWN, 0);
  EXPECT_EQ(wait_on(one.requests[0], reader), PARALLAX_IO);
  EXPECT_TRUE(told("cuStreamWaitEvent")) << parallax_last_error();
  EXPECT_EQ(one.wait(20), PARALLAX_TIMEOUT);
  cuda_double_hold_operation(nullptr);
  EXPECT_EQ(one.wait(), PARALLAX_OK) << parallax_last_error();
}

}  // namespace
}  // namespace cuda_double_test::stream_wait
