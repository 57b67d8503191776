// SPDX-License-Identifier: Apache-2.0
// What may be wrong with slices. See slice_checks.h.
#include "engine/slice_checks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/vector_code.h"

namespace parallax {

Status check_committed(const Registry& registry, uint32_t id, std::string_view lead) {
  if (registry.has_number(id)) return {};
  return bad_state(std::string(lead) +
                   "it was registered after the last commit; call commit on every rank first")
      .about_field("variable")
      .about_variable(id);
}

Status SliceChecks::check(std::span<const parallax_slice_t> slices, const char* call,
                          SliceTies* ties) const {
  if (ties != nullptr) ties->clear();
  places_.resize(registry_.size());  // grows with what was registered, not in a step
  if (slices.size() > PARALLAX_SLICES_MAX) {
    return invalid(std::string(call) + ": " + std::to_string(slices.size()) + " slices; at most " +
                   std::to_string(PARALLAX_SLICES_MAX) + " in one call")
        .about_field("count");
  }
  for (size_t i = 0; i < slices.size(); ++i) {
    const Status fits = check_one(slices[i]);
    if (!fits.ok()) {
      const bool known = slices[i].variable < registry_.size();
      Status named =
          fits.prefixed(std::string(call) + ", slice " + std::to_string(i) +
                        (known ? " (variable '" + registry_[slices[i].variable].name + "')"
                               : std::string()) +
                        ": ")
              .about_slice(i);
      return known ? std::move(named).about_variable(slices[i].variable) : std::move(named);
    }
    // A place that an earlier call left is told by the slice there, so that none has to be cleared.
    size_t& place = places_[slices[i].variable];
    const size_t earlier = std::exchange(place, i);
    if (earlier >= i || slices[earlier].variable != slices[i].variable) continue;
    if (ties == nullptr) continue;
    ties->tie(earlier, i, slices.size());
    // It says whether another call follows.
    if (slices[earlier].more == slices[i].more) continue;
    return invalid(std::string(call) + ": variable '" + registry_[slices[i].variable].name +
                   "' is in slices " + std::to_string(earlier) + " and " + std::to_string(i) +
                   " with more = " + std::to_string(slices[earlier].more) + " and " +
                   std::to_string(slices[i].more) +
                   "; it is the same in all slices of a variable in one call")
        .about_slice(i)
        .about_variable(slices[i].variable)
        .about_field("more");
  }
  return {};
}

Status SliceChecks::check_pull(std::span<const parallax_slice_t> slices) const {
  PARALLAX_RETURN_IF_ERROR(check(slices, "pull"));
  for (const parallax_slice_t& slice : slices) {
    const std::string& name = registry_[slice.variable].name;
    if (!registry_[slice.variable].managed()) {
      return invalid("pull: variable '" + name +
                     "' is framework-held (no update rule): its value is the caller's")
          .about_variable(slice.variable);
    }
    if (slice.more != 0) {
      return invalid("pull: variable '" + name + "': more is of push and reduce; set it to 0")
          .about_variable(slice.variable)
          .about_field("more");
    }
  }
  return {};
}

Status SliceChecks::look_for_nonfinite(const parallax_slice_t& given, const char* call) const {
  const uint32_t id = given.variable;
  const Variable& variable = registry_[id];
  const PullSlice slice = slice_of(given);
  const bool rows = variable.ids_declared();
  const uint64_t row_count = rows ? slice.count : variable.rows;
  const uint64_t width = variable.row_elements;
  const uint64_t wrong = with_dtype(slice.dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    for (uint64_t row = 0; row < row_count; ++row) {
      if (rows && slice.ids.at(row) == kPaddingId) continue;
      for (uint64_t i = row * width; i < (row + 1) * width; ++i) {
        const auto value = static_cast<double>(load<In>(slice.values + i * sizeof(In)));
        if (!std::isfinite(value)) return i;
      }
    }
    return row_count * width;
  });
  if (wrong == row_count * width) return {};
  const uint64_t row = wrong / width;
  const bool by_id = given.form == PARALLAX_FORM_ROWS;
  const int64_t row_id = RowIds{given.ids, given.ids_i32}.at(row);  // the caller's
  return invalid(std::string(call) + ": variable '" + variable.name + "', row " +
                 std::to_string(row) +
                 (by_id ? " of the slice (id " + std::to_string(row_id) + ")" : "") + ", column " +
                 std::to_string(wrong % width) +
                 ": the gradient is infinite or NaN, which the variable refuses "
                 "(refuse_nonfinite); nothing was given")
      .about_variable(id)
      .about_row(by_id ? row_id : static_cast<int64_t>(row))
      .about_field("values");
}

