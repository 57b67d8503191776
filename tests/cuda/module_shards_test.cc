// SPDX-License-Identifier: Apache-2.0
// Pulls from sharded tables in the memory of devices to slices on the same devices: what a rank
// owns itself stays there, what others own comes by the host, and the bits are those of slices in
// host memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/double/control.h"
#include "cuda/module_pulled_slices.h"

namespace cuda_rows_test {
namespace {

class Shards : public PulledSlices {
 protected:
  static void barrier(const DeviceRank& rank) {
    parallax_request_t* request = nullptr;
    check(parallax_barrier(rank.job, &request));
    rank.finish({request});
  }
  static std::vector<int64_t> ids_of(const Asked& asked, uint64_t seed) {
    const GivenRows given = asked.ids(seed);
    std::vector<int64_t> ids(asked.count);
    for (uint64_t i = 0; i < asked.count; ++i) {
      int32_t narrow = 0;
      if (!asked.narrow) std::memcpy(&ids[i], &given.ids[i * sizeof ids[i]], sizeof ids[i]);
      if (asked.narrow) std::memcpy(&narrow, &given.ids[i * sizeof narrow], sizeof narrow);
      if (asked.narrow) ids[i] = narrow;
    }
    return ids;
  }
};

// Given a rank that owns all, expect nothing but ids to come to the host, and nothing but the
// places of its rows to go back, in steps and in evaluations.
TEST_F(Shards, OfARankAloneValuesStayOnTheDevice) {
  const Asked all[] = {{},
                       {.as = PARALLAX_F16, .narrow = true},
                       {.as = PARALLAX_BF16, .count = kMost},
                       {.as = PARALLAX_F64},
                       {.rows = false},
                       {.as = PARALLAX_F64, .rows = false}};
  for (const Asked& asked : all) {
    SCOPED_TRACE("as " + std::to_string(asked.as) + ", rows " + std::to_string(asked.rows));
    cuda_double_set_delay(asked.as + 1, 50);
    run(
        1, [&](DeviceRank& rank) { add(rank.job, PARALLAX_F32); },
        [&](DeviceRank& rank) {
          const Stream stream;
          for (uint64_t i = 1; i <= 4; ++i) {
            // The last is an evaluation.
            const uint64_t step = i < 4 ? rank.begin() : 0;
            const uint64_t out = cuda_double_bytes_to_host(), in = cuda_double_bytes_to_device();
            Bytes before;
            const Bytes pulled = on_device(rank, step, asked, i, stream.get(), &before);
            const uint64_t id_bytes = asked.rows ? asked.count * (asked.narrow ? 4 : 8) : 0;
            const uint64_t places = asked.rows ? asked.count * sizeof(int64_t) : 0;
            EXPECT_EQ(cuda_double_bytes_to_host() - out, id_bytes);
            EXPECT_EQ(cuda_double_bytes_to_device() - in, places);
            EXPECT_TRUE(pulled == on_host(rank, step, asked, i));
            EXPECT_TRUE(before == Bytes(asked.bytes(), 0x55)) << "work before the call";
            if (step > 0) push(rank, step);
          }
        },
        sharded);
  }
  EXPECT_EQ(cuda_double_pageable_copies(), 0u);
}

// Given two ranks that pull the same rows, each the owner of some, expect each distinct row to come
// to the host once, for the rank that does not own it, and to go to that rank's device as often as
// it was asked for; of an evaluation, which asks owners by itself, as often to the host.
TEST_F(Shards, WhatOthersOwnComesByTheHostAndNothingElse) {
  constexpr uint32_t kRanks = 2;
  for (const uint32_t dtype : {PARALLAX_F32, PARALLAX_F16}) {
    for (const Asked& asked : {Asked{}, Asked{.as = PARALLAX_F16, .narrow = true, .count = 4000},
                               Asked{.as = PARALLAX_BF16}, Asked{.as = PARALLAX_F64}}) {
      SCOPED_TRACE("dtype " + std::to_string(dtype) + ", as " + std::to_string(asked.as));
      cuda_double_set_delay(asked.as + 7, 50);
      run(
          kRanks, [&](DeviceRank& rank) { add(rank.job, dtype); },
          [&](DeviceRank& rank) {
            const Stream stream;
            for (uint64_t i = 1; i <= 4; ++i) {
              barrier(rank);
              const uint64_t out = cuda_double_bytes_to_host(), in = cuda_double_bytes_to_device();
              barrier(rank);
              const uint64_t step = i < 4 ? rank.begin() : 0;
              Bytes before;
              const Bytes pulled = on_device(rank, step, asked, i, stream.get(), &before);
              barrier(rank);
              const uint64_t came = cuda_double_bytes_to_host() - out;
              const uint64_t went = cuda_double_bytes_to_device() - in;
              barrier(rank);
              if (step > 0) push(rank, step);
              std::vector<int64_t> ids = ids_of(asked, i);
              std::erase(ids, -1);
              const uint64_t asked_for =
                  step > 0 ? std::set<int64_t>(ids.begin(), ids.end()).size() : ids.size();
              const uint64_t id_bytes = asked.narrow ? 4 : 8;
              EXPECT_EQ(came, kRanks * asked.count * id_bytes + asked_for * kWidth * sizeof(float));
              // A number for each row that a kernel looks at. Rows begin at a multiple of 16 in
              // each of a few pieces.
              const uint64_t row_bytes = kWidth * parallax::bytes_of_dtype(asked.as);
              const uint64_t least = (kRanks * asked.count + asked_for) * sizeof(int64_t) +
                                     ids.size() * (sizeof(int64_t) + row_bytes);
              EXPECT_GE(went, least);
              EXPECT_LE(went, least + 100);
              EXPECT_TRUE(before == Bytes(asked.bytes(), 0x55)) << "work before the call";
              EXPECT_FALSE(pulled == before);
            }
          },
          sharded);
    }
  }
  EXPECT_EQ(cuda_double_pageable_copies(), 0u);
}

// In every step, and by evaluations, of worlds of several sizes.
TEST_F(Shards, HaveTheBitsOfTheHost) {
  const std::pair<uint32_t, Asked> all[] = {{2, {}},
                                            {3, {.as = PARALLAX_F16, .narrow = true}},
                                            {4, {.as = PARALLAX_BF16}},
                                            {3, {.as = PARALLAX_F64, .count = 700}},
                                            {2, {.rows = false}}};
  for (const auto& [world, what] : all) {
    const Asked asked = what;
    SCOPED_TRACE("world " + std::to_string(world) + ", as " + std::to_string(asked.as));
    cuda_double_set_delay(world, 50);
    run(
        world, [&](DeviceRank& rank) { add(rank.job, PARALLAX_BF16); },
        [&](DeviceRank& rank) {
          const Stream stream;
          for (uint64_t i = 1; i <= 3; ++i) {
            const uint64_t step = i < 3 ? rank.begin() : 0;
            Bytes before;
            const uint64_t seed = i * 10 + rank.rank;
            const Bytes pulled = on_device(rank, step, asked, seed, stream.get(), &before);
            EXPECT_TRUE(pulled == on_host(rank, step, asked, seed)) << "step " << step;
            if (step > 0) push(rank, step);
          }
        },
        sharded);
  }
}

// Given slices of one variable in a call, on the device and in host memory, in several dtypes, with
// none and with more than rows_max rows together, expect each to have its rows.
TEST_F(Shards, SeveralSlicesOfACall) {
  run(
      3, [](DeviceRank& rank) { add(rank.job, PARALLAX_F32); },
      [](DeviceRank& rank) {
        const Stream stream;
        const Asked all[] = {{.count = 3000},      {.count = 900},
                             {.as = PARALLAX_F16}, {.rows = false},
                             {.count = 0},         {.count = 1000},
                             {.as = PARALLAX_F64}, {},
                             {.as = PARALLAX_F64}, {.as = PARALLAX_F16, .rows = false}};
        const auto in_host_memory = [](size_t i) { return i == 1 || i == 7; };
        const uint64_t step = rank.begin();
        std::vector<std::unique_ptr<RowsOnDevice>> ids;
        std::vector<std::unique_ptr<DeviceNumbers<uint8_t>>> values;
        std::vector<Bytes> hosts;
        std::vector<GivenRows> given;
        std::vector<parallax_slice_t> slices;
        for (size_t i = 0; i < std::size(all); ++i) {
          Asked some = all[i];
          some.count = std::max<uint64_t>(1, some.count);  // there is no memory of no bytes
          given.push_back(some.ids(i + rank.rank));
          hosts.emplace_back(some.bytes(), 0x33);
        }
        for (size_t i = 0; i < std::size(all); ++i) {
          ids.push_back(std::make_unique<RowsOnDevice>(given[i], stream.get()));
          values.push_back(std::make_unique<DeviceNumbers<uint8_t>>(hosts[i]));
          if (in_host_memory(i)) {
            slices.push_back(all[i].slice(given[i].ids.data(), hosts[i].data()));
            continue;
          }
          slices.push_back(all[i].slice(ids[i]->ids(), values[i]->address()));
          slices[i].memory = PARALLAX_MEMORY_CUDA;
          slices[i].device = rank.rank;
          slices[i].stream = stream.get();
        }
        parallax_request_t* request = nullptr;
        check(parallax_pull(rank.job, step, slices.data(), slices.size(), &request));
        rank.finish({request});
        for (size_t i = 0; i < std::size(all); ++i) {
          const Bytes pulled = in_host_memory(i) ? hosts[i] : values[i]->values();
          const Bytes expected = all[i].count > 0 ? on_host(rank, step, all[i], i + rank.rank)
                                                  : Bytes(pulled.size(), 0x33);
          EXPECT_TRUE(pulled == expected) << "slice " << i;
        }
        push(rank, step);
      },
      sharded);
}

}  // namespace
}  // namespace cuda_rows_test
