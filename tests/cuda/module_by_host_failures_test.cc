// SPDX-License-Identifier: Apache-2.0
// What ends jobs with nccl = host otherwise than well, in each of their legs: errors of NCCL's and
// of the driver's at every call that they add, ranks that leave while a sum is within a host or
// between hosts. Nothing hangs, nothing is left behind.
#include <nccl.h>

#include <atomic>
#include <chrono>

#include "cuda/held.h"
#include "cuda/module_ranks.h"
#include "support/environment_variable.h"

namespace cuda_double_test::by_host_failures {
namespace {

class ModuleByHostFailures : public NcclJobs {
 protected:
  static constexpr uint64_t kNumbers = 30'001;  // not equal shares

  void run_on_two_hosts(const Body& body) {
    run(
        4, [](DeviceRank& own) { own.add("w", PARALLAX_F32, PARALLAX_SUM, kNumbers); }, body,
        [](parallax_options_t* options) { options->host = options->rank < 2 ? "alpha" : "beta"; },
        false);
  }
  struct Outcome {
    parallax_status_t status = PARALLAX_OK;
    std::string sentence;
  };
  // Two steps of four ranks; `arm` is called by the first rank ahead of the second one.
  std::vector<Outcome> reduce_twice(const std::function<void()>& arm) {
    std::vector<Outcome> outcomes(4);
    std::atomic<uint32_t> ready{0}, armed{0}, over{0};
    run_on_two_hosts([&](DeviceRank& own) {
      const DeviceNumbers<float> w(std::vector<float>(kNumbers, 1));
      const uint64_t first = own.begin();
      DeviceRank::finish({own.reduce(first, own.slice(0, w.address())), own.end(first)});
      ++ready;
      while (own.rank == 0 && ready != 4) std::this_thread::yield();
      if (own.rank == 0) arm();
      if (own.rank == 0) armed = 1;
      while (armed == 0) std::this_thread::yield();
      Outcome& mine = outcomes[own.rank];
      uint64_t step = 0;
      mine.status = parallax_step_begin(own.job, &step);
      parallax_request_t* request = nullptr;
      const parallax_slice_t slice = own.slice(0, w.address());
      if (mine.status == PARALLAX_OK) {
        mine.status = parallax_reduce(own.job, step, &slice, 1, &request);
      }
      if (request == nullptr) {
        parallax_abort(own.job, "a call was refused");
      } else {
        mine.status = DeviceRank::wait(request);
      }
      if (mine.status != PARALLAX_OK) mine.sentence = parallax_last_error();
      if (request != nullptr) check(parallax_request_release(request));
      // The test's own calls are not to fail.
      ++over;
      while (over != 4) std::this_thread::yield();
      cuda_double_clear_failures();
    });
    return outcomes;
  }

