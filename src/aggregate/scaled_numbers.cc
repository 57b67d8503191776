// SPDX-License-Identifier: Apache-2.0
// Scaling and rounding in pieces. See scaled_numbers.h.
#include "aggregate/scaled_numbers.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/vector_code.h"

namespace parallax {

namespace {

// to[i] = from[i] * scale; they may be the same.
template <typename T>
void multiply(const T* from, T* to, uint64_t count, T scale) {
  const auto loop = [=] {
    for (uint64_t i = 0; i < count; ++i) to[i] = from[i] * scale;
  };
  if (count < kVectorCountMin) return loop();
  in_vectors(loop);
}

}  // namespace

void scale_numbers(std::byte* sums, uint64_t count, double factor, SumType sum) {
  with_sum_type(sum, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_floating_point_v<T>) {
      T* const all = reinterpret_cast<T*>(sums);
      multiply<T>(all, all, count, static_cast<T>(factor));
    }
  });
}

void give_numbers(const std::byte* sums, uint64_t count, double factor, const NumberFormat& to) {
  const Convert convert = converter(dtype_of(to.sum), to.dtype);
  const size_t bytes = bytes_of_dtype(to.dtype);
  if (factor == 1) {
    if (sums != to.values) convert_or_copy(convert, sums, to.values, count, bytes);
    return;
  }
  with_sum_type(to.sum, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_floating_point_v<T>) {
      // In pieces on the stack: no buffer as large as the variable, and no allocation.
      constexpr uint64_t kPiece = 256;
      std::array<T, kPiece> scaled;
      const T* from = reinterpret_cast<const T*>(sums);
      const T scale = static_cast<T>(factor);
      for (uint64_t at = 0; at < count; at += kPiece) {
        const uint64_t piece = std::min(kPiece, count - at);
        multiply<T>(from + at, scaled.data(), piece, scale);
        convert_or_copy(convert, reinterpret_cast<const std::byte*>(scaled.data()),
                        to.values + at * bytes, piece, bytes);
      }
    }
  });
}

}  // namespace parallax
