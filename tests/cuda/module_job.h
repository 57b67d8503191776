// SPDX-License-Identifier: Apache-2.0
// What tests of the module begin with: the double's devices, and a job of one rank in its first
// step, with a variable of each kind.
#ifndef PARALLAX_TESTS_CUDA_MODULE_JOB_H_
#define PARALLAX_TESTS_CUDA_MODULE_JOB_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/double/control.h"
#include "cuda/double_fixture.h"
#include "parallax/parallax.hpp"

namespace parallax::module_test {

using cuda_double_test::Current;
using cuda_double_test::DeviceNumbers;
using cuda_double_test::leaks;
using cuda_double_test::Stream;

inline constexpr int64_t kWait = PARALLAX_WAIT_DEFAULT;

// A slice of `held`, or of another variable once it says so.
inline parallax_slice_t held(void* values, CUstream stream = nullptr, uint32_t device = 0) {
  auto slice = sized<parallax_slice_t>();
  slice.values = values;
  slice.memory = PARALLAX_MEMORY_CUDA;
  slice.device = device;
  slice.stream = stream;
  return slice;
}

inline bool told(const std::string& words) {
  return std::string(parallax_last_error()).find(words) != std::string::npos;
}

// A job of one rank with `held`, 4 numbers that the program keeps, and `rows`, 6 x 2 under SGD, in
// its first step.
struct One {
  One() {
    auto options = sized<parallax_options_t>();
    check(parallax_open(&options, &job));
    variables(job);
    check(parallax_commit(job));
    check(parallax_step_begin(job, &step));
  }
  ~One() {
    for (parallax_request_t* request : requests) {
      EXPECT_EQ(parallax_request_release(request), PARALLAX_OK) << parallax_last_error();
    }
    EXPECT_EQ(parallax_close(job), PARALLAX_OK) << parallax_last_error();
  }
  static void variables(parallax_job_t* job) {
    uint32_t id = 0;
    auto held = sized<parallax_variable_t>();
    held.name = "held";
    held.rows = 4;
    held.row_elements = 1;
    check(parallax_register(job, &held, &id));
    auto rows = sized<parallax_variable_t>();
    rows.name = "rows";
    rows.rows = 6;
    rows.row_elements = 2;
    rows.rows_max = 4;
    rows.tag = PARALLAX_SPARSE;
    rows.rule = PARALLAX_RULE_SGD;
    rows.init_low = 10;
    check(parallax_register(job, &rows, &id));
  }
  parallax_status_t reduce(const parallax_slice_t& slice) {
    parallax_request_t* request = nullptr;
    const parallax_status_t status = parallax_reduce(job, step, &slice, 1, &request);
    if (request != nullptr) requests.push_back(request);
    return status;
  }
  parallax_status_t wait(int64_t timeout_ms = kWait) {
    return parallax_wait(&requests.back(), 1, timeout_ms);
  }
  parallax_job_t* job = nullptr;
  uint64_t step = 0;
  std::vector<parallax_request_t*> requests;
};

class ModuleTest : public testing::Test {
 protected:
  void SetUp() override {
    cuda_double_reset(2);
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  }
  void TearDown() override {
    cuda_double_clear_failures();
    cuda_double_hold_all(0);
    EXPECT_EQ(leaks(), "");
    EXPECT_EQ(cuda_double_test::doubtful(), "");
  }
};

}  // namespace parallax::module_test

#endif  // PARALLAX_TESTS_CUDA_MODULE_JOB_H_
