// SPDX-License-Identifier: Apache-2.0
// Combine: how numbers of several ranks become one, and the operations of it that are no sums
// (those are row_kernels.h's, as is the loop of all). Sources may be unaligned. Each operation is
// associative and commutative, sums and products of floats apart, whose order is their caller's.
#ifndef PARALLAX_AGGREGATE_COMBINE_H_
#define PARALLAX_AGGREGATE_COMBINE_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "aggregate/row_kernels.h"
#include "base/check.h"
#include "base/number.h"

namespace parallax {

// The numbers are parallax_op_t's, where a mean is a sum that is divided in the end.
enum class Combine : uint8_t {
  kSum = PARALLAX_OP_SUM,
  kMin = PARALLAX_OP_MIN,
  kMax = PARALLAX_OP_MAX,
  kProduct = PARALLAX_OP_PRODUCT,
  kAnd = PARALLAX_OP_AND,
  kOr = PARALLAX_OP_OR,
  kXor = PARALLAX_OP_XOR,
};

// `op` is a parallax_op_t, checked before.
constexpr Combine combine_of(uint32_t op) {
  return op == PARALLAX_OP_MEAN ? Combine::kSum : static_cast<Combine>(op);
}

// minimum and maximum of IEEE 754-2019 (9.6): a NaN wins, and -0 is less than +0.
template <typename T>
T least(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    if (a == b) return std::signbit(a) ? a : b;
  }
  return b < a ? b : a;
}
template <typename T>
T greatest(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}

// a * b; integers wrap.
template <typename T>
T times(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
  } else {
    return a * b;
  }
}

// to[i] = to[i] `how` from[i]. Bits are those of integers alone.
template <typename In, typename Sum>
void combine_into(Combine how, Sum* to, const std::byte* from, size_t count) {
  switch (how) {
    case Combine::kSum:
      return add_to_sum<In, Sum>(to, from, count);
    case Combine::kMin:
      return combine_each<In>(to, from, count, [](Sum a, Sum b) { return least(a, b); });
    case Combine::kMax:
      return combine_each<In>(to, from, count, [](Sum a, Sum b) { return greatest(a, b); });
    case Combine::kProduct:
      return combine_each<In>(to, from, count, [](Sum a, Sum b) { return times(a, b); });
    case Combine::kAnd:
    case Combine::kOr:
    case Combine::kXor:
      break;
  }
  if constexpr (std::is_integral_v<Sum>) {
    if (how == Combine::kAnd) {
      combine_each<In>(to, from, count, [](Sum a, Sum b) { return static_cast<Sum>(a & b); });
    } else if (how == Combine::kOr) {
      combine_each<In>(to, from, count, [](Sum a, Sum b) { return static_cast<Sum>(a | b); });
    } else {
      combine_each<In>(to, from, count, [](Sum a, Sum b) { return static_cast<Sum>(a ^ b); });
    }
  } else {
    PARALLAX_CHECK(!"bits of floats");
  }
}

// to[i] = from[i], the first of those that are combined.
template <typename In, typename Sum>
void start_combine(Combine how, Sum* to, const std::byte* from, size_t count) {
  if (how == Combine::kSum) return start_sum<In, Sum>(to, from, count);
  combine_each<In>(to, from, count, [](Sum, Sum first) { return first; });
}

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_COMBINE_H_
