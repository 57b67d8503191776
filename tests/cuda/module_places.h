// SPDX-License-Identifier: Apache-2.0
// What tests of variables with a place begin with: ranks that have a buffer each, of NCCL's
// allocation unless they say otherwise, and variables that lie in it.
#ifndef PARALLAX_TESTS_CUDA_MODULE_PLACES_H_
#define PARALLAX_TESTS_CUDA_MODULE_PLACES_H_

#include <nccl.h>

#include <string>
#include <vector>

#include "cuda/module_ranks.h"

namespace cuda_double_test::places {

inline constexpr uint64_t kBytes = 8192;
inline constexpr const char* kInWindows = "in windows of symmetric memory";
inline constexpr const char* kInNone = "in no window of symmetric memory: ";

// Memory of a rank's, which goes with its job.
class PlacedMemory {
 public:
  void allocate(const DeviceRank& own, uint32_t symmetric = 1, uint64_t bytes = kBytes) {
    allocate_on(own, own.device(), symmetric, bytes);
  }
  void allocate_on(const DeviceRank& own, uint32_t device, uint32_t symmetric, uint64_t bytes) {
    auto options = sized<parallax_buffer_options_t>();
    options.memory = PARALLAX_MEMORY_CUDA;
    options.device = device;
    options.symmetric = symmetric;
    check(parallax_buffer_alloc(own.job, bytes, &options, &memory_));
  }
  // The number at a place, counted in floats, for when nothing is under way.
  float* address(uint64_t at) const { return static_cast<float*>(memory_) + at; }
  std::vector<float> values(uint64_t at, uint64_t count = kCount) const {
    const float* const first = seen(at, count);
    return {first, first + count};
  }
  void fill(uint64_t at, float value, uint64_t count = kCount) const {
    std::fill_n(seen(at, count), count, value);
  }
  void* begin() const { return memory_; }

 private:
  float* seen(uint64_t at, uint64_t count) const {
    return static_cast<float*>(
        cuda_double_alias(reinterpret_cast<CUdeviceptr>(address(at)), count * sizeof(float), -1));
  }

  void* memory_ = nullptr;
};

inline parallax_variable_t described(const char* name, void* values, void* into = nullptr) {
  auto variable = sized<parallax_variable_t>();
  variable.name = name;
  variable.rows = kCount;
  variable.row_elements = 1;
  variable.memory = PARALLAX_MEMORY_CUDA;
  variable.place_values = values;
  variable.place_into = into;
  return variable;
}

inline uint32_t add_placed(const DeviceRank& own, const char* name, void* values,
                           void* into = nullptr) {
  const parallax_variable_t variable = described(name, values, into);
  uint32_t id = 0;
  check(parallax_register(own.job, &variable, &id));
  return id;
}

inline bool reported(const DeviceRank& own, uint32_t kind, const std::string& words) {
  return own.report(kind).find(words) != std::string::npos;
}
inline bool planned(const DeviceRank& own, const std::string& words) {
  return reported(own, PARALLAX_REPORT_PLAN, words);
}
inline bool has_windows(const DeviceRank& own, uint64_t count, uint64_t bytes = kBytes) {
  return reported(own, PARALLAX_REPORT_STATS,
                  R"("program_window_bytes":)" + std::to_string(count * bytes) +
                      R"(,"program_windows":)" + std::to_string(count));
}

// What all ranks give, each its number plus one.
inline float total(const DeviceRank& own) {
  return static_cast<float>(own.world) * static_cast<float>(own.world + 1) / 2;
}

// A step of a variable that lies in place, `at` floats into the memory.
inline void step_in_place(const DeviceRank& own, uint32_t variable, const PlacedMemory& memory,
                          uint64_t at) {
  memory.fill(at, static_cast<float>(own.rank + 1));
  const uint64_t step = own.begin();
  DeviceRank::finish({own.reduce(step, own.slice(variable, memory.address(at))), own.end(step)});
  EXPECT_EQ(memory.values(at), std::vector<float>(kCount, total(own)));
}

inline bool told(const std::string& words) {
  return std::string(parallax_last_error()).find(words) != std::string::npos;
}

class PlacedJobs : public NcclJobs {
 protected:
  void SetUp() override {
    NcclJobs::SetUp();
    symmetric_ = nccl_double_symmetric();
    registered_ = cuda_double_calls("ncclCommWindowRegister");
    deregistered_ = cuda_double_calls("ncclCommWindowDeregister");
    known_ = cuda_double_calls("ncclCommRegister");
  }
  void TearDown() override {
    nccl_double_take_windows(1);
    EXPECT_FALSE(log_has("a window is deregistered while")) << log();
    NcclJobs::TearDown();
  }
  uint64_t symmetric() const { return nccl_double_symmetric() - symmetric_; }
  uint64_t registered() const { return cuda_double_calls("ncclCommWindowRegister") - registered_; }
  uint64_t deregistered() const {
    return cuda_double_calls("ncclCommWindowDeregister") - deregistered_;
  }
  uint64_t known() const { return cuda_double_calls("ncclCommRegister") - known_; }

  std::vector<PlacedMemory> memory_ = std::vector<PlacedMemory>(4);  // by rank

 private:
  uint64_t symmetric_ = 0, registered_ = 0, deregistered_ = 0, known_ = 0;
};

}  // namespace cuda_double_test::places

#endif  // PARALLAX_TESTS_CUDA_MODULE_PLACES_H_
