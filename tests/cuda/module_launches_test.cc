// SPDX-License-Identifier: Apache-2.0
// When sums among devices are launched, and who is told of their end: by the call that gives what
// is due, without a thread that would have to wake for it; and only where somebody sleeps.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "cuda/held.h"
#include "cuda/module_ranks.h"
#include "support/environment_variable.h"

namespace cuda_double_test {
namespace {

// A number that a device writes meanwhile, for who looks until it has.
__attribute__((noinline, no_sanitize("thread"))) float peek(const volatile float* at) {
  return *at;
}

class Launches : public NcclJobs {
 protected:
  // `body` with a variable whose communicator is there.
  static void run_formed(const std::function<void(DeviceRank&)>& body, bool manual) {
    run(
        1, [](DeviceRank& own) { own.add("w"); },
        [&](DeviceRank& own) {
          const DeviceNumbers<float> given(std::vector<float>(kCount, 1));
          const uint64_t step = own.begin();
          DeviceRank::finish({own.reduce(step, own.slice(0, given.address())), own.end(step)});
          body(own);
        },
        [&](parallax_options_t* options) { options->manual_progress = manual ? 1 : 0; });
  }
};

// Given a job that nobody drives, expect the sum of a call behind which nothing is called.
TEST_F(Launches, ACallLaunchesWhatIsDue) {
  run_formed(
      [](DeviceRank& own) {
        const Stream stream;
        const DeviceNumbers<float> given(std::vector<float>(kCount, 3));
        const DeviceNumbers<float> into(std::vector<float>(kCount, 0));
        const uint64_t step = own.begin();
        parallax_slice_t slice = own.slice(0, given.address(), stream.get());
        slice.into = into.address();
        parallax_request_t* const request = own.reduce(step, slice);
        EXPECT_TRUE(comes([&] { return peek(&into.host()[kCount - 1]) == 3; }));
        DeviceRank::finish({request, own.end(step)});
      },
      true);
}

// Given one, and a sum that nobody waits for, expect memory that NCCL knows to go behind that.
TEST_F(Launches, WhoFreesMemoryDrives) {
  run_formed(
      [](DeviceRank& own) {
        const DeviceNumbers<float> known(std::vector<float>(kCount, 1));
        const DeviceNumbers<float> other(std::vector<float>(kCount, 1));
        check(parallax_buffer_register(own.job, known.address(), kCount * sizeof(float)));
        uint64_t step = own.begin();
        DeviceRank::finish({own.reduce(step, own.slice(0, known.address())), own.end(step)});
        const Stream stream;
        step = own.begin();
        cuda_double_hold(stream.get(), 1);
        parallax_request_t* const request =
            own.reduce(step, own.slice(0, other.address(), stream.get()));
        check(parallax_set(own.job, "timeout_ms", "2000"));
        auto gone = std::async(std::launch::async, [&own, &known] {
          return parallax_buffer_unregister(own.job, known.address());
        });
        EXPECT_EQ(gone.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
        cuda_double_hold(stream.get(), 0);
        EXPECT_EQ(gone.get(), PARALLAX_OK);
        DeviceRank::finish({request, own.end(step)});
      },
      true);
}

// A host function takes the caller longer than all other calls of a launch.
TEST_F(Launches, WhoLooksIsNotWoken) {
  const parallax::testkit::EnvironmentVariable spin("PARALLAX_SPIN_US", "1000000");
  run_formed(
      [](DeviceRank& own) {
        const Stream stream;
        const DeviceNumbers<float> given(std::vector<float>(kCount, 3));
        const uint64_t before = cuda_double_calls("cuLaunchHostFunc");
        for (int i = 0; i < 5; ++i) {
          const uint64_t step = own.begin();
          DeviceRank::finish(
              {own.reduce(step, own.slice(0, given.address(), stream.get())), own.end(step)});
        }
        EXPECT_EQ(cuda_double_calls("cuLaunchHostFunc"), before);
      },
      true);
}

// By a bell, which in a job without a thread of progress nothing else rings.
uint64_t bells(DeviceRank& own) {
  const std::string key = "\"bells\":", stats = own.report(PARALLAX_REPORT_STATS);
  return std::stoull(stats.substr(stats.find(key) + key.size()));
}

TEST_F(Launches, WhoSleepsIsWoken) {
  const parallax::testkit::EnvironmentVariable spin("PARALLAX_SPIN_US", "0");
  run_formed(
      [](DeviceRank& own) {
        const Stream stream;
        const DeviceNumbers<float> given(std::vector<float>(kCount, 3));
        const uint64_t step = own.begin();
        const uint64_t before = cuda_double_calls("cuLaunchHostFunc");
        cuda_double_hold(stream.get(), 1);
        EXPECT_EQ(cuMemsetD8Async(given.pointer(), 0, 4, stream.get()), CUDA_SUCCESS);
        parallax_request_t* const request =
            own.reduce(step, own.slice(0, given.address(), stream.get()));
        std::thread waiter([&] { EXPECT_EQ(DeviceRank::wait(request), PARALLAX_OK); });
        EXPECT_TRUE(comes([&] { return cuda_double_calls("cuLaunchHostFunc") > before; }));
        const uint64_t rung = bells(own);
        cuda_double_hold(stream.get(), 0);
        EXPECT_TRUE(comes([&] { return bells(own) > rung; }));
        waiter.join();
        DeviceRank::finish({request, own.end(step)});
      },
      true);
}

}  // namespace
}  // namespace cuda_double_test
