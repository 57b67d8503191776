// SPDX-License-Identifier: Apache-2.0
// The double of libnccl.so.2: what it finds wrong, what it is told to fail, and how waits end.
#include <nccl.h>

#include <atomic>
#include <cstdlib>

#include "cuda/double_ranks.h"

namespace cuda_double_test {

class NcclDoubleFailures : public NcclDouble {};

// Each kind of difference is told with both sides, and every rank has the error.
TEST_F(NcclDoubleFailures, RanksThatDifferAreTold) {
  struct Difference {
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    const char* words;
  };
  const Difference kinds[] = {{2, ncclFloat, ncclSum, "of 2 elements of type 7"},
                              {1, ncclInt, ncclSum, "of 1 elements of type 2"},
                              {1, ncclFloat, ncclMax, "type 7, operation 2"}};
  for (const Difference& kind : kinds) {
    cuda_double_clear_log();
    with_ranks(
        2,
        [&](Rank& own) {
          DeviceNumbers<float> numbers({1, 2});
          const bool other = own.rank == 1;
          ASSERT_EQ(ncclAllReduce(numbers.address(), numbers.address(), other ? kind.count : 1,
                                  other ? kind.type : ncclFloat, other ? kind.op : ncclSum,
                                  own.communicator, own.stream),
                    ncclSuccess);
          ncclResult_t error = ncclSuccess;
          while (error == ncclSuccess) {
            ASSERT_EQ(ncclCommGetAsyncError(own.communicator, &error), ncclSuccess);
          }
          EXPECT_EQ(error, ncclInvalidUsage);
          EXPECT_FALSE(own.finished());  // a kernel of a communicator that failed never ends
          EXPECT_NE(std::string(ncclGetLastError(own.communicator)).find("ranks differ"),
                    std::string::npos);
          ASSERT_EQ(ncclCommAbort(own.communicator), ncclSuccess);
          own.wait();
        },
        false);
    EXPECT_TRUE(log_has("ranks differ: rank 0 launched AllReduce number 0")) << log();
    EXPECT_TRUE(log_has(kind.words)) << log();
  }
}

// In place is as each collective has it.
TEST_F(NcclDoubleFailures, BuffersThatOverlapOtherwiseAreRefused) {
  with_ranks(2, [](Rank& own) {
    DeviceNumbers<int> numbers({own.rank, own.rank, 7});
    const auto at = [&](int index) { return static_cast<int*>(numbers.address()) + index; };
    EXPECT_EQ(ncclAllReduce(at(0), at(1), 2, ncclInt, ncclSum, own.communicator, own.stream),
              ncclInvalidUsage);
    EXPECT_EQ(ncclAllGather(at(1 - own.rank), at(0), 1, ncclInt, own.communicator, own.stream),
              ncclInvalidUsage);
    ASSERT_EQ(ncclAllGather(at(own.rank), at(0), 1, ncclInt, own.communicator, own.stream),
              ncclSuccess);
    ASSERT_EQ(
        ncclReduceScatter(at(0), at(own.rank), 1, ncclInt, ncclSum, own.communicator, own.stream),
        ncclSuccess);
    own.wait();
    EXPECT_EQ(numbers.host()[own.rank], 2 * own.rank);
    EXPECT_EQ(numbers.host()[2], 7);
  });
}

TEST_F(NcclDoubleFailures, AnOrderOfLaunchesThatDiffersIsTold) {
  with_ranks(
      2,
      [](Rank& own) {
        DeviceNumbers<float> numbers({1, 2, 3, 4});
        for (int i = 0; i < 2; ++i) {
          const ncclResult_t launched =
              (own.rank == 0) == (i == 0)
                  ? ncclAllReduce(numbers.address(), numbers.address(), 2, ncclFloat, ncclSum,
                                  own.communicator, own.stream)
                  : ncclBroadcast(numbers.address(), numbers.address(), 2, ncclFloat, 0,
                                  own.communicator, own.stream);
          // The second may come after the other rank's has told it.
          if (i == 0 || launched == ncclSuccess) {
            ASSERT_EQ(launched, ncclSuccess);
          } else {
            EXPECT_EQ(launched, ncclInvalidUsage);
          }
        }
        while (true) {
          ncclResult_t error = ncclSuccess;
          ASSERT_EQ(ncclCommGetAsyncError(own.communicator, &error), ncclSuccess);
          if (error != ncclSuccess) break;
        }
        ASSERT_EQ(ncclCommAbort(own.communicator), ncclSuccess);
        own.wait();
      },
      false);
  EXPECT_TRUE(log_has("launched AllReduce number 0"));
  EXPECT_TRUE(log_has("launched Broadcast number 0"));
}

// A rank that never comes makes the others wait until they give up.
TEST_F(NcclDoubleFailures, AbortEndsWhatWaitsForARankThatNeverComes) {
  std::atomic<bool> aborted{false};
  with_ranks(
      2,
      [&](Rank& own) {
        DeviceNumbers<int> numbers({1});
        if (own.rank == 0) {
          ASSERT_EQ(ncclAllReduce(numbers.address(), numbers.address(), 1, ncclInt, ncclSum,
                                  own.communicator, own.stream),
                    ncclSuccess);
          ncclResult_t error = ncclInProgress;
          EXPECT_EQ(ncclCommGetAsyncError(own.communicator, &error), ncclSuccess);
          EXPECT_EQ(error, ncclSuccess);
          EXPECT_FALSE(own.finished());
          ASSERT_EQ(ncclCommAbort(own.communicator), ncclSuccess);
          own.wait();
          EXPECT_EQ(ncclCommGetAsyncError(own.communicator, &error), ncclInvalidArgument);
          aborted = true;
        } else {
          while (!aborted) std::this_thread::yield();
          ASSERT_EQ(ncclCommAbort(own.communicator), ncclSuccess);
        }
      },
      false);
}

TEST_F(NcclDoubleFailures, AbortEndsAnInitThatWaits) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  run(1, [&](Rank& own) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ASSERT_EQ(ncclCommInitRankConfig(&own.communicator, 2, id, 0, &config), ncclInProgress);
    EXPECT_EQ(ncclCommAbort(own.communicator), ncclSuccess);
  });
}

