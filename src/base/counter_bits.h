// SPDX-License-Identifier: Apache-2.0
// CounterBits: random bits by counter, as parallax.h writes them down: a function of a seed, a row
// and a column alone. So whoever holds an element makes the same ones, in any order. Pure; any
// thread.
#ifndef PARALLAX_BASE_COUNTER_BITS_H_
#define PARALLAX_BASE_COUNTER_BITS_H_

#include <cstdint>

namespace parallax {

// 2^64 over the golden ratio: splitmix64's step.
inline constexpr uint64_t kCounterStep = 0x9e3779b97f4a7c15;

// The finalizer of splitmix64 (Steele, Lea and Flood 2014).
inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Of a row.
class CounterBits {
 public:
  CounterBits(uint64_t seed, uint64_t row) : start_(mix(seed + kCounterStep * (row + 1))) {}
  uint64_t at(uint64_t column) const { return mix(start_ + column); }

 private:
  uint64_t start_;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_COUNTER_BITS_H_
