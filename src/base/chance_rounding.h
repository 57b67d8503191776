// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding of a float to 16 bits: to one of the two numbers that it lies between, to the
// farther from zero with the probability of how far it has come from the nearer, so that the mean
// of many roundings is the float itself. What there is of it stays as it is. A finite number goes
// to infinity only where rounding to nearest sends it there. Pure; any thread.
#ifndef PARALLAX_BASE_CHANCE_ROUNDING_H_
#define PARALLAX_BASE_CHANCE_ROUNDING_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/number.h"

namespace parallax {

// `chance`: 32 random bits, as a fraction of 2^32. Away from zero where it is less than the part
// that is cut off, as a fraction of the step between both numbers.
inline BFloat round_by_chance(float value, uint32_t chance, TypeTag<BFloat>) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  constexpr uint32_t kLargest = 0x7f7f0000;
  const uint32_t up = (chance >> 16) < (bits & 0xffff) ? 1 : 0;
  const BFloat either = {static_cast<uint16_t>((bits >> 16) + up)};
  return (bits & 0x7fffffff) > kLargest ? to_bfloat(value) : either;
}

inline Half round_by_chance(float value, uint32_t chance, TypeTag<Half>) {
  const uint32_t all = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = all & 0x7fffffff;
  const uint32_t sign = (all >> 16) & 0x8000;
  constexpr uint32_t kLargest = 0x477fe000;  // 65504
  constexpr uint32_t kLeastNormal = (127 - 14) << 23;
  if (magnitude > kLargest) return to_half(value);
  if (magnitude < kLeastNormal) {
    // In steps of the subnormal numbers, exactly.
    const double steps = std::fabs(static_cast<double>(value)) * 0x1p24;
    const auto whole = static_cast<uint32_t>(steps);
    const uint32_t up = chance * 0x1p-32 < steps - whole ? 1 : 0;
    return {static_cast<uint16_t>(sign | (whole + up))};
  }
  const uint32_t up = (chance >> 19) < (magnitude & 0x1fff) ? 1 : 0;
  return {static_cast<uint16_t>(sign | (((magnitude - ((127 - 15) << 23)) >> 13) + up))};
}

}  // namespace parallax

#endif  // PARALLAX_BASE_CHANCE_ROUNDING_H_
