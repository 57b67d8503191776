// SPDX-License-Identifier: Apache-2.0
// Storage: what the values of a managed variable are kept in where the program names it
// (storage_dtype), how they are rounded to it, and what its pushed rows cross between hosts in
// (wire_dtype). Pure; any thread.
#ifndef PARALLAX_VARIABLE_STORAGE_H_
#define PARALLAX_VARIABLE_STORAGE_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "parallax/parallax.h"
#include "variable/variable.h"

namespace parallax {

// The fields of storage, of a variable that is called `name` in sentences; its dtype and its rule
// are known.
Status check_storage(const parallax_variable_t& in, const std::string& name);
// As Variable has it: 0 where they are kept so anyway.
uint32_t storage_dtype_of(const parallax_variable_t& in);

// The same of wire_dtype.
Status check_wire(const parallax_variable_t& in, const std::string& name);
uint32_t wire_dtype_of(const parallax_variable_t& in);

// What the random bits of stochastic rounding begin with, by the formula of parallax.h: of the
// name, which every job that has the variable knows it by, and of init_seed.
uint64_t rounding_seed(const Variable& variable);

}  // namespace parallax

#endif  // PARALLAX_VARIABLE_STORAGE_H_
