// SPDX-License-Identifier: Apache-2.0
// The double of libnccl.so.2: ranks as threads, a device each.
#include <dlfcn.h>
#include <nccl.h>

#include <atomic>
#include <thread>

#include "cuda/double_ranks.h"

namespace cuda_double_test {

TEST_F(NcclDouble, CollectivesAreRightInPlaceAndOut) {
  // Several pieces, and one that is not full.
  constexpr size_t kCount = 150001;
  with_ranks(3, [](Rank& own) {
    std::vector<float> values(kCount);
    for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(own.rank + 1) + float(i % 7);
    const std::vector<float> zeros(kCount);
    DeviceNumbers<float> numbers(values), sums(zeros);
    ASSERT_EQ(ncclAllReduce(numbers.address(), sums.address(), kCount, ncclFloat, ncclSum,
                            own.communicator, own.stream),
              ncclSuccess);
    own.wait();
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(sums.host()[i], 6 + 3 * float(i % 7)) << i;
    ASSERT_EQ(ncclAllReduce(numbers.address(), numbers.address(), kCount, ncclFloat, ncclMax,
                            own.communicator, own.stream),
              ncclSuccess);
    own.wait();
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(numbers.host()[i], 3 + float(i % 7)) << i;
  });
}

TEST_F(NcclDouble, GathersScattersAndBroadcasts) {
  with_ranks(3, [](Rank& own) {
    const int r = own.rank;
    DeviceNumbers<int64_t> here({r, 10 + r}), all(std::vector<int64_t>(6));
    ASSERT_EQ(
        ncclAllGather(here.address(), all.address(), 2, ncclInt64, own.communicator, own.stream),
        ncclSuccess);
    own.wait();
    EXPECT_EQ(all.values(), (std::vector<int64_t>{0, 10, 1, 11, 2, 12}));
    ASSERT_EQ(ncclReduceScatter(all.address(), here.address(), 2, ncclInt64, ncclSum,
                                own.communicator, own.stream),
              ncclSuccess);
    own.wait();
    EXPECT_EQ(here.values(), (std::vector<int64_t>{3 * r, 3 * (10 + r)}));
    ASSERT_EQ(ncclBroadcast(here.address(), here.address(), 2, ncclInt64, 2, own.communicator,
                            own.stream),
              ncclSuccess);
    own.wait();
    EXPECT_EQ(here.values(), (std::vector<int64_t>{6, 36}));
    ASSERT_EQ(ncclReduce(here.address(), all.address(), 2, ncclInt64, ncclSum, 1, own.communicator,
                         own.stream),
              ncclSuccess);
    own.wait();
    const std::vector<int64_t> first = {all.values()[0], all.values()[1]};
    EXPECT_EQ(first, r == 1 ? (std::vector<int64_t>{18, 108}) : (std::vector<int64_t>{0, 10}))
        << "on the root alone";
  });
}

TEST_F(NcclDouble, NarrowNumbersAreRoundedOnce) {
  with_ranks(3, [](Rank& own) {
    // 256 + 1 + 1: each 1 by itself would be lost in bf16, their sum is not.
    DeviceNumbers<uint16_t> numbers({static_cast<uint16_t>(own.rank == 0 ? 0x4380 : 0x3f80)});
    ASSERT_EQ(ncclAllReduce(numbers.address(), numbers.address(), 1, ncclBfloat16, ncclSum,
                            own.communicator, own.stream),
              ncclSuccess);
    own.wait();
    EXPECT_EQ(numbers.values()[0], 0x4381);
  });
}

TEST_F(NcclDouble, CollectivesAreExecutedInTheOrderOfTheirStream) {
  with_ranks(2, [](Rank& own) {
    DeviceNumbers<int> numbers({0});
    cuda_double_hold(own.stream, 1);
    ASSERT_EQ(cuMemsetD8Async(numbers.pointer(), 1, 4, own.stream), CUDA_SUCCESS);
    ASSERT_EQ(ncclAllReduce(numbers.address(), numbers.address(), 1, ncclInt, ncclSum,
                            own.communicator, own.stream),
              ncclSuccess);
    EXPECT_FALSE(own.finished());
    cuda_double_hold(own.stream, 0);
    own.wait();
    EXPECT_EQ(numbers.values()[0], 0x02020202);
  });
}

// Of two streams without an event between them the collectives keep their order, and nothing else.
TEST_F(NcclDouble, CollectivesOfTwoStreamsKeepTheOrderOfTheirLaunches) {
  with_ranks(2, [](Rank& own) {
    const Stream second;
    DeviceNumbers<int> one({1}), two({2});
    cuda_double_hold(own.stream, 1);
    ASSERT_EQ(ncclAllReduce(one.address(), one.address(), 1, ncclInt, ncclSum, own.communicator,
                            own.stream),
              ncclSuccess);
    ASSERT_EQ(ncclAllReduce(two.address(), two.address(), 1, ncclInt, ncclSum, own.communicator,
                            second.get()),
              ncclSuccess);
    EXPECT_EQ(cuStreamQuery(second.get()), CUDA_ERROR_NOT_READY);
    cuda_double_hold(own.stream, 0);
    own.wait();
    while (cuStreamQuery(second.get()) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
    EXPECT_EQ(one.values()[0], 2);
    EXPECT_EQ(two.values()[0], 4);
  });
}

TEST_F(NcclDouble, AGroupIsOneOperation) {
  with_ranks(2, [](Rank& own) {
    DeviceNumbers<int> one({1}), two({2});
    const uint64_t before = cuda_double_executed(own.stream);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (DeviceNumbers<int>* each : {&one, &two}) {
      ASSERT_EQ(ncclAllReduce(each->address(), each->address(), 1, ncclInt, ncclSum,
                              own.communicator, own.stream),
                ncclSuccess);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_TRUE(own.finished());  // nothing was launched yet
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    own.wait();
    EXPECT_EQ(cuda_double_executed(own.stream), before + 1);
    EXPECT_EQ(one.values()[0], 2);
    EXPECT_EQ(two.values()[0], 4);
  });
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
}

// One thread drives two devices: in a group the inits meet each other.
TEST_F(NcclDouble, OneThreadDrivesTwoDevicesInAGroup) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t communicators[2] = {};
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int i = 0; i < 2; ++i) {
    const Current current(i);
    ASSERT_EQ(ncclCommInitRankConfig(&communicators[i], 2, id, i, nullptr), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  for (ncclComm_t each : communicators) EXPECT_EQ(ncclCommDestroy(each), ncclSuccess);
}

TEST_F(NcclDouble, InitThatDoesNotBlockIsInProgressUntilAllHaveCome) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::atomic<bool> first_has_begun{false};
  run(2, [&](Rank& own) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    while (own.rank == 1 && !first_has_begun) std::this_thread::yield();
    ASSERT_EQ(ncclCommInitRankConfig(&own.communicator, 2, id, own.rank, &config), ncclInProgress);
    if (own.rank == 0) {
      DeviceNumbers<int> numbers({1});
      ncclResult_t error = ncclSuccess;
      ASSERT_EQ(ncclCommGetAsyncError(own.communicator, &error), ncclSuccess);
      EXPECT_EQ(error, ncclInProgress);
      EXPECT_EQ(ncclAllReduce(numbers.address(), numbers.address(), 1, ncclInt, ncclSum,
                              own.communicator, own.stream),
                ncclInvalidArgument);
      first_has_begun = true;
    }
    EXPECT_EQ(settled(own.communicator), ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(own.communicator), ncclInProgress);
    EXPECT_EQ(settled(own.communicator), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(own.communicator), ncclSuccess);
  });
  EXPECT_TRUE(log_has("ncclAllReduce was called for a communicator whose last operation is in"));
}

TEST_F(NcclDouble, ALaunchMayBeInProgress) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  nccl_double_set_launch_in_progress(2);
  run(1, [&](Rank& own) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ASSERT_EQ(ncclCommInitRankConfig(&own.communicator, 1, id, 0, &config), ncclInProgress);
    ASSERT_EQ(settled(own.communicator), ncclSuccess);
    DeviceNumbers<int> numbers({4});
    const auto reduce = [&] {
      return ncclAllReduce(numbers.address(), numbers.address(), 1, ncclInt, ncclSum,
                           own.communicator, own.stream);
    };
    EXPECT_EQ(reduce(), ncclInProgress);
    EXPECT_EQ(reduce(), ncclInvalidArgument);
    EXPECT_EQ(settled(own.communicator), ncclSuccess);
    EXPECT_EQ(reduce(), ncclInProgress);
    EXPECT_EQ(settled(own.communicator), ncclSuccess);
    own.wait();
    EXPECT_EQ(ncclCommDestroy(own.communicator), ncclSuccess);
  });
  nccl_double_set_launch_in_progress(0);
}

