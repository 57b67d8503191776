// SPDX-License-Identifier: Apache-2.0
// Jobs with a table of rows and a dense variable in the memory of devices, and pulls from them to
// slices on the same devices and in host memory.
#ifndef PARALLAX_TESTS_CUDA_MODULE_PULLED_SLICES_H_
#define PARALLAX_TESTS_CUDA_MODULE_PULLED_SLICES_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/double/control.h"
#include "cuda/module_row_slices.h"

namespace cuda_rows_test {

inline constexpr uint64_t kWidth = 7, kMost = 4096, kDenseNumbers = 400'000;

class PulledSlices : public NcclJobs {
 protected:
  static bool told(const std::string& words) {
    return std::string(parallax_last_error()).find(words) != std::string::npos;
  }
  static void add(parallax_job_t* job, uint32_t dtype) {
    for (const bool rows : {true, false}) {
      auto variable = sized<parallax_variable_t>();
      variable.name = rows ? "table" : "dense";
      variable.rows = rows ? kTableRows : kDenseNumbers;
      variable.row_elements = rows ? kWidth : 1;
      if (rows) {
        variable.rows_max = kMost;
        variable.tag = PARALLAX_SPARSE;
      }
      variable.dtype = dtype;
      variable.rule = PARALLAX_RULE_SGD;
      variable.init = PARALLAX_INIT_UNIFORM;
      variable.init_low = -3;
      variable.init_high = 2;
      variable.table_memory = PARALLAX_MEMORY_CUDA;
      uint32_t id = 0;
      check(parallax_register(job, &variable, &id));
    }
  }
  static void mirrored(parallax_options_t* options) { options->plan_mode = PARALLAX_PLAN_AR; }
  static void sharded(parallax_options_t* options) { options->plan_mode = PARALLAX_PLAN_PS; }

  // What is asked for: rows by ids of either width, or all numbers; once on the device, once in
  // host memory.
  struct Asked {
    uint32_t as = PARALLAX_F32;
    bool rows = true;
    bool narrow = false;
    uint64_t count = 300;

    uint64_t bytes() const {
      return (rows ? count * kWidth : kDenseNumbers) * parallax::bytes_of_dtype(as);
    }
    GivenRows ids(uint64_t seed) const {
      return GivenRows({.narrow_ids = narrow, .distinct = 24, .count = count, .width = 1}, seed);
    }
    parallax_slice_t slice(void* ids, void* values) const {
      auto made = sized<parallax_slice_t>();
      made.variable = rows ? 0 : 1;
      made.values = values;
      made.as_dtype = PARALLAX_AS(as);
      if (!rows) return made;
      made.form = PARALLAX_FORM_ROWS;
      made.row_count = count;
      if (narrow) {
        made.ids_i32 = static_cast<const int32_t*>(ids);
      } else {
        made.ids = static_cast<const int64_t*>(ids);
      }
      return made;
    }
  };

  static Bytes on_host(const DeviceRank& rank, uint64_t step, const Asked& asked, uint64_t seed) {
    GivenRows given = asked.ids(seed);
    Bytes values(asked.bytes(), 0x55);
    const parallax_slice_t slice = asked.slice(given.ids.data(), values.data());
    parallax_request_t* request = nullptr;
    check(parallax_pull(rank.job, step, &slice, 1, &request));
    rank.finish({request});
    return values;
  }
  // The ids are written by work on the stream, and what was in the buffer is read by it before.
  static Bytes on_device(const DeviceRank& rank, uint64_t step, const Asked& asked, uint64_t seed,
                         CUstream stream, Bytes* before) {
    const RowsOnDevice there(asked.ids(seed), stream);
    const DeviceNumbers<uint8_t> values(Bytes(asked.bytes(), 0x55)), kept(Bytes(asked.bytes()));
    EXPECT_EQ(cuMemcpyDtoDAsync(kept.pointer(), values.pointer(), asked.bytes(), stream),
              CUDA_SUCCESS);
    parallax_slice_t slice = asked.slice(there.ids(), values.address());
    slice.memory = PARALLAX_MEMORY_CUDA;
    slice.device = rank.rank;
    slice.stream = stream;
    parallax_request_t* request = nullptr;
    check(parallax_pull(rank.job, step, &slice, 1, &request));
    rank.finish({request});
    const Bytes pulled = values.values();
    EXPECT_EQ(cuda_double_drain(20000), 1);
    *before = kept.values();
    return pulled;
  }

  static void push(const DeviceRank& rank, uint64_t step) {
    int64_t id = 5;
    std::vector<float> gradient(kWidth, 0.3f + static_cast<float>(rank.rank));
    auto slice = sized<parallax_slice_t>();
    slice.form = PARALLAX_FORM_ROWS;
    slice.ids = &id;
    slice.row_count = 1;
    slice.values = gradient.data();
    slice.as_dtype = PARALLAX_AS(PARALLAX_F32);
    parallax_request_t* request = nullptr;
    check(parallax_push(rank.job, step, &slice, 1, &request));
    auto options = sized<parallax_step_end_options_t>();
    options.learning_rate = 0.7f;
    parallax_request_t* ended = nullptr;
    check(parallax_step_end(rank.job, step, &options, &ended));
    rank.finish({request, ended});
  }
};

}  // namespace cuda_rows_test

#endif  // PARALLAX_TESTS_CUDA_MODULE_PULLED_SLICES_H_
