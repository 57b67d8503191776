// SPDX-License-Identifier: Apache-2.0
// Row keys in fewer bytes, as they may travel between hosts. Keys ascend, so what is coded is by
// how much each exceeds the one before it: of evenly drawn keys a geometric number, for which the
// code of Golomb (1966) at powers of two (Rice 1979) is within 0.15 bits of the entropy, block
// heads included. Pure, any thread. What is read is a peer's: any bytes are refused or read.
//
// Layout: the first key, 7 bits a byte, the lowest first, all but the last byte with the top bit.
// Then blocks of 128 of the other keys, the last block of fewer. A gap is the key, less the one
// before it, less 1. A block is a byte, b, and
//   b = 255: nothing; all gaps are 0;
//   b < 32: the lowest b bits of each gap, one behind the other; from the next whole byte on, of
//   each gap the rest as so many zeros and a one, in 48 bytes at most; the last byte is filled by
//   zeros.
// The first bit of a byte is its lowest. With b = 0 a block is a bitmap, of a bit for each key from
// the first to the last of it: keys that lie close need no second layout.
#ifndef PARALLAX_MESSAGE_ROW_KEY_CODING_H_
#define PARALLAX_MESSAGE_ROW_KEY_CODING_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace parallax {

// Codes `keys` at the front of `out`, and returns how many bytes that takes. 0: they do not ascend
// strictly, or would take as many bytes as they have, or more than `out` has; what `out` holds then
// is undefined.
[[nodiscard]] size_t code_row_keys(std::span<const uint32_t> keys, std::span<std::byte> out);

// Reads `count` keys, which ascend strictly, from the front of `coded`, and sets `used` to how many
// bytes they took. False: `coded` does not begin with so many keys; what `keys` holds then is
// undefined.
[[nodiscard]] bool read_row_keys(std::span<const std::byte> coded, uint32_t count, uint32_t* keys,
                                 size_t* used);

}  // namespace parallax

#endif  // PARALLAX_MESSAGE_ROW_KEY_CODING_H_