TEST_F(NcclDouble, SplitsAreCommunicatorsOfTheirOwn) {
  with_ranks(4, [](Rank& own) {
    ncclComm_t part = nullptr;
    // By parity, in the opposite order; the last has none.
    const int color = own.rank == 3 ? NCCL_SPLIT_NOCOLOR : own.rank % 2;
    ASSERT_EQ(ncclCommSplit(own.communicator, color, -own.rank, &part, nullptr), ncclSuccess);
    if (own.rank == 3) {
      EXPECT_EQ(part, nullptr);
      return;
    }
    DeviceNumbers<int> here({own.rank}), all({-1, -1});
    ASSERT_EQ(ncclAllGather(here.address(), all.address(), 1, ncclInt, part, own.stream),
              ncclSuccess);
    own.wait();
    EXPECT_EQ(all.values(), (own.rank == 1 ? std::vector<int>{1, -1} : std::vector<int>{2, 0}));
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
  });
}

// Of four ranks those of one parity, who alone call: the others are busy with a collective of all
// but come to it later.
TEST_F(NcclDouble, AShrinkIsACallOfThoseThatRemain) {
  with_ranks(4, [](Rank& own) {
    int without[] = {3, 1};
    ncclComm_t part = nullptr;
    if (own.rank % 2 == 0) {
      ASSERT_EQ(ncclCommShrink(own.communicator, without, 2, &part, nullptr, NCCL_SHRINK_DEFAULT),
                ncclSuccess);
    }
    DeviceNumbers<int> one({1}), sum({0}), here({own.rank}), all({-1, -1});
    ASSERT_EQ(ncclAllReduce(one.address(), sum.address(), 1, ncclInt, ncclSum, own.communicator,
                            own.stream),
              ncclSuccess);
    own.wait();
    EXPECT_EQ(sum.values(), std::vector<int>{4});
    if (part == nullptr) return;
    ASSERT_EQ(ncclAllGather(here.address(), all.address(), 1, ncclInt, part, own.stream),
              ncclSuccess);
    own.wait();
    EXPECT_EQ(all.values(), (std::vector<int>{0, 2}));
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
  });
}

