// SPDX-License-Identifier: Apache-2.0
// Sums of what ranks gave, in order, beside the host's ordered accumulators, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "aggregate/dense_accumulator.h"
#include "aggregate/scaled_numbers.h"
#include "cuda/on_device/rows.h"
#include "cuda/on_device/test_device.h"

namespace parallax::kernels {

// As a leader and an owner add: a host's ranks in order, then hosts.
std::vector<std::byte> host_sum(const std::vector<std::byte>& gathered, uint32_t dtype,
                                const std::vector<uint32_t>& hosts, uint64_t count, double factor) {
  const SumType type = sum_type_of(dtype);
  const size_t share = count * bytes_of_dtype(dtype);
  const auto lay_out = [&](DenseAccumulator* sum, Arena* arena, uint32_t addends) {
    Arena measure;
    const DenseAccumulatorOptions options = {.addends = addends, .ordered = true, .sum = type};
    sum->lay_out(measure, count, options);
    EXPECT_TRUE(arena->reserve(measure.used_bytes()).ok());
    sum->lay_out(*arena, count, options);
    sum->clear();
  };
  Arena arena;
  DenseAccumulator total;
  lay_out(&total, &arena, static_cast<uint32_t>(hosts.size()));
  const std::byte* next = gathered.data();
  for (uint32_t host = 0; host < hosts.size(); ++host) {
    Arena of_host;
    DenseAccumulator sum;
    lay_out(&sum, &of_host, hosts[host]);
    for (uint32_t i = 0; i < hosts[host]; ++i, next += share) {
      EXPECT_TRUE(sum.add(i, count, {next, dtype}));
    }
    EXPECT_TRUE(total.add(host, count, {sum.values(), dtype_of(type)}));
  }
  std::vector<std::byte> out(share);
  give_numbers(total.values(), count, factor, {.values = out.data(), .dtype = dtype, .sum = type});
  return out;
}

class SumInOrder : public KernelTest {
 protected:
  void expect_sum(uint32_t dtype, const std::vector<uint32_t>& hosts, uint64_t count, bool mean) {
    uint32_t ranks = 0;
    HostEnds ends = {};
    for (const uint32_t host : hosts) {
      ranks += host;
      ends.bits[(ranks - 1) / 64] |= uint64_t{1} << (ranks - 1) % 64;
    }
    std::mt19937_64 random(ranks * 100 + dtype);
    std::vector<std::byte> given(ranks * count * bytes_of_dtype(dtype));
    if (is_floating(dtype)) {
      given = draw_floats(random, dtype, ranks * count);
    } else {  // any bits: integers wrap
      for (std::byte& each : given) each = static_cast<std::byte>(random());
    }
    const double factor = mean ? 1.0 / ranks : 1.0;
    const DeviceBytes gathered(device(), given), to(device(), count * bytes_of_dtype(dtype));
    ASSERT_EQ(device().launcher.sum_in_order(device().stream, {gathered.get(), dtype, ranks, count},
                                             ends, factor, to.get()),
              CUDA_SUCCESS);
    ASSERT_EQ(to.values<std::byte>(count * bytes_of_dtype(dtype)),
              host_sum(given, dtype, hosts, count, factor));
  }

 private:
  // Of many sizes, so that every order of adding rounds otherwise, and -0 among them.
  static std::vector<std::byte> draw_floats(std::mt19937_64& random, uint32_t dtype, size_t count) {
    std::vector<double> values(count);
    for (double& value : values) {
      const int size = static_cast<int>(random() % 12) - 6;
      value = std::ldexp(static_cast<double>(random() % 4097) / 4096 - 0.5, size);
      if (random() % 8 == 0) value = -0.0;
    }
    std::vector<std::byte> bytes(count * bytes_of_dtype(dtype));
    convert_or_copy(converter(PARALLAX_F64, dtype), reinterpret_cast<std::byte*>(values.data()),
                    bytes.data(), count, bytes_of_dtype(dtype));
    return bytes;
  }
};

TEST_F(SumInOrder, HasTheBitsOfOrderedAccumulators) {
  for (uint32_t dtype = 0; dtype < kDtypeCount; ++dtype) {
    for (const auto& hosts : std::vector<std::vector<uint32_t>>{
             {1}, {3}, {1, 1, 1}, {2, 2}, {3, 1, 2}, {1, 63, 1, 64, 2}}) {
      for (const uint64_t count : {1, 5, 300, 5000}) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", hosts " << hosts.size() << " x "
                                        << hosts[0] << ", " << count);
        expect_sum(dtype, hosts, count, false);
        if (is_floating(dtype)) expect_sum(dtype, hosts, count, true);
      }
    }
  }
}

TEST_F(SumInOrder, MoreRanksThanItHasBitsForAreRefused) {
  const DeviceBytes to(device(), 8);
  EXPECT_EQ(device().launcher.sum_in_order(
                device().stream, {to.get(), PARALLAX_F32, kSumRanksMax + 1, 1}, {}, 1, to.get()),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace parallax::kernels
