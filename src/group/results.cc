// SPDX-License-Identifier: Apache-2.0
// What a reduce hands back. See results.h.
#include "group/results.h"

#include <algorithm>

#include "aggregate/accumulator.h"

namespace parallax {

uint64_t Results::most_rows(const Variable& variable) const {
  return std::min(variable.rows, variable.rows_max * world_);
}

void Results::reserve(const Variable& variable, uint32_t dtype, RowsResult* rows) {
  rows->dtype = dtype;
  if (!variable.ids_declared()) return;
  const uint64_t most = most_rows(variable);
  rows->ids.reserve(most);
  rows->values.reserve(most * variable.row_elements * bytes_of_dtype(dtype));
  sorted_.reserve(most);
}

void Results::give(const VariableRuntime& runtime, const ReducedGradient& whole,
                   const PullSlice& slice, RowsResult* rows) {
  if (slice.every_row) {
    give_every_row(runtime, whole, slice);
  } else if (!runtime.variable->ids_declared()) {
    give_dense(*runtime.variable, whole, slice);
  } else {
    give_union(runtime, whole, rows);
  }
}

// What a framework-held sum is multiplied by, once, in the type it was summed in.
double Results::factor(const Variable& variable, const ReducedGradient& whole) const {
  if (whole.scaled) return 1.0;
  if (variable.reduction == PARALLAX_MEAN_WORLD) return 1.0 / world_;
  return variable.counts_contributors() ? 1.0 / whole.contributors : 1.0;
}

// The sum into the caller's buffer, where the exchange may have put it already.
void Results::give_dense(const Variable& variable, const ReducedGradient& whole,
                         const PullSlice& slice) const {
  if (whole.placed) return;
  const double scale = factor(variable, whole);
  if (whole.values == slice.into && scale == 1) return;
  give_numbers(whole.values, variable.elements(), scale,
               {.values = slice.into, .dtype = slice.dtype, .sum = variable.sum_type()});
}

// Every row of the sum, at its place in the caller's buffer. All of them are there, since this rank
// contributed all.
void Results::give_every_row(const VariableRuntime& runtime, const ReducedGradient& whole,
                             const PullSlice& slice) const {
  const Variable& variable = *runtime.variable;
  const uint64_t count = whole.rows ? whole.row_count : variable.rows;
  const size_t gradient_row_bytes =
      variable.gradient_elements() * bytes_of_sum(variable.sum_type());
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t row_key = whole.rows ? whole.row_keys[i] : static_cast<uint32_t>(i);
    give_row(variable, whole, whole.values + i * gradient_row_bytes,
             {.values = slice.into + runtime.partition.row_of(row_key) * variable.row_elements *
                                         bytes_of_dtype(slice.dtype),
              .dtype = slice.dtype,
              .sum = variable.sum_type()});
  }
}

// One reduced row, divided by what its reduction says.
void Results::give_row(const Variable& variable, const ReducedGradient& whole, const std::byte* row,
                       const NumberFormat& to) const {
  double scale = factor(variable, whole);
  if (whole.counted) {
    with_sum_type(to.sum, [&](auto tag) {
      using T = typename decltype(tag)::type;
      scale = 1.0 / static_cast<double>(reinterpret_cast<const T*>(row)[variable.row_elements]);
    });
  }
  give_numbers(row, variable.row_elements, scale, to);
}

// The union by ascending id.
void Results::give_union(const VariableRuntime& runtime, const ReducedGradient& whole,
                         RowsResult* out) {
  const Variable& variable = *runtime.variable;
  const uint32_t dtype = out->dtype;
  out->ids.clear();
  out->values.clear();
  if (!whole.has_values) return;
  sorted_.clear();
  // For the largest union at once, so that later steps with larger ones allocate nothing.
  reserve(variable, dtype, out);
  const uint64_t width = variable.gradient_elements();
  with_sum_type(variable.sum_type(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* values = reinterpret_cast<const T*>(whole.values);
    const uint64_t count = whole.rows ? whole.row_count : variable.rows;
    for (uint64_t i = 0; i < count; ++i) {
      // Rows made dense: those that nobody contributed are not of the union.
      if (!whole.rows && is_no_row(values + i * width)) continue;
      const uint32_t row_key = whole.rows ? whole.row_keys[i] : static_cast<uint32_t>(i);
      sorted_.emplace_back(static_cast<int64_t>(runtime.partition.row_of(row_key)), i);
    }
    std::sort(sorted_.begin(), sorted_.end());
    const size_t row_bytes = variable.row_elements * bytes_of_dtype(dtype);
    out->values.resize(sorted_.size() * row_bytes);
    std::byte* to = out->values.data();
    for (const auto& [id, row] : sorted_) {
      out->ids.push_back(id);
      give_row(variable, whole, reinterpret_cast<const std::byte*>(values + row * width),
               {.values = to, .dtype = dtype, .sum = variable.sum_type()});
      to += row_bytes;
    }
  });
}

}  // namespace parallax
