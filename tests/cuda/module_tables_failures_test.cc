// SPDX-License-Identifier: Apache-2.0
// Tables in the memory of devices that fail, are full, or take their time.
#include <gtest/gtest.h>

#include <string>

#include "cuda/double/control.h"
#include "cuda/module_ranks.h"
#include "parallax/parallax.hpp"

namespace cuda_double_test {
namespace {

bool told(const std::string& words) {
  return std::string(parallax_last_error()).find(words) != std::string::npos;
}

// A job of one rank with `table`, 16 x 2 under Adagrad, on the device.
class OneTable {
 public:
  explicit OneTable(uint64_t rows = 16) {
    auto options = sized<parallax_options_t>();
    check(parallax_open(&options, &job));
    auto table = sized<parallax_variable_t>();
    table.name = "table";
    table.rows = rows;
    table.row_elements = 2;
    table.rows_max = 4;
    table.tag = PARALLAX_SPARSE;
    table.rule = PARALLAX_RULE_ADAGRAD;
    table.init_low = 1;
    table.initial_accumulator_value = 0.25f;
    table.table_memory = PARALLAX_MEMORY_CUDA;
    uint32_t id = 0;
    registered = parallax_register(job, &table, &id);
  }
  ~OneTable() {
    const parallax_status_t closed = parallax_close(job);
    EXPECT_EQ(closed == PARALLAX_OK, healthy) << parallax_last_error();
  }
  parallax_status_t wait(parallax_request_t* request, int64_t timeout_ms = PARALLAX_WAIT_DEFAULT) {
    const parallax_status_t status = parallax_wait(&request, 1, timeout_ms);
    if (status != PARALLAX_TIMEOUT) parallax_request_release(request);
    return status;
  }
  // One step that pushes a row: the first failure.
  parallax_status_t step(parallax_request_t** unfinished = nullptr, int64_t timeout_ms = 5000) {
    uint64_t number = 0;
    parallax_status_t status = parallax_step_begin(job, &number);
    if (status != PARALLAX_OK) return status;
    const int64_t id = 3;
    float gradient[2] = {1, 2};
    auto slice = sized<parallax_slice_t>();
    slice.form = PARALLAX_FORM_ROWS;
    slice.ids = &id;
    slice.row_count = 1;
    slice.values = gradient;
    float pulled[2] = {};
    parallax_slice_t pull = slice;
    pull.values = pulled;
    parallax_request_t* request = nullptr;
    status = parallax_pull(job, number, &pull, 1, &request);
    if (status == PARALLAX_OK) status = wait(request);
    if (status != PARALLAX_OK) return status;
    status = parallax_push(job, number, &slice, 1, &request);
    if (status == PARALLAX_OK) status = wait(request);
    if (status != PARALLAX_OK) return status;
    auto end = sized<parallax_step_end_options_t>();
    end.learning_rate = 0.5f;
    status = parallax_step_end(job, number, &end, &request);
    if (status == PARALLAX_OK) status = wait(request, timeout_ms);
    if (status == PARALLAX_TIMEOUT && unfinished != nullptr) *unfinished = request;
    return status;
  }
  parallax_job_t* job = nullptr;
  parallax_status_t registered = PARALLAX_OK;
  bool healthy = true;
};

class TableFailures : public testing::Test {
 protected:
  void SetUp() override {
    cuda_double_reset(2);
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  }
  void TearDown() override {
    cuda_double_clear_failures();
    cuda_double_hold_all(0);
    EXPECT_EQ(leaks(), "");
  }
};

// Given each call of the driver that a table makes failing in its turn, expect a commit or a step
// that fails with the variable and the driver's words, or does without it; and nothing left behind.
TEST_F(TableFailures, EveryCallOfTheDriverMayFail) {
  struct Injected {
    const char* function;
    const char* words;
  };
  const Injected functions[] = {{"cuStreamCreateWithPriority", "cuStreamCreate"},
                                {"cuModuleLoadData", "cuModuleLoadData"},
                                {"cuMemAlloc_v2", "cuMemAlloc"},
                                {"cuMemsetD8Async", "cuMemsetD8Async"},
                                {"cuMemHostAlloc", ""},
                                {"cuEventCreate", "cuEventCreate"},
                                {"cuEventRecord", "cuEventRecord"},
                                {"cuEventQuery", "its work on a table"},
                                {"cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync"},
                                {"cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync"},
                                {"cuModuleGetFunction", "cuModuleGetFunction"},
                                {"cuLaunchKernel", "cuLaunchKernel"},
                                {"cuLaunchHostFunc", ""}};
  uint32_t failed = 0;
  for (const Injected& injected : functions) {
    for (const uint64_t nth : {1, 2, 3, 4}) {
      SCOPED_TRACE(std::string(injected.function) + " " + std::to_string(nth));
      OneTable one;
      ASSERT_EQ(one.registered, PARALLAX_OK) << parallax_last_error();
      cuda_double_fail(injected.function, nth, CUDA_ERROR_ILLEGAL_ADDRESS, 0);
      parallax_status_t status = parallax_commit(one.job);
      for (int i = 0; i < 2 && status == PARALLAX_OK; ++i) status = one.step();
      cuda_double_clear_failures();
      if (status == PARALLAX_OK) continue;
      ++failed;
      one.healthy = false;
      EXPECT_TRUE(status == PARALLAX_IO || status == PARALLAX_LIMIT) << status;
      // Pinned memory is no device's.
      EXPECT_TRUE(told("'table'") && (told("device 0") || told("pinned host memory")) &&
                  told("CUDA_ERROR_ILLEGAL_ADDRESS") && told(injected.words))
          << parallax_last_error();
      auto info = sized<parallax_error_info_t>();
      if (parallax_last_error_info(&info) == PARALLAX_OK) {
        EXPECT_EQ(info.variable, 0u);
      }
    }
    EXPECT_EQ(leaks(), "") << injected.function;
  }
  EXPECT_GE(failed, 25u);
}

TEST_F(TableFailures, ADeviceThatIsFullIsALimit) {
  cuda_double_set_memory(0, 1 << 20);
  OneTable one(1 << 20);
  one.healthy = false;
  ASSERT_EQ(one.registered, PARALLAX_OK);
  EXPECT_EQ(parallax_commit(one.job), PARALLAX_LIMIT);
  EXPECT_TRUE(told("variable 'table'") && told("takes 16 MiB for values and state") &&
              told("device 0 has no memory"))
      << parallax_last_error();
}

TEST_F(TableFailures, ADeviceWhoseContextFailsEndsTheJob) {
  OneTable one;
  ASSERT_EQ(parallax_commit(one.job), PARALLAX_OK) << parallax_last_error();
  EXPECT_EQ(one.step(), PARALLAX_OK) << parallax_last_error();
  cuda_double_poison(0, CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(one.step(), PARALLAX_IO);
  EXPECT_TRUE(told("variable 'table', whose table lies on device 0") &&
              told("CUDA_ERROR_ECC_UNCORRECTABLE"))
      << parallax_last_error();
  one.healthy = false;
  // So that the end of the job can give back what it has there.
  cuda_double_poison(0, CUDA_SUCCESS);
}

// Given streams that are held, expect a step that waits, says for what, and goes on with them; and
// that no thread of the library waited for the device: the job answers queries.
TEST_F(TableFailures, AHeldDeviceHoldsTheStepAndNothingElse) {
  OneTable one;
  ASSERT_EQ(parallax_commit(one.job), PARALLAX_OK) << parallax_last_error();
  ASSERT_EQ(one.step(), PARALLAX_OK) << parallax_last_error();
  uint64_t number = 0;
  check(parallax_step_begin(one.job, &number));
  const int64_t id = 3;
  float gradient[2] = {1, 2};
  auto slice = sized<parallax_slice_t>();
  slice.form = PARALLAX_FORM_ROWS;
  slice.ids = &id;
  slice.row_count = 1;
  slice.values = gradient;
  cuda_double_hold_all(1);
  parallax_request_t* pushed = nullptr;
  check(parallax_push(one.job, number, &slice, 1, &pushed));
  ASSERT_EQ(one.wait(pushed), PARALLAX_OK);
  auto end = sized<parallax_step_end_options_t>();
  end.learning_rate = 0.5f;
  parallax_request_t* ended = nullptr;
  check(parallax_step_end(one.job, number, &end, &ended));
  EXPECT_EQ(one.wait(ended, 50), PARALLAX_TIMEOUT);
  EXPECT_TRUE(told("waits for device 0 to work on the table of variable 'table'"))
      << parallax_last_error();
  auto info = sized<parallax_job_info_t>();
  EXPECT_EQ(parallax_query(one.job, &info), PARALLAX_OK);
  EXPECT_EQ(info.step_committed, 1u);
  cuda_double_hold_all(0);
  EXPECT_EQ(one.wait(ended), PARALLAX_OK) << parallax_last_error();
}

TEST_F(TableFailures, ReportsTellWhereItLies) {
  OneTable one;
  ASSERT_EQ(parallax_commit(one.job), PARALLAX_OK) << parallax_last_error();
  const DeviceRank rank{0, 1, one.job};
  const std::string plan = rank.report(PARALLAX_REPORT_PLAN);
  EXPECT_NE(plan.find("its table lies in the memory of device 0, and its placement stays"),
            std::string::npos)
      << plan;
  EXPECT_NE(plan.find(R"("table":"device 0")"), std::string::npos) << plan;
  const std::string stats = rank.report(PARALLAX_REPORT_STATS);
  // 16 rows x 2 floats x value and state, and two pieces of a table that small.
  EXPECT_NE(stats.find(R"("memory_device_bytes":768)"), std::string::npos) << stats;
  EXPECT_NE(stats.find(R"("devices":[{"bytes":768,"device":0}])"), std::string::npos) << stats;
}

}  // namespace
}  // namespace cuda_double_test
