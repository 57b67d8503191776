// SPDX-License-Identifier: Apache-2.0
// f16 by the hundred: the conversions of number.h by the machine's own instructions where it has
// them, with the same bits. Buffers may be unaligned. Any thread, in the default rounding mode.
#ifndef PARALLAX_BASE_HALF_NUMBERS_H_
#define PARALLAX_BASE_HALF_NUMBERS_H_

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/number.h"

namespace parallax {

// Whether the machine has instructions for it, at the level of vector code in use.
bool has_half_instructions();
// `count` floats from as many f16.
void widen_halves(const std::byte* from, std::byte* to, size_t count);
// `count` f16 from as many floats, each rounded to nearest even; a NaN becomes the quiet one.
void round_to_halves(const std::byte* from, std::byte* to, size_t count);

// Calls each(first, floats, count) for one piece of the f16 at `from` after the other.
template <typename Each>
void each_widened(const std::byte* from, size_t count, Each each) {
  constexpr size_t kPiece = 512;  // the floats stay in the first cache
  std::array<std::byte, kPiece * sizeof(float)> floats;
  for (size_t at = 0; at < count; at += kPiece) {
    const size_t piece = std::min(kPiece, count - at);
    widen_halves(from + at * sizeof(Half), floats.data(), piece);
    each(at, floats.data(), piece);
  }
}

}  // namespace parallax

#endif  // PARALLAX_BASE_HALF_NUMBERS_H_
