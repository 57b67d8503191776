// SPDX-License-Identifier: Apache-2.0
// The exact sum's arithmetic.
#include "base/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace parallax {

__extension__ typedef unsigned __int128 Uint128;

void ExactSum::add(double term) {
  const uint64_t bits = std::bit_cast<uint64_t>(term);
  const int exponent = static_cast<int>(bits >> 52) & 0x7ff;
  uint64_t mantissa = bits & ((1ull << 52) - 1);
  if (exponent == 0x7ff) {
    ++(mantissa != 0 ? nans_ : infinities_);
    return;
  }
  if (exponent != 0) mantissa |= 1ull << 52;
  add_at(mantissa, exponent == 0 ? 0 : exponent - 1);
}

void ExactSum::add_at(uint64_t integer, int position) {
  const int limb = position / kLimbBits;
  const Uint128 wide = static_cast<Uint128>(integer) << (position % kLimbBits);
  limbs_[limb] += static_cast<uint32_t>(wide);
  limbs_[limb + 1] += static_cast<uint32_t>(wide >> 32);
  limbs_[limb + 2] += static_cast<uint64_t>(wide >> 64);
}

void ExactSum::add_square(double term) {
  const double rounded = term * term;
  constexpr double kLeastExact = 0x1p-900;  // its lowest bit is far above 2^-1074
  if (!std::isfinite(rounded) || rounded < kLeastExact) {
    add(rounded);
    return;
  }
  const uint64_t bits = std::bit_cast<uint64_t>(term);
  const int exponent = static_cast<int>(bits >> 52) & 0x7ff;  // normal, as the square is not tiny
  const uint64_t mantissa = (bits & ((1ull << 52) - 1)) | 1ull << 52;
  const Uint128 square = static_cast<Uint128>(mantissa) * mantissa;
  const int position = 2 * (exponent - 1075) + 1074;  // |term| is mantissa * 2^(exponent - 1075)
  add_at(static_cast<uint64_t>(square), position);
  add_at(static_cast<uint64_t>(square >> 64), position + 64);
}

void ExactSum::carry() {
  uint64_t carried = 0;
  for (int i = 0; i + 1 < kLimbs; ++i) {
    const uint64_t sum = limbs_[i] + carried;
    limbs_[i] = static_cast<uint32_t>(sum);
    carried = sum >> kLimbBits;
  }
  limbs_[kLimbs - 1] += carried;
}

void ExactSum::add(const ExactSum& other) {
  for (int i = 0; i < kLimbs; ++i) limbs_[i] += other.limbs_[i];
  infinities_ += other.infinities_;
  nans_ += other.nans_;
}

bool ExactSum::zero() const {
  uint64_t any = infinities_ | nans_;
  for (const uint64_t limb : limbs_) any |= limb;
  return any == 0;
}

double ExactSum::value() const {
  if (nans_ != 0) return std::numeric_limits<double>::quiet_NaN();
  if (infinities_ != 0) return std::numeric_limits<double>::infinity();
  std::array<uint32_t, kLimbs + 1> digits;
  uint64_t carry = 0;
  int top = -1;
  for (int i = 0; i < kLimbs; ++i) {
    const uint64_t sum = limbs_[i] + carry;  // below 2^64: 2^31 terms of 2^32 and a carry
    digits[i] = static_cast<uint32_t>(sum);
    carry = sum >> kLimbBits;
    if (digits[i] != 0) top = i;
  }
  digits[kLimbs] = static_cast<uint32_t>(carry);
  if (carry != 0) top = kLimbs;
  if (top < 0) return 0.0;
  // The top three digits as one integer, and whether anything below them is lost ("sticky").
  Uint128 head = 0;
  for (int i = top; i > top - 3; --i) head = head << kLimbBits | (i >= 0 ? digits[i] : 0u);
  bool sticky = false;
  for (int i = top - 3; i >= 0; --i) sticky |= digits[i] != 0;
  int exponent = (top - 2) * kLimbBits - 1074;  // head weighs 2^exponent
  // Bring it to at most 64 bits, keeping what falls off in the lowest bit: far below the 53 bits
  // that a double keeps, so the one rounding of the conversion to double is to nearest even.
  while (head >> 64 != 0) {
    sticky |= (head & 1) != 0;
    head >>= 1;
    ++exponent;
  }
  uint64_t rounded = static_cast<uint64_t>(head);
  // Subnormal results have fewer bits: those digits are exact, since nothing lies below 2^-1074.
  if (sticky) rounded |= 1;
  return std::ldexp(static_cast<double>(rounded), exponent);
}

}  // namespace parallax
