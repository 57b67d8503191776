// SPDX-License-Identifier: Apache-2.0
// Divisor: division of 32-bit numbers by one that is fixed beforehand, as two multiplications
// (Granlund & Montgomery 1994): a third of what the processor takes for a division. A plain value;
// any thread.
#ifndef PARALLAX_BASE_DIVISOR_H_
#define PARALLAX_BASE_DIVISOR_H_

#include <algorithm>
#include <cstdint>

namespace parallax {

class Divisor {
 public:
  // 1..2^31. With inverse = 2^63 / divisor, rounded up by e < 1, number * inverse / 2^63 is above
  // number / divisor by number * e / 2^63 < 2^-31, less than what a fraction lacks to the next
  // whole number: it rounds down to the same.
  explicit Divisor(uint32_t divisor)
      : inverse_(((uint64_t{1} << 63) - 1) / divisor + 1),
        divisor_(divisor),
        inverse32_(divisor == 1 ? UINT32_MAX
                                : static_cast<uint32_t>((uint64_t{1} << 32) / divisor)) {}

  uint32_t quotient(uint32_t number) const {
    return static_cast<uint32_t>((Uint128{inverse_} * (uint64_t{number} << 1)) >> 64);
  }
  uint32_t remainder(uint32_t number) const { return number - quotient(number) * divisor_; }
  // The same by a product that vectors have. With inverse32 below 2^32 / divisor by no more than 1
  // the quotient is too small by less than 2, and so, rounded down, by 1 at the most.
  uint32_t remainder_in_vectors(uint32_t number) const {
    const uint32_t rest = number - near_quotient(number) * divisor_;
    return std::min(rest, rest - divisor_);
  }
  uint32_t quotient_in_vectors(uint32_t number) const {
    const uint32_t quotient = near_quotient(number);
    return quotient + (number - quotient * divisor_ >= divisor_ ? 1 : 0);
  }
  uint32_t value() const { return divisor_; }

 private:
  __extension__ typedef unsigned __int128 Uint128;

  uint32_t near_quotient(uint32_t number) const {
    return static_cast<uint32_t>(uint64_t{number} * inverse32_ >> 32);
  }

  uint64_t inverse_;
  uint32_t divisor_, inverse32_;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_DIVISOR_H_