TEST_F(NcclDouble, WhatAShrinkIsToBeOf) {
  with_ranks(2, [](Rank& own) {
    int none[] = {own.rank};
    ncclComm_t part = nullptr;
    const auto shrink = [&](int* without, int count, int flags) {
      return ncclCommShrink(own.communicator, without, count, &part, nullptr, flags);
    };
    EXPECT_EQ(shrink(none, 0, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
    EXPECT_EQ(shrink(nullptr, 1, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
    EXPECT_EQ(shrink(none, 1, NCCL_SHRINK_DEFAULT), ncclInvalidArgument) << "it leaves itself out";
    int other[] = {1 - own.rank};
    EXPECT_EQ(shrink(other, 1, NCCL_SHRINK_ABORT), ncclInvalidArgument);
    ASSERT_EQ(shrink(other, 1, NCCL_SHRINK_DEFAULT), ncclSuccess) << "a part of one";
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
  });
}

// Communicators that do not block; `body` once each is there.
void without_blocking(int count, const std::function<void(int, ncclComm_t)>& body) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      const Current current(i);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclComm_t communicator = nullptr;
      EXPECT_EQ(ncclCommInitRankConfig(&communicator, count, id, i, &config), ncclInProgress);
      EXPECT_EQ(settled(communicator), ncclSuccess);
      body(i, communicator);
      ncclResult_t state = ncclSuccess;
      if (ncclCommGetAsyncError(communicator, &state) != ncclSuccess) return;  // the body ended it
      EXPECT_EQ(ncclCommAbort(communicator), ncclSuccess);
    });
  }
  for (std::thread& each : threads) each.join();
}

// As NCCL has it: until the other is there it is not known, and the parent takes no call.
TEST_F(NcclDouble, TheParentIsInProgressUntilTheOtherIsThere) {
  std::atomic<bool> looked{false};
  without_blocking(3, [&](int rank, ncclComm_t parent) {
    int without[] = {2};
    ncclComm_t part = nullptr;
    if (rank == 2) return;
    while (rank == 1 && !looked) std::this_thread::yield();
    EXPECT_EQ(ncclCommShrink(parent, without, 1, &part, nullptr, NCCL_SHRINK_DEFAULT),
              ncclInProgress);
    if (rank == 0) {
      ncclResult_t state = ncclSuccess;
      EXPECT_EQ(ncclCommGetAsyncError(parent, &state), ncclSuccess);
      EXPECT_EQ(state, ncclInProgress);
      EXPECT_EQ(__atomic_load_n(&part, __ATOMIC_ACQUIRE), nullptr);
      ncclComm_t other = nullptr;
      EXPECT_EQ(ncclCommShrink(parent, without, 1, &other, nullptr, NCCL_SHRINK_DEFAULT),
                ncclInvalidArgument);
      looked = true;
    }
    EXPECT_EQ(settled(parent), ncclSuccess);
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(ncclCommAbort(part), ncclSuccess);
  });
}

