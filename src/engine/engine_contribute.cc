// SPDX-License-Identifier: Apache-2.0
// Pushes and reduces: what a rank contributes in a step, by one call or by several. See engine.h.
#include <algorithm>
#include <new>

#include "engine/engine.h"

namespace parallax {

namespace {

RowSlice rows_of(const PullSlice& slice) {
  return {slice.ids, slice.count, {slice.values, slice.dtype}};
}

}  // namespace

Status Engine::check_contribution(const parallax_slice_t& slice, uint64_t step, bool push) {
  const char* call = push ? "push" : "reduce";
  const Variable& variable = variables_[slice.variable];
  const Contributed earlier = pipeline_.state(step).contributed[slice.variable];
  if (variable.managed() != push) {
    return invalid(std::string(call) + ": variable '" + variable.name + "' is " +
                   (push ? "framework-held (no update rule); use reduce"
                         : "managed (it has an update rule); use push"));
  }
  if (earlier == Contributed::kAll) {
    return invalid(std::string(call) + ": variable '" + variable.name + "' was given in step " +
                   std::to_string(step) +
                   " already; for several calls register it with accumulate = 1, and set more = 1 "
                   "in all slices but the last");
  }
  const PullSlice rows = slice_checks_.slice_of(slice);
  PARALLAX_RETURN_IF_ERROR(slice_checks_.check_finite(rows, call));
  // The first slice of a step always fits; a later one may bring rows that are new.
  if (earlier == Contributed::kPart && variable.ids_declared() &&
      !group_.runtime(slice.variable).sums[step & 1]->fits(rows_of(rows))) {
    return limit(std::string(call) + ": variable '" + variable.name + "': the slices of step " +
                 std::to_string(step) +
                 " have more than rows_max = " + std::to_string(variable.rows_max) +
                 " distinct rows together; nothing of this call was added; register a larger "
                 "rows_max");
  }
  return {};
}

Status Engine::post_contribution(RequestKind kind, uint64_t step,
                                 std::span<const parallax_slice_t> slices, Request** request) {
  const bool push = kind == RequestKind::kPush;
  const char* call = push ? "push" : "reduce";
  PARALLAX_RETURN_IF_ERROR(check_step(step, call));
  PARALLAX_RETURN_IF_ERROR(slice_checks_.check(slices, call));
  // All slices are checked before the first is noted: a refused call has contributed nothing.
  for (const parallax_slice_t& slice : slices) {
    PARALLAX_RETURN_IF_ERROR(check_contribution(slice, step, push));
  }
  PARALLAX_RETURN_IF_ERROR(requests_.take(kind, step, request));
  Request& posted = **request;
  if (!push) {
    // Before anything is noted: if there is no room for the result, nothing was contributed.
    const Status room = reserve_results(slices, &posted);
    if (!room.ok()) {
      requests_.take_back(&posted);
      *request = nullptr;
      return room;
    }
  }
  StepState& state = pipeline_.state(step);
  for (const parallax_slice_t& slice : slices) {
    if (slice.form == PARALLAX_FORM_DENSE && variables_[slice.variable].ids_declared()) {
      // The lowest, as votes take the lowest of all ranks: one variable changes at a time.
      state.dense_variable = std::min(state.dense_variable, slice.variable);
    }
    PullSlice& posted_slice = posted.slices.emplace_back(slice_checks_.slice_of(slice));
    posted_slice.more = slice.more != 0;
    posted_slice.summed = add_to_sum(posted_slice, state);
  }
  ++state.unstarted;
  ++state.contributions_open;
  contributions_.push_back(&posted);
  pipeline_.own_time().called(step, StepPhase::kPush, clock_.now_ns());
  return {};
}

// Room for what a reduce gives back.
Status Engine::reserve_results(std::span<const parallax_slice_t> slices, Request* posted) {
  size_t i = 0;
  try {
    posted->rows.resize(std::max(posted->rows.size(), slices.size()));
    posted->slice_done.resize(slices.size());
    for (; i < slices.size(); ++i) {
      RowsResult& rows = posted->rows[i];
      rows.ids.clear();
      rows.values.clear();
      posted->slice_done[i] = slices[i].more != 0 ? 1 : 0;  // the last one gets the aggregate
      if (slices[i].more != 0) continue;
      reserve_rows(variables_[slices[i].variable], slice_checks_.slice_of(slices[i]).dtype, &rows);
    }
  } catch (const std::bad_alloc&) {
    for (RowsResult& rows : posted->rows) rows = {};  // frees memory: the sentence needs some
    const Variable& variable = variables_[slices[i].variable];
    return limit("reduce: variable '" + variable.name + "': no memory for the rows of " +
                 std::to_string(group_.columns().world()) + " ranks, up to " +
                 std::to_string(most_rows(variable)) +
                 "; nothing was given; register a smaller rows_max");
  }
  return {};
}

// Notes that a slice was contributed, and adds it to the step sum if it is one of several, at once:
// the caller's buffer is free when the call's request is done. True if it is in the step sum.
bool Engine::add_to_sum(const PullSlice& slice, StepState& state) {
  Contributed& contributed = state.contributed[slice.variable];
  StepSum* sum = group_.runtime(slice.variable).sums[state.step & 1].get();
  const bool first = contributed == Contributed::kNothing;
  if (contributed == Contributed::kPart) --state.parts_left;
  if (slice.more) ++state.parts_left;
  contributed = slice.more ? Contributed::kPart : Contributed::kAll;
  if (sum == nullptr || (first && !slice.more)) return false;
  if (first) sum->clear(state.step);
  if (sum->step() != state.step) return false;  // the other form of a slice that needed no step sum
  if (variables_[slice.variable].ids_declared()) {
    sum->add_rows(rows_of(slice));
  } else {
    sum->add_dense({slice.values, slice.dtype});
  }
  return true;
}

void Engine::contribute_sum(uint32_t variable, uint64_t step, const Destination& result,
                            uint32_t* pending) {
  Runtime& runtime = group_.runtime(variable);
  const StepSum& sum = *runtime.sums[step & 1];
  Contribution slice;
  if (variables_[variable].ids_declared()) {
    slice.rows = sum.rows();
  } else {
    // A step sum is not written again before the step after the next.
    slice = {.elements = sum.dense(), .lasting = true, .result = result};
  }
  runtime.exchange_at(step).contribute(step, slice, pending);
}

// The step ends: a variable whose last slice said `more` gets none, and its step sum goes out.
void Engine::contribute_parts(StepState& state) {
  if (state.parts_left == 0) return;
  state.parts_left = 0;
  for (uint32_t variable = 0; variable < group_.size(); ++variable) {
    if (state.contributed[variable] != Contributed::kPart) continue;
    state.contributed[variable] = Contributed::kAll;
    contribute_sum(variable, state.step, {}, &state.sums_pending);
  }
}

void Engine::start_contribution(Request& request) {
  request.started = true;
  --pipeline_.state(request.step).unstarted;
  for (const PullSlice& slice : request.slices) {
    // It is in the step sum, which goes out with the last micro-batch.
    if (slice.more) continue;
    const auto other =
        std::find_if(request.slices.begin(), request.slices.end(), [&slice](const PullSlice& each) {
          return each.variable == slice.variable && &each != &slice;
        });
    // Of a dense slice and one of rows in one call, the dense one contributes both.
    if (other != request.slices.end() && !slice.every_row) continue;
    if (slice.summed) {
      Destination result;
      if (request.kind == RequestKind::kReduce) result = {slice.values, slice.dtype};
      contribute_sum(slice.variable, request.step, result, &request.pending);
      continue;
    }
    Contribution contribution;
    if (!variables_[slice.variable].ids_declared()) {
      contribution.elements = {slice.values, slice.dtype};
      // The caller's until the aggregate is there, which takes its place.
      contribution.lasting = request.kind == RequestKind::kReduce;
      if (contribution.lasting) contribution.result = {slice.values, slice.dtype};
    } else {
      contribution.rows = rows_of(slice);
      if (other != request.slices.end()) contribution.more = rows_of(*other);
    }
    group_.runtime(slice.variable)
        .exchange_at(request.step)
        .contribute(request.step, contribution, &request.pending);
  }
}

}  // namespace parallax