TEST_F(NcclDoubleFailures, ADeadlineEndsATestThatWouldHang) {
  setenv("NCCL_DOUBLE_DEADLINE_MS", "20", 1);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  run(1, [&](Rank& own) {
    EXPECT_EQ(ncclCommInitRankConfig(&own.communicator, 2, id, 0, nullptr), ncclSystemError);
    EXPECT_EQ(own.communicator, nullptr);
  });
  unsetenv("NCCL_DOUBLE_DEADLINE_MS");
  EXPECT_TRUE(log_has("rank 0 waited for rank 1 to come until its deadline"));
}

TEST_F(NcclDoubleFailures, AnAsynchronousErrorStopsWhatIsLaunched) {
  with_ranks(
      1,
      [](Rank& own) {
        DeviceNumbers<int> numbers({1});
        cuda_double_fail("collective", 2, ncclRemoteError, 0);
        for (int i = 0; i < 2; ++i) {
          ASSERT_EQ(ncclAllReduce(numbers.address(), numbers.address(), 1, ncclInt, ncclSum,
                                  own.communicator, own.stream),
                    ncclSuccess);
        }
        ncclResult_t error = ncclSuccess;
        while (error == ncclSuccess) {
          ASSERT_EQ(ncclCommGetAsyncError(own.communicator, &error), ncclSuccess);
        }
        EXPECT_EQ(error, ncclRemoteError);
        EXPECT_FALSE(own.finished());
        EXPECT_EQ(ncclCommFinalize(own.communicator), ncclRemoteError);
        ASSERT_EQ(ncclCommAbort(own.communicator), ncclSuccess);
        own.wait();
      },
      false);
  with_ranks(
      1,
      [](Rank& own) {
        nccl_double_set_async_error(own.communicator, ncclInternalError);
        ncclResult_t error = ncclSuccess;
        EXPECT_EQ(ncclCommGetAsyncError(own.communicator, &error), ncclSuccess);
        EXPECT_EQ(error, ncclInternalError);
        ASSERT_EQ(ncclCommAbort(own.communicator), ncclSuccess);
      },
      false);
}

TEST_F(NcclDoubleFailures, AnyCallFailsWhenItIsTold) {
  cuda_double_fail("ncclGetUniqueId", 1, ncclSystemError, 0);
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSystemError);
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
}

TEST_F(NcclDoubleFailures, WrongArgumentsAreRefused) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t none = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&none, 1, id, 0, nullptr), ncclUnhandledCudaError);
  with_ranks(1, [&](Rank& own) {
    EXPECT_EQ(ncclCommInitRankConfig(&none, 2, id, 2, nullptr), ncclInvalidArgument);
    ncclConfig_t config = {};
    EXPECT_EQ(ncclCommInitRankConfig(&none, 1, id, 0, &config), ncclInvalidArgument);
    std::vector<float> on_host(4);
    DeviceNumbers<float> numbers({1, 2});
    const auto reduce = [&](void* from, size_t count, int op, CUstream stream) {
      return ncclAllReduce(from, numbers.address(), count, ncclFloat, ncclRedOp_t(op),
                           own.communicator, stream);
    };
    EXPECT_EQ(reduce(on_host.data(), 2, ncclSum, own.stream), ncclInvalidArgument);
    EXPECT_EQ(reduce(numbers.address(), 3, ncclSum, own.stream), ncclInvalidArgument);
    EXPECT_EQ(reduce(numbers.address(), 2, 77, own.stream), ncclInvalidArgument);
    cuda_double_set_capture(own.stream, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_EQ(reduce(numbers.address(), 2, ncclSum, own.stream), ncclUnhandledCudaError);
    cuda_double_set_capture(own.stream, CU_STREAM_CAPTURE_STATUS_NONE);
    const Current other(1);
    const Stream elsewhere;
    EXPECT_EQ(reduce(numbers.address(), 2, ncclSum, elsewhere.get()), ncclInvalidUsage);
  });
  EXPECT_EQ(ncclCommAbort(reinterpret_cast<ncclComm_t>(&id)), ncclInvalidArgument);
}

TEST_F(NcclDoubleFailures, TwoRanksOnOneDeviceAreRefused) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  run(2, [&](Rank& own) {
    const Current same(0);
    EXPECT_EQ(ncclCommInitRankConfig(&own.communicator, 2, id, own.rank, nullptr),
              ncclInvalidUsage);
  });
  EXPECT_TRUE(log_has("are both on device 0"));
}

}  // namespace cuda_double_test
