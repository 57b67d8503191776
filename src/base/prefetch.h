// SPDX-License-Identifier: Apache-2.0
// Asking memory for a row before it is read. Nothing happens where it is not mapped.
#ifndef PARALLAX_BASE_PREFETCH_H_
#define PARALLAX_BASE_PREFETCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace parallax {

// So many rows before they are read, where nothing else says how far.
inline constexpr uint32_t kRowsAhead = 16;

// Of a long row the beginning: the rest follows by itself.
inline void prefetch_row(const std::byte* row, uint64_t bytes) {
  constexpr uint64_t kLine = 64, kLinesMax = 4;
  __builtin_prefetch(row);
  for (uint64_t at = kLine; at < std::min(bytes, kLinesMax * kLine); at += kLine) {
    __builtin_prefetch(row + at);
  }
}

}  // namespace parallax

#endif  // PARALLAX_BASE_PREFETCH_H_
