// SPDX-License-Identifier: Apache-2.0
// SliceChecks: what may be wrong with the slices of a call, by the registered variables alone:
// form, sizes, alignment, row ids, dtypes. Once, where a call comes in: everything behind takes
// slices as checked, and their variables by number. Every sentence names the call, the slice and
// the variable; success allocates nothing. Engine's owner only.
#ifndef PARALLAX_ENGINE_SLICE_CHECKS_H_
#define PARALLAX_ENGINE_SLICE_CHECKS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/pull_exchange.h"
#include "variable/registry.h"

namespace parallax {

// Which slices of a call are of one variable (tied use), and which two of them are a pair.
class SliceTies {
 public:
  // For as many slices as a call may have.
  void reserve() {
    next_.reserve(PARALLAX_SLICES_MAX);
    marks_.reserve(PARALLAX_SLICES_MAX);
  }
  // No slice is tied to another; nothing but a note, where none ever was.
  void clear() { any_ = false; }
  // `count` slices in all, of which the later one is of the variable of the earlier one, and none
  // between them.
  void tie(size_t earlier, size_t later, size_t count) {
    if (!any_) next_.assign(count, 0), marks_.assign(count, 0);
    any_ = true;
    next_[earlier] = later;
    marks_[later] |= kAgain;
  }
  // The first slice of a variable and the next go out as they are, beside each other.
  void pair(size_t first) { marks_[first] |= kPaired, marks_[next_[first]] |= kPaired; }
  bool any() const { return any_; }
  // The next slice of its variable; 0: there is none.
  size_t next(size_t slice) const { return any_ ? next_[slice] : 0; }
  // There is an earlier one.
  bool again(size_t slice) const { return any_ && (marks_[slice] & kAgain) != 0; }
  bool tied(size_t slice) const { return next(slice) != 0 || again(slice); }
  bool paired(size_t slice) const { return any_ && (marks_[slice] & kPaired) != 0; }

 private:
  static constexpr uint8_t kAgain = 1, kPaired = 2;

  bool any_ = false;
  std::vector<size_t> next_;  // by slice
  std::vector<uint8_t> marks_;
};

// STATE: no commit has brought the variable in yet.
Status check_committed(const Registry& registry, uint32_t id, std::string_view lead = "");

class SliceChecks {
 public:
  // The registry outlives this.
  explicit SliceChecks(const Registry& registry) : registry_(registry) {}

  // Of any call. INVALID, LIMIT. *ties tells which slices are of one variable. Nothing that they
  // point to is read where `memory` is a device's.
  Status check(std::span<const parallax_slice_t> slices, const char* call,
               SliceTies* ties = nullptr) const;
  // And what a pull asks for beside that.
  Status check_pull(std::span<const parallax_slice_t> slices) const;
  // One that was checked: infinities and NaN are refused where the variable says so
  // (refuse_nonfinite), before anything of the slice is used: once summed, nobody could tell whose
  // they were.
  Status check_finite(const parallax_slice_t& given, const char* call) const {
    return registry_[given.variable].refuse_nonfinite ? look_for_nonfinite(given, call) : Status();
  }

  const Variable& variable_of(const parallax_slice_t& slice) const {
    return registry_[slice.variable];
  }
  // Of one of rows, or a dense one that has every row.
  uint64_t rows_of(const parallax_slice_t& slice) const {
    return slice.form == PARALLAX_FORM_ROWS ? slice.row_count : variable_of(slice).rows;
  }
  uint32_t member_of(const parallax_slice_t& slice) const {
    return registry_.member_of(slice.variable);
  }
  uint32_t number_of(const parallax_slice_t& slice) const {
    return registry_.number_of(slice.variable);
  }
  uint32_t dtype_of_slice(const parallax_slice_t& slice) const;
  // One that was checked, with the defaults filled in; its variable by number.
  PullSlice slice_of(const parallax_slice_t& slice) const;

 private:
  Status check_one(const parallax_slice_t& slice) const;
  Status look_for_nonfinite(const parallax_slice_t& given, const char* call) const;
  static Status check_ids(const parallax_slice_t& slice, const Variable& variable);

  const Registry& registry_;
  // By variable: where its slice stood in the last call that had one. A note of check() alone.
  mutable std::vector<size_t> places_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_SLICE_CHECKS_H_
