// SPDX-License-Identifier: Apache-2.0
// Small functions of bits that the trainer and the oracle must agree on: the counter-based
// generator, the initial values of a variable, and a hash. Pure; any thread.
#ifndef BENCH_LM_BITS_H_
#define BENCH_LM_BITS_H_

#include <cstddef>
#include <cstdint>

namespace lm {

// The finaliser of splitmix64 (Steele et al. 2014).
constexpr uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// 64 bits of (seed, stream, counter): the same wherever and whenever they are asked for.
constexpr uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter) {
  return mix(mix(seed + 0x9e3779b97f4a7c15ULL * (stream + 1)) + counter);
}

// In [0, 1), 53 bits.
constexpr double random_unit(uint64_t seed, uint64_t stream, uint64_t counter) {
  return static_cast<double>(random_bits(seed, stream, counter) >> 11) * 0x1p-53;
}

// PARALLAX_INIT_UNIFORM as parallax.h states it, written again because the oracle shares no code
// with the library.
constexpr float uniform_initial(uint64_t seed, uint64_t row, uint64_t column, float low,
                                float high) {
  const uint64_t bits = mix(mix(seed + 0x9e3779b97f4a7c15ULL * (row + 1)) + column);
  const float unit = static_cast<float>(bits >> 40) * 0x1p-24F;
  return low + (high - low) * unit;
}

// FNV-1a, 64 bits. To hash in pieces, pass the last result as `state`.
inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325ULL;
inline uint64_t fnv1a(const void* data, size_t bytes, uint64_t state = kFnvStart) {
  const auto* cursor = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) state = (state ^ cursor[i]) * 0x100000001b3ULL;
  return state;
}

}  // namespace lm

#endif  // BENCH_LM_BITS_H_
