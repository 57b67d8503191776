// SPDX-License-Identifier: Apache-2.0
// What a job waits for while a device is slow, and what it does not: streams that are late, memory
// that is given back, contexts that are made, and a device that never ends.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <thread>
#include <vector>

#include "cuda/module_job.h"

namespace parallax {
namespace {

using namespace module_test;
using Clock = std::chrono::steady_clock;

int64_t ms_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
}

// Lets all streams go on after a while, so that a fault is a failure and no hang.
class Rescue {
 public:
  explicit Rescue(CUstream stream, int64_t after_ms = 5000)
      : thread_([this, stream, after_ms] {
          const auto start = Clock::now();
          while (!over_ && ms_since(start) < after_ms) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
          }
          came_ = !over_;
          cuda_double_hold(stream, 0);
        }) {}
  ~Rescue() { end(); }
  // True: nobody needed it. The stream goes on.
  bool end() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
    return !came_;
  }

 private:
  std::atomic<bool> over_{false}, came_{false};
  std::thread thread_;
};

class ModuleWaits : public ModuleTest {
 protected:
  // Work that `stream` has not done yet.
  static void hold(CUstream stream, const DeviceNumbers<float>& numbers) {
    cuda_double_hold(stream, 1);
    EXPECT_EQ(cuMemsetD8Async(numbers.pointer(), 0, 4, stream), CUDA_SUCCESS);
  }
  static parallax_slice_t pull(void* ids, void* values, CUstream stream) {
    parallax_slice_t slice = held(values, stream);
    slice.variable = 1;
    slice.form = PARALLAX_FORM_ROWS;
    slice.ids = static_cast<const int64_t*>(ids);
    slice.row_count = 2;
    return slice;
  }
};

// Given a gradient and pulls on streams that are held, expect a pull on another stream to be
// answered meanwhile: copies of one stream do not wait for another's.
TEST_F(ModuleWaits, AStreamThatIsLateHoldsUpNoOther) {
  One one;
  const Current current(0);
  const Stream last;
  const DeviceNumbers<float> values({1, 2, 3, 4}), pulled({0, 0, 0, 0});
  const DeviceNumbers<int64_t> ids({5, 0});
  std::deque<Stream> late(6);
  std::deque<DeviceNumbers<float>> others;  // one each: the streams go on all at once
  for (const Stream& each : late) hold(each.get(), others.emplace_back(std::vector<float>(4)));
  ASSERT_EQ(one.reduce(held(values.address(), late[0].get())), PARALLAX_OK);
  parallax_request_t* requests[7] = {};
  for (size_t i = 1; i < late.size(); ++i) {
    const parallax_slice_t slice = pull(ids.address(), others[i].address(), late[i].get());
    ASSERT_EQ(parallax_pull(one.job, 1, &slice, 1, &requests[i]), PARALLAX_OK);
  }
  const parallax_slice_t slice = pull(ids.address(), pulled.address(), last.get());
  ASSERT_EQ(parallax_pull(one.job, 1, &slice, 1, &requests[0]), PARALLAX_OK);
  EXPECT_EQ(parallax_wait(requests, 1, 5000), PARALLAX_OK) << parallax_last_error();
  EXPECT_EQ(pulled.values(), (std::vector<float>{10, 10, 10, 10}));
  EXPECT_EQ(one.wait(0), PARALLAX_TIMEOUT) << "the gradient's stream is held";
  for (const Stream& each : late) cuda_double_hold(each.get(), 0);
  EXPECT_EQ(one.wait(), PARALLAX_OK) << parallax_last_error();
  EXPECT_EQ(parallax_wait(requests, late.size(), kWait), PARALLAX_OK) << parallax_last_error();
  for (size_t i = 0; i < late.size(); ++i) {
    EXPECT_EQ(parallax_request_release(requests[i]), PARALLAX_OK);
  }
}

// Given more streams than queues, expect every pull answered once they go on.
TEST_F(ModuleWaits, StreamsBeyondTheQueuesShareThem) {
  One one;
  const Current current(0);
  std::deque<Stream> streams(40);
  std::deque<DeviceNumbers<float>> pulled;
  const DeviceNumbers<int64_t> ids({5, 0});
  std::vector<parallax_request_t*> requests(streams.size());
  for (size_t i = 0; i < streams.size(); ++i) {
    pulled.emplace_back(std::vector<float>(4));
    hold(streams[i].get(), pulled[i]);
    const parallax_slice_t slice = pull(ids.address(), pulled[i].address(), streams[i].get());
    ASSERT_EQ(parallax_pull(one.job, 1, &slice, 1, &requests[i]), PARALLAX_OK);
  }
  for (size_t i = streams.size(); i-- > 0;) cuda_double_hold(streams[i].get(), 0);
  ASSERT_EQ(parallax_wait(requests.data(), requests.size(), 20000), PARALLAX_OK)
      << parallax_last_error();
  for (size_t i = 0; i < streams.size(); ++i) {
    EXPECT_EQ(pulled[i].values(), (std::vector<float>{10, 10, 10, 10}));
    EXPECT_EQ(parallax_request_release(requests[i]), PARALLAX_OK);
  }
}

