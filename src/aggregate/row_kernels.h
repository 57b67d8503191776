// SPDX-License-Identifier: Apache-2.0
// Row kernels: the inner loops of every sum. Sources may be unaligned (they lie in messages). Plain
// loops that the compiler turns into vector code; built without FMA contraction, so that a sum has
// one value everywhere.
#ifndef PARALLAX_AGGREGATE_ROW_KERNELS_H_
#define PARALLAX_AGGREGATE_ROW_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace parallax {

// accumulator[i] = +0 + source[i]: the first addend of a fold. Differs from a copy for -0 only.
inline void start_sum(float* __restrict accumulator, const void* __restrict source, size_t count) {
  const auto* bytes = static_cast<const char*>(source);
  for (size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, bytes + i * sizeof value, sizeof value);
    accumulator[i] = 0.0f + value;
  }
}

// accumulator[i] += source[i].
inline void add_to_sum(float* __restrict accumulator, const void* __restrict source, size_t count) {
  const auto* bytes = static_cast<const char*>(source);
  for (size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, bytes + i * sizeof value, sizeof value);
    accumulator[i] += value;
  }
}

// Sum of squares in double, in index order: a run of the exact norm (see ExactSum). The squares of
// floats are exact in double.
inline double sum_of_squares(const float* values, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return sum;
}

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_ROW_KERNELS_H_
