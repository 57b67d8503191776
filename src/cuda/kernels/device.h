// SPDX-License-Identifier: Apache-2.0
// What kernels are written in, so that one source is compiled by nvcc for devices and by the host's
// compiler for tests. A kernel is a sequence of phases: each_thread(body) calls body(thread) for
// every thread of the block and ends in a barrier. What stands between phases is the same for all
// threads of a block, and what a thread keeps from one phase to the next lies in PARALLAX_SHARED.
// each_index and each_element have no barrier and need none: what they visit is independent.
//
// A compiler for the host comes with its own of these, and says so by PARALLAX_HOST_DEVICE.
#ifndef PARALLAX_CUDA_KERNELS_DEVICE_H_
#define PARALLAX_CUDA_KERNELS_DEVICE_H_

#ifndef PARALLAX_HOST_DEVICE

#include <cstdint>

#define PARALLAX_DEVICE __device__ __forceinline__
#define PARALLAX_SHARED __shared__
// PARALLAX_KERNEL(name, (parameters), { body })
#define PARALLAX_KERNEL(name, parameters, ...) \
  extern "C" __global__ void __launch_bounds__(256) name parameters __VA_ARGS__

namespace parallax::kernels {

PARALLAX_DEVICE uint32_t block_index() { return blockIdx.x; }
PARALLAX_DEVICE uint32_t block_count() { return gridDim.x; }

template <typename Body>
PARALLAX_DEVICE void each_thread(Body body) {
  body(static_cast<uint32_t>(threadIdx.x));
  __syncthreads();
}

// body(i) for i in 0..count-1, by all threads of all blocks.
template <typename Body>
PARALLAX_DEVICE void each_index(uint64_t count, Body body) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    body(i);
  }
}

// body(row, element): 1 << lane_bits threads a row, neighbours on neighbouring elements.
template <typename Body>
PARALLAX_DEVICE void each_element(uint64_t rows, uint32_t elements, uint32_t lane_bits, Body body) {
  const uint32_t lanes = 1u << lane_bits;
  const uint32_t rows_here = blockDim.x >> lane_bits;
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * rows_here;
  for (uint64_t row = static_cast<uint64_t>(blockIdx.x) * rows_here + (threadIdx.x >> lane_bits);
       row < rows; row += stride) {
    for (uint32_t e = threadIdx.x & (lanes - 1); e < elements; e += lanes) body(row, e);
  }
}

// What was there.
PARALLAX_DEVICE uint32_t add_atomically(uint32_t* to, uint32_t value) {
  return atomicAdd(to, value);
}
PARALLAX_DEVICE void lower_atomically(uint32_t* to, uint32_t value) { atomicMin(to, value); }
// Rounded to nearest, as std::sqrt.
PARALLAX_DEVICE float square_root(float value) { return __fsqrt_rn(value); }
PARALLAX_DEVICE uint32_t bits_of(float value) { return __float_as_uint(value); }
PARALLAX_DEVICE float float_of(uint32_t bits) { return __uint_as_float(bits); }
PARALLAX_DEVICE double double_of(uint64_t bits) {
  return __longlong_as_double(static_cast<long long>(bits));
}

}  // namespace parallax::kernels

#endif  // PARALLAX_HOST_DEVICE

#endif  // PARALLAX_CUDA_KERNELS_DEVICE_H_
