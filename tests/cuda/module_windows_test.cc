// SPDX-License-Identifier: Apache-2.0
// Sums in an order of ours gather into symmetric memory: a window of the library's own, which all
// ranks register when their communicator forms, and each deregisters by itself when it ends.
// module_ordered_test.cc compares what is summed there bit for bit.
#include <nccl.h>

#include <atomic>

#include "cuda/module_ranks.h"

namespace cuda_double_test::windows {
namespace {

constexpr const char* kNone = R"("gather_window_bytes":0,"gather_windows":0)";
constexpr const char* kOne = R"("gather_windows":1)";

void add_one(DeviceRank& own) { own.add("w"); }
void in_order(parallax_options_t* options) { options->deterministic = 1; }

bool told(const DeviceRank& own, const std::string& words) {
  return own.report(PARALLAX_REPORT_STATS).find(words) != std::string::npos;
}

// A step in which rank i gives i + 1 in each element.
void step(const DeviceRank& own, uint32_t variable = 0) {
  const DeviceNumbers<float> values(std::vector<float>(kCount, static_cast<float>(own.rank + 1)));
  const uint64_t step = own.begin();
  DeviceRank::finish({own.reduce(step, own.slice(variable, values.address())), own.end(step)});
  const auto world = static_cast<float>(own.world);
  EXPECT_EQ(values.values(), std::vector<float>(kCount, world * (world + 1) / 2));
}

class ModuleWindows : public NcclJobs {
 protected:
  void SetUp() override {
    NcclJobs::SetUp();
    symmetric_ = nccl_double_symmetric();
    gathers_ = cuda_double_calls("ncclAllGather");
    deregisters_ = cuda_double_calls("ncclCommWindowDeregister");
  }
  void TearDown() override {
    nccl_double_take_windows(1);
    EXPECT_FALSE(log_has("a window is deregistered while")) << log();
    NcclJobs::TearDown();
  }
  uint64_t symmetric() const { return nccl_double_symmetric() - symmetric_; }
  uint64_t gathers() const { return cuda_double_calls("ncclAllGather") - gathers_; }
  uint64_t deregistered() const {
    return cuda_double_calls("ncclCommWindowDeregister") - deregisters_;
  }
  // Two ranks, of which the second never gives what the first waits for, and ends the job.
  void abort_under_way(bool formed) {
    std::atomic<bool> waiting{false};
    run(
        2, add_one,
        [&](DeviceRank& own) {
          if (formed) step(own);
          if (own.rank == 1) {
            while (!waiting) std::this_thread::yield();
            check(parallax_abort(own.job, "enough"));
            return;
          }
          const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
          parallax_request_t* request = own.reduce(own.begin(), own.slice(0, values.address()));
          EXPECT_EQ(DeviceRank::wait(request, 50), PARALLAX_TIMEOUT);
          EXPECT_EQ(told(own, kNone), !formed);
          waiting = true;
          EXPECT_EQ(DeviceRank::wait(request), PARALLAX_ABORTED);
          check(parallax_request_release(request));
        },
        in_order, false);
  }