namespace {

Status check_memory(const parallax_slice_t& slice) {
  if (slice.memory > PARALLAX_MEMORY_CUDA) {
    return invalid("memory is " + std::to_string(slice.memory) +
                   "; it must be PARALLAX_MEMORY_HOST or PARALLAX_MEMORY_CUDA")
        .about_field("memory");
  }
  if (slice.memory != PARALLAX_MEMORY_HOST) return {};
  const bool stream = slice.stream != nullptr;
  if (!stream && slice.device == 0) return {};
  return invalid(std::string(stream ? "stream" : "device") +
                 " is given, and memory is PARALLAX_MEMORY_HOST, which has none; set memory to "
                 "PARALLAX_MEMORY_CUDA, or leave it zero")
      .about_field(stream ? "stream" : "device");
}

Status values_null() { return invalid("values is null").about_field("values"); }

// The place of an aggregate: the gradient's own, or one apart from it.
Status check_into(const parallax_slice_t& slice, const Variable& variable, uint32_t element_bytes) {
  if (slice.into == nullptr) return {};
  if (variable.managed() || slice.form == PARALLAX_FORM_ROWS || slice.more != 0) {
    return invalid(
               "into is given, which takes the aggregate of a reduce; leave it null for push and "
               "pull, for slices of rows (parallax_request_rows has theirs), and where more is 1")
        .about_field("into");
  }
  const auto from = reinterpret_cast<uintptr_t>(slice.values);
  const auto to = reinterpret_cast<uintptr_t>(slice.into);
  if (to % element_bytes != 0) {
    return invalid("into is not aligned to " + std::to_string(element_bytes) + " bytes")
        .about_field("into");
  }
  const uint64_t bytes = variable.elements() * element_bytes;
  if (from == to || from >= to + bytes || to >= from + bytes) return {};
  return invalid("into overlaps values in part; give the same address, or one apart from it")
      .about_field("into");
}

}  // namespace

// What is wrong with a slice. check() adds the call and the variable's name, to failures
// alone: a step allocates nothing.
Status SliceChecks::check_one(const parallax_slice_t& slice) const {
  if (slice.variable >= registry_.size()) {
    return invalid("variable is " + std::to_string(slice.variable) + ", the job has " +
                   std::to_string(registry_.size()))
        .about_field("variable");
  }
  PARALLAX_RETURN_IF_ERROR(check_committed(registry_, slice.variable));
  const Variable& variable = registry_[slice.variable];
  if (slice.form > PARALLAX_FORM_ROWS) {
    return invalid("form is " + std::to_string(slice.form) +
                   "; it must be PARALLAX_FORM_DENSE or PARALLAX_FORM_ROWS")
        .about_field("form");
  }
  PARALLAX_RETURN_IF_ERROR(check_memory(slice));
  const bool rows = slice.form == PARALLAX_FORM_ROWS;
  if (rows && !variable.ids_declared()) {
    return invalid(
               "form is ROWS, but the variable declared no row ids; set rows_max at registration, "
               "or use "
               "PARALLAX_FORM_DENSE")
        .about_field("form");
  }
  // It travels as rows, in buffers that rows_max sized.
  if (!rows && variable.ids_declared() && variable.rows_max < variable.rows) {
    return limit("form is DENSE, which gives all " + std::to_string(variable.rows) +
                 " rows of a variable with row ids, and rows_max is " +
                 std::to_string(variable.rows_max) + "; register rows_max >= rows")
        .about_field("form");
  }
  if (slice.as_dtype > kDtypeCount ||
      !convertible(dtype_of(variable.sum_type()), dtype_of_slice(slice))) {
    return invalid("as_dtype is " + std::to_string(slice.as_dtype) + "; for a variable of " +
                   dtype_name(variable.dtype) + " it must be 0" +
                   (is_floating(variable.dtype)
                        ? " or PARALLAX_AS of " + dtype_constants(is_floating, "or")
                        : std::string()))
        .about_field("as_dtype");
  }
  if (slice.more > 1 || (slice.more == 1 && !variable.accumulate)) {
    return invalid("more is " + std::to_string(slice.more) +
                   (variable.accumulate ? "; it must be 0 or 1"
                                        : ", but the variable takes one slice a step; register it "
                                          "with accumulate = 1"))
        .about_field("more");
  }
  const uint32_t element_bytes = bytes_of_dtype(dtype_of_slice(slice));
  if (reinterpret_cast<uintptr_t>(slice.values) % element_bytes != 0) {
    return invalid("values is not aligned to " + std::to_string(element_bytes) + " bytes")
        .about_field("values");
  }
  PARALLAX_RETURN_IF_ERROR(check_into(slice, variable, element_bytes));
  if (!rows) return slice.values != nullptr ? Status() : values_null();
  if (slice.row_count > variable.rows_max) {
    return limit("row_count is " + std::to_string(slice.row_count) + ", rows_max " +
                 std::to_string(variable.rows_max) + "; register a larger rows_max")
        .about_field("row_count");
  }
  if (slice.row_count == 0) return {};
  return check_ids(slice, variable);
}

