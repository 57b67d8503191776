// SPDX-License-Identifier: Apache-2.0
// The double of libcuda.so.1: what streams execute, in which order, and what they find wrong.
#include <atomic>

#include "cuda/double_fixture.h"

namespace cuda_double_test {

class StreamsDouble : public DoubleTest {
 protected:
  ~StreamsDouble() override { EXPECT_EQ(cuda_double_drain(20000), 1); }
  static CUevent event_of(CUstream stream) {
    CUevent event = nullptr;
    EXPECT_EQ(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(event, stream), CUDA_SUCCESS);
    return event;
  }
  static void drain() { ASSERT_EQ(cuda_double_drain(20000), 1); }

 private:
  const Current current_{0};
};

TEST_F(StreamsDouble, CopiesAreMadeWhenTheirTurnComes) {
  const Stream stream;
  const DeviceNumbers<int> from({1, 2}), to({0, 0});
  cuda_double_hold(stream.get(), 1);
  ASSERT_EQ(cuMemcpyDtoDAsync(to.pointer(), from.pointer(), 8, stream.get()), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream.get()), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(to.values(), (std::vector<int>{0, 0}));
  cuda_double_hold(stream.get(), 0);
  drain();
  EXPECT_EQ(cuStreamQuery(stream.get()), CUDA_SUCCESS);
  EXPECT_EQ(to.values(), (std::vector<int>{1, 2}));
}

// What a wait that is missing looks like: the second stream reads what the first has not written.
TEST_F(StreamsDouble, AWaitThatIsMissingIsSeenAsWrongData) {
  for (const bool waits : {false, true}) {
    const Stream writer, reader;
    const DeviceNumbers<int> source({7}), middle({0}), target({0});
    cuda_double_hold(writer.get(), 1);
    ASSERT_EQ(cuMemcpyDtoDAsync(middle.pointer(), source.pointer(), 4, writer.get()), CUDA_SUCCESS);
    const CUevent event = event_of(writer.get());
    if (waits) {
      EXPECT_EQ(cuStreamWaitEvent(reader.get(), event, 0), CUDA_SUCCESS);
    }
    ASSERT_EQ(cuMemcpyDtoDAsync(target.pointer(), middle.pointer(), 4, reader.get()), CUDA_SUCCESS);
    if (!waits) {
      while (cuStreamQuery(reader.get()) == CUDA_ERROR_NOT_READY) {
      }
    }
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);  // who waits, waits on
    cuda_double_hold(writer.get(), 0);
    drain();
    EXPECT_EQ(target.values()[0], waits ? 7 : 0);
  }
}

