// SPDX-License-Identifier: Apache-2.0
// The calls of a step. See engine.h.
#include <algorithm>
#include <cmath>

#include "engine/engine.h"

namespace parallax {

// ---- checks

Status Engine::check_running(const char* call) const {
  // Every call of a failed job says what failed it.
  if (!failure_.status().ok()) return failure_.status();
  if (phase_ == Phase::kRunning) return {};
  if (phase_ == Phase::kCommitting) {
    return bad_state(std::string(call) +
                     ": a commit is under way, or timed out; in that case close the job");
  }
  return bad_state(std::string(call) + (phase_ == Phase::kClosing || phase_ == Phase::kClosed
                                            ? ": the job is closing"
                                            : ": the job is not committed; call commit first"));
}

Status Engine::check_step(uint64_t step, const char* call) const {
  PARALLAX_RETURN_IF_ERROR(check_running(call));
  if (pipeline_.window().takes_calls(step)) return {};
  const std::string name = std::string(call) + ": step " + std::to_string(step);
  if (!pipeline_.window().has_begun(step)) {
    return bad_state(name + " has not begun; the last one begun is " +
                     std::to_string(pipeline_.window().begun()));
  }
  return bad_state(name + " has ended; begin the next one");
}

// ---- calls

Status Engine::step_begin(uint64_t* step) {
  PARALLAX_RETURN_IF_ERROR(check_running("step_begin"));
  if (pipeline_.window().in_calls()) {
    return bad_state("step_begin: step " + std::to_string(pipeline_.window().begun()) +
                     " has not ended; call step_end first");
  }
  if (row_calls_.pending()) {
    return bad_state(
        "step_begin: a read or write of rows is pending; wait for it, since it is as of the last "
        "commit");
  }
  if (!pipeline_.window().has_room()) {
    return bad_state("step_begin: steps " + std::to_string(pipeline_.window().begun() - 1) +
                     " and " + std::to_string(pipeline_.window().begun()) +
                     " are still ending; wait for the older step_end request first");
  }
  *step = pipeline_.begin();
  return {};
}

Status Engine::pull(uint64_t step, std::span<const parallax_slice_t> slices, Request** request) {
  if (step == 0) return evaluate(slices, request);
  PARALLAX_RETURN_IF_ERROR(check_step(step, "pull"));
  PARALLAX_RETURN_IF_ERROR(slice_checks_.check_pull(slices));
  PARALLAX_RETURN_IF_ERROR(requests_.take(RequestKind::kPull, step, request));
  for (const parallax_slice_t& slice : slices) {
    (*request)->slices.push_back(slice_checks_.slice_of(slice));
  }
  pull_calls_.post(*request);
  pipeline_.own_time().called(step, StepPhase::kPull, clock_.now_ns());
  return {};
}

// A pull between steps, by this rank alone.
Status Engine::evaluate(std::span<const parallax_slice_t> slices, Request** request) {
  PARALLAX_RETURN_IF_ERROR(check_running("pull"));
  PARALLAX_RETURN_IF_ERROR(slice_checks_.check_pull(slices));
  return row_calls_.evaluate(slices, slice_checks_, request);
}

Status Engine::rows(const parallax_rows_t& rows, bool write, Request** request) {
  PARALLAX_RETURN_IF_ERROR(check_running(write ? "write" : "read"));
  return row_calls_.post(rows, write, request);
}

Status Engine::push(uint64_t step, std::span<const parallax_slice_t> slices, Request** request) {
  return contribute(RequestKind::kPush, step, slices, request);
}

Status Engine::reduce(uint64_t step, std::span<const parallax_slice_t> slices, Request** request) {
  return contribute(RequestKind::kReduce, step, slices, request);
}

Status Engine::contribute(RequestKind kind, uint64_t step, std::span<const parallax_slice_t> slices,
                          Request** request) {
  PARALLAX_RETURN_IF_ERROR(check_step(step, kind == RequestKind::kPush ? "push" : "reduce"));
  PARALLAX_RETURN_IF_ERROR(contribution_calls_.post(kind, step, slices, request));
  pipeline_.own_time().called(step, StepPhase::kPush, clock_.now_ns());
  return {};
}

Status Engine::step_end(uint64_t step, const parallax_step_end_options_t& options,
                        Request** request) {
  PARALLAX_RETURN_IF_ERROR(check_step(step, "step_end"));
  if (!std::isfinite(options.learning_rate) || options.learning_rate < 0) {
    return invalid("step_end: learning_rate must be finite and not negative");
  }
  if (!std::isfinite(options.clip_norm) || options.clip_norm < 0) {
    return invalid("step_end: clip_norm must be finite and not negative; 0 means no clipping");
  }
  const std::vector<Contributed>& contributed = pipeline_.state(step).contributed;
  const auto given = std::find_if(contributed.begin(), contributed.end(),
                                  [](Contributed each) { return each != Contributed::kNothing; });
  if (options.absent != 0 && given != contributed.end()) {
    return invalid("step_end: absent is 1, but variable '" +
                   variables_[static_cast<size_t>(given - contributed.begin())].name +
                   "' was given in step " + std::to_string(step) +
                   "; a rank without a batch gives none");
  }
  PARALLAX_RETURN_IF_ERROR(requests_.take(RequestKind::kStepEnd, step, request));
  step_ends_[StepWindow::slot(step)] = *request;
  pipeline_.end(step, {.learning_rate = options.learning_rate,
                       .clip_norm = options.clip_norm,
                       .found_inf = options.found_inf != 0,
                       .absent = options.absent != 0});
  pipeline_.own_time().called(step, StepPhase::kStepEnd, clock_.now_ns());
  return {};
}

}  // namespace parallax
