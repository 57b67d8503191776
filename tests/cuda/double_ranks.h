// SPDX-License-Identifier: Apache-2.0
// Ranks of the double of libnccl.so.2 as threads, a device each.
#ifndef PARALLAX_TESTS_CUDA_DOUBLE_RANKS_H_
#define PARALLAX_TESTS_CUDA_DOUBLE_RANKS_H_

#include <nccl.h>

#include <functional>
#include <thread>

#include "cuda/double_fixture.h"

namespace cuda_double_test {

inline constexpr int kInProgressMost = 200000;  // polls

inline ncclResult_t settled(ncclComm_t communicator) {
  ncclResult_t error = ncclInProgress;
  for (int i = 0; i < kInProgressMost && error == ncclInProgress; ++i) {
    EXPECT_EQ(ncclCommGetAsyncError(communicator, &error), ncclSuccess);
    std::this_thread::yield();
  }
  return error;
}

// What a rank of a test has: its device current, a stream, a communicator.
struct Rank {
  int rank = 0;
  CUstream stream = nullptr;
  ncclComm_t communicator = nullptr;

  bool finished() const { return cuStreamQuery(stream) == CUDA_SUCCESS; }
  void wait() const {
    while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  }
};

class NcclDouble : public DoubleTest {
 protected:
  NcclDouble() : DoubleTest(4) { EXPECT_EQ(nccl_double_leaks(nullptr, 0), 0u); }
  ~NcclDouble() override { EXPECT_EQ(nccl_double_leaks(nullptr, 0), 0u); }

  // Each of `count` threads calls body with its rank; `end` destroys the communicators.
  void with_ranks(int count, const std::function<void(Rank&)>& body, bool end = true) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    run(count, [&](Rank& rank) {
      ASSERT_EQ(ncclCommInitRankConfig(&rank.communicator, count, id, rank.rank, nullptr),
                ncclSuccess);
      body(rank);
      if (!end) return;
      EXPECT_EQ(ncclCommFinalize(rank.communicator), ncclSuccess);
      EXPECT_EQ(ncclCommDestroy(rank.communicator), ncclSuccess);
    });
  }

  static void run(int count, const std::function<void(Rank&)>& body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        const Current current(i);
        const Stream stream;
        Rank rank{i, stream.get(), nullptr};
        body(rank);
        rank.wait();
      });
    }
    for (std::thread& each : threads) each.join();
  }
};

}  // namespace cuda_double_test

#endif  // PARALLAX_TESTS_CUDA_DOUBLE_RANKS_H_
