// SPDX-License-Identifier: Apache-2.0
// The sum of what several ranks gave, gathered on each device, in the order of aggregate's ordered
// accumulators: a host's ranks from +0, one after the other, then hosts from +0. So it has the bits
// of the sum in host memory: f16 and bf16 are widened and rounded once, behind the mean's factor.
#ifndef PARALLAX_CUDA_KERNELS_SUM_KERNELS_H_
#define PARALLAX_CUDA_KERNELS_SUM_KERNELS_H_

#include "cuda/kernels/numbers.h"
#include "cuda/kernels/shapes.h"

namespace parallax::kernels {

// `gathered` has `count` numbers of each rank, rank after rank in the order of the sum. `to` is
// none of them.
template <typename T>
PARALLAX_DEVICE void sum_in_order(const T* gathered, const HostEnds& ends, uint32_t ranks,
                                  double factor, T* to, uint64_t count) {
  using Sum = typename Narrow<T>::Sum;
  each_index(count, [&](uint64_t i) {
    Sum total = 0, host = 0;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      host = plus(host, widen(gathered[rank * count + i]));
      if ((ends.bits[rank / 64] >> rank % 64 & 1) == 0) continue;
      total = plus(total, host);
      host = 0;
    }
    to[i] = Narrow<T>::of(times(total, factor));
  });
}

}  // namespace parallax::kernels

#endif  // PARALLAX_CUDA_KERNELS_SUM_KERNELS_H_
