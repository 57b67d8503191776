// SPDX-License-Identifier: Apache-2.0
// Numbers whose sum depends on the order of adding, zeros of both signs among them. Tests only.
#ifndef PARALLAX_TESTS_UNIT_AGGREGATE_DRAWN_NUMBERS_H_
#define PARALLAX_TESTS_UNIT_AGGREGATE_DRAWN_NUMBERS_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/seeded_random.h"

namespace parallax {

inline float draw_float(SeededRandom& random) {
  if (random.chance(5)) return -0.0f;
  if (random.chance(2)) return 0.0f;
  return std::ldexp(static_cast<float>(random.unit() * 2 - 1),
                    static_cast<int>(random.between(-20, 20)));
}

inline bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

}  // namespace parallax

#endif  // PARALLAX_TESTS_UNIT_AGGREGATE_DRAWN_NUMBERS_H_
