// SPDX-License-Identifier: Apache-2.0
// Asking memory for variables before their turn. A loop over many of them finds each far from the
// processor: what a step takes of it lies in a hundred cache lines and more, and what one of these
// has tells where the next lies. So some turns before, one thing after the other is asked for.
#ifndef PARALLAX_GROUP_VARIABLES_AHEAD_H_
#define PARALLAX_GROUP_VARIABLES_AHEAD_H_

#include <cstddef>
#include <cstdint>

#include "base/prefetch.h"
#include "group/variable_runtime.h"

namespace parallax {

// To be called as the loop comes to the variable `at` of `count`: runtime_at(at) is its runtime.
// What asks for more of the next one finds what is asked for here there.
template <typename RuntimeAt>
void prefetch_variables(size_t at, size_t count, uint64_t step, const RuntimeAt& runtime_at) {
  if (at + 5 < count) prefetch_object(&runtime_at(at + 5));
  if (at + 4 < count) {
    const VariableRuntime& runtime = runtime_at(at + 4);
    prefetch_object(runtime.variable);
    prefetch_bytes(runtime.table.get(), sizeof(Table));
    prefetch_bytes(&runtime.exchange_at(step), sizeof(Exchange));
  }
  if (at + 3 < count) runtime_at(at + 3).exchange_at(step).prefetch(step);
}

}  // namespace parallax

#endif  // PARALLAX_GROUP_VARIABLES_AHEAD_H_
