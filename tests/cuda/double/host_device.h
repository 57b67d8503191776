// SPDX-License-Identifier: Apache-2.0
// What kernels are written in (cuda/kernels/device.h), for the host: a block is a loop over its
// threads for each phase, and blocks come one after the other, in an order that the seed of the
// launch draws: a kernel that rests on an order which a device does not promise is wrong here, too.
#ifndef PARALLAX_TESTS_CUDA_DOUBLE_HOST_DEVICE_H_
#define PARALLAX_TESTS_CUDA_DOUBLE_HOST_DEVICE_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda/double/control.h"

#define PARALLAX_HOST_DEVICE
#define PARALLAX_DEVICE inline
#define PARALLAX_SHARED static thread_local
#define PARALLAX_KERNEL(name, parameters, ...)                                              \
  static void name parameters __VA_ARGS__ static const parallax::kernels::HostKernel<&name> \
      registered_##name(#name);

namespace parallax::kernels {

// The block that this thread of the host executes.
struct Block {
  uint32_t index = 0;
  uint32_t count = 1;
  uint32_t threads = 1;
  bool backwards = false;  // its threads, between two barriers
};
inline Block& block() {
  static thread_local Block here;
  return here;
}
inline uint32_t block_index() { return block().index; }
inline uint32_t block_count() { return block().count; }

template <typename Body>
void each_thread(Body body) {
  const Block here = block();
  for (uint32_t i = 0; i < here.threads; ++i) body(here.backwards ? here.threads - 1 - i : i);
}

template <typename Body>
void each_index(uint64_t count, Body body) {
  const Block here = block();
  const uint64_t stride = uint64_t{here.count} * here.threads;
  each_thread([&](uint32_t thread) {
    for (uint64_t i = uint64_t{here.index} * here.threads + thread; i < count; i += stride) {
      body(i);
    }
  });
}

template <typename Body>
void each_element(uint64_t rows, uint32_t elements, uint32_t lane_bits, Body body) {
  const Block here = block();
  const uint32_t lanes = 1u << lane_bits, rows_here = here.threads >> lane_bits;
  const uint64_t stride = uint64_t{here.count} * rows_here;
  each_thread([&](uint32_t thread) {
    for (uint64_t row = uint64_t{here.index} * rows_here + (thread >> lane_bits); row < rows;
         row += stride) {
      for (uint32_t e = thread & (lanes - 1); e < elements; e += lanes) body(row, e);
    }
  });
}

inline uint32_t add_atomically(uint32_t* to, uint32_t value) {
  return std::exchange(*to, *to + value);
}
inline void lower_atomically(uint32_t* to, uint32_t value) { *to = std::min(*to, value); }
inline float square_root(float value) { return std::sqrt(value); }
inline uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
inline float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }
inline double double_of(uint64_t bits) { return std::bit_cast<double>(bits); }

// Runs a function of these parameters for every block, and tells the double of it.
template <auto kKernel>
class HostKernel;
template <typename... Parameters, void (*kKernel)(Parameters...)>
class HostKernel<kKernel> {
 public:
  explicit HostKernel(const char* name) {
    const size_t bytes[] = {std::is_pointer_v<Parameters> ? 0 : sizeof(Parameters)...};
    cuda_double_add_kernel(name, &run, bytes, sizeof...(Parameters));
  }

 private:
  static void run(const cuda_double_launch* launch, void** parameters) {
    call(*launch, parameters, std::index_sequence_for<Parameters...>());
  }
  template <size_t... kIndex>
  static void call(const cuda_double_launch& launch, void** parameters,
                   std::index_sequence<kIndex...>) {
    std::tuple<Parameters...> values;
    (std::memcpy(&std::get<kIndex>(values), parameters[kIndex], sizeof(Parameters)), ...);
    for (uint32_t i = 0; i < launch.grid[0]; ++i) {
      const uint32_t index = launch.seed % 2 == 0 ? i : launch.grid[0] - 1 - i;
      block() = {index, launch.grid[0], launch.block[0], launch.seed / 2 % 2 != 0};
      std::apply(kKernel, values);
    }
  }
};

}  // namespace parallax::kernels

#endif  // PARALLAX_TESTS_CUDA_DOUBLE_HOST_DEVICE_H_
