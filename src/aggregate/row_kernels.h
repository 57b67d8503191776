// SPDX-License-Identifier: Apache-2.0
// Row kernels: the inner loops of every sum. Sources may be unaligned (they lie in messages). Plain
// loops that the compiler turns into vector code; built without FMA contraction, so that a sum has
// one value everywhere. In: the type of the source; Sum: what it is summed in (number.h).
#ifndef PARALLAX_AGGREGATE_ROW_KERNELS_H_
#define PARALLAX_AGGREGATE_ROW_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/exact_sum.h"
#include "base/number.h"

namespace parallax {

// accumulator[i] = +0 + source[i]: the first addend of an accumulator. Differs from a copy for -0
// only.
template <typename In, typename Sum = sum_of_t<In>>
inline void start_sum(Sum* __restrict accumulator, const std::byte* __restrict source,
                      size_t count) {
  for (size_t i = 0; i < count; ++i) {
    accumulator[i] = plus(Sum{0}, static_cast<Sum>(load<In>(source + i * sizeof(In))));
  }
}

// accumulator[i] += source[i].
template <typename In, typename Sum = sum_of_t<In>>
inline void add_to_sum(Sum* __restrict accumulator, const std::byte* __restrict source,
                       size_t count) {
  for (size_t i = 0; i < count; ++i) {
    accumulator[i] = plus(accumulator[i], static_cast<Sum>(load<In>(source + i * sizeof(In))));
  }
}

// accumulator[i] = (+0 + a[i]) + b[i]: the first two addends at once.
template <typename Sum>
inline void start_sum_of_two(Sum* __restrict accumulator, const std::byte* __restrict a,
                             const std::byte* __restrict b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const Sum first = plus(Sum{0}, load<Sum>(a + i * sizeof(Sum)));
    accumulator[i] = plus(first, load<Sum>(b + i * sizeof(Sum)));
  }
}

// Calls body(TypeTag<In>{}, TypeTag<Sum>{}) for an addend of `dtype` and what it is summed in,
// where the one converts to the other.
template <typename Body>
void with_addend_types(uint32_t dtype, SumType sum, Body body) {
  with_dtype(dtype, [&](auto in) {
    with_sum_type(sum, [&](auto to) {
      using In = typename decltype(in)::type;
      using Sum = typename decltype(to)::type;
      constexpr bool kFloats = !std::is_integral_v<In> && !std::is_integral_v<Sum>;
      if constexpr (kFloats || std::is_same_v<In, Sum>) body(in, to);
    });
  });
}

// Adds the squared norm of a run to `sum`, divided by `divisor` squared. Floats: in double, in
// index order, where the squares are exact; one term for the run. Doubles: every square exactly
// unless divided, and then rounded one by one.
inline void add_squares(const float* values, size_t count, double divisor, ExactSum* sum) {
  double run = 0;
  for (size_t i = 0; i < count; ++i) {
    run += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  sum->add(divisor == 1 ? run : run / (divisor * divisor));
}
inline void add_squares(const double* values, size_t count, double divisor, ExactSum* sum) {
  for (size_t i = 0; i < count; ++i) sum->add_square(values[i] / divisor);
  sum->carry();  // two terms for each element: keeps the bound on terms far away
}

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_ROW_KERNELS_H_