// Given memory that is freed while the device has other work to do, which the driver waits for,
// expect every other call to go on.
TEST_F(ModuleWaits, AFreeHoldsUpNobody) {
  One one;
  const Current current(0);
  const Stream busy;
  const DeviceNumbers<float> values({1, 2, 3, 4}), other({0});
  auto options = sized<parallax_buffer_options_t>();
  options.memory = PARALLAX_MEMORY_CUDA;
  void* buffer = nullptr;
  ASSERT_EQ(parallax_buffer_alloc(one.job, 64, &options, &buffer), PARALLAX_OK);
  hold(busy.get(), other);
  Rescue rescue(busy.get());
  std::thread freer([&] { EXPECT_EQ(parallax_buffer_free(one.job, buffer), PARALLAX_OK); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const Stream free;
  ASSERT_EQ(one.reduce(held(values.address(), free.get())), PARALLAX_OK);
  EXPECT_EQ(one.wait(), PARALLAX_OK) << parallax_last_error();
  void* second = nullptr;
  EXPECT_EQ(parallax_buffer_alloc(one.job, 64, &options, &second), PARALLAX_OK);
  EXPECT_TRUE(rescue.end()) << "nothing moved while the memory was given back";
  freer.join();
}

// Given pinned memory that is given up for other sizes while the device has work to do, expect the
// call that needs it not to wait either.
TEST_F(ModuleWaits, PinnedMemoryIsGivenBackInItsOwnTime) {
  setenv("PARALLAX_PINNED_MAX_BYTES", "131072", 1);
  One one;
  unsetenv("PARALLAX_PINNED_MAX_BYTES");
  const Current current(0);
  const Stream busy, free;
  const DeviceNumbers<float> values({1, 2, 3, 4}), other({0});
  const DeviceNumbers<int64_t> ids({5, 0});
  ASSERT_EQ(one.reduce(held(values.address(), free.get())), PARALLAX_OK);
  ASSERT_EQ(one.wait(), PARALLAX_OK) << parallax_last_error();
  hold(busy.get(), other);
  Rescue rescue(busy.get());
  const uint64_t pinned = cuda_double_calls("cuMemHostAlloc");
  const uint64_t freed = cuda_double_calls("cuMemFreeHost");
  // 64 KiB are kept: 128 KiB more are beyond the bound.
  auto slice = pull(ids.address(), nullptr, free.get());
  const DeviceNumbers<float> many(std::vector<float>(4 * 5000));
  std::vector<parallax_slice_t> slices;
  for (size_t i = 0; i < 256; ++i) {
    slice.values = static_cast<float*>(many.address()) + 4 * i;
    slices.push_back(slice);
  }
  parallax_request_t* request = nullptr;
  ASSERT_EQ(parallax_pull(one.job, 1, slices.data(), slices.size(), &request), PARALLAX_OK)
      << parallax_last_error();
  EXPECT_EQ(parallax_wait(&request, 1, kWait), PARALLAX_OK) << parallax_last_error();
  EXPECT_EQ(cuda_double_calls("cuMemHostAlloc"), pinned + 1);
  EXPECT_TRUE(rescue.end()) << "the call waited for the device";
  while (cuda_double_calls("cuMemFreeHost") == freed) std::this_thread::yield();
  EXPECT_EQ(parallax_request_release(request), PARALLAX_OK);
}

// Given a context that takes a while, as they do, expect other calls not to wait for it: leases are
// kept by who has the engine.
TEST_F(ModuleWaits, AContextIsMadeWithoutTheEngine) {
  One one;
  const Current current(0);
  const DeviceNumbers<float> values({1, 2, 3, 4});
  ASSERT_EQ(one.reduce(held(values.address())), PARALLAX_OK) << parallax_last_error();
  ASSERT_EQ(one.wait(), PARALLAX_OK);
  cuda_double_set_open_ms(1500);
  std::atomic<bool> made{false};
  std::thread slow([&] {
    parallax_slice_t slice = pull(values.address(), values.address(), nullptr);
    slice.device = 1;
    parallax_request_t* request = nullptr;
    EXPECT_EQ(parallax_pull(one.job, 1, &slice, 1, &request), PARALLAX_INVALID);
    EXPECT_TRUE(told("memory of device 0, and device is 1")) << parallax_last_error();
    made = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto start = Clock::now();
  uint64_t step = 0;
  EXPECT_EQ(parallax_step_begin(one.job, &step), PARALLAX_STATE) << "the engine's answer";
  const DeviceNumbers<int64_t> ids({5, 0});
  const DeviceNumbers<float> pulled({0, 0, 0, 0});
  const parallax_slice_t slice = pull(ids.address(), pulled.address(), nullptr);
  parallax_request_t* request = nullptr;
  ASSERT_EQ(parallax_pull(one.job, 1, &slice, 1, &request), PARALLAX_OK);
  EXPECT_EQ(parallax_wait(&request, 1, kWait), PARALLAX_OK) << parallax_last_error();
  EXPECT_LT(ms_since(start), 1000);
  EXPECT_FALSE(made) << "the context was not slow enough to tell";
  slow.join();
  EXPECT_EQ(parallax_request_release(request), PARALLAX_OK);
}

void finish(parallax_request_t* request) {
  check(parallax_wait(&request, 1, kWait));
  check(parallax_request_release(request));
}

// In a process of its own, which leaves behind what the device keeps.
void close_with_a_device_that_never_ends(bool with_a_call) {
  cuda_double_reset(2);
  cuInit(0);
  auto options = sized<parallax_options_t>();
  parallax_job_t* job = nullptr;
  check(parallax_open(&options, &job));
  One::variables(job);
  // Never given: zeros in the device's memory stand for it.
  auto direct = sized<parallax_variable_t>();
  direct.name = "direct";
  direct.rows = direct.row_elements = 1;
  direct.memory = PARALLAX_MEMORY_CUDA;
  uint32_t id = 0;
  check(parallax_register(job, &direct, &id));
  check(parallax_commit(job));
  uint64_t step = 0;
  check(parallax_step_begin(job, &step));
  CUcontext context = nullptr;
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxPushCurrent(context);
  CUstream stream = nullptr;
  cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
  CUdeviceptr values = 0;
  cuMemAlloc(&values, 16);
  parallax_request_t* request = nullptr;
  parallax_slice_t slice = held(reinterpret_cast<void*>(values), stream);
  check(parallax_reduce(job, step, &slice, 1, &request));
  finish(request);
  auto end = sized<parallax_step_end_options_t>();
  check(parallax_step_end(job, step, &end, &request));
  finish(request);
  check(parallax_step_begin(job, &step));
  auto of_device = sized<parallax_buffer_options_t>();
  of_device.memory = PARALLAX_MEMORY_CUDA;
  void* buffer = nullptr;
  check(parallax_buffer_alloc(job, 64, &of_device, &buffer));
  cuda_double_hold(stream, 1);
  cuMemsetD8Async(values, 0, 16, stream);
  if (with_a_call) {
    slice.variable = 1;
    slice.form = PARALLAX_FORM_ROWS;
    const int64_t ids[] = {1, 2};
    slice.ids = ids;
    slice.row_count = 2;
    check(parallax_push(job, step, &slice, 1, &request));
  }
  const auto start = Clock::now();
  const parallax_status_t closed = parallax_close(job);
  int code = ms_since(start) < 30000 ? 0 : 1;
  if (with_a_call) {
    const parallax_status_t ended = parallax_wait(&request, 1, 0);
    if (ended != PARALLAX_ABORTED && ended != closed) code = 2;
    if (ended == PARALLAX_OK) code = 3;
    check(parallax_request_release(request));
  }
  // It goes on once everything is over: whoever freed what it uses is told by the double.
  cuda_double_hold(stream, 0);
  if (cuda_double_drain(5000) != 1) code = 4;
  _exit(code);
}

// Given work of the program's that never ends, expect the end of a job to have a bound, what is
// left said in the log, and nothing freed that the device may still use.
TEST_F(ModuleWaits, TheEndOfAJobHasABound) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  // Threads are left behind on purpose, with what they may still use.
  const char* options = std::getenv("TSAN_OPTIONS");
  const std::string more =
      std::string(options == nullptr ? "" : options) + ":report_thread_leaks=0";
  ASSERT_EQ(setenv("TSAN_OPTIONS", more.c_str(), 1), 0);
  EXPECT_EXIT(close_with_a_device_that_never_ends(false), testing::ExitedWithCode(0),
              "a device, or NCCL, did not end within 10 s of the job's end");
  EXPECT_EXIT(
      close_with_a_device_that_never_ends(true), testing::ExitedWithCode(0),
      "push: device 0 did not end its copies(.|\n)*a device, or NCCL, did not end within 10 s");
}

}  // namespace
}  // namespace parallax