// An abort of the parent ends what is in progress, whose other ranks never come.
TEST_F(NcclDouble, AnAbortOfTheParentEndsAShrink) {
  without_blocking(2, [](int rank, ncclComm_t parent) {
    if (rank == 1) return;
    // A ring of one is there at once: of all ranks, one of which does not split.
    ncclComm_t part = nullptr;
    EXPECT_EQ(ncclCommSplit(parent, 0, 0, &part, nullptr), ncclInProgress);
    EXPECT_EQ(ncclCommAbort(parent), ncclSuccess);
    ASSERT_NE(part, nullptr) << "it is the caller's, to be aborted";
    EXPECT_EQ(ncclCommAbort(part), ncclSuccess);
  });
}

// Ranks 0 and 1 are in two shrinks and come to them in different orders: each takes what the other
// says of one for the other, as NCCL's do.
TEST_F(NcclDouble, ShrinksInDifferentOrdersAreMixedUp) {
  std::atomic<bool> mixed_up{false};
  without_blocking(4, [&](int rank, ncclComm_t parent) {
    if (rank == 3) return;
    int without[] = {3, 2};
    const int count = rank == 0 ? 2 : 1;  // of {0, 1}, and of {0, 1, 2}
    ncclComm_t part = nullptr;
    EXPECT_EQ(ncclCommShrink(parent, without, count, &part, nullptr, NCCL_SHRINK_DEFAULT),
              ncclInProgress);
    if (rank == 0) {
      EXPECT_EQ(settled(parent), ncclInvalidUsage);
      mixed_up = true;
    }
    while (!mixed_up) std::this_thread::yield();
    EXPECT_EQ(ncclCommAbort(parent), ncclSuccess);
    EXPECT_EQ(ncclCommAbort(part), ncclSuccess);
  });
  EXPECT_TRUE(log_has("take each other for neighbours")) << log();
}

TEST_F(NcclDouble, BuffersAreRegistered) {
  with_ranks(2, [](Rank& own) {
    DeviceNumbers<int> numbers({1, 2});
    void* registration = nullptr;
    ASSERT_EQ(ncclCommRegister(own.communicator, numbers.address(), 8, &registration), ncclSuccess);
    EXPECT_EQ(ncclCommRegister(own.communicator, numbers.address(), 9, &registration),
              ncclInvalidArgument);
    EXPECT_EQ(ncclCommDeregister(own.communicator, registration), ncclSuccess);
    EXPECT_EQ(ncclCommDeregister(own.communicator, registration), ncclInvalidArgument);
  });
}

TEST_F(NcclDouble, OlderVersionsHaveFewerFunctions) {
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  const auto functions = [](const char* folder, int expected, bool splits) {
    const std::string path = std::string(PARALLAX_CUDA_DOUBLE) + folder + "/libnccl.so.2";
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    int found = 0;
    const auto get = reinterpret_cast<ncclResult_t (*)(int*)>(dlsym(library, "ncclGetVersion"));
    EXPECT_EQ(get(&found), ncclSuccess);
    EXPECT_EQ(found, expected);
    EXPECT_NE(dlsym(library, "ncclAllReduce"), nullptr);
    EXPECT_EQ(dlsym(library, "ncclCommSplit") != nullptr, splits);
    EXPECT_EQ(dlsym(library, "ncclCommRegister"), nullptr);
    EXPECT_EQ(dlsym(library, "ncclCommWindowRegister"), nullptr);
    EXPECT_EQ(dlsym(library, "ncclMemAlloc"), nullptr);
    EXPECT_EQ(dlsym(library, "ncclCommShrink"), nullptr);
  };
  functions("_2.18", 21805, true);
  functions("_2.14", 21403, false);
  setenv("NCCL_DOUBLE_VERSION", "22304", 1);
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, 22304);
  unsetenv("NCCL_DOUBLE_VERSION");
}

}  // namespace cuda_double_test
