// SPDX-License-Identifier: Apache-2.0
// Row kernels: the inner loops of every sum. Sources may be unaligned (they lie in messages). Plain
// loops that the compiler turns into vector code (base/vector_code.h); built without FMA
// contraction, so that a sum has one value everywhere. In: the type of the source; Sum: what it is
// summed in (number.h).
#ifndef PARALLAX_AGGREGATE_ROW_KERNELS_H_
#define PARALLAX_AGGREGATE_ROW_KERNELS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/exact_sum.h"
#include "base/half_numbers.h"
#include "base/number.h"
#include "base/prefetch.h"
#include "base/vector_code.h"

namespace parallax {

// to[i] = of(to[i], source[i]), by the loop as it stands.
template <typename In, typename Sum, typename Of>
inline void combine_plainly(Sum* __restrict to, const std::byte* __restrict source, size_t count,
                            Of of) {
  for (size_t i = 0; i < count; ++i) {
    to[i] = of(to[i], static_cast<Sum>(load<In>(source + i * sizeof(In))));
  }
}

// The same, in vectors; f16 is widened piece by piece.
template <typename In, typename Sum, typename Of>
inline void combine_each(Sum* to, const std::byte* source, size_t count, Of of) {
  if (count < kVectorCountMin) return combine_plainly<In>(to, source, count, of);
  if constexpr (std::is_same_v<In, Half>) {
    each_widened(source, count, [&](size_t at, const std::byte* floats, size_t piece) {
      in_vectors([=] { combine_plainly<float>(to + at, floats, piece, of); });
    });
  } else {
    in_vectors([=] { combine_plainly<In>(to, source, count, of); });
  }
}

// accumulator[i] = +0 + source[i]: the first addend of an accumulator. Differs from a copy for -0
// only.
template <typename In, typename Sum = sum_of_t<In>>
inline void start_sum(Sum* accumulator, const std::byte* source, size_t count) {
  combine_each<In>(accumulator, source, count, [](Sum, Sum first) { return plus(Sum{0}, first); });
}

// accumulator[i] += source[i].
template <typename In, typename Sum = sum_of_t<In>>
inline void add_to_sum(Sum* accumulator, const std::byte* source, size_t count) {
  combine_each<In>(accumulator, source, count, [](Sum sum, Sum next) { return plus(sum, next); });
}

// accumulator[i] = (+0 + a[i]) + b[i]: the first two addends at once.
template <typename Sum>
inline void start_sum_of_two(Sum* __restrict accumulator, const std::byte* __restrict a,
                             const std::byte* __restrict b, size_t count) {
  const auto loop = [](Sum* __restrict to, const std::byte* __restrict first,
                       const std::byte* __restrict second, size_t numbers) {
    for (size_t i = 0; i < numbers; ++i) {
      to[i] = plus(plus(Sum{0}, load<Sum>(first + i * sizeof(Sum))),
                   load<Sum>(second + i * sizeof(Sum)));
    }
  };
  if (count < kVectorCountMin) return loop(accumulator, a, b, count);
  in_vectors([=] { loop(accumulator, a, b, count); });
}

// accumulator[i] = (+0 + accumulator[i]) + source[i]: the first addend lies there already.
template <typename In, typename Sum>
inline void add_to_first(Sum* accumulator, const std::byte* source, size_t count) {
  combine_each<In>(accumulator, source, count,
                   [](Sum first, Sum next) { return plus(plus(Sum{0}, first), next); });
}

// accumulator[i] = +0 + accumulator[i]: of a first addend that lies there.
template <typename Sum>
inline void start_sum_there(Sum* accumulator, size_t count) {
  in_vectors([=] {
    for (size_t i = 0; i < count; ++i) accumulator[i] = plus(Sum{0}, accumulator[i]);
  });
}

// Eight numbers in a register, or two of them, where the compiler would take them one by one.
// By typedef: of an alias Clang 14 takes the alignment of the vector.
typedef float EightFloats __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t EightWords __attribute__((vector_size(32), aligned(4), may_alias));
static_assert(alignof(EightFloats) == 4 && alignof(EightWords) == 4, "they lie anywhere");

// Rows of a fixed width: row places[i] of `values` is added to row slots[i] of `sums`; those whose
// slots count up from `begun` are begun from +0, and counted from there by what is returned.
// Nothing branches on which these are.
template <size_t kWidth>
inline uint32_t add_narrow_rows(float* sums, const std::byte* values, const uint32_t* slots,
                                const uint32_t* places, uint32_t count, uint32_t begun) {
  uint32_t end = begun;
  in_vectors([=, &end] {
    uint32_t next = begun;
    for (uint32_t i = 0; i < count; ++i) {
      float* const row = sums + size_t{slots[i]} * kWidth;
      const std::byte* const from = values + size_t{places[i]} * kWidth * sizeof(float);
      const uint32_t is_new = slots[i] == next ? 1 : 0;
      const uint32_t kept = is_new - 1;  // all bits, or none
      prefetch_row_to_write(
          reinterpret_cast<const std::byte*>(sums + size_t{next + kRowsAhead} * kWidth),
          kWidth * sizeof(float));
      next += is_new;
      for (size_t at = 0; at < kWidth; at += 8) {
        const EightWords before = *reinterpret_cast<const EightWords*>(row + at) & kept;
        // No call takes or gives such a register: without AVX it would have none to do it by.
        *reinterpret_cast<EightFloats*>(row + at) =
            __builtin_bit_cast(EightFloats, before) +
            *reinterpret_cast<const EightFloats*>(from + at * sizeof(float));
      }
    }
    end = next;
  });
  return end;
}

// Rows of a fixed width, one after the other: to[i] = (+0 + first[i]) + second[i]. first[i] may be
// to[i], of a sum that goes on: begun from +0, it is as it was.
template <size_t kWidth>
inline void add_row_pairs(float* const* to, const std::byte* const* first,
                          const std::byte* const* second, uint32_t count) {
  in_vectors([=] {
    for (uint32_t i = 0; i < count; ++i) {
      for (size_t at = 0; at < kWidth; at += 8) {
        const size_t bytes = at * sizeof(float);
        *reinterpret_cast<EightFloats*>(to[i] + at) =
            (EightFloats{} + *reinterpret_cast<const EightFloats*>(first[i] + bytes)) +
            *reinterpret_cast<const EightFloats*>(second[i] + bytes);
      }
    }
  });
}

// Calls body(std::integral_constant<size_t, width>) for widths that have such kernels. False: this
// one has none.
template <typename Body>
bool with_narrow_width(size_t width, const Body& body) {
  switch (width) {
    case 8:
      return body(std::integral_constant<size_t, 8>()), true;
    case 16:
      return body(std::integral_constant<size_t, 16>()), true;
    case 32:
      return body(std::integral_constant<size_t, 32>()), true;
    case 64:
      return body(std::integral_constant<size_t, 64>()), true;
    default:
      return false;
  }
}

// Calls body(TypeTag<In>{}, TypeTag<Sum>{}) for an addend of `dtype` and what it is summed in,
// where the one converts to the other.
template <typename Body>
void with_addend_types(uint32_t dtype, SumType sum, const Body& body) {
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
