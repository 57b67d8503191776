// SPDX-License-Identifier: Apache-2.0
// Initial values and the commit pass of a table. See table.h.
#include "server/table.h"

#include <algorithm>

#include "base/check.h"

namespace parallax {

uint64_t Table::element_count() const {
  if (!sharded_) return partition_.elements();
  return partition_.ids_declared() ? partition_.rows_owned(rank_) * row_elements()
                                   : partition_.range_of(rank_).count;
}

size_t Table::needed_bytes() const {
  return Arena::bytes_for<float>(element_count()) * (variable_.has_state() ? 2 : 1);
}

Status Table::reserve() {
  PARALLAX_RETURN_IF_ERROR(arena_.reserve(needed_bytes()));
  values_ = arena_.take<float>(element_count());
  if (variable_.has_state()) state_ = arena_.take<float>(element_count());
  if (sharded_ && !partition_.ids_declared()) first_element_ = partition_.range_of(rank_).first;
  return {};
}

bool Table::initialize(uint64_t elements_max) {
  const bool zero = variable_.init == PARALLAX_INIT_CONSTANT && variable_.init_low == 0;
  const uint64_t width = row_elements();
  const uint64_t first = initialized_;
  const uint64_t rows = std::max<uint64_t>(1, elements_max / width);
  initialized_ = std::min<uint64_t>(values_.size(), first + rows * width);
  if (!state_.empty() && variable_.initial_accumulator_value != 0) {
    std::fill(state_.begin() + static_cast<ptrdiff_t>(first),
              state_.begin() + static_cast<ptrdiff_t>(initialized_),
              variable_.initial_accumulator_value);
  }
  if (zero) return initialized_ == values_.size();
  if (!partition_.ids_declared()) {
    for (uint64_t i = first; i < initialized_; ++i) {
      const uint64_t at = first_element_ + i;
      values_[i] = initial_value(variable_, at / width, at % width);
    }
    return initialized_ == values_.size();
  }
  for (uint64_t here = first / width; here * width < initialized_; ++here) {
    const uint32_t position =
        sharded_ ? partition_.position_at(rank_, here) : static_cast<uint32_t>(here);
    const uint64_t row = partition_.row_of(position);
    for (uint64_t column = 0; column < width; ++column) {
      values_[here * width + column] = initial_value(variable_, row, column);
    }
  }
  return initialized_ == values_.size();
}

void Table::apply(const ReducedGradient& gradient, const UpdateArguments& with) {
  if (!gradient.contributed) return;
  const uint64_t width = row_elements();
  if (!gradient.rows) {
    const uint64_t at = gradient.first - first_element_;
    // Rows made dense: those that nobody gave are left alone.
    const uint64_t stride = partition_.ids_declared() ? width : gradient.count;
    for (uint64_t row = 0; row < gradient.count; row += stride) {
      if (partition_.ids_declared() && is_no_row(gradient.values + row)) continue;
      apply_rule(with, &values_[at + row], state_.empty() ? nullptr : &state_[at + row],
                 gradient.values + row, stride);
    }
    return;
  }
  for (uint32_t i = 0; i < gradient.row_count; ++i) {
    const uint64_t at = row_of(gradient.positions[i]) * width;
    apply_rule(with, &values_[at], state_.empty() ? nullptr : &state_[at],
               gradient.values + i * width, width);
  }
}

uint64_t Table::place_of(uint32_t owner, uint64_t at) const {
  if (!partition_.ids_declared()) return partition_.range_of(owner).first + at;
  const uint64_t width = row_elements();
  return partition_.position_at(owner, at / width) * width + at % width;
}

void Table::place_part(uint32_t owner, uint64_t first, std::span<const float> part,
                       std::span<float> into) const {
  for (uint64_t i = 0; i < part.size(); ++i) into[place_of(owner, first + i)] = part[i];
}

bool Table::place_bytes(uint32_t owner, uint64_t first, std::span<const std::byte> part,
                        std::span<float> into) const {
  const uint64_t count = part.size() / sizeof(float);
  const uint64_t owned = partition_.ids_declared() ? partition_.rows_owned(owner) * row_elements()
                                                   : partition_.range_of(owner).count;
  if (first > owned || count > owned - first) return false;
  for (uint64_t i = 0; i < count; ++i) {
    std::memcpy(&into[place_of(owner, first + i)], part.data() + i * sizeof(float), sizeof(float));
  }
  return true;
}

void Table::take_own_part(std::span<const float> mirror, std::span<float> into) const {
  for (uint64_t i = 0; i < into.size(); ++i) into[i] = mirror[place_of(rank_, i)];
}

}  // namespace parallax
