// SPDX-License-Identifier: Apache-2.0
// Initial values: out of a buffer of the caller's, or computed. What is computed is a function of
// (seed, row, column) alone, so that every placement has the same and no rank needs the whole;
// parallax.h gives the formulas. Bit for bit the same on every machine: they take +, -, *, / and
// sqrt() of IEEE numbers, which round alike everywhere, and neither the C library's functions nor
// FMA (cmake/flags.cmake). Pure; any thread.
#ifndef PARALLAX_VARIABLE_INITIAL_VALUE_H_
#define PARALLAX_VARIABLE_INITIAL_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "variable/variable.h"

namespace parallax {

// What PARALLAX_INIT_ is followed by, by its number.
inline constexpr const char* kInitNames[] = {"CONSTANT",         "UNIFORM", "NORMAL",
                                             "TRUNCATED_NORMAL", "BUFFER",  "BROADCAST"};

// The fields of initial values, of a variable that is called `name` in sentences. That rank 0 gives
// the values of a broadcast is not known here.
Status check_initial(const parallax_variable_t& in, const std::string& name);

// False: they are zeros.
bool has_initial_values(const Variable& variable);

// The initial value of one element, before it is rounded to the type that the variable is kept in.
double initial_value(const Variable& variable, uint64_t row, uint64_t column);

// Elements of a row from `column` on: the caller's, where there are such, and of fused tables those
// of the table that the row is of. T is the variable's sum type.
template <typename T>
void fill_initial(const Variable& variable, uint64_t row, uint64_t column, std::span<T> values);

// The caller's, from element `first` on; of fused tables those of one behind those of another.
void copy_given(const Variable& variable, uint64_t first, std::span<std::byte> values);

// The standard normal distribution's quantile of 1/2 + centred, with |centred| < 1/2: Algorithm
// AS 241, PPND16 (Wichura, Applied Statistics 37, 1988), of which it takes the coefficients.
double normal_quantile(double centred);
// The natural logarithm of a normal number in (0, 1/2), negated.
double negated_log(double number);

}  // namespace parallax

#endif  // PARALLAX_VARIABLE_INITIAL_VALUE_H_
