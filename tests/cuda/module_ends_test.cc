// SPDX-License-Identifier: Apache-2.0
// What fails before a device is there, and when a job is over: calls of the driver that count and
// name devices, and NCCL's way to end a communicator.
#include <nccl.h>

#include "cuda/module_job.h"
#include "cuda/module_ranks.h"

namespace cuda_double_test::ends {
namespace {

using parallax::module_test::ModuleTest;
using parallax::module_test::One;

class ModuleEnds : public ModuleTest {
 protected:
  static parallax_status_t allocate(parallax_job_t* job, void** buffer) {
    auto options = sized<parallax_buffer_options_t>();
    options.memory = PARALLAX_MEMORY_CUDA;
    *buffer = nullptr;
    return parallax_buffer_alloc(job, 64, &options, buffer);
  }
};

// Given each call failing in its turn, expect the program's call to say which, and the next one to
// succeed: what failed is tried again.
TEST_F(ModuleEnds, ADeviceThatCannotBeOpenedIsTriedAgain) {
  const struct {
    const char* function;
    parallax_status_t status;
    const char* words;
  } failures[] = {{"cuDeviceGetCount", PARALLAX_UNSUPPORTED, "does not tell its devices"},
                  {"cuDeviceGet", PARALLAX_IO, "device 0: cuDeviceGet"},
                  {"cuDevicePrimaryCtxRetain", PARALLAX_IO, "its primary context"}};
  for (const auto& each : failures) {
    One one;
    void* buffer = nullptr;
    cuda_double_fail(each.function, 1, CUDA_ERROR_UNKNOWN, 0);
    EXPECT_EQ(allocate(one.job, &buffer), each.status) << each.function;
    EXPECT_TRUE(parallax::module_test::told(each.words)) << parallax_last_error();
    EXPECT_TRUE(parallax::module_test::told("CUDA_ERROR_UNKNOWN")) << parallax_last_error();
    EXPECT_EQ(allocate(one.job, &buffer), PARALLAX_OK) << parallax_last_error();
    EXPECT_EQ(parallax_buffer_free(one.job, buffer), PARALLAX_OK);
  }
}

// Names are for reports: one that cannot be had costs nothing else.
TEST_F(ModuleEnds, ADeviceThatDoesNotTellItsNameIsReportedNevertheless) {
  for (const char* function : {"cuDeviceGetName", "cuDeviceGetPCIBusId", "cuDeviceGetAttribute"}) {
    One one;
    void* buffer = nullptr;
    cuda_double_fail_always(function, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(allocate(one.job, &buffer), PARALLAX_OK) << parallax_last_error();
    size_t bytes = 0;
    EXPECT_EQ(parallax_report(one.job, PARALLAX_REPORT_TOPOLOGY, nullptr, &bytes), PARALLAX_LIMIT);
    std::string report(bytes + 64, 0);
    bytes = report.size();
    EXPECT_EQ(parallax_report(one.job, PARALLAX_REPORT_TOPOLOGY, report.data(), &bytes),
              PARALLAX_OK);
    EXPECT_NE(report.find("\"number\":1"), std::string::npos) << report;
    cuda_double_clear_failures();
    EXPECT_EQ(parallax_buffer_free(one.job, buffer), PARALLAX_OK);
  }
}

class ModuleEndsNccl : public NcclJobs {
 protected:
  static void reduce_once() {
    run(
        2, [](DeviceRank& own) { own.add("w"); },
        [](DeviceRank& own) {
          const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
          const uint64_t step = own.begin();
          DeviceRank::finish({own.reduce(step, own.slice(0, values.address())), own.end(step)});
          EXPECT_EQ(values.host()[0], 2.f);
        });
  }
};

// Given a communicator that does not end in good order, expect it to be aborted, nothing left
// behind, and a close that is none the worse: every step was over.
TEST_F(ModuleEndsNccl, ACommunicatorThatDoesNotEndWellIsAborted) {
  for (const char* function : {"ncclCommFinalize", "ncclCommDestroy"}) {
    for (const int code : {ncclSystemError, ncclInternalError, ncclRemoteError}) {
      const uint64_t aborts = cuda_double_calls("ncclCommAbort");
      cuda_double_fail_always(function, code);
      reduce_once();
      cuda_double_clear_failures();
      EXPECT_EQ(cuda_double_calls("ncclCommAbort") - aborts, 2u) << function << " " << code;
      EXPECT_EQ(nccl_leaks(), "") << function << " " << code;
      EXPECT_EQ(leaks(), "") << function << " " << code;
    }
  }
}

// Ranks that cannot tell their devices apart are not compared, and NCCL is used.
TEST_F(ModuleEndsNccl, DevicesThatDoNotTellWhereTheyAreAreNotCompared) {
  for (const char* function : {"cuDeviceGetPCIBusId", "cuDeviceGetUuid_v2"}) {
    cuda_double_fail_always(function, CUDA_ERROR_UNKNOWN);
    const uint64_t before = launched();
    reduce_once();
    EXPECT_EQ(launched() - before, 2u);
  }
}

}  // namespace
}  // namespace cuda_double_test::ends
