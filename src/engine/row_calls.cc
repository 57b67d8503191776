// SPDX-License-Identifier: Apache-2.0
// Checking, starting and completing calls of rows. See row_calls.h.
#include "engine/row_calls.h"

#include <utility>

#include "engine/slice_checks.h"
#include "group/mirror.h"

namespace parallax {

namespace {

Status check_aligned(const void* buffer, const char* name, const Table& table) {
  const uint32_t bytes = bytes_of_sum(table.sum_type());
  if (reinterpret_cast<uintptr_t>(buffer) % bytes == 0) return {};
  return invalid(std::string(name) + " is not aligned to " + std::to_string(bytes) + " bytes");
}

}  // namespace

Table* RowCalls::table_of(uint32_t variable) {
  return variable < group_.size() ? group_.runtime(variable).table.get() : nullptr;
}

Status RowCalls::check(const parallax_rows_t& rows, RowsCall* call) const {
  if (rows.reserved != 0) {
    return unsupported("reserved is " + std::to_string(rows.reserved) +
                       "; this version knows 0 alone: set the whole struct to zero first")
        .about_field("reserved");
  }
  if (rows.variable >= registry_.size()) {
    return invalid("variable is " + std::to_string(rows.variable) + ", the job has " +
                   std::to_string(registry_.size()))
        .about_field("variable");
  }
  const Variable& variable = registry_[rows.variable];
  const std::string name = "variable '" + variable.name + "': ";
  PARALLAX_RETURN_IF_ERROR(check_committed(registry_, rows.variable, name));
  const VariableRuntime& runtime = group_.runtime(registry_.number_of(rows.variable));
  if (!variable.managed()) {
    return invalid(name + "it is framework-held (no update rule): its value is the caller's")
        .about_field("variable");
  }
  // The caller's numbers, so no sum that could wrap.
  if (rows.first_row >= variable.rows || rows.row_count > variable.rows - rows.first_row ||
      rows.row_count == 0) {
    return invalid(name + "rows " + std::to_string(rows.first_row) + ".. +" +
                   std::to_string(rows.row_count) + ", it has " + std::to_string(variable.rows) +
                   "; give at least one row, and none beyond the last");
  }
  const Table& table = *runtime.table;
  *call = {.variable = runtime.id,
           .first_row = registry_.first_row_of(rows.variable) + rows.first_row,
           .row_count = rows.row_count,
           .parts = {static_cast<std::byte*>(rows.values)},
           .dtype = dtype_of(variable.sum_type()),
           .updates = rows.updates};
  Status aligned = check_aligned(rows.values, "values", table);
  for (uint32_t i = 0; i < kStatesMax && aligned.ok(); ++i) {
    if (rows.state[i] == nullptr) continue;
    const std::string state = "state[" + std::to_string(i) + "]";
    if (i + 1 >= table.array_count()) {
      return invalid(name + state + " is given, but rule " + variable.traits().name + " keeps " +
                     std::to_string(table.array_count() - 1) + " of them; set it to NULL");
    }
    call->parts[i + 1] = static_cast<std::byte*>(rows.state[i]);
    aligned = check_aligned(rows.state[i], state.c_str(), table);
  }
  return aligned.ok() ? aligned : aligned.prefixed(name);
}

Status RowCalls::check_between_steps(const char* call) const {
  // Within a step its updates may be applied at some owners and not at others.
  if (window_.between_steps()) return {};
  return bad_state(std::string(call) + ": step " + std::to_string(window_.begun()) +
                   " is not over; wait for its step_end request first");
}

Status RowCalls::post(const parallax_rows_t& rows, bool write, Request** request) {
  const std::string name = write ? "write" : "read";
  PARALLAX_RETURN_IF_ERROR(phase_.check_running(name.c_str()));
  RowsCall call;
  const Status fits = check(rows, &call);
  if (!fits.ok()) return fits.prefixed(name + ": ");
  PARALLAX_RETURN_IF_ERROR(check_between_steps(name.c_str()));
  TakenRequest taken(requests_);
  PARALLAX_RETURN_IF_ERROR(taken.take(RequestKind::kRows, window_.finished()));
  taken->rows_call = call;
  taken->rows_call.write = write;
  queue_.push(&*taken);
  *request = taken.keep();
  return {};
}

// A pull between steps, by this rank alone.
Status RowCalls::evaluate(std::span<const PullSlice> slices, Request** request, Request* there) {
  PARALLAX_RETURN_IF_ERROR(check_between_steps("pull, step 0 (an evaluation)"));
  TakenRequest taken(requests_, there);
  PARALLAX_RETURN_IF_ERROR(taken.take(RequestKind::kEvaluate, window_.finished()));
  taken->slices.assign(slices.begin(), slices.end());
  queue_.push(&*taken);
  *request = taken.keep();
  return {};
}

namespace {

// What is asked of the owners for a slice of an evaluation: its ids, or all rows.
RowsCall call_of(const PullSlice& slice, uint64_t rows) {
  return {.variable = slice.variable,
          .row_count = rows,
          .parts = {slice.values},
          .dtype = slice.dtype,
          .ids = slice.ids};
}

}  // namespace

// Starts what a request asks for next. True if something is on its way; mirrored slices of an
// evaluation are read at once, on the way to the next sharded one, unless a device has them.
bool RowCalls::start_next(Request& request) {
  if (request.kind == RequestKind::kRows) {
    if (request.started) return false;
    if (request.rows_call.write) {
      access_.start_write(request.rows_call, &request.pending);
    } else {
      access_.start_read(request.rows_call);
    }
    return true;
  }
  while (request.slices_done < request.slices.size()) {
    const PullSlice& slice = request.slices[request.slices_done++];
    const VariableRuntime& runtime = group_.runtime(slice.variable);
    const bool ids = runtime.variable->ids_declared() && !slice.every_row;
    if (!runtime.table->sharded()) {
      read_mirror(runtime, slice, &left_);
      if (left_ > 0) return true;
    } else if (slice.on_device) {
      const PullSlice others = group_.pulls().start_alone(slice);
      asks_others_ = others.count > 0;
      if (asks_others_) {
        access_.start_pull(call_of(others, others.count));
      } else {
        group_.pulls().give_alone(&left_);
      }
      if (asks_others_ || left_ > 0) return true;
    } else if (!ids) {
      access_.start_read(call_of(slice, runtime.variable->rows));
      return true;
    } else if (slice.count > 0) {
      access_.start_pull(call_of(slice, slice.count));
      return true;
    }
  }
  return false;
}

void RowCalls::advance() {
  // Without a call of our own, too: other ranks ask this one.
  access_.advance();
  while (!queue_.empty()) {
    Request& first = queue_.front();
    Status status;
    if (left_ > 0) return;
    if (first.started && std::exchange(reads_table_, false)) {
      // All of it is there.
    } else if (first.started) {
      // Sends of a write may still read the caller's buffers.
      if (!access_.finished() || first.pending != 0) return;
      status = access_.finish();
      if (std::exchange(asks_others_, false)) {
        reads_table_ = true;
        group_.pulls().give_alone(&left_);
        return;
      }
    }
    if (start_next(first)) {
      first.started = true;
      reads_table_ = left_ > 0;
    } else {
      queue_.finish_front(std::move(status));
    }
  }
}

}  // namespace parallax
