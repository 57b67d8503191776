// SPDX-License-Identifier: Apache-2.0
// What a part of a sum counts for: its norm and its rows. See reduced_gradient.h.
#include "aggregate/reduced_gradient.h"

#include <algorithm>
#include <type_traits>

#include "aggregate/accumulator.h"
#include "aggregate/row_kernels.h"
#include "variable/partition.h"

namespace parallax {

void add_squared_norm(const ReducedGradient& part, ExactSum* sum) {
  if (!part.counts_once || !part.has_values) return;
  with_sum_type(part.sum, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_floating_point_v<T>) {
      const uint64_t stride = part.by_rows ? part.row_elements : part.count;
      const uint64_t runs = part.rows ? part.row_count : stride == 0 ? 0 : part.count / stride;
      const uint64_t run_elements = stride - (part.counted ? 1 : 0);
      for (uint64_t run = 0; run < runs; ++run) {
        const auto* const values =
            reinterpret_cast<const T*>(part.rows ? part.row(static_cast<uint32_t>(run))
                                                 : part.values + run * stride * sizeof(T));
        // Of rows made dense, those that nobody gave hold a mark, not a number.
        if (part.by_rows && !part.rows && is_no_row(values)) continue;
        const double ranks = part.counted ? static_cast<double>(values[run_elements]) : 1;
        for (uint64_t at = 0; at < run_elements; at += kBlockElements) {
          add_squares(values + at, std::min(kBlockElements, run_elements - at), ranks, sum);
        }
      }
    }
  });
}

uint64_t union_rows(const ReducedGradient& part) {
  if (!part.counts_once || !part.by_rows) return 0;
  if (part.rows) return part.row_count;
  if (!part.has_values) return 0;
  uint64_t rows = 0;
  with_sum_type(part.sum, [&](auto tag) {
    const auto* values = reinterpret_cast<const typename decltype(tag)::type*>(part.values);
    for (uint64_t at = 0; at < part.count; at += part.row_elements) {
      rows += is_no_row(values + at) ? 0 : 1;
    }
  });
  return rows;
}

}  // namespace parallax
