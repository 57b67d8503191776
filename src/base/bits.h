// SPDX-License-Identifier: Apache-2.0
// Bits as they travel: the first of a byte is its lowest.
#ifndef PARALLAX_BASE_BITS_H_
#define PARALLAX_BASE_BITS_H_

#include <cstddef>
#include <span>

namespace parallax {

inline bool bit_at(std::span<const std::byte> bits, size_t i) {
  return (bits[i / 8] >> i % 8 & std::byte{1}) != std::byte{0};
}
inline void set_bit(std::span<std::byte> bits, size_t i) { bits[i / 8] |= std::byte{1} << i % 8; }

}  // namespace parallax

#endif  // PARALLAX_BASE_BITS_H_
