// SPDX-License-Identifier: Apache-2.0
// Calls of the driver and of NCCL that take long, while the rank goes on: its other variables'
// steps end, and its leases are kept, since both need the pass of the engine.
#include <nccl.h>

#include <atomic>
#include <barrier>
#include <future>
#include <thread>

#include "cuda/held.h"
#include "cuda/module_places.h"

namespace cuda_double_test::meanwhile {
namespace {

parallax_request_t* reduce_on_host(const DeviceRank& own, uint64_t step, uint32_t variable,
                                   std::vector<float>& values) {
  auto slice = sized<parallax_slice_t>();
  slice.variable = variable;
  slice.values = values.data();
  return own.reduce(step, slice);
}

void whole_step_on_host(const DeviceRank& own) {
  std::vector<float> values(kCount, static_cast<float>(own.rank + 1));
  const uint64_t step = own.begin();
  DeviceRank::finish({reduce_on_host(own, step, 0, values), own.end(step)});
  EXPECT_EQ(values[0], 3.f);
}

class ModuleMeanwhile : public NcclJobs {
 protected:
  std::atomic<bool> let_go_ = false;  // what hold() held

  void TearDown() override {
    cuda_double_hold_call(nullptr);
    NcclJobs::TearDown();
  }

  // Two ranks: `begin` gives what leads to the call, and while that is held, on `callers` of them,
  // steps of another group of theirs end; then what was begun does.
  using Begin = std::function<std::vector<parallax_request_t*>(DeviceRank& own, uint64_t step)>;
  void hold(
      const char* function, uint64_t callers, const Begin& begin, const NcclJobs::Body& check_end,
      uint32_t deterministic = 0,
      const NcclJobs::Body& add = [](DeviceRank& own) { own.add("w"); }) {
    std::barrier both(2);
    std::unique_ptr<HeldCall> held;
    run(
        2, add,
        [&](DeviceRank& own) {
          DeviceRank part = own;
          const uint32_t ranks[] = {0, 1};
          check(parallax_split(own.job, ranks, 2, &part.job));
          part.add_on_host("of the part");
          check(parallax_commit(part.job));
          const uint64_t step = own.begin();
          both.arrive_and_wait();
          if (own.rank == 0) held = std::make_unique<HeldCall>(function);
          both.arrive_and_wait();
          const auto begun = begin(own, step);
          held->await(callers);
          for (int i = 0; i < 3; ++i) whole_step_on_host(part);
          EXPECT_EQ(DeviceRank::wait(begun.back(), 0), PARALLAX_TIMEOUT);
          both.arrive_and_wait();
          if (own.rank == 0) {
            let_go_ = true;
            held.reset();
          }
          DeviceRank::finish(begun);
          check_end(own);
          check(parallax_close(part.job));
        },
        [&](parallax_options_t* options) { options->deterministic = deterministic; });
  }
};

TEST_F(ModuleMeanwhile, MemoryForZerosIsAllocated) {
  const Current current(0);
  const DeviceNumbers<float> values(std::vector<float>(kCount, 5));
  hold(
      "cuMemAlloc_v2", 1,
      [&](DeviceRank& own, uint64_t step) {
        std::vector<parallax_request_t*> begun;
        if (own.rank == 0) begun.push_back(own.reduce(step, own.slice(0, values.address())));
        begun.push_back(own.end(step));
        return begun;
      },
      [&](DeviceRank& own) {
        if (own.rank == 0) {
          EXPECT_EQ(values.values(), std::vector<float>(kCount, 5));
        }
      });
}

// Given a launch of two variables, one in a window, and a rank that gives neither, expect it to
// register the window first, and zeros at the one's place and in memory for the other.
TEST_F(ModuleMeanwhile, MemoryForZerosIsAllocatedBesideAWindow) {
  std::vector<places::PlacedMemory> memory(2);
  const Current current(0);
  const DeviceNumbers<float> values(std::vector<float>(kCount, 5));
  const std::vector<float> placed(kCount, 7);
  hold(
      "cuMemAlloc_v2", 1,
      [&](DeviceRank& own, uint64_t step) {
        std::vector<parallax_request_t*> begun;
        memory[own.rank].fill(0, 7);
        if (own.rank == 0) {
          begun.push_back(own.reduce(step, own.slice(0, memory[0].address(0))));
          begun.push_back(own.reduce(step, own.slice(1, values.address())));
        }
        begun.push_back(own.end(step));
        return begun;
      },
      [&](DeviceRank& own) {
        EXPECT_TRUE(places::has_windows(own, 1)) << own.report(PARALLAX_REPORT_STATS);
        EXPECT_EQ(memory[own.rank].values(0), placed);
        if (own.rank == 0) {
          EXPECT_EQ(values.values(), std::vector<float>(kCount, 5));
        }
      },
      0,
      [&](DeviceRank& own) {
        memory[own.rank].allocate(own);
        places::add_placed(own, "placed", memory[own.rank].address(0));
        own.add("w");
      });
}

// Each rank on its device.
struct Given {
  Given() {
    for (int i = 0; i < 2; ++i) {
      const Current current(i);
      values.push_back(std::make_unique<DeviceNumbers<float>>(
          std::vector<float>(kCount, static_cast<float>(i + 1))));
    }
  }
  ~Given() {
    for (int i = 0; i < 2; ++i) {
      const Current current(i);
      values[static_cast<size_t>(i)].reset();
    }
  }
  std::vector<parallax_request_t*> give(DeviceRank& own, uint64_t step) const {
    return {own.reduce(step, own.slice(0, values[own.rank]->address())), own.end(step)};
  }
  void check_sum(DeviceRank& own) const {
    EXPECT_EQ(values[own.rank]->values(), std::vector<float>(kCount, 3));
  }
  // Kept as long as there is memory of theirs.
  const Current first{0}, second{1};
  std::vector<std::unique_ptr<DeviceNumbers<float>>> values;
};

TEST_F(ModuleMeanwhile, MemoryThatRanksGatherInIsAllocated) {
  const Given given;
  hold(
      "ncclMemAlloc", 2, [&](DeviceRank& own, uint64_t step) { return given.give(own, step); },
      [&](DeviceRank& own) { given.check_sum(own); }, 1);
}

TEST_F(ModuleMeanwhile, ABufferIsRegistered) {
  const Given given;
  hold(
      "ncclCommRegister", 2,
      [&](DeviceRank& own, uint64_t step) {
        check(parallax_buffer_register(own.job, given.values[own.rank]->address(),
                                       kCount * sizeof(float)));
        return given.give(own, step);
      },
      [&](DeviceRank& own) {
        given.check_sum(own);
        EXPECT_NE(own.report(PARALLAX_REPORT_STATS).find(R"("registered_buffers":1)"),
                  std::string::npos);
        check(parallax_buffer_unregister(own.job, given.values[own.rank]->address()));
      });
}

// Given one that is to go while NCCL registers another, expect it to go behind that, and the rank
// not to wait; or to stay, where NCCL does not let go of it.
class ModuleMeanwhileGoes : public ModuleMeanwhile, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(, ModuleMeanwhileGoes,
                         testing::Values(ncclSuccess, ncclUnhandledCudaError, ncclRemoteError));

TEST_P(ModuleMeanwhileGoes, ABufferGoesOnceAnotherIsRegistered) {
  const Given one, other;
  const uint64_t before = cuda_double_calls("ncclCommDeregister");
  const bool keeps = GetParam() != ncclSuccess;
  std::vector<std::future<parallax_status_t>> gone(2);
  std::atomic<int> asked = 0;
  std::barrier both(2);
  hold(
      "ncclCommRegister", 4,
      [&](DeviceRank& own, uint64_t step) {
        for (const Given* each : {&one, &other}) {
          check(parallax_buffer_register(own.job, each->values[own.rank]->address(),
                                         kCount * sizeof(float)));
        }
        cuda_double_hold_call(nullptr);
        DeviceRank::finish(one.give(own, step));
        both.arrive_and_wait();
        if (own.rank == 0) {
          cuda_double_hold_call("ncclCommRegister");
          if (keeps) cuda_double_fail_always("ncclCommDeregister", GetParam());
        }
        both.arrive_and_wait();
        auto begun = other.give(own, own.begin());
        gone[own.rank] = std::async(std::launch::async, [&] {
          ++asked;
          const auto status = parallax_buffer_unregister(own.job, one.values[own.rank]->address());
          EXPECT_TRUE(let_go_) << "NCCL is called beside a registration";
          return status;
        });
        while (asked < 2) std::this_thread::yield();
        return begun;
      },
      [&](DeviceRank& own) {
        EXPECT_EQ(gone[own.rank].get(), keeps ? PARALLAX_IO : PARALLAX_OK);
        both.arrive_and_wait();
        if (own.rank == 0) cuda_double_clear_failures();
        both.arrive_and_wait();
        const std::string left = keeps ? "2" : "1";
        EXPECT_NE(own.report(PARALLAX_REPORT_STATS).find(R"("registered_buffers":)" + left),
                  std::string::npos);
        other.check_sum(own);
        check(parallax_buffer_unregister(own.job, other.values[own.rank]->address()));
      });
  EXPECT_EQ(cuda_double_calls("ncclCommDeregister") - before, 4u);
}

// Each rank's first buffer is registered, and goes, by a thread; true once NCCL was asked.
struct Leaving {
  explicit Leaving(uint64_t ranks) : calls(cuda_double_calls("ncclCommDeregister") + ranks) {}
  void go(DeviceRank& own, void* address) {
    gone[own.rank] = std::async(std::launch::async, [&own, address, this] {
      const parallax_status_t status = parallax_buffer_unregister(own.job, address);
      over = true;
      return status;
    });
    while (cuda_double_calls("ncclCommDeregister") < calls) std::this_thread::yield();
  }
  const uint64_t calls;
  std::atomic<bool> over = false;
  std::vector<std::future<parallax_status_t>> gone = std::vector<std::future<parallax_status_t>>(2);
};

// Given NCCL that takes long to let go of a buffer, expect who gives it back to wait, and the next
// reduction, and nobody else.
TEST_F(ModuleMeanwhile, ABufferGoes) {
  const Given given, other;
  Leaving leaving(2);
  hold(
      "ncclCommDeregister", 2,
      [&](DeviceRank& own, uint64_t step) {
        void* const address = given.values[own.rank]->address();
        check(parallax_buffer_register(own.job, address, kCount * sizeof(float)));
        DeviceRank::finish(given.give(own, step));
        leaving.go(own, address);
        EXPECT_FALSE(leaving.over);
        EXPECT_NE(own.report(PARALLAX_REPORT_STATS).find(R"("registered_buffers":1)"),
                  std::string::npos);
        return other.give(own, own.begin());
      },
      [&](DeviceRank& own) {
        EXPECT_EQ(leaving.gone[own.rank].get(), PARALLAX_OK);
        EXPECT_NE(own.report(PARALLAX_REPORT_STATS).find(R"("registered_buffers":0)"),
                  std::string::npos);
        other.check_sum(own);
      });
  EXPECT_EQ(cuda_double_calls("ncclCommDeregister"), leaving.calls);
}

// Given a job that ends meanwhile, expect NCCL to be asked once, and nobody to go on before.
TEST_F(ModuleMeanwhile, AJobEndsWhileABufferGoes) {
  const Given given;
  Leaving leaving(2);
  std::barrier both(2);
  std::unique_ptr<HeldCall> held;
  run(
      2, [](DeviceRank& own) { own.add("w"); },
      [&](DeviceRank& own) {
        void* const address = given.values[own.rank]->address();
        check(parallax_buffer_register(own.job, address, kCount * sizeof(float)));
        DeviceRank::finish(given.give(own, own.begin()));
        both.arrive_and_wait();
        if (own.rank == 0) held = std::make_unique<HeldCall>("ncclCommDeregister");
        both.arrive_and_wait();
        leaving.go(own, address);
        both.arrive_and_wait();
        check(parallax_abort(own.job, "the test ends it"));
        EXPECT_FALSE(leaving.over);
        both.arrive_and_wait();
        if (own.rank == 0) held.reset();
        EXPECT_EQ(leaving.gone[own.rank].get(), PARALLAX_OK);
        EXPECT_NE(parallax_close(own.job), PARALLAX_OK);
        own.job = nullptr;
      },
      {}, false);
  EXPECT_EQ(cuda_double_calls("ncclCommDeregister"), leaving.calls);
}

// Given a job that fails with reductions under way, expect everything else of it to end at once,
// and those when NCCL has given them up.
TEST_F(ModuleMeanwhile, ACommunicatorIsGivenUp) {
  const Given given;
  std::barrier both(2);
  std::unique_ptr<HeldCall> held;
  run(
      2,
      [](DeviceRank& own) {
        own.add("w");
        own.add_on_host("h");
      },
      [&](DeviceRank& own) {
        const uint64_t first = own.begin();
        DeviceRank::finish(
            {own.reduce(first, own.slice(0, given.values[own.rank]->address())), own.end(first)});
        if (own.rank == 0) held = std::make_unique<HeldCall>("ncclCommAbort");
        both.arrive_and_wait();
        const uint64_t step = own.begin();
        if (own.rank == 0) {
          std::vector<float> values(kCount, 1);
          parallax_request_t* on_host = reduce_on_host(own, step, 1, values);
          parallax_request_t* on_device =
              own.reduce(step, own.slice(0, given.values[0]->address()));
          EXPECT_EQ(DeviceRank::wait(on_device, 20), PARALLAX_TIMEOUT);
          both.arrive_and_wait();
          held->await(2);
          EXPECT_EQ(DeviceRank::wait(on_host), PARALLAX_ABORTED) << parallax_last_error();
          EXPECT_EQ(DeviceRank::wait(on_device, 0), PARALLAX_TIMEOUT)
              << "its buffers are NCCL's still";
          own.report(PARALLAX_REPORT_STATS);
          held.reset();
          EXPECT_EQ(DeviceRank::wait(on_device), PARALLAX_ABORTED) << parallax_last_error();
          for (parallax_request_t* each : {on_host, on_device}) {
            check(parallax_request_release(each));
          }
        } else {
          both.arrive_and_wait();
          EXPECT_EQ(parallax_abort(own.job, "enough"), PARALLAX_OK);
        }
        both.arrive_and_wait();
      },
      {}, false);
}

}  // namespace
}  // namespace cuda_double_test::meanwhile
