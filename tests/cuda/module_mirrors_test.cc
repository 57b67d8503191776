// SPDX-License-Identifier: Apache-2.0
// Values of mirrors in a device's memory that are pulled to slices on the same device: they stay
// there, in the dtype that is asked for, with the bits of slices in host memory.
#include <gtest/gtest.h>

#include <string>

#include "cuda/double/control.h"
#include "cuda/module_row_slices.h"

namespace cuda_rows_test {
namespace {

constexpr uint64_t kWidth = 7, kMost = 4096, kDenseNumbers = 400'000;

class Mirrors : public NcclJobs {
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

TEST_F(Mirrors, ValuesStayOnTheDevice) {
  const Asked all[] = {{},
                       {.as = PARALLAX_F16, .narrow = true},
                       {.as = PARALLAX_BF16, .count = kMost},
                       {.rows = false},
                       {.as = PARALLAX_F16, .rows = false},
                       {.as = PARALLAX_F64}};
  for (const uint32_t dtype : {PARALLAX_F32, PARALLAX_BF16}) {
    for (const Asked& asked : all) {
      SCOPED_TRACE("dtype " + std::to_string(dtype) + ", as " + std::to_string(asked.as) +
                   ", rows " + std::to_string(asked.rows));
      cuda_double_set_delay(asked.as + 1, 50);
      run(
          1, [&](DeviceRank& rank) { add(rank.job, dtype); },
          [&](DeviceRank& rank) {
            const Stream stream;
            for (uint64_t i = 1; i <= 3; ++i) {
              const uint64_t step = rank.begin();
              const Bytes expected = on_host(rank, step, asked, i);
              const uint64_t bytes = cuda_double_bytes_to_host();
              Bytes before;
              const Bytes pulled = on_device(rank, step, asked, i, stream.get(), &before);
              EXPECT_TRUE(pulled == expected);
              EXPECT_TRUE(before == Bytes(asked.bytes(), 0x55)) << "work before the call";
              const uint64_t ids = asked.rows ? asked.count * (asked.narrow ? 4 : 8) : 0;
              const uint64_t copied = cuda_double_bytes_to_host() - bytes;
              if (asked.as != PARALLAX_F64) {
                EXPECT_EQ(copied, ids) << "nothing but ids comes to the host";
              } else {
                EXPECT_GT(copied, ids) << "there is no kernel for f64";
              }
              push(rank, step);
            }
          },
          mirrored);
    }
  }
  EXPECT_EQ(cuda_double_pageable_copies(), 0u);
}

// Two ranks, each with a mirror; and one that asks for it on the other's device, which goes by the
// host.
TEST_F(Mirrors, OnTheDeviceOfTheTableAlone) {
  run(
      2, [](DeviceRank& rank) { add(rank.job, PARALLAX_F32); },
      [](DeviceRank& rank) {
        const Current other(static_cast<int>(1 - rank.rank));
        const Stream stream;
        const uint64_t step = rank.begin();
        const Asked asked;
        const Bytes expected = on_host(rank, step, asked, 3);
        Bytes before;
        DeviceRank there = rank;
        there.rank = 1 - rank.rank;
        EXPECT_TRUE(on_device(there, step, asked, 3, stream.get(), &before) == expected);
        const Current own(static_cast<int>(rank.rank));
        const Stream here;
        EXPECT_TRUE(on_device(rank, step, asked, 3, here.get(), &before) == expected);
        push(rank, step);
      },
      mirrored);
}

TEST_F(Mirrors, AnIdThatIsNoRowIsNamed) {
  run(
      1, [](DeviceRank& rank) { add(rank.job, PARALLAX_F32); },
      [](DeviceRank& rank) {
        const DeviceNumbers<int64_t> ids({3, 97});
        const DeviceNumbers<float> values(std::vector<float>(2 * kWidth, 4));
        parallax_slice_t slice = Asked{.count = 2}.slice(ids.address(), values.address());
        slice.memory = PARALLAX_MEMORY_CUDA;
        const uint64_t step = rank.begin();
        parallax_request_t* request = nullptr;
        check(parallax_pull(rank.job, step, &slice, 1, &request));
        EXPECT_EQ(rank.wait(request), PARALLAX_INVALID);
        EXPECT_TRUE(told("ids[1] is 97, the variable has rows 0..96")) << parallax_last_error();
        check(parallax_request_release(request));
        EXPECT_EQ(values.values(), std::vector<float>(2 * kWidth, 4));
        push(rank, step);
      },
      mirrored);
}

}  // namespace
}  // namespace cuda_rows_test
