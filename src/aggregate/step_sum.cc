// SPDX-License-Identifier: Apache-2.0
// How rows and whole slices are added up. See step_sum.h.
#include "aggregate/step_sum.h"

#include <algorithm>

#include "aggregate/row_kernels.h"
#include "base/check.h"

namespace parallax {

StepSum::StepSum(const Variable& variable)
    : row_elements_(variable.row_elements),
      rows_max_(std::min(variable.rows, variable.rows_max)),
      elements_(variable.ids_declared() ? rows_max_ * variable.row_elements : variable.elements()),
      sum_(variable.sum_type()) {}

size_t StepSum::needed_bytes() const {
  Arena measure;
  RowIndex index;
  if (rows_max_ > 0) index.lay_out(measure, rows_max_);
  return measure.used_bytes() + Arena::bytes_for<int64_t>(rows_max_) +
         Arena::bytes_for<std::byte>(elements_ * bytes_of_sum(sum_));
}

Status StepSum::reserve() {
  PARALLAX_RETURN_IF_ERROR(arena_.reserve(needed_bytes()));
  if (rows_max_ > 0) index_.lay_out(arena_, rows_max_);
  ids_ = arena_.take<int64_t>(rows_max_);
  values_ = arena_.take<std::byte>(elements_ * bytes_of_sum(sum_));
  return {};
}

void StepSum::clear(uint64_t step) {
  step_ = step;
  started_ = false;
  index_.clear();
}

bool StepSum::fits(std::span<const RowSlice> slices) {
  const uint32_t before = index_.size();
  uint64_t most = before;
  for (const RowSlice& slice : slices) most += slice.count;
  // Most slices fit even if all their rows are new: then nothing is looked up.
  if (most <= rows_max_) return true;
  bool all = true;
  for (const RowSlice& slice : slices) {
    for (uint32_t i = 0; i < slice.count && all; ++i) {
      const int64_t id = slice.ids.at(i);
      if (id == kPaddingId) continue;
      bool inserted;
      all = index_.find_or_insert(static_cast<uint32_t>(id), &inserted) != kNoSlot;
    }
  }
  if (index_.size() == before) return all;
  index_.clear();  // only counted: the index goes back to the rows that are here
  for (uint32_t slot = 0; slot < before; ++slot) {
    bool inserted;
    index_.find_or_insert(static_cast<uint32_t>(ids_[slot]), &inserted);
  }
  return all;
}

void StepSum::add_rows(const RowSlice& slice) {
  with_addend_types(slice.values.dtype, sum_, [&](auto in, auto to) {
    using In = typename decltype(in)::type;
    using Sum = typename decltype(to)::type;
    Sum* sums = reinterpret_cast<Sum*>(values_.data());
    for (uint32_t i = 0; i < slice.count; ++i) {
      const int64_t id = slice.ids.at(i);
      if (id == kPaddingId) continue;
      bool inserted;
      const uint32_t slot = index_.find_or_insert(static_cast<uint32_t>(id), &inserted);
      PARALLAX_CHECK(slot != kNoSlot);
      Sum* row = sums + slot * row_elements_;
      const std::byte* from = slice.values.rows + i * row_elements_ * sizeof(In);
      if (inserted) {
        ids_[slot] = id;
        start_sum<In, Sum>(row, from, row_elements_);
      } else {
        add_to_sum<In, Sum>(row, from, row_elements_);
      }
    }
  });
}

RowSlice StepSum::rows() const {
  return {{ids_.data(), nullptr}, index_.size(), {values_.data(), dtype_of(sum_)}};
}

void StepSum::add_dense(const RowValues& values) {
  with_addend_types(values.dtype, sum_, [&](auto in, auto to) {
    using In = typename decltype(in)::type;
    using Sum = typename decltype(to)::type;
    Sum* sums = reinterpret_cast<Sum*>(values_.data());
    if (started_) {
      add_to_sum<In, Sum>(sums, values.rows, elements_);
    } else {
      start_sum<In, Sum>(sums, values.rows, elements_);
    }
  });
  started_ = true;
}

}  // namespace parallax
