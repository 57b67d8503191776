// SPDX-License-Identifier: Apache-2.0
// Coalescing on a device against the host's accumulators, bit for bit.
#include "cuda/on_device/rows.h"
#include "cuda/on_device/test_device.h"

namespace parallax::kernels {

class CoalesceKernel : public KernelTest {
 protected:
  struct Result {
    Ids ids;
    std::vector<float> sums;
    uint32_t bad = 0;
  };

  template <typename Id>
  Result coalesce(const std::vector<Id>& ids, uint64_t table_rows,
                  const std::vector<std::byte>& rows, uint32_t dtype, uint32_t elements) {
    const uint32_t count = static_cast<uint32_t>(ids.size());
    const DeviceBytes on_device(device(), ids), values(device(), rows);
    const DeviceBytes bad(device(), none_bad()), unique_ids(device(), ids.size() * sizeof(Id));
    const DeviceBytes sums(device(), ids.size() * elements * sizeof(float));
    const DeviceBytes unique_count(device(), 4);
    const size_t work_bytes = coalesce_work_bytes(count, sizeof(Id));
    const DeviceBytes work(device(), work_bytes);
    const DeviceIds given = {on_device.get(), sizeof(Id), count, table_rows, 0, bad.get()};
    EXPECT_EQ(
        device().launcher.coalesce(device().stream, given, {values.get(), dtype, elements},
                                   {unique_ids.get(), sums.get(), unique_count.get(), work.get()}),
        CUDA_SUCCESS)
        << device().launcher.last_call();
    Result result;
    const uint32_t unique = unique_count.values<uint32_t>(1)[0];
    for (const Id id : unique_ids.values<Id>(unique)) result.ids.push_back(id);
    result.sums = sums.values<float>(size_t{unique} * elements);
    result.bad = bad.values<uint32_t>(1)[0];
    return result;
  }

  void expect_sums(const Ids& ids, uint64_t table_rows, uint32_t dtype, uint32_t elements,
                   bool wide) {
    std::mt19937_64 random(ids.size() + elements);
    const std::vector<std::byte> rows = draw_numbers(random, dtype, ids.size() * elements);
    const Result result = wide ? coalesce(ids, table_rows, rows, dtype, elements)
                               : coalesce(narrow_ids(ids), table_rows, rows, dtype, elements);
    EXPECT_EQ(result.bad, 0xffffffffu);
    Ids expected_ids;
    std::vector<float> expected;
    for (const auto& [id, sum] : sums_of(ids, rows, dtype, elements)) {
      expected_ids.push_back(id);
      expected.insert(expected.end(), sum.begin(), sum.end());
    }
    ASSERT_EQ(result.ids, expected_ids);
    ASSERT_TRUE(same_bits(result.sums, expected));
  }
};

TEST_F(CoalesceKernel, HasTheHostsBitsAtEveryShape) {
  std::mt19937_64 random(1);
  for (const Spread spread : {Spread::kUniform, Spread::kSkewed, Spread::kSame, Spread::kPadding}) {
    for (const size_t count : {1, 2, 255, 1023, 1024, 1025, 5000}) {
      for (const bool wide : {false, true}) {
        SCOPED_TRACE(testing::Message() << "spread " << static_cast<int>(spread) << ", " << count
                                        << " ids, wide " << wide);
        const Ids ids = draw_ids(random, spread, count, 700);
        expect_sums(ids, 700, PARALLAX_F32, 3, wide);
      }
    }
  }
}

TEST_F(CoalesceKernel, OfEveryWidthAndDtype) {
  std::mt19937_64 random(2);
  for (const uint32_t dtype : {PARALLAX_F32, PARALLAX_F16, PARALLAX_BF16, PARALLAX_F64}) {
    for (const uint32_t elements : {1, 2, 5, 31, 64, 100, 255, 256, 257, 1000, 4096}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " x " << elements);
      const Ids ids = draw_ids(random, Spread::kSkewed, 40, 16);
      expect_sums(ids, 16, dtype, elements, elements % 2 == 0);
    }
  }
}

// Of an id among others, as many as one thread sums, a block at once, and a block again and again.
TEST_F(CoalesceKernel, OfIdsWithManyRows) {
  std::mt19937_64 random(4);
  for (const uint32_t many : {kLongRows - 1, kLongRows, 511u, 513u, 1025u, 4100u}) {
    for (const uint32_t elements : {1, 4, 7, 16, 20, 100}) {
      for (const uint32_t dtype : {PARALLAX_F32, PARALLAX_F16, PARALLAX_BF16, PARALLAX_F64}) {
        if (many > 1025 && elements > 20) continue;
        SCOPED_TRACE(testing::Message()
                     << many << " rows, " << dtype_name(dtype) << " x " << elements);
        Ids ids = draw_ids(random, Spread::kSkewed, 100, 60);
        ids.insert(ids.end(), many, 61);
        ids.insert(ids.end(), kLongRows + 1, 3);
        std::shuffle(ids.begin(), ids.end(), random);
        expect_sums(ids, 64, dtype, elements, elements % 2 == 0);
      }
    }
  }
}

