// SPDX-License-Identifier: Apache-2.0
// Values of mirrors in a device's memory that are pulled to slices on the same device: they stay
// there, in the dtype that is asked for, with the bits of slices in host memory.
#include <gtest/gtest.h>

#include <string>

#include "cuda/double/control.h"
#include "cuda/module_pulled_slices.h"

namespace cuda_rows_test {
namespace {

class Mirrors : public PulledSlices {};

TEST_F(Mirrors, ValuesStayOnTheDevice) {
  const Asked all[] = {{},
                       {.as = PARALLAX_F16, .narrow = true},
                       {.as = PARALLAX_BF16, .count = kMost},
                       {.rows = false},
                       {.as = PARALLAX_F16, .rows = false},
                       {.as = PARALLAX_F64},
                       {.as = PARALLAX_F64, .rows = false}};
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
              EXPECT_EQ(copied, ids) << "nothing but ids comes to the host";
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
