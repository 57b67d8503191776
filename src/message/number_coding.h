// SPDX-License-Identifier: Apache-2.0
// Numbers in fewer bytes, bit for bit, as they may travel between hosts. What is trained has narrow
// exponents: among 128 numbers of a normal distribution nearly all are within a factor of 128 of
// the largest. So of each number the sign and the mantissa go as they are, and of its exponent how
// far it is below the largest, in 3 bits or so. bf16 by 1.4, f32 by 1.17. Any bits at all come
// back: infinities, NaN, -0 and denormals too.
//
// Pure, any thread. What is read is a peer's: any bytes are refused or read.
//
// Layout: blocks of 128 numbers, the last of fewer. A block of n numbers is a byte, and
//   raw (0x80): the numbers;
//   equal (0x40): one number, which all are;
//   else, the byte is a width of 0 to 4, and 0x10 and 0x20 where said below:
//   a byte, the base, and a byte, how many exceptions there are;
//   of each number a byte: its sign, on top, and the upper 7 bits of its mantissa;
//   of f32, and without 0x20, of each number the lower 16 bits; with it these are 0;
//   for each bit of the width, the lowest first, ceil(n/8) bytes with that bit of each number's
//   code: of number i, bit i / ceil(n/8) of byte i % ceil(n/8); of none, 0;
//   the exponent of each exception, a byte.
// An exponent is the base less the code, modulo 256. Of a width above 0 the largest code is an
// exception's; of one above 1, and with 0x10, the second largest is that of the exponent 0.
#ifndef PARALLAX_MESSAGE_NUMBER_CODING_H_
#define PARALLAX_MESSAGE_NUMBER_CODING_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace parallax {

// Codes `count` numbers of `bytes_each` bytes, 2 of bf16 or 4 of f32, into the front of `out`, and
// returns how many bytes that takes. 0: they would take as many as they have, or more than `out`
// has, or no number has so many; what `out` holds then is undefined. Nothing need be aligned.
[[nodiscard]] size_t code_numbers(uint32_t bytes_each, const std::byte* numbers, size_t count,
                                  std::span<std::byte> out);

// Reads `count` numbers from `coded`, which holds nothing else, to `numbers`. False: it holds
// something else; what `numbers` holds then is undefined. Nothing need be aligned.
[[nodiscard]] bool read_numbers(uint32_t bytes_each, std::span<const std::byte> coded, size_t count,
                                std::byte* numbers);

}  // namespace parallax

#endif  // PARALLAX_MESSAGE_NUMBER_CODING_H_