// As many passes as the ids have digits; an id may be all ones but the last bit. Up to 32 bits keys
// have so many, of 64 bits ids too.
TEST_F(CoalesceKernel, OfTablesOfEverySize) {
  for (const int bits : {1, 6, 7, 8, 10, 14, 15, 20, 28, 31, 32, 33, 40, 62}) {
    for (const bool full : {false, true}) {
      const uint64_t table_rows = (uint64_t{1} << bits) - (full ? 1 : 0);
      const int64_t last = static_cast<int64_t>(table_rows) - 1;
      const Ids ids = {last, -1, 0, last, last / 2, 0, -1, last};
      SCOPED_TRACE(testing::Message() << table_rows << " rows");
      if (bits <= 31) expect_sums(ids, table_rows, PARALLAX_F32, 2, false);
      expect_sums(ids, table_rows, PARALLAX_F32, 2, true);
    }
  }
}

// Enough for the tiles' counts of a digit to be scanned over more than a tile of their own.
TEST_F(CoalesceKernel, OfManyIds) {
  std::mt19937_64 random(3);
  const Ids ids = draw_ids(random, Spread::kSkewed, kTileRows * (kTileRows + 3) + 5, 90000);
  expect_sums(ids, 90000, PARALLAX_F32, 1, true);
}

TEST_F(CoalesceKernel, AScanOfManyTotals) {
  // Of a scan alone: kTileRows + 1 tiles of totals, which no number of ids here would make.
  constexpr uint32_t kTiles = 2 * kTileRows + 3;
  std::vector<uint32_t> totals(kTiles);
  for (uint32_t i = 0; i < kTiles; ++i) totals[i] = i % 5;
  const DeviceBytes numbers(device(), totals);
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  ASSERT_EQ(device().driver.cuModuleLoadData(&module, image().data()), CUDA_SUCCESS);
  ASSERT_EQ(device().driver.cuModuleGetFunction(&kernel, module, "parallax_scan_totals"),
            CUDA_SUCCESS);
  CUdeviceptr pointer = numbers.get();
  uint32_t tiles = kTiles;
  void* parameters[] = {&pointer, &tiles};
  ASSERT_EQ(device().driver.cuLaunchKernel(kernel, 1, 1, 1, kBlockThreads, 1, 1, 0, device().stream,
                                           parameters, nullptr),
            CUDA_SUCCESS);
  uint32_t sum = 0;
  const std::vector<uint32_t> scanned = numbers.values<uint32_t>(kTiles);
  for (uint32_t i = 0; i < kTiles; ++i) {
    ASSERT_EQ(scanned[i], sum) << i;
    sum += totals[i];
  }
  EXPECT_EQ(device().driver.cuModuleUnload(module), CUDA_SUCCESS);
}

TEST_F(CoalesceKernel, NoIdsAreNoRows) {
  const Result none = coalesce(Ids(), 10, {}, PARALLAX_F32, 4);
  EXPECT_TRUE(none.ids.empty());
  expect_sums({-1, -1, -1}, 10, PARALLAX_F32, 4, true);
}

// +0 plus -0 is +0: as an accumulator begins.
TEST_F(CoalesceKernel, ASumBeginsWithPositiveZero) {
  std::vector<std::byte> rows(4);
  const float negative = -0.0f;
  std::memcpy(rows.data(), &negative, 4);
  const Result result = coalesce(Ids{3}, 10, rows, PARALLAX_F32, 1);
  ASSERT_EQ(result.sums.size(), 1u);
  EXPECT_FALSE(std::signbit(result.sums[0]));
}

TEST_F(CoalesceKernel, IdsThatAreNoRowsAreTold) {
  std::mt19937_64 random(4);
  const Ids ids = {1, 7, 10, -2, 1};
  const std::vector<std::byte> rows = draw_numbers(random, PARALLAX_F32, ids.size());
  for (const bool wide : {false, true}) {
    const Result result = wide ? coalesce(ids, 10, rows, PARALLAX_F32, 1)
                               : coalesce(narrow_ids(ids), 10, rows, PARALLAX_F32, 1);
    EXPECT_EQ(result.bad, 2u);
    EXPECT_EQ(result.ids, (Ids{1, 7}));
  }
}

TEST_F(CoalesceKernel, WhatItDoesNotTakeIsRefused) {
  EXPECT_EQ(
      device().launcher.coalesce(device().stream, {0, 8, 1, 10, 0, 0}, {0, PARALLAX_I64, 1}, {}),
      CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device().launcher.coalesce(device().stream, {0, 4, 1, uint64_t{1} << 32, 0, 0},
                                       {0, PARALLAX_F32, 1}, {}),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(
      device().launcher.coalesce(device().stream, {0, 2, 1, 10, 0, 0}, {0, PARALLAX_F32, 1}, {}),
      CUDA_ERROR_INVALID_VALUE);
}

}  // namespace parallax::kernels