 private:
  parallax::testkit::EnvironmentVariable by_host_{"PARALLAX_NCCL", "host"};
};

TEST_F(ModuleByHostFailures, EveryCodeOfEveryCallEndsTheJobAndNamesItself) {
  const char* const functions[] = {"ncclReduceScatter", "ncclReduce",     "ncclAllGather",
                                   "ncclBroadcast",     "ncclGroupStart", "ncclGroupEnd",
                                   "collective"};
  for (const char* function : functions) {
    for (int code = ncclUnhandledCudaError; code <= ncclRemoteError; ++code) {
      const auto outcomes = reduce_twice([&] { cuda_double_fail(function, 1, code, 0); });
      const parallax_status_t expected = code == ncclRemoteError ? PARALLAX_PEER_LOST : PARALLAX_IO;
      for (const auto& outcome : outcomes) {
        EXPECT_EQ(outcome.status, expected) << function << " " << code << ": " << outcome.sentence;
        EXPECT_NE(outcome.sentence.find("NCCL 2."), std::string::npos) << outcome.sentence;
      }
      EXPECT_EQ(nccl_leaks(), "") << function << " " << code;
      EXPECT_EQ(leaks(), "") << function << " " << code;
    }
  }
}

TEST_F(ModuleByHostFailures, EveryCallOfTheDriverEndsTheJobOrGoesOn) {
  const char* const functions[] = {"cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2", "cuEventRecord",
                                   "cuStreamWaitEvent",    "cuLaunchHostFunc",     "cuEventQuery",
                                   "cuCtxPushCurrent_v2"};
  for (const char* function : functions) {
    for (const uint64_t nth : {1, 2, 4, 6, 9, 13}) {
      const auto outcomes =
          reduce_twice([&] { cuda_double_fail(function, nth, CUDA_ERROR_OUT_OF_MEMORY, 0); });
      for (const auto& outcome : outcomes) {
        EXPECT_NE(outcome.status, PARALLAX_TIMEOUT) << function << " " << nth;
        EXPECT_NE(outcome.status, PARALLAX_INTERNAL) << function << ": " << outcome.sentence;
      }
      EXPECT_EQ(nccl_leaks(), "") << function << " " << nth;
      EXPECT_EQ(leaks(), "") << function << " " << nth;
    }
  }
}

TEST_F(ModuleByHostFailures, ACopyOfAShareThatFailsIsNamed) {
  for (const char* function : {"cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"}) {
    for (const auto& outcome :
         reduce_twice([&] { cuda_double_fail(function, 1, CUDA_ERROR_INVALID_VALUE, 0); })) {
      EXPECT_EQ(outcome.status, PARALLAX_IO);
      EXPECT_NE(outcome.sentence.find("of a share"), std::string::npos) << outcome.sentence;
    }
  }
}

// What forms a communicator: its streams and events, and what NCCL says.
TEST_F(ModuleByHostFailures, WhatFailsWhileItFormsEndsTheJob) {
  for (const char* function :
       {"ncclCommInitRankConfig", "cuStreamCreateWithPriority", "cuEventCreate"}) {
    for (const uint64_t nth : {1, 3, 5}) {
      const bool nccl = function[0] == 'n';
      std::atomic<uint32_t> ready{0}, armed{0}, over{0};
      run_on_two_hosts([&](DeviceRank& own) {
        const DeviceNumbers<float> w(std::vector<float>(kNumbers, 1));
        const uint64_t step = own.begin();
        ++ready;
        while (own.rank == 0 && ready != 4) std::this_thread::yield();
        if (own.rank == 0) {
          cuda_double_fail(function, nth, nccl ? 2 : CUDA_ERROR_OUT_OF_MEMORY, 0);
          armed = 1;
        }
        while (armed == 0) std::this_thread::yield();
        parallax_request_t* request = nullptr;
        const parallax_slice_t slice = own.slice(0, w.address());
        parallax_status_t status = parallax_reduce(own.job, step, &slice, 1, &request);
        if (status != PARALLAX_OK) parallax_abort(own.job, "a call was refused");
        if (request != nullptr) status = DeviceRank::wait(request);
        EXPECT_NE(status, PARALLAX_TIMEOUT) << function << " " << nth;
        EXPECT_NE(status, PARALLAX_INTERNAL) << function << ": " << parallax_last_error();
        if (request != nullptr) check(parallax_request_release(request));
        ++over;
        while (over != 4) std::this_thread::yield();
        cuda_double_clear_failures();
      });
      EXPECT_EQ(nccl_leaks(), "") << function << " " << nth;
      EXPECT_EQ(leaks(), "") << function << " " << nth;
    }
  }
}

// A rank that leaves with an abort while others wait for it: in their host's sum, which they have
// launched, or for its host's share, which never comes.
TEST_F(ModuleByHostFailures, ARankThatLeavesInEitherLegEndsAllAtOnce) {
  const uint64_t aborts = cuda_double_calls("ncclCommAbort");
  std::atomic<uint32_t> waiting{0};
  run_on_two_hosts([&](DeviceRank& own) {
    const DeviceNumbers<float> w(std::vector<float>(kNumbers, 1));
    const uint64_t first = own.begin();
    DeviceRank::finish({own.reduce(first, own.slice(0, w.address())), own.end(first)});
    if (own.rank == 3) {
      while (waiting != 3) std::this_thread::yield();
      EXPECT_EQ(parallax_abort(own.job, "enough"), PARALLAX_OK);
      return;
    }
    const uint64_t step = own.begin();
    parallax_request_t* request = own.reduce(step, own.slice(0, w.address()));
    // Ranks 0 and 1 have their host's sum; rank 2 is in its own's.
    EXPECT_EQ(DeviceRank::wait(request, 100), PARALLAX_TIMEOUT);
    ++waiting;
    EXPECT_EQ(DeviceRank::wait(request), PARALLAX_ABORTED) << parallax_last_error();
    check(parallax_request_release(request));
  });
  EXPECT_EQ(cuda_double_calls("ncclCommAbort") - aborts, 4u) << "of every rank's communicator";
}

// The sentence of a timeout names who has not given its share of the other host.
TEST_F(ModuleByHostFailures, AWaitForAnotherHostNamesItsRank) {
  std::atomic<bool> told{false};
  run_on_two_hosts([&](DeviceRank& own) {
    const DeviceNumbers<float> w(std::vector<float>(kNumbers, 1));
    const uint64_t step = own.begin();
    while (own.rank == 3 && !told) std::this_thread::yield();
    parallax_request_t* request = own.reduce(step, own.slice(0, w.address()));
    if (own.rank == 0) {
      // Until its own host's sum is done it waits for that.
      EXPECT_TRUE(comes([&] {
        return DeviceRank::wait(request, 200) == PARALLAX_TIMEOUT &&
               std::string(parallax_last_error()).find("rank 2") != std::string::npos;
      })) << parallax_last_error();
      told = true;
    }
    DeviceRank::finish({request, own.end(step)});
  });
}

// Requests that are pending between the legs when the job closes.
TEST_F(ModuleByHostFailures, CloseGivesUpWhatIsBetweenTheLegs) {
  run_on_two_hosts([&](DeviceRank& own) {
    if (own.rank >= 2) return;
    const uint64_t step = own.begin();
    const DeviceNumbers<float> values(std::vector<float>(kNumbers, 1));
    parallax_request_t* request = own.reduce(step, own.slice(0, values.address()));
    DeviceRank::wait(request, 50);
    parallax_close(own.job);
    own.job = nullptr;
    EXPECT_NE(parallax_request_test(request), PARALLAX_OK);
    check(parallax_request_release(request));
  });
}

}  // namespace
}  // namespace cuda_double_test::by_host_failures
