// SPDX-License-Identifier: Apache-2.0
// ReducedGradient: the sum of a variable's gradients in one step, or one rank's part of it, to be
// applied, handed out and measured. A plain view of memory that its exchange owns until the step's
// buffers are taken over.
#ifndef PARALLAX_AGGREGATE_REDUCED_GRADIENT_H_
#define PARALLAX_AGGREGATE_REDUCED_GRADIENT_H_

#include <cstddef>
#include <cstdint>

#include "base/exact_sum.h"
#include "base/number.h"

namespace parallax {

struct ReducedGradient {
  bool contributed = false;  // some rank gave a slice, if only one without rows
  bool has_values = false;   // false: no rank gave values, and nothing is to be applied
  bool rows = false;         // values of row_count rows, with their keys; else of elements
  bool scaled = false;       // multiplied by ExchangeOptions::factor
  bool placed = false;   // where the caller wants it, in its dtype and divided, if that is meant
  bool counted = false;  // rows end in the count of ranks that gave them
  // Several ranks may hold the same part: of them, this one counts it in norms and rows.
  bool counts_once = false;
  uint32_t contributors = 0;  // ranks that gave a slice, where the exchange counts them
  uint32_t row_count = 0;
  const uint32_t* row_keys = nullptr;
  const std::byte* values = nullptr;  // of `sum`
  // Of rows: where each lies by itself; null: one behind the other at `values`. What lies in other
  // ranks' memory is read as long as HostStaging::readable(). A row that lies where its program has
  // it may hold -0: its sum is +0 + the row.
  const std::byte* const* places = nullptr;
  uint64_t first = 0;  // elements [first, first + count)
  uint64_t count = 0;
  SumType sum = SumType::kF32;
  bool by_rows = false;       // the variable has row ids, whatever the form of the sum
  uint64_t row_elements = 1;  // of a row here, with its count

  // Of rows.
  const std::byte* row(uint32_t i) const {
    return places != nullptr ? places[i] : values + i * row_elements * bytes_of_sum(sum);
  }
};

// Adds the squared norm of a part that counts once; integers have none. The runs that are summed
// exactly are the same under every method: of a variable with ids the rows, of any other the
// flattened elements, each cut at kBlockElements.
void add_squared_norm(const ReducedGradient& part, ExactSum* sum);

// Distinct rows of a part that counts once; 0 for a variable without ids.
uint64_t union_rows(const ReducedGradient& part);

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_REDUCED_GRADIENT_H_
