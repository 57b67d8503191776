// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

#include <algorithm>

namespace lm {
namespace {

constexpr size_t kColumnBlock = 256;  // floats of an output row: stays in L1 with four rows of b
constexpr size_t kDepthBlock = 64;    // rows of b reused over all rows of a while they are in L2

// One output row. Four products a pass, still added one after another, save three quarters of the
// loads and stores of out.
inline __attribute__((always_inline)) void row_body(size_t n, size_t k, const float* __restrict a,
                                                    const float* __restrict b, size_t b_stride,
                                                    float* __restrict out) {
  size_t p = 0;
  for (; p + 4 <= k; p += 4) {
    const float a0 = a[p], a1 = a[p + 1], a2 = a[p + 2], a3 = a[p + 3];
    const float* __restrict b0 = b + p * b_stride;
    const float* __restrict b1 = b0 + b_stride;
    const float* __restrict b2 = b1 + b_stride;
    const float* __restrict b3 = b2 + b_stride;
    for (size_t j = 0; j < n; ++j) {
      out[j] = (((out[j] + a0 * b0[j]) + a1 * b1[j]) + a2 * b2[j]) + a3 * b3[j];
    }
  }
  for (; p < k; ++p) {
    const float a0 = a[p];
    const float* __restrict b0 = b + p * b_stride;
    for (size_t j = 0; j < n; ++j) out[j] = out[j] + a0 * b0[j];
  }
}

inline __attribute__((always_inline)) void multiply_add_body(const MatrixSizes& sizes,
                                                             const float* a, const float* b,
                                                             float* out) {
  for (size_t p = 0; p < sizes.k; p += kDepthBlock) {
    const size_t depth = std::min(kDepthBlock, sizes.k - p);
    for (size_t j = 0; j < sizes.n; j += kColumnBlock) {
      const size_t columns = std::min(kColumnBlock, sizes.n - j);
      for (size_t i = 0; i < sizes.m; ++i) {
        row_body(columns, depth, a + i * sizes.k + p, b + p * sizes.n + j, sizes.n,
                 out + i * sizes.n + j);
      }
    }
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
#define LM_WIDE 1
__attribute__((target("avx2"))) void multiply_add_wide(const MatrixSizes& sizes, const float* a,
                                                       const float* b, float* out) {
  multiply_add_body(sizes, a, b, out);
}
#endif

}  // namespace

void multiply_add(const MatrixSizes& sizes, const float* a, const float* b, float* out) {
#ifdef LM_WIDE
  if (__builtin_cpu_supports("avx2")) return multiply_add_wide(sizes, a, b, out);
#endif
  multiply_add_body(sizes, a, b, out);
}

void transpose(const TransposeSizes& sizes, const float* in, float* out) {
  for (size_t i = 0; i < sizes.rows; ++i) {
    for (size_t j = 0; j < sizes.columns; ++j)
      out[j * sizes.rows + i] = in[i * sizes.in_stride + j];
  }
}

}  // namespace lm
