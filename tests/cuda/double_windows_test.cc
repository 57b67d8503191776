// SPDX-License-Identifier: Apache-2.0
// The double of libnccl.so.2: memory that ranks register together, and what NCCL wants of it.
#include <nccl.h>

#include <atomic>
#include <thread>

#include "cuda/double_ranks.h"

namespace cuda_double_test {

// `count` integers of NCCL's own allocation.
class SharedNumbers {
 public:
  explicit SharedNumbers(size_t count, int value = 0) : count_(count) {
    EXPECT_EQ(ncclMemAlloc(&memory_, count * sizeof(int)), ncclSuccess);
    for (size_t i = 0; i < count; ++i) host()[i] = value;
  }
  ~SharedNumbers() { EXPECT_EQ(ncclMemFree(memory_), ncclSuccess); }
  SharedNumbers(const SharedNumbers&) = delete;
  SharedNumbers& operator=(const SharedNumbers&) = delete;

  int* at(size_t index) const { return static_cast<int*>(memory_) + index; }
  size_t bytes() const { return count_ * sizeof(int); }
  int* host() const {
    const auto pointer = reinterpret_cast<CUdeviceptr>(memory_);
    return static_cast<int*>(cuda_double_alias(pointer, bytes(), -1));
  }

 private:
  void* memory_ = nullptr;
  size_t count_;
};

class NcclDoubleWindows : public NcclDouble {
 protected:
  static ncclWindow_t window_of(const Rank& own, const SharedNumbers& numbers) {
    ncclWindow_t window = nullptr;
    EXPECT_EQ(ncclCommWindowRegister(own.communicator, numbers.at(0), numbers.bytes(), &window,
                                     NCCL_WIN_COLL_SYMMETRIC),
              ncclSuccess);
    return window;
  }
  // Of a sum in place that the ranks do not ask for alike.
  static void expect_failed(Rank& own, void* at) {
    ASSERT_EQ(ncclAllReduce(at, at, 1, ncclInt, ncclSum, own.communicator, own.stream),
              ncclSuccess);
    ncclResult_t error = ncclSuccess;
    while (error == ncclSuccess) {
      ASSERT_EQ(ncclCommGetAsyncError(own.communicator, &error), ncclSuccess);
    }
    EXPECT_EQ(error, ncclInvalidUsage);
    ASSERT_EQ(ncclCommAbort(own.communicator), ncclSuccess);
    own.wait();
  }
};

TEST_F(NcclDoubleWindows, WhatLiesInThemIsSymmetric) {
  const uint64_t before = nccl_double_symmetric();
  with_ranks(3, [](Rank& own) {
    const SharedNumbers numbers(9, own.rank + 1);
    const DeviceNumbers<int> elsewhere({1, 2, 3});
    const ncclWindow_t window = window_of(own, numbers);
    ASSERT_NE(window, nullptr);
    // In place, and from other memory, which makes it one as any.
    ASSERT_EQ(ncclAllGather(numbers.at(static_cast<size_t>(own.rank)), numbers.at(0), 1, ncclInt,
                            own.communicator, own.stream),
              ncclSuccess);
    ASSERT_EQ(ncclAllReduce(elsewhere.address(), numbers.at(6), 3, ncclInt, ncclSum,
                            own.communicator, own.stream),
              ncclSuccess);
    own.wait();
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(numbers.host()[i], i + 1);
      EXPECT_EQ(numbers.host()[6 + i], 3 * (i + 1));
    }
    EXPECT_EQ(ncclCommWindowDeregister(own.communicator, window), ncclSuccess);
    EXPECT_EQ(ncclCommWindowDeregister(own.communicator, window), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowDeregister(own.communicator, nullptr), ncclSuccess);
  });
  EXPECT_EQ(nccl_double_symmetric() - before, 3u);
}

