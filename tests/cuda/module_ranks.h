// SPDX-License-Identifier: Apache-2.0
// Jobs whose ranks are threads with a device each, over the doubles of the driver and of NCCL.
#ifndef PARALLAX_TESTS_CUDA_MODULE_RANKS_H_
#define PARALLAX_TESTS_CUDA_MODULE_RANKS_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/double/control.h"
#include "cuda/double_fixture.h"
#include "parallax/parallax.hpp"

namespace cuda_double_test {

using parallax::check;
using parallax::sized;

inline constexpr uint64_t kCount = 6;

inline std::string nccl_leaks() {
  std::string text(4096, 0);
  nccl_double_leaks(text.data(), text.size());
  return text.c_str();
}

// One rank of a test, on the device of its number, counted on over those that there are.
struct DeviceRank {
  uint32_t rank = 0, world = 1;
  parallax_job_t* job = nullptr;

  uint32_t device() const {
    int count = 0;
    EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
    return rank % static_cast<uint32_t>(count);
  }

  // One that knows of no device.
  uint32_t add_on_host(const char* name) const {
    auto variable = sized<parallax_variable_t>();
    variable.name = name;
    variable.rows = kCount;
    variable.row_elements = 1;
    uint32_t id = 0;
    check(parallax_register(job, &variable, &id));
    return id;
  }
  uint32_t add(const char* name, uint32_t dtype = PARALLAX_F32, uint32_t reduction = PARALLAX_SUM,
               uint64_t rows = kCount) {
    auto variable = sized<parallax_variable_t>();
    variable.name = name;
    variable.rows = rows;
    variable.row_elements = 1;
    variable.dtype = dtype;
    variable.reduction = reduction;
    variable.memory = PARALLAX_MEMORY_CUDA;
    uint32_t id = 0;
    check(parallax_register(job, &variable, &id));
    return id;
  }
  uint64_t begin() const {
    uint64_t step = 0;
    check(parallax_step_begin(job, &step));
    return step;
  }
  parallax_slice_t slice(uint32_t variable, void* values, CUstream stream = nullptr) const {
    auto made = sized<parallax_slice_t>();
    made.variable = variable;
    made.values = values;
    made.memory = PARALLAX_MEMORY_CUDA;
    made.device = device();
    made.stream = stream;
    return made;
  }
  parallax_request_t* reduce(uint64_t step, const parallax_slice_t& slice) const {
    parallax_request_t* request = nullptr;
    check(parallax_reduce(job, step, &slice, 1, &request));
    return request;
  }
  parallax_request_t* end(uint64_t step, uint32_t absent = 0) const {
    auto options = sized<parallax_step_end_options_t>();
    options.absent = absent;
    parallax_request_t* request = nullptr;
    check(parallax_step_end(job, step, &options, &request));
    return request;
  }
  static parallax_status_t wait(parallax_request_t* request,
                                int64_t timeout_ms = PARALLAX_WAIT_DEFAULT) {
    return parallax_wait(&request, 1, timeout_ms);
  }
  static void finish(const std::vector<parallax_request_t*>& requests) {
    check(parallax_wait(requests.data(), requests.size(), PARALLAX_WAIT_DEFAULT));
    for (parallax_request_t* each : requests) check(parallax_request_release(each));
  }
  std::string report(uint32_t kind) const {
    size_t bytes = 0;
    std::string text;
    parallax_status_t status = parallax_report(job, kind, nullptr, &bytes);
    // It may have grown meanwhile.
    while (status == PARALLAX_LIMIT) {
      text.assign(bytes, 0);
      status = parallax_report(job, kind, text.data(), &bytes);
    }
    check(status);
    return text;
  }
};

class NcclJobs : public testing::Test {
 protected:
  // What a call gets that does not return: less than by default.
  static constexpr int kAbortMs = 300;

  void SetUp() override {
    // A launch that one rank never comes to ends by itself, well before the test's own deadline.
    setenv("NCCL_DOUBLE_DEADLINE_MS", "20000", 1);
    setenv("PARALLAX_NCCL_ABORT_MS", std::to_string(kAbortMs).c_str(), 1);
    cuda_double_reset(4);
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    launched_ = nccl_double_launched();
  }
  void TearDown() override {
    cuda_double_clear_failures();
    cuda_double_hold_all(0);
    nccl_double_set_launch_in_progress(0);
    EXPECT_EQ(leaks(), "");
    EXPECT_EQ(nccl_leaks(), "");
    EXPECT_EQ(doubtful(), "");
    unsetenv("NCCL_DOUBLE_DEADLINE_MS");
    unsetenv("PARALLAX_NCCL_ABORT_MS");
    for (const char* wrong : {"ranks differ", "two threads call NCCL at once",
                              "ncclCommDeregister of a communicator that ended",
                              "ncclCommDeregister was called for a communicator whose"}) {
      EXPECT_FALSE(log_has(wrong)) << cuda_double_test::log();
    }
  }
  uint64_t launched() const { return nccl_double_launched() - launched_; }

  using Body = std::function<void(DeviceRank&)>;
  // Each of `world` threads opens a job, registers by `variables`, commits, and runs `body`.
  static void run(uint32_t world, const Body& variables, const Body& body,
                  const std::function<void(parallax_options_t*)>& adjust = {}, bool closes = true) {
    static int number = 0;
    const std::string name = "inproc:module_nccl" + std::to_string(++number);
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < world; ++i) {
      threads.emplace_back([&, i] {
        auto options = sized<parallax_options_t>();
        options.rank = i;
        options.world = world;
        options.rendezvous = world > 1 ? name.c_str() : nullptr;
        if (adjust) adjust(&options);
        DeviceRank own{i, world, nullptr};
        check(parallax_open(&options, &own.job));
        const Current current(static_cast<int>(own.device()));
        variables(own);
        check(parallax_commit(own.job));
        body(own);
        if (own.job == nullptr) return;  // the test has closed it
        const parallax_status_t closed = parallax_close(own.job);
        if (closes) {
          EXPECT_EQ(closed, PARALLAX_OK) << parallax_last_error();
        }
      });
    }
    for (std::thread& each : threads) each.join();
  }

 private:
  uint64_t launched_ = 0;
};

inline void enqueue_copy(const DeviceNumbers<float>& to, const DeviceNumbers<float>& from,
                         CUstream stream) {
  EXPECT_EQ(cuMemcpyDtoDAsync(to.pointer(), from.pointer(), kCount * sizeof(float), stream),
            CUDA_SUCCESS);
}

}  // namespace cuda_double_test

#endif  // PARALLAX_TESTS_CUDA_MODULE_RANKS_H_
