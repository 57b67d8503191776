// SPDX-License-Identifier: Apache-2.0
// Gather, scatter, scatter-add and casts on a device against the host's conversions, bit for bit.
#include "cuda/on_device/rows.h"
#include "cuda/on_device/test_device.h"

namespace parallax::kernels {

constexpr uint32_t kDtypesTaken[] = {PARALLAX_F32, PARALLAX_F16, PARALLAX_BF16};
constexpr uint32_t kDtypesGiven[] = {PARALLAX_F32, PARALLAX_F16, PARALLAX_BF16, PARALLAX_F64};

bool is_given(uint32_t from, uint32_t to) { return to != PARALLAX_F64 || from == PARALLAX_F32; }

class RowKernels : public KernelTest {
 protected:
  static std::vector<std::byte> converted(const std::vector<std::byte>& from, uint32_t from_dtype,
                                          uint32_t to_dtype) {
    const size_t count = from.size() / bytes_of_dtype(from_dtype);
    std::vector<std::byte> to(count * bytes_of_dtype(to_dtype));
    convert_or_copy(converter(from_dtype, to_dtype), from.data(), to.data(), count,
                    bytes_of_dtype(to_dtype));
    return to;
  }
  // `skip` elements of the memory come before the table: what is copied by wide units is aligned.
  void expect_gather(uint32_t from_dtype, uint32_t to_dtype, uint32_t elements, bool wide,
                     uint32_t skip) {
    constexpr uint64_t kRows = 50;
    std::mt19937_64 random(elements);
    const std::vector<std::byte> memory = draw_numbers(random, from_dtype, kRows * elements + skip);
    const Ids ids = draw_ids(random, Spread::kSkewed, 70, kRows);
    const DeviceBytes table(device(), memory), wide_ids(device(), ids);
    const DeviceBytes narrow(device(), narrow_ids(ids)), bad(device(), none_bad());
    const size_t row_bytes = elements * bytes_of_dtype(to_dtype);
    const DeviceBytes out(device(), ids.size() * row_bytes);
    const DeviceIds given = {
        (wide ? wide_ids : narrow).get(), wide ? 8u : 4u, 70, kRows, 0, bad.get()};
    const size_t skip_bytes = skip * bytes_of_dtype(from_dtype);
    ASSERT_EQ(
        device().launcher.gather(device().stream, {table.get() + skip_bytes, from_dtype, elements},
                                 given, {out.get(), to_dtype, elements}),
        CUDA_SUCCESS);
    const std::vector<std::byte> rows(memory.begin() + static_cast<ptrdiff_t>(skip_bytes),
                                      memory.end());
    const std::vector<std::byte> as_asked = converted(rows, from_dtype, to_dtype);
    std::vector<std::byte> expected(ids.size() * row_bytes);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0) continue;
      std::memcpy(expected.data() + i * row_bytes,
                  as_asked.data() + static_cast<size_t>(ids[i]) * row_bytes, row_bytes);
    }
    ASSERT_EQ(out.values<std::byte>(expected.size()), expected);
    ASSERT_EQ(bad.values<uint32_t>(1), none_bad());
  }
};

TEST_F(RowKernels, GatherTakesRowsInTheDtypeThatIsAskedFor) {
  for (const uint32_t from : kDtypesTaken) {
    for (const uint32_t to : kDtypesGiven) {
      if (!is_given(from, to)) continue;
      for (const uint32_t elements : {1, 2, 3, 8, 31, 256, 300}) {
        SCOPED_TRACE(testing::Message()
                     << dtype_name(from) << " to " << dtype_name(to) << " x " << elements);
        expect_gather(from, to, elements, elements % 2 == 0, 0);
        expect_gather(from, to, elements, elements % 2 != 0, 1);
        expect_gather(from, to, elements, elements % 2 == 0, 2);
      }
    }
  }
  expect_gather(PARALLAX_F32, PARALLAX_F32, 4096, true, 0);
}

TEST_F(RowKernels, ScatterPutsRowsWhereTheirIdsSay) {
  constexpr uint64_t kRows = 64;
  for (const uint32_t dtype : kDtypesGiven) {
    for (const uint32_t elements : {1, 7, 8, 300}) {
      std::mt19937_64 random(elements);
      std::vector<std::byte> expected = draw_numbers(random, dtype, kRows * elements);
      const DeviceBytes table(device(), expected), bad(device(), none_bad());
      Ids ids = draw_ids(random, Spread::kDistinct, 40, kRows);
      ids[3] = ids[9] = -1;
      const std::vector<std::byte> rows = draw_numbers(random, dtype, ids.size() * elements);
      const DeviceBytes given(device(), ids), values(device(), rows);
      ASSERT_EQ(device().launcher.scatter(device().stream, {table.get(), dtype, elements},
                                          {given.get(), 8, 40, kRows, 0, bad.get()},
                                          {values.get(), dtype, elements}),
                CUDA_SUCCESS);
      const size_t row_bytes = elements * bytes_of_dtype(dtype);
      for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0) continue;
        std::memcpy(expected.data() + static_cast<size_t>(ids[i]) * row_bytes,
                    rows.data() + i * row_bytes, row_bytes);
      }
      ASSERT_EQ(table.values<std::byte>(expected.size()), expected);
    }
  }
}

