// SPDX-License-Identifier: Apache-2.0
// The calls of a step, and how what they ask for is started and completed. See engine.h.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/engine.h"

namespace parallax {

// ---- checks

Status Engine::check_running(const char* call) const {
  // Every call of a failed job says what failed it.
  if (!failure_.ok()) return failure_;
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
  if (rows_pending()) {
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
  StepState& state = pipeline_.state(step);
  ++state.pulls_left;
  ++state.unstarted;
  pulls_.push_back(*request);
  pipeline_.own_time().called(step, StepPhase::kPull, clock_.now_ns());
  return {};
}

Status Engine::push(uint64_t step, std::span<const parallax_slice_t> slices, Request** request) {
  return post_contribution(RequestKind::kPush, step, slices, request);
}

Status Engine::reduce(uint64_t step, std::span<const parallax_slice_t> slices, Request** request) {
  return post_contribution(RequestKind::kReduce, step, slices, request);
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

// ---- starting and completing

// Pulls go one at a time, in order: a leader matches those of its host by their number in the step.
void Engine::advance_pulls() {
  while (!pulls_.empty()) {
    Request& pull = *pulls_.front();
    if (!pipeline_.window().may_start(pull.step)) return;
    StepState& state = pipeline_.state(pull.step);
    if (!pull.started) {
      pull.started = true;
      --state.unstarted;
      sharded_slices_.clear();
      for (const PullSlice& slice : pull.slices) {
        if (group_.runtime(slice.variable).sharded_at(pull.step)) {
          sharded_slices_.push_back(slice);
        }
      }
      // With nothing to ask for, too, as long as any variable is sharded: the leaders count the
      // rounds of each rank, and a round waits for every rank of the host.
      if (!sharded_slices_.empty() || group_.any_sharded(pull.step)) {
        group_.pulls().start(pull.step, state.pull_rounds++, sharded_slices_);
      }
    }
    if (group_.pulls().active() && !group_.pulls().finished()) return;
    // Mirrors are as of the step before only once that one is applied here.
    if (!pipeline_.window().is_current(pull.step)) return;
    // Fills in padding and duplicates, which did not travel.
    if (group_.pulls().active()) group_.pulls().finish();
    for (const PullSlice& slice : pull.slices) {
      const Runtime& runtime = group_.runtime(slice.variable);
      if (runtime.plan.placement == Placement::kMirrored) read_mirror(runtime, slice);
    }
    --state.pulls_left;
    pulls_.erase(pulls_.begin());
    requests_.finish(&pull, {});
  }
}

void Engine::read_mirror(const Runtime& runtime, const PullSlice& slice) {
  const Table& table = *runtime.table;
  const size_t bytes = bytes_of_dtype(slice.dtype);
  const Convert convert = converter(dtype_of(runtime.variable->sum_type()), slice.dtype);
  if (!runtime.variable->ids_declared()) {
    convert_or_copy(convert, table.element(0), slice.values, runtime.variable->elements(), bytes);
    return;
  }
  const uint64_t width = table.row_elements();
  for (uint32_t i = 0; i < slice.count; ++i) {
    std::byte* out = slice.values + i * width * bytes;
    const int64_t id = slice.ids.at(i);
    if (id == kPaddingId) {
      std::memset(out, 0, width * bytes);
      continue;
    }
    const uint32_t row_key = runtime.partition.row_key_of(static_cast<uint64_t>(id));
    convert_or_copy(convert, table.row(row_key), out, width, bytes);
  }
}

void Engine::advance_requests() {
  size_t kept = 0;
  const size_t count = active_.size();
  for (size_t i = 0; i < count; ++i) {
    Request* request = active_[i];
    bool finished = false;
    if (request->kind == RequestKind::kPush || request->kind == RequestKind::kReduce) {
      if (!request->started && pipeline_.window().may_start(request->step))
        start_contribution(*request);
      if (request->started && request->kind == RequestKind::kReduce) {
        finish_reduce_slices(*request);
      }
      // Only a reduce has entries in slice_done: a push is done once nothing borrows its buffers.
      finished = request->started && request->pending == 0 &&
                 std::find(request->slice_done.begin(), request->slice_done.end(), 0) ==
                     request->slice_done.end();
    }
    if (finished) {
      --pipeline_.state(request->step).contributions_open;
      requests_.finish(request, {});
    } else {
      // In order of calls, as barriers and broadcasts go one at a time.
      active_[kept++] = request;
    }
  }
  active_.resize(kept);
}

}  // namespace parallax
