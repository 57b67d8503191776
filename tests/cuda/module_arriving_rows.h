// SPDX-License-Identifier: Apache-2.0
// Slices of rows that are large enough to be used as they come from their devices, and what comes
// of them.
#ifndef PARALLAX_TESTS_CUDA_MODULE_ARRIVING_ROWS_H_
#define PARALLAX_TESTS_CUDA_MODULE_ARRIVING_ROWS_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/module_arriving.h"

namespace cuda_double_test::arriving {

inline constexpr uint64_t kRows = 4096, kWidth = 256;
inline constexpr uint64_t kTokens = 5000;  // five pieces, the last one small

// Every seventh row comes again at the end of the slice, some come often, and there is padding.
inline std::vector<int64_t> ids_of(uint32_t rank) {
  std::vector<int64_t> ids(kTokens);
  for (uint64_t i = 0; i < kTokens; ++i) {
    ids[i] = static_cast<int64_t>((i * 3 + rank * 1001) % kRows);
    if (i % 11 == 3) ids[i] = static_cast<int64_t>(i % 5);
    if (i % 13 == 5) ids[i] = -1;
    if (i > kTokens - kTokens / 7) ids[i] = ids[(i - (kTokens - kTokens / 7)) * 7];
  }
  return ids;
}

// Every order of summing has bits of its own.
inline std::vector<float> values_of(uint32_t rank) {
  std::vector<float> values(kTokens * kWidth);
  for (uint64_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((i * 2654435761u + rank * 40503u) % 100003) / 977.f - 50.f;
  }
  return values;
}

// Of a world of so many; all rows of the variable.
inline std::vector<float> sum_of(uint32_t world) {
  std::vector<float> all(kRows * kWidth);
  for (uint32_t rank = 0; rank < world; ++rank) {
    std::vector<float> own(all.size());
    const std::vector<int64_t> ids = ids_of(rank);
    const std::vector<float> values = values_of(rank);
    for (uint64_t i = 0; i < kTokens; ++i) {
      if (ids[i] < 0) continue;
      float* const row = &own[static_cast<uint64_t>(ids[i]) * kWidth];
      for (uint64_t c = 0; c < kWidth; ++c) row[c] += values[i * kWidth + c];
    }
    for (uint64_t i = 0; i < all.size(); ++i) all[i] += own[i];
  }
  return all;
}

inline uint32_t add_rows(const DeviceRank& own, bool managed) {
  auto variable = sized<parallax_variable_t>();
  variable.name = managed ? "table" : "held";
  variable.rows = kRows;
  variable.row_elements = kWidth;
  variable.rows_max = kTokens;
  variable.tag = PARALLAX_SPARSE;
  if (managed) variable.rule = PARALLAX_RULE_SGD;
  uint32_t id = 0;
  check(parallax_register(own.job, &variable, &id));
  return id;
}

enum class Ids : uint8_t { kOnDevice, kInHostMemory };

// What a rank gives in a step.
struct Given {
  explicit Given(const DeviceRank& own, Ids where = Ids::kOnDevice)
      : ids(ids_of(own.rank)), ids_there(ids), values(values_of(own.rank)) {
    slice = own.slice(0, values.address(), stream.get());
    slice.form = PARALLAX_FORM_ROWS;
    slice.row_count = kTokens;
    slice.ids =
        where == Ids::kOnDevice ? static_cast<const int64_t*>(ids_there.address()) : ids.data();
  }
  const Stream stream;
  const std::vector<int64_t> ids;
  const DeviceNumbers<int64_t> ids_there;
  const DeviceNumbers<float> values;
  parallax_slice_t slice;
};

inline parallax_request_t* push(const DeviceRank& own, uint64_t step,
                                const parallax_slice_t& slice) {
  parallax_request_t* request = nullptr;
  check(parallax_push(own.job, step, &slice, 1, &request));
  return request;
}

inline parallax_request_t* end(const DeviceRank& own, uint64_t step) {
  auto options = sized<parallax_step_end_options_t>();
  options.learning_rate = 1;
  parallax_request_t* ended = nullptr;
  check(parallax_step_end(own.job, step, &options, &ended));
  return ended;
}

inline std::vector<float> pull_all(const DeviceRank& own, uint32_t variable = 0) {
  std::vector<int64_t> ids(kRows);
  for (uint64_t i = 0; i < kRows; ++i) ids[i] = static_cast<int64_t>(i);
  std::vector<float> values(kRows * kWidth);
  auto slice = sized<parallax_slice_t>();
  slice.variable = variable;
  slice.form = PARALLAX_FORM_ROWS;
  slice.ids = ids.data();
  slice.row_count = kRows;
  slice.values = values.data();
  parallax_request_t* request = nullptr;
  check(parallax_pull(own.job, 0, &slice, 1, &request));
  DeviceRank::finish({request});
  return values;
}

// A rank's rows of the sum, as a reduce gives them back.
inline std::vector<float> rows_of(parallax_request_t* request) {
  const int64_t* ids = nullptr;
  const void* values = nullptr;
  uint64_t count = 0;
  check(parallax_request_rows(request, 0, &ids, &values, &count));
  std::vector<float> all(kRows * kWidth);
  for (uint64_t i = 0; i < count; ++i) {
    std::memcpy(&all[static_cast<uint64_t>(ids[i]) * kWidth],
                static_cast<const float*>(values) + i * kWidth, kWidth * sizeof(float));
  }
  return all;
}

}  // namespace cuda_double_test::arriving

#endif  // PARALLAX_TESTS_CUDA_MODULE_ARRIVING_ROWS_H_
