// SPDX-License-Identifier: Apache-2.0
// Asking memory for what is about to be used. Nothing happens where it is not mapped.
#ifndef PARALLAX_BASE_PREFETCH_H_
#define PARALLAX_BASE_PREFETCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace parallax {

// So many rows before they are read, where nothing else says how far.
inline constexpr uint32_t kRowsAhead = 16;

inline constexpr uint64_t kPrefetchBytes = 64, kPrefetchesMax = 4;

// So many bytes from there on, or all of an object.
inline void prefetch_bytes(const void* from, size_t bytes) {
  // As numbers: it may be null.
  const auto first = reinterpret_cast<uintptr_t>(from);
  for (size_t i = 0; i < bytes; i += kPrefetchBytes) {
    __builtin_prefetch(reinterpret_cast<const void*>(first + i));
  }
}
template <typename T>
void prefetch_object(const T* object) {
  prefetch_bytes(object, sizeof(T));
}

// Of a long row the beginning: the rest follows by itself.
inline void prefetch_row(const std::byte* row, uint64_t bytes) {
  __builtin_prefetch(row);
  for (uint64_t at = kPrefetchBytes; at < std::min(bytes, kPrefetchesMax * kPrefetchBytes);
       at += kPrefetchBytes) {
    __builtin_prefetch(row + at);
  }
}

// The same of what will be written, which other processors are to give up: else writing waits for
// that, of what they have read.
inline void prefetch_to_write(const std::byte* at) {
#if defined(__x86_64__)
  // The compilers read only, unless they are told of a processor that knows this; to one that does
  // not it is no operation.
  asm volatile("prefetchw (%0)" : : "r"(at));
#else
  __builtin_prefetch(at, 1);
#endif
}
// Of rows that are written one behind the other those that nobody could have asked for before.
inline void prefetch_first_rows_to_write(std::span<const std::byte> rows, uint64_t row_bytes) {
  constexpr uint64_t kBytesMax = 2048;
  const uint64_t bytes = std::min<uint64_t>({rows.size(), kRowsAhead * row_bytes, kBytesMax});
  for (uint64_t at = 0; at < bytes; at += kPrefetchBytes) prefetch_to_write(rows.data() + at);
}
inline void prefetch_row_to_write(const std::byte* row, uint64_t bytes) {
  prefetch_to_write(row);
  for (uint64_t at = kPrefetchBytes; at < std::min(bytes, kPrefetchesMax * kPrefetchBytes);
       at += kPrefetchBytes) {
    prefetch_to_write(row + at);
  }
}

}  // namespace parallax

#endif  // PARALLAX_BASE_PREFETCH_H_