TEST_F(StreamsDouble, AnEventIsThePlaceWhereItWasRecordedLast) {
  const Stream stream;
  const CUevent event = event_of(stream.get());
  drain();
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
  cuda_double_hold(stream.get(), 1);
  ASSERT_EQ(cuEventRecord(event, stream.get()), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  cuda_double_hold(stream.get(), 0);
  drain();
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
  CUevent fresh = nullptr;
  ASSERT_EQ(cuEventCreate(&fresh, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(fresh), CUDA_SUCCESS);  // never recorded
  EXPECT_EQ(cuEventDestroy(fresh), CUDA_SUCCESS);
}

// The default stream waits for blocking streams and they for it; for the others neither does.
TEST_F(StreamsDouble, TheDefaultStreamOrdersBlockingStreams) {
  for (const unsigned flags : {CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING}) {
    const bool ordered = flags == CU_STREAM_DEFAULT;
    const Stream stream(flags);
    const DeviceNumbers<int> source({7}), middle({0}), target({0});
    cuda_double_hold(stream.get(), 1);
    ASSERT_EQ(cuMemcpyDtoDAsync(middle.pointer(), source.pointer(), 4, stream.get()), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoDAsync(target.pointer(), middle.pointer(), 4, nullptr), CUDA_SUCCESS);
    if (!ordered) {
      while (cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY) {
      }
    }
    // Long enough for whoever does not wait; who waits is as far as before however long it is.
    EXPECT_EQ(cuda_double_drain(30), 0);
    EXPECT_EQ(cuStreamQuery(nullptr), ordered ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
    cuda_double_hold(stream.get(), 0);
    drain();
    EXPECT_EQ(target.values()[0], ordered ? 7 : 0);

    cuda_double_hold(nullptr, 1);
    ASSERT_EQ(cuMemsetD8Async(middle.pointer(), 1, 4, CU_STREAM_LEGACY), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoDAsync(target.pointer(), middle.pointer(), 4, stream.get()), CUDA_SUCCESS);
    if (!ordered) {
      while (cuStreamQuery(stream.get()) == CUDA_ERROR_NOT_READY) {
      }
    }
    EXPECT_EQ(cuda_double_drain(30), 0);
    EXPECT_EQ(cuStreamQuery(stream.get()), ordered ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
    cuda_double_hold(nullptr, 0);
    drain();
    EXPECT_EQ(target.values()[0], ordered ? 0x01010101 : 7);
  }
}

TEST_F(StreamsDouble, PausesAreDrawnFromASeedAndChangeNoOrder) {
  cuda_double_set_delay(3, 300);
  const Stream one, two;
  const DeviceNumbers<int> numbers({0, 0});
  for (int round = 0; round < 20; ++round) {
    const unsigned char value = static_cast<unsigned char>(round + 1);
    ASSERT_EQ(cuMemsetD8Async(numbers.pointer(), value, 4, one.get()), CUDA_SUCCESS);
    const CUevent written = event_of(one.get());
    ASSERT_EQ(cuStreamWaitEvent(two.get(), written, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoDAsync(numbers.pointer() + 4, numbers.pointer(), 4, two.get()),
              CUDA_SUCCESS);
    const CUevent read = event_of(two.get());
    ASSERT_EQ(cuStreamWaitEvent(one.get(), read, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(written), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(read), CUDA_SUCCESS);
  }
  drain();
  EXPECT_EQ(numbers.values(), (std::vector<int>{0x14141414, 0x14141414}));
}

TEST_F(StreamsDouble, PageableMemoryIsStagedOnTheWayInAndWaitedForOnTheWayOut) {
  const Stream stream;
  const DeviceNumbers<int> numbers({0});
  const uint64_t before = cuda_double_pageable_copies();
  int value = 5;
  cuda_double_hold(stream.get(), 1);
  ASSERT_EQ(cuMemcpyHtoDAsync(numbers.pointer(), &value, 4, stream.get()), CUDA_SUCCESS);
  value = 6;  // too late
  cuda_double_hold(stream.get(), 0);
  int back = 0;
  ASSERT_EQ(cuMemcpyDtoHAsync(&back, numbers.pointer(), 4, stream.get()), CUDA_SUCCESS);
  EXPECT_EQ(back, 5);
  EXPECT_EQ(cuda_double_pageable_copies(), before + 2);
}

TEST_F(StreamsDouble, PinnedMemoryIsReadWhenTheTurnComes) {
  const Stream stream;
  const DeviceNumbers<int> numbers({0});
  void* pinned = nullptr;
  ASSERT_EQ(cuMemHostAlloc(&pinned, 4, 0), CUDA_SUCCESS);
  const uint64_t before = cuda_double_pageable_copies();
  cuda_double_hold(stream.get(), 1);
  *static_cast<int*>(pinned) = 5;
  ASSERT_EQ(cuMemcpyHtoDAsync(numbers.pointer(), pinned, 4, stream.get()), CUDA_SUCCESS);
  *static_cast<int*>(pinned) = 6;
  cuda_double_hold(stream.get(), 0);
  drain();
  EXPECT_EQ(numbers.values()[0], 6);
  EXPECT_EQ(cuda_double_pageable_copies(), before);
  EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
}

TEST_F(StreamsDouble, MemoryInUseIsNotGivenBack) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        cuda_double_hold_all(1);
        CUdeviceptr pointer = 0;
        cuMemAlloc(&pointer, 8);
        cuMemsetD8Async(pointer, 0, 8, nullptr);
        cuMemFree(pointer);
      },
      "device memory is given back while 1 operations that use it are queued or under way");
  EXPECT_DEATH(
      {
        cuda_double_hold_all(1);
        const DeviceNumbers<int> numbers({1});
        static int value = 0;
        cuMemHostRegister(&value, 4, 0);
        cuMemcpyDtoHAsync(&value, numbers.pointer(), 4, nullptr);
        cuMemHostUnregister(&value);
      },
      "registered memory is given back while");
  EXPECT_DEATH(
      {
        CUdeviceptr pointer = 0;
        cuMemAlloc(&pointer, 8);
        cuda_double_count_registration(pointer, 1);
        cuMemFree(pointer);
      },
      "device memory is given back while 1 communicators have it registered");
}

TEST_F(StreamsDouble, WhatWasDestroyedIsNotUsedAgain) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        CUevent event = nullptr;
        cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
        cuEventDestroy(event);
        cuEventQuery(event);
      },
      "an event is used after its end");
  EXPECT_DEATH(
      {
        CUstream stream = nullptr;
        cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
        cuStreamDestroy(stream);
        cuStreamQuery(stream);
      },
      "stream [0-9]+ is used after its end");
}

