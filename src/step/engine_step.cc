// SPDX-License-Identifier: Apache-2.0
// The calls of a step, and how what they ask for is started and completed. See engine.h.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "step/engine.h"

namespace parallax {

// ---- requests

Status Engine::new_request(RequestKind kind, uint64_t step, Request** request) {
  if (outstanding_requests_ >= PARALLAX_REQUESTS_MAX && kind != RequestKind::kClose) {
    return limit("more than " + std::to_string(PARALLAX_REQUESTS_MAX) +
                 " requests are not released; wait for some and release them");
  }
  if (free_requests_.empty()) {
    constexpr size_t kSlicesReserved = 16;
    if (request_storage_.size() > kSlicesReserved) ++growth_count_;
    Request& grown = request_storage_.emplace_back();
    grown.slices.reserve(kSlicesReserved);
    grown.slice_done.reserve(kSlicesReserved);
    free_requests_.push_back(&grown);
  }
  *request = free_requests_.back();
  free_requests_.pop_back();
  ++outstanding_requests_;
  (*request)->reset(kind, step);
  return {};
}

void Engine::finish_request(Request* request, Status status) {
  PARALLAX_CHECK(!request->done());
  request->complete(std::move(status));
  if (completed_) completed_();
}

Status Engine::release(Request* request) {
  if (!request->done()) {
    return bad_state("release: the request is pending; wait for it, or cancel it and wait");
  }
  if (request->free) return bad_state("release: the request was released already");
  request->free = true;
  --outstanding_requests_;
  free_requests_.push_back(request);
  return {};
}

// ---- checks

Status Engine::check_running(const char* call) const {
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
  if (step == begun_ && step > ended_) return {};
  const std::string name = std::string(call) + ": step " + std::to_string(step);
  if (step == 0 || step > begun_) {
    return bad_state(name + " has not begun; the last one begun is " + std::to_string(begun_));
  }
  return bad_state(name + " has ended; begin the next one");
}

Status Engine::check_slices(std::span<const parallax_slice_t> slices, const char* call) const {
  if (slices.size() > PARALLAX_SLICES_MAX) {
    return invalid(std::string(call) + ": " + std::to_string(slices.size()) + " slices; at most " +
                   std::to_string(PARALLAX_SLICES_MAX) + " in one call");
  }
  for (size_t i = 0; i < slices.size(); ++i) {
    const Status fits = check_slice(slices[i]);
    if (!fits.ok()) {
      const bool known = slices[i].variable < variables_.size();
      return {fits.code(), std::string(call) + ", slice " + std::to_string(i) +
                               (known ? " (variable '" + variables_[slices[i].variable].name + "')"
                                      : std::string()) +
                               ": " + fits.message()};
    }
    for (size_t j = 0; j < i; ++j) {
      if (slices[j].variable == slices[i].variable) {
        return invalid(std::string(call) + ": variable '" + variables_[slices[i].variable].name +
                       "' is in slices " + std::to_string(j) + " and " + std::to_string(i) +
                       "; give each variable one slice");
      }
    }
  }
  return {};
}

// What is wrong with a slice, without its name: that is put together for failures alone, since a
// step allocates nothing.
Status Engine::check_slice(const parallax_slice_t& slice) const {
  if (slice.variable >= variables_.size()) {
    return invalid("variable is " + std::to_string(slice.variable) + ", the job has " +
                   std::to_string(variables_.size()));
  }
  const Variable& variable = variables_[slice.variable];
  if (slice.form > PARALLAX_FORM_ROWS) {
    return invalid("form is " + std::to_string(slice.form) +
                   "; it must be PARALLAX_FORM_DENSE or PARALLAX_FORM_ROWS");
  }
  const bool rows = slice.form == PARALLAX_FORM_ROWS;
  if (rows != variable.ids_declared()) {
    return rows ? invalid(
                      "form is ROWS, but the variable declared no row ids; set "
                      "rows_max at registration, or use PARALLAX_FORM_DENSE")
                : unsupported(
                      "form is DENSE, but the variable declared row ids; this "
                      "version carries one form per variable");
  }
  if (reinterpret_cast<uintptr_t>(slice.values) % alignof(float) != 0) {
    return invalid("values is not aligned to 4 bytes");
  }
  if (!rows) return slice.values != nullptr ? Status() : invalid("values is null");
  if (slice.row_count > variable.rows_max) {
    return limit("row_count is " + std::to_string(slice.row_count) + ", rows_max " +
                 std::to_string(variable.rows_max) + "; register a larger rows_max");
  }
  if (slice.row_count == 0) return {};
  if (slice.ids == nullptr || slice.values == nullptr) {
    return invalid(std::string(slice.ids == nullptr ? "ids" : "values") + " is null with " +
                   std::to_string(slice.row_count) + " rows");
  }
  if (reinterpret_cast<uintptr_t>(slice.ids) % alignof(int64_t) != 0) {
    return invalid("ids is not aligned to 8 bytes");
  }
  for (uint64_t i = 0; i < slice.row_count; ++i) {
    if (static_cast<uint64_t>(slice.ids[i]) >= variable.rows) {
      return invalid("ids[" + std::to_string(i) + "] is " + std::to_string(slice.ids[i]) +
                     ", the variable has rows 0.." + std::to_string(variable.rows - 1) +
                     "; nothing was applied");
    }
  }
  return {};
}

// ---- calls

Status Engine::step_begin(uint64_t* step) {
  PARALLAX_RETURN_IF_ERROR(check_running("step_begin"));
  if (begun_ > ended_) {
    return bad_state("step_begin: step " + std::to_string(begun_) +
                     " has not ended; call step_end first");
  }
  if (begun_ >= finished_ + 2) {
    return bad_state("step_begin: steps " + std::to_string(begun_ - 1) + " and " +
                     std::to_string(begun_) +
                     " are still ending; wait for the older step_end request first");
  }
  ++begun_;
  Step& state = step_state(begun_);
  std::vector<uint8_t> contributed = std::move(state.contributed);
  std::fill(contributed.begin(), contributed.end(), uint8_t{0});
  state = Step();
  state.contributed = std::move(contributed);
  state.step = begun_;
  *step = begun_;
  return {};
}

Status Engine::pull(uint64_t step, std::span<const parallax_slice_t> slices, Request** request) {
  PARALLAX_RETURN_IF_ERROR(check_step(step, "pull"));
  PARALLAX_RETURN_IF_ERROR(check_slices(slices, "pull"));
  for (const parallax_slice_t& slice : slices) {
    if (!variables_[slice.variable].managed()) {
      return invalid("pull: variable '" + variables_[slice.variable].name +
                     "' is framework-held (no update rule): its value is the caller's");
    }
  }
  PARALLAX_RETURN_IF_ERROR(new_request(RequestKind::kPull, step, request));
  for (const parallax_slice_t& slice : slices) {
    (*request)->slices.push_back({slice.variable, slice.ids, static_cast<uint32_t>(slice.row_count),
                                  static_cast<float*>(slice.values)});
  }
  Step& state = step_state(step);
  ++state.pulls_left;
  ++state.unstarted;
  pulls_.push_back(*request);
  return {};
}

Status Engine::push(uint64_t step, std::span<const parallax_slice_t> slices, Request** request) {
  return post_contribution(RequestKind::kPush, step, slices, request);
}

Status Engine::reduce(uint64_t step, std::span<const parallax_slice_t> slices, Request** request) {
  return post_contribution(RequestKind::kReduce, step, slices, request);
}

Status Engine::post_contribution(RequestKind kind, uint64_t step,
                                 std::span<const parallax_slice_t> slices, Request** request) {
  const bool push = kind == RequestKind::kPush;
  const char* call = push ? "push" : "reduce";
  PARALLAX_RETURN_IF_ERROR(check_step(step, call));
  PARALLAX_RETURN_IF_ERROR(check_slices(slices, call));
  Step& state = step_state(step);
  for (const parallax_slice_t& slice : slices) {
    const Variable& variable = variables_[slice.variable];
    if (variable.managed() != push) {
      return invalid(std::string(call) + ": variable '" + variable.name + "' is " +
                     (push ? "framework-held (no update rule); use reduce"
                           : "managed (it has an update rule); use push"));
    }
    if (state.contributed[slice.variable] != 0) {
      return invalid(std::string(call) + ": variable '" + variable.name + "' was given in step " +
                     std::to_string(step) + " already; sum micro-batches before the one call");
    }
  }
  PARALLAX_RETURN_IF_ERROR(new_request(kind, step, request));
  Request& posted = **request;
  for (const parallax_slice_t& slice : slices) {
    state.contributed[slice.variable] = 1;
    posted.slices.push_back({slice.variable, slice.ids, static_cast<uint32_t>(slice.row_count),
                             static_cast<float*>(slice.values)});
  }
  if (!push) {
    posted.rows.resize(std::max(posted.rows.size(), slices.size()));
    posted.slice_done.resize(slices.size());
    for (size_t i = 0; i < slices.size(); ++i)
      reserve_rows(variables_[slices[i].variable], &posted.rows[i]);
  }
  ++state.unstarted;
  active_.push_back(&posted);
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
  const std::vector<uint8_t>& contributed = step_state(step).contributed;
  const auto given = std::find(contributed.begin(), contributed.end(), 1);
  if (options.absent != 0 && given != contributed.end()) {
    return invalid("step_end: absent is 1, but variable '" +
                   variables_[static_cast<size_t>(given - contributed.begin())].name +
                   "' was given in step " + std::to_string(step) +
                   "; a rank without a batch gives none");
  }
  PARALLAX_RETURN_IF_ERROR(new_request(RequestKind::kStepEnd, step, request));
  Request& end = **request;
  end.learning_rate = options.learning_rate;
  end.clip_norm = options.clip_norm;
  end.found_inf = options.found_inf != 0;
  end.absent = options.absent != 0;
  step_state(step).end = &end;
  ended_ = step;
  return {};
}

// ---- starting and completing

// Pulls go one at a time, in order: a handler matches them by their number in the step.
void Engine::advance_pulls() {
  while (!pulls_.empty()) {
    Request& pull = *pulls_.front();
    if (decided_ + 1 < pull.step) return;
    Step& state = step_state(pull.step);
    if (!pull.started) {
      pull.started = true;
      --state.unstarted;
      sharded_slices_.clear();
      for (const PullSlice& slice : pull.slices) {
        if (plan_at(*runtimes_[slice.variable], pull.step).placement == Placement::kSharded) {
          sharded_slices_.push_back(slice);
        }
      }
      // A round takes part for its number alone even where it has nothing to ask for.
      if (!sharded_slices_.empty() || any_sharded(pull.step)) {
        pull_road_.start(pull.step, state.pull_rounds++, sharded_slices_);
      }
    }
    if (pull_road_.active() && !pull_road_.finished()) return;
    if (finished_ + 1 < pull.step) return;
    if (pull_road_.active()) pull_road_.finish();
    for (const PullSlice& slice : pull.slices) {
      const Runtime& runtime = *runtimes_[slice.variable];
      if (runtime.plan.placement == Placement::kMirrored) read_mirror(runtime, slice);
    }
    --state.pulls_left;
    pulls_.erase(pulls_.begin());
    finish_request(&pull, {});
  }
}

bool Engine::any_sharded(uint64_t step) const {
  return std::any_of(runtimes_.begin(), runtimes_.end(), [&](const auto& runtime) {
    return plan_at(*runtime, step).placement == Placement::kSharded;
  });
}

void Engine::read_mirror(const Runtime& runtime, const PullSlice& slice) {
  const Table& table = *runtime.table;
  if (!runtime.variable->ids_declared()) {
    std::copy_n(table.element(0), runtime.variable->elements(), slice.values);
    return;
  }
  const uint64_t width = table.row_elements();
  for (uint32_t i = 0; i < slice.count; ++i) {
    const uint32_t position = runtime.partition.position_of(static_cast<uint64_t>(slice.ids[i]));
    std::copy_n(table.row(position), width, slice.values + i * width);
  }
}

void Engine::advance_requests() {
  size_t kept = 0;
  const size_t count = active_.size();
  for (size_t i = 0; i < count; ++i) {
    Request* request = active_[i];
    bool finished = false;
    if (request->kind == RequestKind::kPush || request->kind == RequestKind::kReduce) {
      if (!request->started && decided_ + 1 >= request->step) start_contribution(*request);
      if (request->started && request->kind == RequestKind::kReduce) {
        finish_reduce_slices(*request);
      }
      finished = request->started && request->pending == 0 &&
                 std::find(request->slice_done.begin(), request->slice_done.end(), 0) ==
                     request->slice_done.end();
    }
    if (finished) {
      finish_request(request, {});
    } else {
      active_[kept++] = request;
    }
  }
  active_.resize(kept);
}

void Engine::start_contribution(Request& request) {
  request.started = true;
  --step_state(request.step).unstarted;
  for (const PullSlice& slice : request.slices) {
    GradientRoad& road = road_at(*runtimes_[slice.variable], request.step);
    if (variables_[slice.variable].ids_declared()) {
      road.contribute_rows(request.step, slice.ids, slice.count, slice.values, &request.pending);
    } else {
      road.contribute_dense(request.step, slice.values, &request.pending);
    }
  }
}

void Engine::finish_reduce_slices(Request& request) {
  for (size_t i = 0; i < request.slices.size(); ++i) {
    if (request.slice_done[i] != 0) continue;
    const PullSlice& slice = request.slices[i];
    const Runtime& runtime = *runtimes_[slice.variable];
    const GradientRoad& road = road_at(*runtimes_[slice.variable], request.step);
    if (request.pending != 0 || !road.delivered(request.step)) continue;
    const ReducedGradient whole = road.whole(request.step);
    request.slice_done[i] = 1;
    if (!runtime.variable->ids_declared()) {
      std::copy_n(whole.values, runtime.variable->elements(), slice.values);
    } else {
      copy_rows(runtime, whole, &request.rows[i]);
    }
  }
}

// Room for the most that a union can be, so that later steps allocate nothing.
void Engine::reserve_rows(const Variable& variable, RowsResult* rows) {
  if (!variable.ids_declared()) return;
  const uint64_t most = std::min(variable.rows, variable.rows_max * columns_.world());
  rows->ids.reserve(most);
  rows->values.reserve(most * variable.row_elements);
  sorted_rows_.reserve(most);
}

// The union by ascending id.
void Engine::copy_rows(const Runtime& runtime, const ReducedGradient& whole, RowsResult* out) {
  const uint64_t width = runtime.variable->row_elements;
  out->ids.clear();
  out->values.clear();
  if (!whole.contributed) return;
  std::vector<std::pair<int64_t, uint64_t>>& rows = sorted_rows_;  // id, row of whole.values
  rows.clear();
  const uint64_t count = whole.rows ? whole.row_count : runtime.variable->rows;
  // At once for any step, so that steps of other unions allocate nothing.
  const uint64_t rows_max =
      std::min(runtime.variable->rows, runtime.variable->rows_max * columns_.world());
  rows.reserve(rows_max);
  out->ids.reserve(rows_max);
  out->values.reserve(rows_max * width);
  for (uint64_t i = 0; i < count; ++i) {
    if (!whole.rows && is_no_row(whole.values + i * width)) continue;
    const uint32_t position = whole.rows ? whole.positions[i] : static_cast<uint32_t>(i);
    rows.emplace_back(static_cast<int64_t>(runtime.partition.row_of(position)), i);
  }
  std::sort(rows.begin(), rows.end());
  for (const auto& [id, row] : rows) {
    out->ids.push_back(id);
    out->values.insert(out->values.end(), whole.values + row * width,
                       whole.values + (row + 1) * width);
  }
}

}  // namespace parallax