TEST_F(RowKernels, ScatterAddAddsInFloatAndRoundsOnce) {
  constexpr uint64_t kRows = 64;
  for (const uint32_t dtype : kDtypesTaken) {
    for (const uint32_t elements : {1, 33, 256}) {
      std::mt19937_64 random(elements);
      const std::vector<std::byte> before = draw_numbers(random, dtype, kRows * elements);
      const DeviceBytes table(device(), before), bad(device(), none_bad());
      const Ids ids = draw_ids(random, Spread::kDistinct, 40, kRows);
      const std::vector<std::byte> sums = draw_numbers(random, PARALLAX_F32, 40 * elements);
      // Of the 40 ids the device counts 30.
      const DeviceBytes given(device(), narrow_ids(ids)), values(device(), sums);
      const DeviceBytes count(device(), std::vector<uint32_t>{30});
      ASSERT_EQ(device().launcher.scatter_add(device().stream, {table.get(), dtype, elements},
                                              {given.get(), 4, 40, kRows, count.get(), bad.get()},
                                              values.get()),
                CUDA_SUCCESS);
      std::vector<std::byte> floats = converted(before, dtype, PARALLAX_F32);
      auto* const expected = reinterpret_cast<float*>(floats.data());
      const auto* const added = reinterpret_cast<const float*>(sums.data());
      for (size_t i = 0; i < 30; ++i) {
        for (uint32_t e = 0; e < elements; ++e) {
          expected[static_cast<size_t>(ids[i]) * elements + e] += added[i * elements + e];
        }
      }
      ASSERT_EQ(table.values<std::byte>(before.size()), converted(floats, PARALLAX_F32, dtype));
    }
  }
}

// Every f16 and bf16 there is, and floats of every kind: NaN, infinite, subnormal, halfway.
TEST_F(RowKernels, CastsHaveTheHostsBits) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<uint32_t> floats;
  std::mt19937_64 random(5);
  for (uint32_t exponent = 0; exponent < 512; ++exponent) {  // with either sign
    for (const uint32_t rest : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u,
                                0x8001u, 0x18000u, 0x400000u, 0x7fffffu}) {
      floats.push_back(exponent << 23 | rest);
    }
    for (int i = 0; i < 20; ++i) floats.push_back(exponent << 23 | (random() & 0x7fffff));
  }
  for (const uint32_t from : kDtypesTaken) {
    const size_t count = from == PARALLAX_F32 ? floats.size() : all.size();
    const auto* const first = from == PARALLAX_F32
                                  ? reinterpret_cast<const std::byte*>(floats.data())
                                  : reinterpret_cast<const std::byte*>(all.data());
    const std::vector<std::byte> numbers(first, first + count * bytes_of_dtype(from));
    for (const uint32_t to : kDtypesGiven) {
      if (!is_given(from, to)) continue;
      const DeviceBytes given(device(), numbers);
      const DeviceBytes out(device(), count * bytes_of_dtype(to));
      ASSERT_EQ(device().launcher.cast(device().stream, given.get(), from, out.get(), to, count),
                CUDA_SUCCESS);
      const std::vector<std::byte> expected = converted(numbers, from, to);
      ASSERT_EQ(out.values<std::byte>(expected.size()), expected)
          << dtype_name(from) << " to " << dtype_name(to);
    }
  }
}

TEST_F(RowKernels, IdsThatAreNoRowsAreToldAndLeftOut) {
  const std::vector<float> rows = {1, 2, 3, 4};
  const DeviceBytes table(device(), rows), out(device(), std::vector<float>(5, 9.0f));
  const DeviceBytes ids(device(), Ids{0, 4, -1, -7, 3}), bad(device(), none_bad());
  const DeviceIds given = {ids.get(), 8, 5, 4, 0, bad.get()};
  ASSERT_EQ(device().launcher.gather(device().stream, {table.get(), PARALLAX_F32, 1}, given,
                                     {out.get(), PARALLAX_F32, 1}),
            CUDA_SUCCESS);
  EXPECT_EQ(out.values<float>(5), (std::vector<float>{1, 0, 0, 0, 4}));
  EXPECT_EQ(bad.values<uint32_t>(1)[0], 1u);
  ASSERT_EQ(device().launcher.scatter(device().stream, {table.get(), PARALLAX_F32, 1}, given,
                                      {out.get(), PARALLAX_F32, 1}),
            CUDA_SUCCESS);
  EXPECT_EQ(table.values<float>(4), rows);
}

TEST_F(RowKernels, NothingIsNothing) {
  EXPECT_EQ(device().launcher.gather(device().stream, {}, {}, {}), CUDA_SUCCESS);
  EXPECT_EQ(device().launcher.cast(device().stream, 0, PARALLAX_F32, 0, PARALLAX_F16, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(device().launcher.cast(device().stream, 0, PARALLAX_I32, 0, PARALLAX_F16, 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device().launcher.cast(device().stream, 0, PARALLAX_F64, 0, PARALLAX_F32, 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(
      device().launcher.scatter(device().stream, {0, PARALLAX_F32, 1}, {}, {0, PARALLAX_F16, 1}),
      CUDA_ERROR_INVALID_VALUE);
}

}  // namespace parallax::kernels
