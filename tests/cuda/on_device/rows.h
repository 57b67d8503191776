// SPDX-License-Identifier: Apache-2.0
// Rows and ids of tests of kernels, and what the host makes of them.
#ifndef PARALLAX_TESTS_CUDA_ON_DEVICE_ROWS_H_
#define PARALLAX_TESTS_CUDA_ON_DEVICE_ROWS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "aggregate/row_kernels.h"
#include "base/number.h"

namespace parallax::kernels {

// Ids as both widths have them.
using Ids = std::vector<int64_t>;
inline std::vector<int32_t> narrow_ids(const Ids& ids) { return {ids.begin(), ids.end()}; }

enum class Spread { kUniform, kSkewed, kZipf, kSame, kPadding, kDistinct };

inline Ids draw_ids(std::mt19937_64& random, Spread spread, size_t count, uint64_t table_rows) {
  Ids ids(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t drawn = random() % table_rows;
    const double share = static_cast<double>(random() % 1000) / 1000;
    switch (spread) {
      case Spread::kUniform:
        ids[i] = static_cast<int64_t>(drawn);
        break;
      case Spread::kSkewed:  // most are few, some are padding
        ids[i] = share < 0.1 ? -1
                             : static_cast<int64_t>(static_cast<double>(table_rows - 1) * share *
                                                    share * share * share);
        break;
      case Spread::kZipf: {  // about 1: the logarithm is uniform
        const double part = static_cast<double>(random() >> 11) / static_cast<double>(1ull << 53);
        const double rank = std::exp(part * std::log(static_cast<double>(table_rows)));
        ids[i] = static_cast<int64_t>(rank) - 1;
        break;
      }
      case Spread::kSame:
        ids[i] = static_cast<int64_t>(table_rows - 1);
        break;
      case Spread::kPadding:
        ids[i] = -1;
        break;
      case Spread::kDistinct:  // table_rows >= count, and no multiple of 3
        ids[i] = static_cast<int64_t>(i * 3 % table_rows);
        break;
    }
  }
  return ids;
}

// `count` numbers of a dtype, as bytes; some are so much larger than others that sums of them
// round, by the order of the addends.
inline std::vector<std::byte> draw_numbers(std::mt19937_64& random, uint32_t dtype, size_t count) {
  std::vector<double> values(count);
  for (double& value : values) {
    value = static_cast<double>(static_cast<int>(random() % 20001) - 10000) / 1024;
    value = std::ldexp(value, static_cast<int>(random() % 12));
    if (dtype == PARALLAX_F64) value *= 1 + 1e-9;  // no float
  }
  std::vector<std::byte> bytes(count * bytes_of_dtype(dtype));
  convert_or_copy(converter(PARALLAX_F64, dtype), reinterpret_cast<std::byte*>(values.data()),
                  bytes.data(), count, bytes_of_dtype(dtype));
  return bytes;
}

// The sum of each id's rows as the host's accumulators have it.
inline std::map<int64_t, std::vector<float>> sums_of(const Ids& ids,
                                                     const std::vector<std::byte>& rows,
                                                     uint32_t dtype, uint32_t elements) {
  std::map<int64_t, std::vector<float>> sums;
  const size_t row_bytes = size_t{elements} * bytes_of_dtype(dtype);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == -1) continue;
    const std::byte* const row = rows.data() + i * row_bytes;
    std::vector<float>& sum = sums[ids[i]];
    const bool first = sum.empty();
    sum.resize(elements);
    with_addend_types(dtype, SumType::kF32, [&](auto in, auto to) {
      using In = typename decltype(in)::type;
      using Sum = typename decltype(to)::type;
      if constexpr (std::is_same_v<Sum, float>) {
        first ? start_sum<In, Sum>(sum.data(), row, elements)
              : add_to_sum<In, Sum>(sum.data(), row, elements);
      }
    });
  }
  return sums;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace parallax::kernels

#endif  // PARALLAX_TESTS_CUDA_ON_DEVICE_ROWS_H_