// To wait for an event that was never recorded is legal and orders nothing: the log says it.
TEST_F(StreamsDouble, AnEventThatWasNeverRecordedIsTold) {
  const Stream stream;
  CUevent event = nullptr;
  ASSERT_EQ(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(stream.get(), event, 0), CUDA_SUCCESS);
  EXPECT_TRUE(log_has("cuStreamWaitEvent: the event was never recorded")) << log();
  EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(StreamsDouble, AContextIsNotReleasedUnderItsOperations) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        const Current other(1);
        const DeviceNumbers<int> numbers({1});
        cuda_double_hold_all(1);
        cuMemsetD8Async(numbers.pointer(), 0, 4, nullptr);
        cuDevicePrimaryCtxRelease(1);
      },
      "the context of device 1 is released while stream [0-9]+ has operations");
}

TEST_F(StreamsDouble, HostFunctionsRunInTheirTurnAndMayCallNothing) {
  const Stream stream;
  static std::atomic<int> answer;
  answer = -1;
  cuda_double_hold(stream.get(), 1);
  ASSERT_EQ(cuLaunchHostFunc(
                stream.get(),
                [](void* event) { answer = cuEventQuery(static_cast<CUevent>(event)); }, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(answer, -1);
  cuda_double_hold(stream.get(), 0);
  drain();
  EXPECT_EQ(answer, int{CUDA_ERROR_NOT_PERMITTED});
  EXPECT_TRUE(log_has("cuEventQuery was called by a host function"));
}

TEST_F(StreamsDouble, AFailedOperationEndsItsContext) {
  {
    const Stream stream;
    const DeviceNumbers<int> numbers({1});
    static std::atomic<int> called;
    called = 0;
    cuda_double_fail("operation", 2, CUDA_ERROR_ECC_UNCORRECTABLE, 0);
    cuda_double_hold(stream.get(), 1);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(
          cuMemsetD8Async(numbers.pointer(), static_cast<unsigned char>(i + 2), 4, stream.get()),
          CUDA_SUCCESS);
    }
    ASSERT_EQ(cuLaunchHostFunc(
                  stream.get(), [](void*) { ++called; }, nullptr),
              CUDA_SUCCESS);
    cuda_double_hold(stream.get(), 0);
    drain();
    EXPECT_EQ(cuStreamQuery(stream.get()), CUDA_ERROR_ECC_UNCORRECTABLE);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuMemAlloc(&pointer, 1), CUDA_ERROR_ECC_UNCORRECTABLE);
    EXPECT_EQ(called, 0);
    EXPECT_EQ(numbers.values()[0], 0x02020202);  // the first was executed, the second not
    cuda_double_poison(0, CUDA_SUCCESS);
  }
}

