// SPDX-License-Identifier: Apache-2.0
// What ends reductions among devices otherwise than well: errors of NCCL's and of the driver's,
// ranks that leave, calls that are refused. Nothing hangs, nothing is left behind, and each request
// says what it was.
#include <nccl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "cuda/module_ranks.h"
#include "support/environment_variable.h"

namespace cuda_double_test {
namespace {

class ModuleNcclFailures : public NcclJobs {
 protected:
  // Two ranks reduce twice; what became of both reductions of each.
  struct Outcome {
    parallax_status_t status = PARALLAX_OK;
    std::string sentence;
  };
  std::vector<Outcome> reduce_by_two(const std::function<void()>& arm = {}) {
    std::vector<Outcome> outcomes(2);
    std::atomic<uint32_t> ready{0}, armed{0};
    run(
        2,
        [](DeviceRank& own) {
          own.add("w");
          own.add("v");
        },
        [&](DeviceRank& own) {
          Outcome& mine = outcomes[own.rank];
          const DeviceNumbers<float> w(std::vector<float>(kCount, 1)),
              v(std::vector<float>(kCount, 2));
          // The test's own calls are not to fail.
          ++ready;
          while (own.rank == 0 && ready != 2) std::this_thread::yield();
          if (own.rank == 0 && arm) arm();
          if (own.rank == 0) armed = 1;
          while (armed == 0) std::this_thread::yield();
          const auto note = [&](parallax_status_t status) {
            if (mine.status != PARALLAX_OK || status == PARALLAX_OK) return;
            mine = {status, parallax_last_error()};
          };
          uint64_t step = 0;
          note(parallax_step_begin(own.job, &step));
          std::vector<parallax_request_t*> requests;
          for (const parallax_slice_t& slice :
               {own.slice(0, w.address()), own.slice(1, v.address())}) {
            parallax_request_t* request = nullptr;
            note(parallax_reduce(own.job, step, &slice, 1, &request));
            if (request != nullptr) requests.push_back(request);
            // Else the other would wait for it.
            if (request == nullptr) parallax_abort(own.job, "a call was refused");
          }
          for (parallax_request_t* each : requests) {
            note(DeviceRank::wait(each));
            note(parallax_request_release(each));
          }
        },
        {}, false);
    return outcomes;
  }
};

// Given a rank whose devices wait for another one, which aborts instead, expect an end; what the
// device still holds is not written to afterwards.
TEST_F(ModuleNcclFailures, AnAbortOfAnotherRankEndsWhatIsUnderWay) {
  const uint64_t aborts = cuda_double_calls("ncclCommAbort");
  std::atomic<bool> launched{false};
  run(
      2, [](DeviceRank& own) { own.add("w"); },
      [&](DeviceRank& own) {
        const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
        const uint64_t first = own.begin();
        DeviceRank::finish({own.reduce(first, own.slice(0, values.address())), own.end(first)});
        if (own.rank == 1) {
          while (!launched) std::this_thread::yield();
          EXPECT_EQ(parallax_abort(own.job, "enough"), PARALLAX_OK);
          return;
        }
        const uint64_t step = own.begin();
        parallax_request_t* request = own.reduce(step, own.slice(0, values.address()));
        EXPECT_EQ(DeviceRank::wait(request, 50), PARALLAX_TIMEOUT);
        launched = true;
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        while (cuda_double_calls("ncclCommAbort") - aborts < 2 &&
               std::chrono::steady_clock::now() < until) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_EQ(cuda_double_calls("ncclCommAbort") - aborts, 2u) << "both ranks give up at once";
        EXPECT_EQ(DeviceRank::wait(request), PARALLAX_ABORTED);
        EXPECT_NE(std::string(parallax_last_error()).find("enough"), std::string::npos);
        check(parallax_request_release(request));
      },
      {}, false);
}

// Given each call failing by each code in its turn, on whichever rank comes to it first, expect
// both ranks' requests to end, the one that failed with the call's name.
TEST_F(ModuleNcclFailures, EveryCodeOfEveryCallEndsTheJobAndNamesItself) {
  const char* const functions[] = {"ncclCommInitRankConfig", "ncclCommGetAsyncError",
                                   "ncclGroupStart",         "ncclAllReduce",
                                   "ncclGroupEnd",           "collective"};
  for (const char* function : functions) {
    for (int code = ncclUnhandledCudaError; code <= ncclRemoteError; ++code) {
      const auto outcomes = reduce_by_two([&] { cuda_double_fail(function, 1, code, 0); });
      cuda_double_clear_failures();
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

TEST_F(ModuleNcclFailures, EveryCallOfTheDriverEndsTheJobOrGoesOn) {
  // Who waits sleeps at once, so that there is somebody to be woken.
  const parallax::testkit::EnvironmentVariable spin("PARALLAX_SPIN_US", "0");
  const char* const functions[] = {
      "cuCtxPushCurrent_v2", "cuStreamCreateWithPriority", "cuEventCreate", "cuEventRecord",
      "cuStreamWaitEvent",   "cuLaunchHostFunc",           "cuEventQuery"};
  for (const char* function : functions) {
    for (const uint64_t nth : {1, 3, 5, 8}) {
      const auto outcomes =
          reduce_by_two([&] { cuda_double_fail(function, nth, CUDA_ERROR_OUT_OF_MEMORY, 0); });
      cuda_double_clear_failures();
      for (const auto& outcome : outcomes) {
        EXPECT_NE(outcome.status, PARALLAX_TIMEOUT) << function << " " << nth;
        EXPECT_NE(outcome.status, PARALLAX_INTERNAL) << function << ": " << outcome.sentence;
      }
      EXPECT_EQ(nccl_leaks(), "") << function << " " << nth;
      EXPECT_EQ(leaks(), "") << function << " " << nth;
    }
  }
}

// While a launch is in progress the stream has nothing yet, and the communicator is not to be
// called.
TEST_F(ModuleNcclFailures, LaunchesThatAreInProgressAreSettledFirst) {
  nccl_double_set_launch_in_progress(3);
  for (const auto& outcome : reduce_by_two()) EXPECT_EQ(outcome.status, PARALLAX_OK);
  EXPECT_FALSE(log_has("whose last operation is in progress")) << log();
}

TEST_F(ModuleNcclFailures, AnIdThatCannotBeMadeLeavesItToTheHost) {
  cuda_double_fail("ncclGetUniqueId", 1, ncclSystemError, 0);
  const uint64_t before = nccl_double_launched();
  for (const auto& outcome : reduce_by_two()) EXPECT_EQ(outcome.status, PARALLAX_OK);
  EXPECT_EQ(nccl_double_launched(), before);
}

TEST_F(ModuleNcclFailures, ARankThatClosesIsNotWaitedFor) {
  run(
      2, [](DeviceRank& own) { own.add("w"); },
      [&](DeviceRank& own) {
        if (own.rank == 1) return;
        const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
        const uint64_t step = own.begin();
        parallax_request_t* request = own.reduce(step, own.slice(0, values.address()));
        parallax_request_t* ended = own.end(step);
        EXPECT_EQ(DeviceRank::wait(request), PARALLAX_PEER_LOST) << parallax_last_error();
        DeviceRank::wait(ended);
        check(parallax_request_release(request));
        check(parallax_request_release(ended));
      },
      {}, false);
}

// Given requests that are pending when the job closes, expect that the devices are done with their
// buffers when it has.
TEST_F(ModuleNcclFailures, CloseGivesUpWhatIsPending) {
  run(
      2, [](DeviceRank& own) { own.add("w"); },
      [&](DeviceRank& own) {
        if (own.rank == 1) return;
        const uint64_t step = own.begin();
        const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
        parallax_request_t* request = own.reduce(step, own.slice(0, values.address()));
        DeviceRank::wait(request, 20);
        parallax_close(own.job);
        own.job = nullptr;
        EXPECT_EQ(parallax_request_test(request), PARALLAX_ABORTED) << parallax_last_error();
        check(parallax_request_release(request));
      },
      {}, false);
}

TEST_F(ModuleNcclFailures, WhatDevicesDoNotDoIsRefusedByName) {
  run(
      1,
      [](DeviceRank& own) {
        own.add("w");
        own.add("v");
      },
      [](DeviceRank& own) {
        const DeviceNumbers<float> values(std::vector<float>(kCount, 3));
        const uint64_t step = own.begin();
        const auto refused = [&](std::vector<parallax_slice_t> slices, parallax_status_t status,
                                 const char* words) {
          parallax_request_t* request = nullptr;
          EXPECT_EQ(parallax_reduce(own.job, step, slices.data(), slices.size(), &request), status);
          EXPECT_NE(std::string(parallax_last_error()).find(words), std::string::npos)
              << parallax_last_error();
        };
        const parallax_slice_t good = own.slice(0, values.address());
        refused({good, good}, PARALLAX_UNSUPPORTED, "in an earlier slice of the call");
        parallax_slice_t bad = good;
        bad.as_dtype = PARALLAX_AS(PARALLAX_F64);
        refused({bad}, PARALLAX_UNSUPPORTED, "as_dtype is f64");
        bad = good;
        bad.memory = PARALLAX_MEMORY_HOST;
        bad.device = 0;
        refused({bad}, PARALLAX_INVALID, "all its slices lie on devices");
        std::vector<float> host(kCount);
        bad = good;
        bad.values = host.data();
        refused({bad}, PARALLAX_INVALID, "values is in host memory");
        const Stream stream;
        cuda_double_set_capture(stream.get(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
        bad = good;
        bad.stream = stream.get();
        refused({bad}, PARALLAX_UNSUPPORTED, "is being captured into a graph");
        cuda_double_set_capture(stream.get(), CU_STREAM_CAPTURE_STATUS_NONE);
        parallax_request_t* request = own.reduce(step, good);
        {
          const Current second(1);
          const DeviceNumbers<float> there(std::vector<float>(kCount, 3));
          bad = own.slice(1, there.address());
          bad.device = 1;
          refused({bad}, PARALLAX_UNSUPPORTED,
                  "takes part in reductions among devices with device 0");
        }
        DeviceRank::finish({request, own.end(step)});
        EXPECT_EQ(values.host()[0], 3.f);
      });
}

// Given a rank that keeps its leases and never gives its gradient, expect an end by itself, which
// names the variable: before its communicator has formed, and with a reduction under way, for which
// a stream alone waits. Both ranks give up.
TEST_F(ModuleNcclFailures, WhatDoesNotEndInTimeIsGivenUp) {
  const parallax::testkit::EnvironmentVariable deadline("PARALLAX_NCCL_TIMEOUT_MS", "250");
  for (const bool formed : {false, true}) {
    std::atomic<bool> over{false};
    const uint64_t aborts = cuda_double_calls("ncclCommAbort");
    run(
        2, [](DeviceRank& own) { own.add("w"); },
        [&](DeviceRank& own) {
          const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
          if (formed) {
            const uint64_t step = own.begin();
            DeviceRank::finish({own.reduce(step, own.slice(0, values.address())), own.end(step)});
          }
          while (own.rank == 1 && !over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          if (own.rank == 1) return;
          const Stream reader;
          parallax_request_t* request = own.reduce(own.begin(), own.slice(0, values.address()));
          if (formed) {
            EXPECT_EQ(parallax_stream_wait(&request, 1, 0, reader.get(), PARALLAX_WAIT_DEFAULT),
                      PARALLAX_OK);
          }
          EXPECT_EQ(DeviceRank::wait(request, 15000), PARALLAX_IO) << parallax_last_error();
          const std::string sentence = parallax_last_error();
          EXPECT_NE(sentence.find("the sum of variable 'w' among the devices in step "),
                    std::string::npos)
              << sentence;
          EXPECT_NE(sentence.find(formed ? "within 250 ms of its launch"
                                         : "within 250 ms since its communicator forms"),
                    std::string::npos)
              << sentence;
          auto info = sized<parallax_error_info_t>();
          check(parallax_request_error_info(request, &info));
          EXPECT_EQ(info.variable, 0u);
          while (cuStreamQuery(reader.get()) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
          check(parallax_request_release(request));
          over = true;
        },
        {}, false);
    EXPECT_GE(cuda_double_calls("ncclCommAbort") - aborts, formed ? 2u : 1u);
  }
}

// Given two ranks whose only device is the same, which NCCL refuses, expect host memory to carry
// their variables, by name, and the job to go on.
TEST_F(ModuleNcclFailures, TwoRanksOfOneDeviceGoByHostMemory) {
  cuda_double_reset(1);
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  run(
      2, [](DeviceRank& own) { own.add("w"); },
      [](DeviceRank& own) {
        const std::string plan = own.report(PARALLAX_REPORT_PLAN);
        EXPECT_NE(plan.find("ranks 0 and 1 have one device (0000:3b:00.0)"), std::string::npos)
            << plan;
        const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
        const uint64_t step = own.begin();
        DeviceRank::finish({own.reduce(step, own.slice(0, values.address())), own.end(step)});
        EXPECT_EQ(values.host()[0], 2.f);
      });
  EXPECT_EQ(launched(), 0u);
}

// Of devices that say one bus or one UUID; -1: of each its own.
class ModuleNcclDevices : public NcclJobs {
 protected:
  // Expects host memory to carry the ranks' variables, by these words of the plan; null: NCCL does.
  void expect(int bus, int uuid, const char* words) {
    SCOPED_TRACE(std::to_string(bus) + " " + std::to_string(uuid));
    for (int i = 0; i < 2; ++i) cuda_double_set_identity(i, bus, uuid);
    const uint64_t before = launched();
    run(
        2, [](DeviceRank& own) { own.add("w"); },
        [words](DeviceRank& own) {
          const std::string plan = own.report(PARALLAX_REPORT_PLAN);
          EXPECT_TRUE(words == nullptr || plan.find(words) != std::string::npos) << plan;
          const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
          const uint64_t step = own.begin();
          DeviceRank::finish({own.reduce(step, own.slice(0, values.address())), own.end(step)});
          EXPECT_EQ(values.host()[0], 2.f);
        });
    EXPECT_EQ(launched() - before, words == nullptr ? 2u : 0u);
    for (int i = 0; i < 2; ++i) cuda_double_set_identity(i, -1, -1);
  }
};

TEST_F(ModuleNcclDevices, AreComparedByBusAndUuid) {
  expect(0, -1, "two instances of one GPU (0000:3b:00.0), and NCCL before 2.30");
  expect(-1, 0, "have one device (UUID 5a000000-0000-0000-0000-000000000000), and NCCL");
  expect(0, 0, "have one device (0000:3b:00.0), and NCCL takes one rank for each; show");
  expect(-1, -1, nullptr);
}

// An NCCL that tells instances of a GPU apart, in a process of its own: it is looked for once.
TEST_F(ModuleNcclDevices, AreComparedByUuidAloneFromNccl230On) {
  if (std::getenv("NCCL_DOUBLE_VERSION") == nullptr) {
    const parallax::testkit::EnvironmentVariable version("NCCL_DOUBLE_VERSION", "23000");
    std::string program = "/proc/self/exe";
    std::string filter = "--gtest_filter=ModuleNcclDevices.AreComparedByUuidAloneFromNccl230On";
    char* arguments[] = {program.data(), filter.data(), nullptr};
    pid_t child = -1;
    ASSERT_EQ(posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ), 0);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return;
  }
  expect(0, -1, nullptr);
  expect(-1, 0, "have one device (UUID 5a000000-0000-0000-0000-000000000000), and NCCL");
}

// A wait that only this rank's own calls can end says which.
TEST_F(ModuleNcclFailures, AWaitBeforeAllCallsNamesTheOneThatIsMissing) {
  run(
      1,
      [](DeviceRank& own) {
        own.add("w");
        own.add("v");
      },
      [](DeviceRank& own) {
        const DeviceNumbers<float> w(std::vector<float>(kCount, 1)),
            v(std::vector<float>(kCount, 2));
        const uint64_t step = own.begin();
        parallax_request_t* second = own.reduce(step, own.slice(1, v.address()));
        EXPECT_EQ(DeviceRank::wait(second, 20), PARALLAX_TIMEOUT);
        EXPECT_NE(std::string(parallax_last_error()).find("not launched before variable 'w'"),
                  std::string::npos)
            << parallax_last_error();
        DeviceRank::finish({own.reduce(step, own.slice(0, w.address())), second, own.end(step)});
      });
}

// Parts of a job have communicators of their own, beside that of the whole.
TEST_F(ModuleNcclFailures, PartsHaveCommunicatorsOfTheirOwn) {
  run(
      4, [](DeviceRank& own) { own.add("w"); },
      [](DeviceRank& own) {
        const uint32_t ranks[] = {own.rank % 2, own.rank % 2 + 2};
        DeviceRank part = own;
        check(parallax_split(own.job, ranks, 2, &part.job));
        part.add("in part");
        check(parallax_commit(part.job));
        const DeviceNumbers<float> whole(std::vector<float>(kCount, 1)),
            half(std::vector<float>(kCount, static_cast<float>(own.rank)));
        const uint64_t step = own.begin(), step_of_part = part.begin();
        DeviceRank::finish({own.reduce(step, own.slice(0, whole.address())),
                            part.reduce(step_of_part, part.slice(0, half.address())),
                            part.end(step_of_part), own.end(step)});
        EXPECT_EQ(whole.host()[0], 4.f);
        EXPECT_EQ(half.host()[0], own.rank % 2 == 0 ? 2.f : 4.f);
        check(parallax_close(part.job));
      });
}

// Given a rank that gives no slice and whose context takes a while, expect its calls not to wait
// for it: leases are kept by who has the engine.
TEST_F(ModuleNcclFailures, ARankThatGivesNothingOpensItsDeviceWithoutTheEngine) {
  using Clock = std::chrono::steady_clock;
  auto options = sized<parallax_options_t>();
  DeviceRank own;
  check(parallax_open(&options, &own.job));
  own.add("w");
  check(parallax_commit(own.job));
  const uint64_t step = own.begin();
  cuda_double_set_open_ms(1500);
  const auto start = Clock::now();
  parallax_request_t* ended = own.end(step);
  while (Clock::now() - start < std::chrono::milliseconds(200)) {
    own.report(PARALLAX_REPORT_STATS);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(1000));
  EXPECT_EQ(DeviceRank::wait(ended, 0), PARALLAX_TIMEOUT) << "the context was not slow enough";
  DeviceRank::finish({ended});
  EXPECT_EQ(launched(), 1u);
  check(parallax_close(own.job));
}

// Given a device that cannot be opened, which no call has named, expect the job to say so.
TEST_F(ModuleNcclFailures, ADeviceThatNoCallHasNamedAndCannotBeOpenedFailsTheJob) {
  auto options = sized<parallax_options_t>();
  DeviceRank own;
  check(parallax_open(&options, &own.job));
  own.add("w");
  check(parallax_commit(own.job));
  const uint64_t step = own.begin();
  cuda_double_fail_always("cuDevicePrimaryCtxRetain", CUDA_ERROR_OUT_OF_MEMORY);
  parallax_request_t* ended = own.end(step);
  EXPECT_NE(DeviceRank::wait(ended), PARALLAX_OK);
  EXPECT_NE(std::string(parallax_last_error()).find("device 0"), std::string::npos)
      << parallax_last_error();
  check(parallax_request_release(ended));
  EXPECT_NE(parallax_close(own.job), PARALLAX_OK);
}

}  // namespace
}  // namespace cuda_double_test
