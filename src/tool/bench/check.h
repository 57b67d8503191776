// SPDX-License-Identifier: Apache-2.0
// Check: counts the elements of a result that are not what they must be. Sums of whole numbers are
// exact, and then rounded once to the type of the result; averages by a number of ranks may be off
// by the rounding of the division and of the result. Pure; any thread.
#ifndef PARALLAX_TOOL_BENCH_CHECK_H_
#define PARALLAX_TOOL_BENCH_CHECK_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/number.h"
#include "tool/bench/rule_model.h"
#include "tool/bench/workload.h"

namespace parallax::tool::bench {

template <typename T>
T number_of(double value) {
  if constexpr (kNarrow<T>) {
    return narrow(static_cast<float>(value), TypeTag<T>{});
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
void store(double value, std::byte* to) {
  const T number = number_of<T>(value);
  std::memcpy(to, &number, sizeof number);
}

// Twice the distance of 1 and the next number: two roundings.
template <typename T>
constexpr double kTwoRoundings = 2 * std::numeric_limits<T>::epsilon();
template <>
inline constexpr double kTwoRoundings<Half> = 0x1p-9;
template <>
inline constexpr double kTwoRoundings<BFloat> = 0x1p-6;

// Of `count` elements those that differ from expected(i) / divisor.
template <typename Expected>
uint64_t count_wrong(uint32_t dtype, const std::byte* got, uint64_t count, double divisor,
                     Expected expected) {
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count; ++i) {
      std::byte rounded[sizeof(T)];
      store<T>(expected(i) / divisor, rounded);
      const auto want = load<T>(rounded);
      const auto have = load<T>(got + i * sizeof(T));
      if (have == want) continue;
      const double difference = std::fabs(static_cast<double>(have) - static_cast<double>(want));
      const double allowed = divisor == 1 || std::is_integral_v<T>
                                 ? 0
                                 : kTwoRoundings<T> * std::fabs(static_cast<double>(want));
      if (!(difference <= allowed)) ++wrong;  // so written, a NaN is wrong too
    }
    return wrong;
  });
}

// The union of rows that a reduce gave.
struct ReducedRows {
  uint32_t dtype = 0;
  uint64_t width = 1;
  double divisor = 1;
  uint64_t shift = 0;  // of the columns that were given
  const int64_t* ids = nullptr;
  const std::byte* values = nullptr;
  uint64_t count = 0;
};

// A row too many or missing counts as `width` elements.
uint64_t count_wrong_rows(const ReducedRows& rows, const RowUnion& expected);

// Pulled rows, in the order of `ids`, all of which the model has.
uint64_t count_wrong_pulled(uint32_t dtype, std::span<const int64_t> ids, const std::byte* values,
                            uint64_t width, const RuleModel& model);

}  // namespace parallax::tool::bench

#endif  // PARALLAX_TOOL_BENCH_CHECK_H_
