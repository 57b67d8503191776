// SPDX-License-Identifier: Apache-2.0
// Divisor: division of 32-bit numbers by one that is fixed beforehand, as two multiplications
// (Granlund & Montgomery 1994): a third of what the processor takes for a division. A plain value;
// any thread.
#ifndef PARALLAX_BASE_DIVISOR_H_
#define PARALLAX_BASE_DIVISOR_H_

#include <cstdint>

namespace parallax {

class Divisor {
 public:
  // 1..2^31. With inverse = 2^63 / divisor, rounded up by e < 1, number * inverse / 2^63 is above
  // number / divisor by number * e / 2^63 < 2^-31, less than what a fraction lacks to the next
  // whole number: it rounds down to the same.
  explicit Divisor(uint32_t divisor)
      : inverse_(((uint64_t{1} << 63) - 1) / divisor + 1), divisor_(divisor) {}

  uint32_t quotient(uint32_t number) const {
    return static_cast<uint32_t>((Uint128{inverse_} * (uint64_t{number} << 1)) >> 64);
  }
  uint32_t remainder(uint32_t number) const { return number - quotient(number) * divisor_; }
  uint32_t value() const { return divisor_; }

 private:
  __extension__ typedef unsigned __int128 Uint128;

  uint64_t inverse_;
  uint32_t divisor_;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_DIVISOR_H_
