// SPDX-License-Identifier: Apache-2.0
// Sums on their way out: multiplied by a factor in the type that they were summed in, then rounded
// once to what the caller asked for. Pure; any thread.
#ifndef PARALLAX_AGGREGATE_SCALED_NUMBERS_H_
#define PARALLAX_AGGREGATE_SCALED_NUMBERS_H_

#include <cstddef>
#include <cstdint>

#include "base/number.h"

namespace parallax {

struct NumberFormat {
  std::byte* values = nullptr;
  uint32_t dtype = PARALLAX_F32;
  SumType sum = SumType::kF32;  // what is read
};

// Writes `count` sums times a factor, which integers leave out. `sums` are aligned, and may be
// to.values where dtype and sum type are the same.
void give_numbers(const std::byte* sums, uint64_t count, double factor, const NumberFormat& to);

// The same, of floating sums, where they lie: the bits of give_numbers to their own type.
void scale_numbers(std::byte* sums, uint64_t count, double factor, SumType sum);

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_SCALED_NUMBERS_H_
