// SPDX-License-Identifier: Apache-2.0
// NarrowNumbers: which dtypes the elements of a dense exchange travel in: that of its sums, and, of
// slices of 16-bit numbers, their own (docs/adr/0094). ResultPlace: where its result comes
// together, and in which dtype. Plain values of an exchange's.
#ifndef PARALLAX_COLLECTIVES_NARROW_NUMBERS_H_
#define PARALLAX_COLLECTIVES_NARROW_NUMBERS_H_

#include <cstddef>
#include <cstdint>

#include "aggregate/row_coalescer.h"
#include "base/number.h"
#include "message/outbox.h"

namespace parallax {

struct NarrowNumbers {
  static constexpr uint32_t kNoDtype = UINT32_MAX;

  uint32_t sum = PARALLAX_F32;
  uint32_t narrow = PARALLAX_F32;  // the same where there are none

  bool are_narrow(uint32_t dtype) const { return narrow != sum && dtype == narrow; }
  // Of so many elements of so many bytes; kNoDtype: there are none such.
  uint32_t of_bytes(uint64_t count, uint64_t bytes) const {
    if (bytes == count * bytes_of_dtype(sum)) return sum;
    return bytes == count * bytes_of_dtype(narrow) ? narrow : kNoDtype;
  }
  // Of elements in memory of that dtype, which travel as narrow ones or as the sum's.
  WireFormat format(uint32_t from, bool as_narrow) const {
    const uint32_t to = as_narrow ? narrow : sum;
    return {.element_bytes = bytes_of_dtype(to),
            .source_bytes = bytes_of_dtype(from),
            .convert = converter(from, to)};
  }
};

struct ResultPlace {
  std::byte* values = nullptr;
  uint32_t dtype = PARALLAX_F32;
  uint32_t element_bytes = sizeof(float);
  bool callers = false;  // where the caller wants it; else memory of the exchange

  static ResultPlace at(std::byte* values, uint32_t dtype, bool callers) {
    return {values, dtype, bytes_of_dtype(dtype), callers};
  }
  std::byte* of(uint64_t element) const { return values + element * element_bytes; }
  void put(uint64_t element, uint64_t count, const RowValues& from) const {
    std::byte* const there = of(element);
    // A collective's own numbers may be in place, and so may a sum.
    if (there == from.rows) return;
    convert_or_copy(converter(from.dtype, dtype), from.rows, there, count, element_bytes);
  }
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_NARROW_NUMBERS_H_
