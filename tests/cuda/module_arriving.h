// SPDX-License-Identifier: Apache-2.0
// Gradients that are used as they come from their devices: copies that are held behind so many of
// them, and what was sent until then.
#ifndef PARALLAX_TESTS_CUDA_MODULE_ARRIVING_H_
#define PARALLAX_TESTS_CUDA_MODULE_ARRIVING_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#include "cuda/module_ranks.h"
#include "support/environment_variable.h"

namespace cuda_double_test::arriving {

using parallax::testkit::EnvironmentVariable;

inline constexpr const char* kCopyIn = "cuMemcpyDtoHAsync";
inline constexpr uint64_t kPiece = uint64_t{1} << 20;

// Of all variables.
inline uint64_t wire_sent(const DeviceRank& own) {
  const std::string report = own.report(PARALLAX_REPORT_STATS);
  const std::string key = R"("wire_sent_bytes":)";
  uint64_t sent = 0;
  for (size_t at = report.find(key); at != std::string::npos; at = report.find(key, at + 1)) {
    sent = std::max<uint64_t>(sent, std::strtoull(report.c_str() + at + key.size(), nullptr, 10));
  }
  return sent;
}

// Until so much was sent; false: it was not.
inline bool await_sent(const DeviceRank& own, uint64_t bytes) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (wire_sent(own) < bytes) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline void hold_after(const DeviceRank& own, uint64_t copies) {
  cuda_double_hold_after(static_cast<int>(own.device()), kCopyIn, copies);
}
inline void let_go(const DeviceRank& own) {
  cuda_double_hold_after(static_cast<int>(own.device()), nullptr, 0);
}

// The device of this rank fails in what it goes on with, and the request with its words.
inline void expect_failed_copy(const DeviceRank& own, parallax_request_t* request) {
  cuda_double_fail("operation", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 0);
  let_go(own);
  EXPECT_EQ(DeviceRank::wait(request), PARALLAX_IO);
  const std::string sentence = parallax_last_error();
  EXPECT_NE(sentence.find("copying its slices from device "), std::string::npos) << sentence;
}

// The same slice with its values in host memory.
inline parallax_slice_t on_host_of(parallax_slice_t slice, void* values) {
  slice.memory = PARALLAX_MEMORY_HOST;
  slice.device = 0;
  slice.stream = nullptr;
  slice.values = values;
  return slice;
}

class ModuleArriving : public NcclJobs {
 protected:
  void TearDown() override {
    for (int device = 0; device < 4; ++device) cuda_double_hold_after(device, nullptr, 0);
    NcclJobs::TearDown();
  }
  // Two ranks on two hosts.
  static void run_two(const Body& variables, const Body& body, bool closes = true) {
    run(
        2, variables, body,
        [](parallax_options_t* options) { options->host = options->rank == 0 ? "one" : "two"; },
        closes);
  }
};

}  // namespace cuda_double_test::arriving

#endif  // PARALLAX_TESTS_CUDA_MODULE_ARRIVING_H_
