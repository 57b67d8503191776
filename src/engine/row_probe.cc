// SPDX-License-Identifier: Apache-2.0
// Adding and ordering. See row_probe.h.
#include "engine/row_probe.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace parallax {

namespace {

// Spread, and each another: a multiplication by an odd number.
uint32_t row_key_of(uint32_t row) { return row * 2654435769u; }

}  // namespace

RowProbe::RowProbe() : rows_(kRows, 1), result_(kRows) {
  const RowAccumulatorOptions options = {
      .sources = 2, .rows_max = kDistinct, .source_rows_max = kDistinct};
  Arena measure;
  sum_.lay_out(measure, options);
  PARALLAX_CHECK(arena_.reserve(measure.used_bytes()).ok());
  sum_.lay_out(arena_, options);
  given_.resize(kDistinct * (sizeof(uint32_t) + sizeof(float)));
  for (uint32_t row = 0; row < kDistinct; ++row) {
    const uint32_t row_key = row_key_of(row);
    std::memcpy(&given_[row * sizeof row_key], &row_key, sizeof row_key);
  }
  order_.reserve(kRows);
}

void RowProbe::add() {
  sum_.clear();
  for (uint32_t source = 0; source < 2; ++source) {
    PARALLAX_CHECK(sum_.add(source, kDistinct, given_));
  }
}

void RowProbe::put_in_order() {
  order_.clear();
  for (uint32_t row = 0; row < kRows; ++row) order_.emplace_back(row_key_of(row), row);
  std::sort(order_.begin(), order_.end());
  for (uint32_t row = 0; row < kRows; ++row) result_[row] = rows_[order_[row].second];
}

}  // namespace parallax
