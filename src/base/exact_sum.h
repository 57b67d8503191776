// SPDX-License-Identifier: Apache-2.0
// ExactSum: the exact sum of non-negative doubles, rounded once at the end. Integer addition does
// not care about order, so the norm of a gradient is bit for bit the same however its pieces are
// spread over owners. A Kulisch accumulator with 32-bit limbs in 64-bit words (Kulisch 2011;
// Neal, arXiv 1505.05571): 2^31 terms fit before a carry is due. A plain value, no allocation.
#ifndef PARALLAX_BASE_EXACT_SUM_H_
#define PARALLAX_BASE_EXACT_SUM_H_

#include <array>
#include <cstdint>

namespace parallax {

class ExactSum {
 public:
  // Adds a double >= 0, infinity or NaN. At most 2^31 terms, those of other sums counted in.
  void add(double term);
  // Adds term * term, exactly where that is neither subnormal nor beyond the range of double; else
  // as that product is rounded. Any finite term, infinity or NaN. Counts as two terms.
  void add_square(double term);
  // Propagates carries: what was added until here counts as one term from then on.
  void carry();
  void add(const ExactSum& other);
  // The sum, rounded to nearest even; infinity or NaN if a term was.
  double value() const;
  bool zero() const;

 private:
  // Adds an integer that weighs 2^(position - 1074).
  void add_at(uint64_t integer, int position);

  static constexpr int kLimbBits = 32;
  static constexpr int kLimbs = 67;  // 2^-1074 .. 2^1024 and the carries of 2^31 terms

  std::array<uint64_t, kLimbs> limbs_ = {};  // limb i weighs 2^(32 i - 1074)
  uint64_t infinities_ = 0;
  uint64_t nans_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_EXACT_SUM_H_
