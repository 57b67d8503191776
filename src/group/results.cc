// SPDX-License-Identifier: Apache-2.0
// What a reduce hands back. See results.h.
#include "group/results.h"

#include <algorithm>
#include <utility>

#include "aggregate/accumulator.h"
#include "aggregate/sorted_ids.h"
#include "base/check.h"
#include "base/row_copies.h"
#include "variable/fused_tables.h"

namespace parallax {

namespace {

// From so many rows on a sort by digits is faster than one by comparisons.
constexpr size_t kRadixSortMin = 1024;

}  // namespace

uint64_t Results::most_rows(const Variable& variable) const {
  return std::min(variable.rows, variable.rows_max * world_);
}

void Results::reserve(const VariableRuntime& runtime, const Variable& variable, uint32_t dtype,
                      RowsResult* rows) {
  rows->dtype = dtype;
  if (!variable.ids_declared()) return;
  const uint64_t most = most_rows(variable);
  rows->ids.reserve(most);
  rows->values.reserve(most * variable.row_elements * bytes_of_dtype(dtype));
  Union& sorted = runtime.variable->fused.empty() ? union_ : of_sets_[runtime.id];
  const uint64_t room = 2 * most_rows(*runtime.variable);
  if (sorted.room.size() < room) sorted.room.resize(room);
}

void Results::give(const VariableRuntime& runtime, uint64_t step, const ReducedGradient& whole,
                   const PullSlice& slice, RowsResult* rows) {
  if (!runtime.variable->fused.empty()) {
    give_member(runtime, step, whole, slice, rows);
  } else if (slice.every_row) {
    give_every_row(runtime, whole, slice);
  } else if (!runtime.variable->ids_declared()) {
    give_dense(*runtime.variable, whole, slice);
  } else {
    give_alone(runtime, whole, rows);
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
void Results::give_alone(const VariableRuntime& runtime, const ReducedGradient& whole,
                         RowsResult* out) {
  const Variable& variable = *runtime.variable;
  // For the largest union at once, so that later steps with larger ones allocate nothing.
  reserve(runtime, variable, out->dtype, out);
  sort_rows(runtime, whole, &union_);
  give_union({.variable = &variable}, whole, union_.rows, out);
}

// Of the union of all tables, which is sorted with the first that is asked for in a step, the rows
// of one: to where a dense slice wants them, or as its union.
void Results::give_member(const VariableRuntime& runtime, uint64_t step,
                          const ReducedGradient& whole, const PullSlice& slice, RowsResult* out) {
  const FusedMember& member =
      runtime.variable->fused[slice.member - runtime.variable->first_member];
  const Variable& variable = *member.variable;
  reserve(runtime, variable, out->dtype, out);
  Union& all = of_sets_[runtime.id];
  if (std::exchange(all.step, step) != step) sort_rows(runtime, whole, &all);
  const uint64_t end_row = member.first_row + variable.rows;
  const auto first = std::lower_bound(all.rows.begin(), all.rows.end(), member.first_row << 32);
  const std::span<const uint64_t> rows(first,
                                       std::lower_bound(first, all.rows.end(), end_row << 32));
  const bool is_whole = slice.count > 0 && slice.ids.wide == nullptr && slice.ids.narrow == nullptr;
  if (!is_whole) return give_union(member, whole, rows, out);
  // As of a whole variable, each by its id: whatever came of others, nothing else is written.
  const size_t row_bytes = variable.row_elements * bytes_of_dtype(slice.dtype);
  for (const uint64_t row : rows) {
    give_row(variable, whole, row_in(variable, whole, row),
             {.values = slice.into + ((row >> 32) - member.first_row) * row_bytes,
              .dtype = slice.dtype,
              .sum = variable.sum_type()});
  }
}

// The rows of a sum, by ascending id.
void Results::sort_rows(const VariableRuntime& runtime, const ReducedGradient& whole,
                        Union* sorted) {
  sorted->rows = {};
  if (!whole.has_values) return;
  const Variable& variable = *runtime.variable;
  const auto entry_of = [&runtime](uint32_t row_key, uint64_t row) {
    return runtime.partition.row_of(row_key) << 32 | row;
  };
  UnsetVector<uint64_t>& room = sorted->room;
  size_t count = 0;
  if (whole.rows) {
    for (; count < whole.row_count; ++count) room[count] = entry_of(whole.row_keys[count], count);
  } else {
    with_sum_type(variable.sum_type(), [&](auto tag) {
      const auto* const values =
          reinterpret_cast<const typename decltype(tag)::type*>(whole.values);
      for (uint64_t row = 0; row < variable.rows; ++row) {
        // Rows made dense: those that nobody contributed are not of the union.
        if (is_no_row(values + row * variable.gradient_elements())) continue;
        PARALLAX_CHECK(count < room.size() / 2);  // else others gave more rows than they may
        room[count++] = entry_of(static_cast<uint32_t>(row), row);
      }
    });
  }
  const std::span<uint64_t> rows = std::span(room).first(count);
  if (count >= kRadixSortMin) {
    sorted->rows = sorted_ids::sort(rows, std::span(room).subspan(room.size() / 2, count));
  } else {
    std::sort(rows.begin(), rows.end());
    sorted->rows = rows;
  }
}

// Rows of a union, with the ids that one of its tables has them by.
void Results::give_union(const FusedMember& of, const ReducedGradient& whole,
                         std::span<const uint64_t> rows, RowsResult* out) const {
  const Variable& variable = *of.variable;
  out->ids.clear();
  for (const uint64_t row : rows) {
    out->ids.push_back(static_cast<int64_t>((row >> 32) - of.first_row));
  }
  out->values.resize(rows.size() * variable.row_elements * bytes_of_dtype(out->dtype));
  give_rows(variable, whole, rows,
            {.values = out->values.data(), .dtype = out->dtype, .sum = variable.sum_type()});
}

const std::byte* Results::row_in(const Variable& variable, const ReducedGradient& whole,
                                 uint64_t row) {
  return whole.values + static_cast<uint32_t>(row) * variable.gradient_elements() *
                            bytes_of_sum(variable.sum_type());
}

// Those rows, one behind the other.
void Results::give_rows(const Variable& variable, const ReducedGradient& whole,
                        std::span<const uint64_t> rows, const NumberFormat& to) const {
  const size_t source_bytes = variable.gradient_elements() * bytes_of_sum(to.sum);
  const auto row_at = [&](uint64_t at) { return row_in(variable, whole, rows[at]); };
  const uint32_t held = dtype_of(to.sum);
  const double scale = factor(variable, whole);
  if (!whole.counted && (scale == 1 || to.dtype == held)) {
    RowCopies(converter(held, to.dtype), variable.row_elements, bytes_of_dtype(to.dtype))
        .copy_all(rows.size(), row_at, source_bytes, to.values);
    if (scale == 1) return;
    return scale_numbers(to.values, rows.size() * variable.row_elements, scale, to.sum);
  }
  NumberFormat next = to;
  for (size_t at = 0; at < rows.size(); ++at) {
    give_row(variable, whole, row_at(at), next);
    next.values += variable.row_elements * bytes_of_dtype(to.dtype);
  }
}

}  // namespace parallax