 private:
  uint64_t symmetric_ = 0, gathers_ = 0, deregisters_ = 0;
};

TEST_F(ModuleWindows, WhatRanksGiveIsGatheredInSymmetricMemory) {
  for (const int answers : {0, 2}) {
    nccl_double_set_launch_in_progress(answers);
    cuda_double_set_delay(5, 100);
    run(
        3, add_one,
        [](DeviceRank& own) {
          EXPECT_TRUE(told(own, kNone)) << "there is no communicator yet";
          for (int i = 0; i < 3; ++i) step(own);
          EXPECT_TRUE(told(own, kOne)) << own.report(PARALLAX_REPORT_STATS);
        },
        in_order);
    cuda_double_set_delay(0, 0);
  }
  EXPECT_EQ(gathers(), 2u * 3 * 3);
  EXPECT_EQ(symmetric(), gathers());
  EXPECT_EQ(deregistered(), 2u * 3) << "before the communicators end";
  EXPECT_FALSE(log_has("registrations are left")) << log();
}

// What the program told the job of is not NCCL's to read then, and is not registered.
TEST_F(ModuleWindows, WhatTheProgramGivesIsNotRegistered) {
  const uint64_t before = cuda_double_calls("ncclCommRegister");
  run(
      2, add_one,
      [](DeviceRank& own) {
        const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
        check(parallax_buffer_register(own.job, values.address(), kCount * sizeof(float)));
        const uint64_t step = own.begin();
        DeviceRank::finish({own.reduce(step, own.slice(0, values.address())), own.end(step)});
        EXPECT_EQ(values.host()[0], 2.f);
        check(parallax_buffer_unregister(own.job, values.address()));
      },
      in_order);
  EXPECT_EQ(cuda_double_calls("ncclCommRegister"), before);
}

// Where devices do not reach each other's memory NCCL takes none, and it is memory as any.
TEST_F(ModuleWindows, WithoutAWindowTheSumsAreTheSame) {
  nccl_double_take_windows(0);
  run(
      3, add_one,
      [](DeviceRank& own) {
        step(own);
        EXPECT_TRUE(told(own, kNone)) << own.report(PARALLAX_REPORT_STATS);
      },
      in_order);
  EXPECT_EQ(gathers(), 3u);
  EXPECT_EQ(symmetric(), 0u);
  EXPECT_EQ(deregistered(), 0u);
}

// Where NCCL sums, each rank's memory is its program's, whose places nobody has agreed on.
TEST_F(ModuleWindows, SumsOfNcclsHaveNone) {
  const uint64_t before = cuda_double_calls("ncclCommWindowRegister");
  run(2, add_one, [](DeviceRank& own) {
    step(own);
    EXPECT_TRUE(told(own, kNone));
  });
  EXPECT_EQ(cuda_double_calls("ncclCommWindowRegister"), before);
}

TEST_F(ModuleWindows, EachGroupHasItsOwn) {
  run(
      2, add_one,
      [](DeviceRank& own) {
        step(own);
        const uint32_t ranks[] = {1, 0};
        DeviceRank part = own;
        check(parallax_split(own.job, ranks, 2, &part.job));
        part.add("in part");
        check(parallax_commit(part.job));
        step(part);
        EXPECT_TRUE(told(part, kOne));
        check(parallax_close(part.job));
        step(own);
      },
      in_order);
  EXPECT_EQ(symmetric(), 3u * 2);
  EXPECT_EQ(deregistered(), 2u * 2);
}

// A rank that fails in a call of all fails the job of all, with the name of the call.
TEST_F(ModuleWindows, WhatFailsWhileTheyFormFailsTheJob) {
  for (const char* function : {"ncclMemAlloc", "ncclCommWindowRegister"}) {
    for (int code = ncclUnhandledCudaError; code <= ncclRemoteError; ++code) {
      SCOPED_TRACE(std::string(function) + ", " + std::to_string(code));
      std::atomic<int> named{0};
      cuda_double_fail(function, 1, code, 0);  // of whichever rank is first
      run(
          2, add_one,
          [&](DeviceRank& own) {
            const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
            parallax_request_t* request = own.reduce(own.begin(), own.slice(0, values.address()));
            EXPECT_NE(DeviceRank::wait(request), PARALLAX_OK);
            const std::string sentence = parallax_last_error();
            named += sentence.find(function) != std::string::npos ? 1 : 0;
            check(parallax_request_release(request));
          },
          in_order, false);
      EXPECT_GE(named, 1);
      cuda_double_clear_failures();
    }
  }
  EXPECT_EQ(gathers(), 0u);
}

TEST_F(ModuleWindows, ACopyThatFailsFailsTheJobWithItsName) {
  run(
      1, add_one,
      [](DeviceRank& own) {
        step(own);
        cuda_double_fail("cuMemcpyDtoDAsync_v2", 1, CUDA_ERROR_LAUNCH_FAILED, 0);
        const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
        parallax_request_t* request = own.reduce(own.begin(), own.slice(0, values.address()));
        EXPECT_EQ(DeviceRank::wait(request), PARALLAX_IO);
        EXPECT_NE(std::string(parallax_last_error()).find("of what this rank gives"),
                  std::string::npos)
            << parallax_last_error();
        check(parallax_request_release(request));
      },
      in_order, false);
}

// The communicator is given up while it forms.
TEST_F(ModuleWindows, AnAbortWhileTheyFormLeavesNothing) {
  abort_under_way(false);
  EXPECT_EQ(gathers(), 0u);
}

// The window goes with the communicator, and its memory behind what the stream has.
TEST_F(ModuleWindows, WhatIsUnderWayAtAnAbortKeepsItsWindow) { abort_under_way(true); }

}  // namespace
}  // namespace cuda_double_test::windows