TEST_F(StreamsDouble, StreamsThatCaptureTakeNothing) {
  const Stream stream;
  const DeviceNumbers<int> numbers({1});
  cuda_double_set_capture(stream.get(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(cuStreamIsCapturing(stream.get(), &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(cuMemsetD8Async(numbers.pointer(), 1, 4, stream.get()),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  cuda_double_set_capture(stream.get(), CU_STREAM_CAPTURE_STATUS_NONE);
}

// Whatever stream it is about: CUDA spoils a capture for a call that could, unless the thread says
// that it knows.
TEST_F(StreamsDouble, SomeCallsSpoilTheCaptureOfAnotherStream) {
  const Stream captured, other;
  const CUevent event = event_of(other.get());
  drain();
  cuda_double_set_capture(captured.get(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(cuStreamIsCapturing(captured.get(), &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(StreamsDouble, WhatBelongsToAnotherDeviceIsRefusedWhereCudaRefusesIt) {
  const Stream here;
  const Current other(1);
  const Stream there;
  const CUevent event = event_of(there.get());
  EXPECT_EQ(cuEventRecord(event, here.get()), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamWaitEvent(here.get(), event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
  CUcontext of_stream = nullptr, current = nullptr;
  EXPECT_EQ(cuStreamGetCtx(here.get(), &of_stream), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_NE(of_stream, current);
  EXPECT_EQ(cuStreamDestroy(nullptr), CUDA_ERROR_INVALID_HANDLE);
  drain();
  EXPECT_EQ(cuStreamQuery(reinterpret_cast<CUstream>(&current)), CUDA_ERROR_INVALID_HANDLE);
}

void double_all(const cuda_double_launch* launch, void** parameters) {
  int* const numbers = *static_cast<int**>(parameters[0]);
  const int count = *static_cast<int*>(parameters[1]);
  for (unsigned block = 0; block < launch->grid[0]; ++block) {
    const int i = static_cast<int>(block);
    if (i < count) numbers[i] *= 2;
  }
}

class KernelsDouble : public StreamsDouble {
 protected:
  KernelsDouble() {
    const size_t parameters[] = {0, sizeof(int)};
    cuda_double_add_kernel("double_all", double_all, parameters, 2);
    const uint32_t image[] = {0xba55ed50, 0};
    EXPECT_EQ(cuModuleLoadData(&module_, image), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleGetFunction(&kernel_, module_, "double_all"), CUDA_SUCCESS);
  }
  ~KernelsDouble() override { EXPECT_EQ(cuModuleUnload(module_), CUDA_SUCCESS); }
  CUresult launch(CUdeviceptr pointer, int count, unsigned blocks, CUstream stream) {
    void* parameters[] = {&pointer, &count};
    return cuLaunchKernel(kernel_, blocks, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
  }

  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
};

TEST_F(KernelsDouble, RunOnTheirStreamWithWhatTheyWereGiven) {
  const Stream stream;
  const DeviceNumbers<int> numbers({1, 2, 3});
  cuda_double_hold(stream.get(), 1);
  ASSERT_EQ(launch(numbers.pointer(), 2, 3, stream.get()), CUDA_SUCCESS);
  EXPECT_EQ(numbers.values(), (std::vector<int>{1, 2, 3}));
  cuda_double_hold(stream.get(), 0);
  drain();
  EXPECT_EQ(numbers.values(), (std::vector<int>{2, 4, 3}));
}

TEST_F(KernelsDouble, ShapesAndNamesAreChecked) {
  const DeviceNumbers<int> numbers({1});
  EXPECT_EQ(launch(numbers.pointer(), 1, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  CUfunction none = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&none, module_, "no_such"), CUDA_ERROR_NOT_FOUND);
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, "abcdefgh"), CUDA_ERROR_INVALID_IMAGE);
  const Current other(1);
  EXPECT_EQ(launch(numbers.pointer(), 1, 1, nullptr), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(KernelsDouble, APointerThatTheDeviceCannotReachEndsTheContext) {
  std::vector<int> on_host(1);
  ASSERT_EQ(launch(reinterpret_cast<CUdeviceptr>(on_host.data()), 1, 1, nullptr), CUDA_SUCCESS);
  drain();
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(log_has("double_all: a pointer that device 0 cannot reach"));
  cuda_double_poison(0, CUDA_SUCCESS);
}

}  // namespace cuda_double_test
