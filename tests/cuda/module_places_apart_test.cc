// SPDX-License-Identifier: Apache-2.0
// Variables with a place whose ranks do not agree on it, or whose NCCL has no windows: they are
// summed as any, and every rank says why in the same words. And what registered memory comes to
// where a job fails. module_places_test.cc has the rest.
#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <functional>
#include <set>

#include "cuda/module_places.h"
#include "support/environment_variable.h"

extern char** environ;

namespace cuda_double_test::places {
namespace {

// What the plan says of the first variable, from "in no window" on.
std::string why_of(const DeviceRank& own) {
  const std::string plan = own.report(PARALLAX_REPORT_PLAN);
  const size_t at = plan.find(kInNone);
  return at == std::string::npos ? "" : plan.substr(at, plan.find('"', at) - at);
}

class ModulePlacesApart : public PlacedJobs {
 protected:
  using Add = std::function<void(DeviceRank& own)>;
  // Ranks that register by `add`, of which the first variable lies `at` floats into their memory;
  // what their plans say, in as many words as there are different ones.
  std::set<std::string> reasons(uint32_t world, const Add& add,
                                const std::function<uint64_t(uint32_t rank)>& at,
                                uint64_t windows = 0,
                                const std::function<void(parallax_options_t*)>& adjust = {}) {
    std::vector<std::string> told(world);
    run(
        world, add,
        [&](DeviceRank& own) {
          told[own.rank] = why_of(own);
          for (int i = 0; i < 2; ++i) {
            step_in_place(own, 0, memory_[own.rank], at(own.rank));
          }
          EXPECT_TRUE(has_windows(own, windows)) << own.report(PARALLAX_REPORT_STATS);
        },
        adjust);
    return {told.begin(), told.end()};
  }
  static void expect_one(const std::set<std::string>& reasons, const std::string& words) {
    ASSERT_EQ(reasons.size(), 1u) << *reasons.begin() << "; " << *reasons.rbegin();
    EXPECT_NE(reasons.begin()->find(words), std::string::npos) << *reasons.begin();
  }
  // Two ranks, of which the second never gives what the first waits for, and ends the job.
  void abort_under_way(bool formed) {
    std::atomic<bool> waiting{false};
    run(
        2,
        [this](DeviceRank& own) {
          memory_[own.rank].allocate(own);
          add_placed(own, "w", memory_[own.rank].address(1));
        },
        [&](DeviceRank& own) {
          if (formed) step_in_place(own, 0, memory_[own.rank], 1);
          if (own.rank == 1) {
            while (!waiting) std::this_thread::yield();
            check(parallax_abort(own.job, "enough"));
            return;
          }
          parallax_request_t* request =
              own.reduce(own.begin(), own.slice(0, memory_[0].address(1)));
          EXPECT_EQ(DeviceRank::wait(request, 50), PARALLAX_TIMEOUT);
          EXPECT_TRUE(has_windows(own, formed ? 1 : 0));
          waiting = true;
          EXPECT_EQ(DeviceRank::wait(request), PARALLAX_ABORTED);
          check(parallax_request_release(request));
          EXPECT_EQ(parallax_buffer_free(own.job, memory_[0].begin()), PARALLAX_STATE)
              << "until the job is closed";
        },
        {}, false);
  }
};

TEST_F(ModulePlacesApart, OffsetsThatDiffer) {
  const auto at = [](uint32_t rank) { return rank == 2 ? 6u : 1u; };
  expect_one(reasons(
                 3,
                 [&](DeviceRank& own) {
                   memory_[own.rank].allocate(own);
                   add_placed(own, "w", memory_[own.rank].address(at(own.rank)));
                 },
                 at),
             "buffer 1 of those that places of the commit lie in differs on rank 0 (host");
  EXPECT_EQ(registered(), 0u);
  EXPECT_EQ(symmetric(), 0u);
}

// A later commit that agrees does not put what lies at other offsets into a window.
TEST_F(ModulePlacesApart, ABufferThatDifferedIsNoWindowLater) {
  run(
      2,
      [this](DeviceRank& own) {
        memory_[own.rank].allocate(own);
        add_placed(own, "first", memory_[own.rank].address(own.rank));
      },
      [this](DeviceRank& own) {
        const PlacedMemory& memory = memory_[own.rank];
        step_in_place(own, 0, memory, own.rank);
        EXPECT_EQ(add_placed(own, "second", memory.address(64)), 1u);
        check(parallax_commit(own.job));
        EXPECT_TRUE(planned(own, "has places of an earlier commit in it on rank"))
            << own.report(PARALLAX_REPORT_PLAN);
        memory.fill(own.rank, 1);
        memory.fill(64, 2);
        const uint64_t step = own.begin();
        DeviceRank::finish({own.reduce(step, own.slice(0, memory.address(own.rank))),
                            own.reduce(step, own.slice(1, memory.address(64))), own.end(step)});
        EXPECT_EQ(memory.values(own.rank), std::vector<float>(kCount, 2));
        EXPECT_EQ(memory.values(64), std::vector<float>(kCount, 4));
      });
  EXPECT_EQ(registered(), 0u);
}

TEST_F(ModulePlacesApart, SizesThatDiffer) {
  expect_one(reasons(
                 2,
                 [&](DeviceRank& own) {
                   memory_[own.rank].allocate(own, 1, own.rank == 0 ? kBytes : 2 * kBytes);
                   add_placed(own, "w", memory_[own.rank].address(1));
                 },
                 [](uint32_t) { return 1; }),
             "and rank 1 (host");
  EXPECT_EQ(registered(), 0u);
}

TEST_F(ModulePlacesApart, ARankThatPromisesNothing) {
  for (const uint32_t silent : {0, 2}) {
    expect_one(reasons(
                   3,
                   [&](DeviceRank& own) {
                     memory_[own.rank].allocate(own);
                     own.rank == silent ? own.add("w")
                                        : add_placed(own, "w", memory_[own.rank].address(1));
                   },
                   [](uint32_t) { return 1; }),
               "buffer 1 of those that places of the commit lie in differs on rank");
  }
  EXPECT_EQ(registered(), 0u);
}

TEST_F(ModulePlacesApart, MemoryThatIsNotNccls) {
  expect_one(reasons(
                 2,
                 [&](DeviceRank& own) {
                   memory_[own.rank].allocate(own, own.rank == 0 ? 1 : 0);
                   add_placed(own, "w", memory_[own.rank].address(1));
                 },
                 [](uint32_t) { return 1; }),
             "is not of NCCL's memory on rank 1 (host");
}

// A rank takes part with one device.
TEST_F(ModulePlacesApart, PlacesOnTwoDevices) {
  std::vector<PlacedMemory> other(2);
  expect_one(reasons(
                 2,
                 [&](DeviceRank& own) {
                   memory_[own.rank].allocate(own);
                   other[own.rank].allocate_on(own, own.rank == 1 ? 2 : own.device(), 1, kBytes);
                   add_placed(own, "a", memory_[own.rank].address(1));
                   add_placed(own, "b", other[own.rank].address(1));
                 },
                 [](uint32_t) { return 1; }, 1),
             "buffer 2 of those that places of the commit lie in is not on the device that rank 1");
  EXPECT_EQ(registered(), 2u) << "of the first buffer";
}

// The buffers that agree are windows, whatever else there is.
TEST_F(ModulePlacesApart, OneBufferOfTwo) {
  std::vector<PlacedMemory> other(2);
  run(
      2,
      [&](DeviceRank& own) {
        memory_[own.rank].allocate(own);
        other[own.rank].allocate(own);
        add_placed(own, "a", memory_[own.rank].address(1));
        add_placed(own, "b", other[own.rank].address(own.rank));
        // Out of one into the other.
        add_placed(own, "c", memory_[own.rank].address(64), other[own.rank].address(64));
      },
      [&](DeviceRank& own) {
        EXPECT_TRUE(planned(own, "buffer 2 of those that places"));
        EXPECT_TRUE(planned(own, kInWindows)) << "the first";
        for (int i = 0; i < 3; ++i) {
          memory_[own.rank].fill(1, 1);
          other[own.rank].fill(own.rank, 2);
          memory_[own.rank].fill(64, 3);
          const uint64_t step = own.begin();
          parallax_slice_t c = own.slice(2, memory_[own.rank].address(64));
          c.into = other[own.rank].address(64);
          std::vector<parallax_request_t*> requests = {
              own.reduce(step, own.slice(0, memory_[own.rank].address(1))),
              own.reduce(step, own.slice(1, other[own.rank].address(own.rank)))};
          // A rank that gives nothing of it takes part from where the others do.
          const bool given = i < 2 || own.rank == 0;
          if (given) requests.push_back(own.reduce(step, c));
          requests.push_back(own.end(step));
          DeviceRank::finish(requests);
          EXPECT_EQ(memory_[own.rank].values(1), std::vector<float>(kCount, 2));
          EXPECT_EQ(other[own.rank].values(own.rank), std::vector<float>(kCount, 4));
          EXPECT_EQ(other[own.rank].values(64), std::vector<float>(kCount, i < 2 ? 6.f : 3.f));
        }
        EXPECT_TRUE(has_windows(own, 1));
      });
  EXPECT_EQ(symmetric(), 2u * 3);
}

TEST_F(ModulePlacesApart, MoreBuffersThanACommitRegisters) {
  constexpr uint32_t kBuffers = 10;
  std::vector<PlacedMemory> all(2 * kBuffers);
  run(
      2,
      [&](DeviceRank& own) {
        for (uint32_t i = 0; i < kBuffers; ++i) {
          all[own.rank * kBuffers + i].allocate(own);
          add_placed(own, ("v" + std::to_string(10 + i)).c_str(),
                     all[own.rank * kBuffers + i].address(1));
        }
      },
      [&](DeviceRank& own) {
        EXPECT_TRUE(planned(own, "lie in more than 8 buffers of a rank"));
        const uint64_t step = own.begin();
        std::vector<parallax_request_t*> requests;
        for (uint32_t i = 0; i < kBuffers; ++i) {
          all[own.rank * kBuffers + i].fill(1, static_cast<float>(i));
          requests.push_back(
              own.reduce(step, own.slice(i, all[own.rank * kBuffers + i].address(1))));
        }
        requests.push_back(own.end(step));
        DeviceRank::finish(requests);
        for (uint32_t i = 0; i < kBuffers; ++i) {
          EXPECT_EQ(all[own.rank * kBuffers + i].values(1)[0], static_cast<float>(2 * i));
        }
        EXPECT_TRUE(has_windows(own, 8));
      });
  EXPECT_EQ(symmetric(), 2u * 8);
}

// ---- no windows at all

TEST_F(ModulePlacesApart, SumsInOrderAndWithinHosts) {
  const Add add = [&](DeviceRank& own) {
    memory_[own.rank].allocate(own);
    add_placed(own, "w", memory_[own.rank].address(1));
  };
  const auto at = [](uint32_t) { return 1; };
  expect_one(
      reasons(2, add, at, 0, [](parallax_options_t* options) { options->deterministic = 1; }),
      "deterministic is 1");
  const parallax::testkit::EnvironmentVariable setting("PARALLAX_NCCL", "host");
  expect_one(reasons(4, add, at, 0,
                     [](parallax_options_t* options) {
                       options->host = options->rank < 2 ? "one" : "other";
                     }),
             "the setting nccl is host");
  EXPECT_EQ(registered(), 2u) << "what sums in an order gather into";
}

// Where devices do not reach each other's memory NCCL takes none, and it is memory as any.
TEST_F(ModulePlacesApart, WhereNcclTakesNoneTheSumsAreTheSame) {
  nccl_double_take_windows(0);
  run(
      3,
      [this](DeviceRank& own) {
        memory_[own.rank].allocate(own);
        add_placed(own, "w", memory_[own.rank].address(1));
      },
      [this](DeviceRank& own) {
        step_in_place(own, 0, memory_[own.rank], 1);
        EXPECT_TRUE(has_windows(own, 0));
      });
  EXPECT_EQ(registered(), 3u);
  EXPECT_EQ(deregistered(), 0u);
}

// With an NCCL before 2.27, in a process of its own.
TEST_F(ModulePlacesApart, AnOlderNcclHasNone) {
  int version = 0;
  ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
  if (version >= NCCL_VERSION(2, 27, 0)) {
    const parallax::testkit::EnvironmentVariable path("LD_LIBRARY_PATH",
                                                      PARALLAX_CUDA_DOUBLE "_2.18");
    std::string program = "/proc/self/exe";
    std::string filter = "--gtest_filter=ModulePlacesApart.AnOlderNcclHasNone";
    char* arguments[] = {program.data(), filter.data(), nullptr};
    pid_t child = -1;
    ASSERT_EQ(posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ), 0);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return;
  }
  expect_one(reasons(
                 2,
                 [&](DeviceRank& own) {
                   memory_[own.rank].allocate(own);
                   add_placed(own, "w", memory_[own.rank].address(1));
                 },
                 [](uint32_t) { return 1; }),
             "not every rank's NCCL has windows, which are of 2.27");
  EXPECT_EQ(registered(), 0u);
}

// ---- failures

// A rank that fails in a call of all fails the job of all, with the name of the call.
TEST_F(ModulePlacesApart, WhatFailsWhileTheyRegisterFailsTheJob) {
  for (int code = ncclUnhandledCudaError; code <= ncclRemoteError; ++code) {
    SCOPED_TRACE(code);
    std::atomic<int> named{0};
    cuda_double_fail("ncclCommWindowRegister", 1, code, 0);  // of whichever rank is first
    run(
        2,
        [this](DeviceRank& own) {
          memory_[own.rank].allocate(own);
          add_placed(own, "w", memory_[own.rank].address(1));
        },
        [&](DeviceRank& own) {
          parallax_request_t* request =
              own.reduce(own.begin(), own.slice(0, memory_[own.rank].address(1)));
          EXPECT_NE(DeviceRank::wait(request), PARALLAX_OK);
          const std::string sentence = parallax_last_error();
          named += sentence.find("of memory that variables lie in") != std::string::npos ? 1 : 0;
          check(parallax_request_release(request));
        },
        {}, false);
    EXPECT_GE(named, 1);
    cuda_double_clear_failures();
  }
}

// The communicator ends behind it, and takes the window along.
TEST_F(ModulePlacesApart, AWindowThatIsNotTakenBackGoesWithTheCommunicator) {
  for (int code = ncclUnhandledCudaError; code <= ncclRemoteError; ++code) {
    cuda_double_fail_always("ncclCommWindowDeregister", code);
    run(
        2,
        [this](DeviceRank& own) {
          memory_[own.rank].allocate(own);
          add_placed(own, "w", memory_[own.rank].address(1));
        },
        [this](DeviceRank& own) { step_in_place(own, 0, memory_[own.rank], 1); });
    cuda_double_clear_failures();
  }
}

TEST_F(ModulePlacesApart, ZerosThatCannotBeWrittenFailTheJobWithTheirName) {
  run(
      1,
      [this](DeviceRank& own) {
        memory_[0].allocate(own);
        add_placed(own, "w", memory_[0].address(1));
      },
      [this](DeviceRank& own) {
        step_in_place(own, 0, memory_[0], 1);
        cuda_double_fail("cuMemsetD8Async", 1, CUDA_ERROR_LAUNCH_FAILED, 0);
        parallax_request_t* request = own.end(own.begin());
        EXPECT_EQ(DeviceRank::wait(request), PARALLAX_IO);
        EXPECT_TRUE(told("of a variable's place")) << parallax_last_error();
        check(parallax_request_release(request));
      },
      {}, false);
}

TEST_F(ModulePlacesApart, AnAbortWhileTheyRegisterLeavesNothing) { abort_under_way(false); }

// The windows go with the communicator, and their memory with the job, behind what the device has.
TEST_F(ModulePlacesApart, WhatIsUnderWayAtAnAbortKeepsItsWindow) { abort_under_way(true); }

}  // namespace
}  // namespace cuda_double_test::places