Status SliceChecks::check_ids(const parallax_slice_t& slice, const Variable& variable) {
  const bool none = slice.ids == nullptr && slice.ids_i32 == nullptr;
  if (none || slice.values == nullptr) {
    return invalid(std::string(none ? "ids" : "values") + " is null with " +
                   std::to_string(slice.row_count) + " rows")
        .about_field(none ? "ids" : "values");
  }
  if (slice.ids != nullptr && slice.ids_i32 != nullptr) {
    return invalid("ids and ids_i32 are both given; one of them must be null")
        .about_field("ids_i32");
  }
  const bool wide = slice.ids != nullptr;
  const auto address =
      reinterpret_cast<uintptr_t>(wide ? static_cast<const void*>(slice.ids) : slice.ids_i32);
  const size_t alignment = wide ? alignof(int64_t) : alignof(int32_t);
  if (address % alignment != 0) {
    return invalid(std::string(wide ? "ids" : "ids_i32") + " is not aligned to " +
                   std::to_string(alignment) + " bytes")
        .about_field(wide ? "ids" : "ids_i32");
  }
  // Those that are on a device are checked when they are here.
  if (slice.memory != PARALLAX_MEMORY_HOST) return {};
  // Once, here: everything behind takes ids as checked.
  const auto first_wrong = [rows = variable.rows](const auto* ids, uint64_t count) {
    // All of them without a branch, since none is wrong: of one that is a top bit is set.
    uint64_t tops = 0;
    const auto look = [&tops, rows, ids, count] {
      uint64_t found = 0;
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t behind = static_cast<uint64_t>(int64_t{ids[i]}) + 1;
        found |= behind | (rows - behind);
      }
      tops = found;
    };
    if (count < kVectorCountMin) {
      look();
    } else {
      in_vectors(look);
    }
    if (tops >> 63 == 0) return count;
    for (uint64_t i = 0; i < count; ++i) {
      // A negative id becomes a huge number: one comparison finds both.
      const bool known = static_cast<uint64_t>(int64_t{ids[i]}) < rows;
      if (!known && ids[i] != kPaddingId) return i;
    }
    return count;
  };
  const uint64_t wrong =
      wide ? first_wrong(slice.ids, slice.row_count) : first_wrong(slice.ids_i32, slice.row_count);
  if (wrong == slice.row_count) return {};
  const RowIds ids = {slice.ids, slice.ids_i32};
  return invalid(std::string(wide ? "ids[" : "ids_i32[") + std::to_string(wrong) + "] is " +
                 std::to_string(ids.at(wrong)) + ", the variable has rows 0.." +
                 std::to_string(variable.rows - 1) + " (-1 is padding); nothing was applied")
      .about_field(wide ? "ids" : "ids_i32")
      .about_row(ids.at(wrong));
}

uint32_t SliceChecks::dtype_of_slice(const parallax_slice_t& slice) const {
  return slice.as_dtype == 0 ? registry_[slice.variable].dtype : slice.as_dtype - 1;
}

PullSlice SliceChecks::slice_of(const parallax_slice_t& slice) const {
  const Variable& variable = registry_[slice.variable];
  const bool every_row = slice.form == PARALLAX_FORM_DENSE && variable.ids_declared();
  PullSlice copy = {
      .variable = registry_.number_of(slice.variable),
      .ids = {},
      .count = static_cast<uint32_t>(every_row ? variable.rows : slice.row_count),
      .values = static_cast<std::byte*>(slice.values),
      .into = static_cast<std::byte*>(slice.into != nullptr ? slice.into : slice.values),
      .dtype = dtype_of_slice(slice),
      .every_row = every_row};
  if (slice.form == PARALLAX_FORM_ROWS) copy.ids = {slice.ids, slice.ids_i32};
  copy.member = registry_.member_of(slice.variable);
  if (copy.member != Registry::kNotFused) {
    copy.ids.first = static_cast<uint32_t>(registry_.first_row_of(slice.variable));
    // Of its own, which are not all that there are.
    copy.every_row = false;
  }
  // StagedSlices has put it there.
  if (variable.direct)
    copy.after = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(slice.stream));
  return copy;
}

}  // namespace parallax
