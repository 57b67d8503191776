// SPDX-License-Identifier: Apache-2.0
// The loops that take the model's time. Each output element is a chain of float operations in a
// fixed order, and vectors only ever run across output elements: so the bits do not depend on the
// width of the machine's vectors. Built without FMA contraction (see CMakeLists.txt). Pure.
#ifndef BENCH_LM_KERNELS_H_
#define BENCH_LM_KERNELS_H_

#include <cstddef>

namespace lm {

// out[m x n] += a[m x k] * b[k x n], row-major and dense. For each element the products are added
// one by one, in the order of k, to what out holds.
struct MatrixSizes {
  size_t m, n, k;
};
void multiply_add(const MatrixSizes& sizes, const float* a, const float* b, float* out);

// out[columns x rows] = in[rows x columns], of which row i starts at in + i * in_stride.
struct TransposeSizes {
  size_t rows, columns, in_stride;
};
void transpose(const TransposeSizes& sizes, const float* in, float* out);

}  // namespace lm

#endif  // BENCH_LM_KERNELS_H_
