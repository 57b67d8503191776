// SPDX-License-Identifier: Apache-2.0
// Results with row ids against the union of all ranks' rows, or against the model of a rule.
#include "tool/bench/check.h"

namespace parallax::tool::bench {

uint64_t count_wrong_rows(const ReducedRows& rows, const RowUnion& expected) {
  const uint64_t row_bytes = rows.width * bytes_of_dtype(rows.dtype);
  uint64_t wrong = 0, got = 0;
  size_t wanted = 0;
  while (got < rows.count || wanted < expected.size()) {
    if (wanted == expected.size() || (got < rows.count && rows.ids[got] < expected.id(wanted))) {
      wrong += rows.width;  // too many
      ++got;
    } else if (got == rows.count || rows.ids[got] > expected.id(wanted)) {
      wrong += rows.width;  // missing
      ++wanted;
    } else {
      const auto sum = [&](uint64_t column) { return expected.sum(wanted, column + rows.shift); };
      wrong +=
          count_wrong(rows.dtype, rows.values + got * row_bytes, rows.width, rows.divisor, sum);
      ++got;
      ++wanted;
    }
  }
  return wrong;
}

uint64_t count_wrong_pulled(uint32_t dtype, std::span<const int64_t> ids, const std::byte* values,
                            uint64_t width, const RuleModel& model) {
  const uint64_t row_bytes = width * bytes_of_dtype(dtype);
  uint64_t wrong = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t row = model.row_of(ids[i]);
    wrong += count_wrong(dtype, values + i * row_bytes, width, 1,
                         [&](uint64_t column) { return model.value(row, column); });
  }
  return wrong;
}

}  // namespace parallax::tool::bench