// As NCCL would read the wrong memory, or wait for a rank that goes another way.
TEST_F(NcclDoubleWindows, PlacesThatDifferAreTold) {
  with_ranks(
      2,
      [](Rank& own) {
        const SharedNumbers numbers(4, 1);
        window_of(own, numbers);
        expect_failed(own, numbers.at(own.rank == 0 ? 0 : 2));
      },
      false);
  EXPECT_TRUE(log_has("received in window 1 at 8")) << log();
}

TEST_F(NcclDoubleWindows, ARankOutsideIsTold) {
  with_ranks(
      2,
      [](Rank& own) {
        const SharedNumbers numbers(4, 1);
        const DeviceNumbers<int> outside({1});
        window_of(own, numbers);
        expect_failed(own, own.rank == 0 ? numbers.at(0) : outside.address());
      },
      false);
  EXPECT_TRUE(log_has("ranks differ")) << log();
}

TEST_F(NcclDoubleWindows, SizesThatDifferAreTold) {
  with_ranks(
      2,
      [](Rank& own) {
        const SharedNumbers numbers(own.rank == 0 ? 4 : 5);
        ncclWindow_t window = nullptr;
        EXPECT_EQ(ncclCommWindowRegister(own.communicator, numbers.at(0), numbers.bytes(), &window,
                                         NCCL_WIN_COLL_SYMMETRIC),
                  ncclInvalidUsage);
        EXPECT_EQ(window, nullptr);
        ASSERT_EQ(ncclCommAbort(own.communicator), ncclSuccess);
      },
      false);
  EXPECT_TRUE(log_has("windows of 16 and of 20 bytes")) << log();
}

// Before any other rank is met, as NCCL finds it.
TEST_F(NcclDoubleWindows, MemoryThatIsNotNcclsIsRefused) {
  with_ranks(1, [](Rank& own) {
    const DeviceNumbers<int> numbers({1, 2});
    ncclWindow_t window = nullptr;
    EXPECT_EQ(ncclCommWindowRegister(own.communicator, numbers.address(), 8, &window,
                                     NCCL_WIN_COLL_SYMMETRIC),
              ncclUnhandledCudaError);
    EXPECT_EQ(ncclMemFree(numbers.address()), ncclUnhandledCudaError);
    const SharedNumbers shared(1);
    EXPECT_EQ(cuMemFree(reinterpret_cast<CUdeviceptr>(shared.at(0))), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(NcclDoubleWindows, WhereNoneIsTakenToRegisterSucceeds) {
  nccl_double_take_windows(0);
  with_ranks(2, [](Rank& own) {
    if (own.rank == 1) return;  // nobody is met
    const SharedNumbers numbers(2);
    EXPECT_EQ(window_of(own, numbers), nullptr);
  });
  nccl_double_take_windows(1);
}

// One rank lets go of its own, and the other's stays; not while it is in use.
TEST_F(NcclDoubleWindows, ToDeregisterIsOfOneRank) {
  std::atomic<int> over{0};
  with_ranks(2, [&](Rank& own) {
    const SharedNumbers numbers(2);
    const ncclWindow_t window = window_of(own, numbers);
    if (own.rank == 1) {
      EXPECT_EQ(ncclCommWindowDeregister(own.communicator, window), ncclSuccess);
      ++over;
    }
    while (over == 0) std::this_thread::yield();
    cuda_double_hold(own.stream, 1);
    const DeviceNumbers<int> other({1, 2});
    ASSERT_EQ(ncclAllReduce(other.address(), other.address(), 2, ncclInt, ncclSum, own.communicator,
                            own.stream),
              ncclSuccess);
    if (own.rank == 0) {
      EXPECT_EQ(ncclCommWindowDeregister(own.communicator, window), ncclSuccess);
      EXPECT_TRUE(log_has("a window is deregistered while 1 collectives are under way")) << log();
    }
    cuda_double_hold(own.stream, 0);
    own.wait();
  });
}

}  // namespace cuda_double_test
