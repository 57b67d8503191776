// SPDX-License-Identifier: Apache-2.0
// Checking, starting and answering pushes and reduces. See contribution_calls.h.
#include "engine/contribution_calls.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/check.h"
#include "group/variables_ahead.h"

namespace parallax {

namespace {

// What a call queues of its variables before it sends of that what can leave: for each other rank
// some messages, of which the last one alone is not full. Of no more than so many, since in a
// large world what is first would wait for all.
constexpr uint64_t kQueuedBytesOfAPeer = 256 * 1024;
constexpr uint32_t kQueuedPeersMax = 16;

}  // namespace

// ---- the call

// It is given otherwise, or this step has it already.
Status ContributionCalls::refuse(const parallax_slice_t& slice, uint64_t step, bool push) const {
  const std::string& name = checks_.variable_of(slice).name;
  const std::string lead = std::string(push ? "push" : "reduce") + ": variable '" + name + "' ";
  if (!suits(slice, push)) {
    return invalid(lead + "is " +
                   (push ? "framework-held (no update rule); use reduce"
                         : "managed (it has an update rule); use push"));
  }
  return invalid(lead + "was given in step " + std::to_string(step) +
                 " already; give all its slices in one call, or for several calls register it with "
                 "accumulate = 1, and set more = 1 in all calls but the last")
      .about_variable(slice.variable);
}

Status ContributionCalls::check_before(RequestKind kind, uint64_t step,
                                       std::span<const parallax_slice_t> slices) const {
  const bool push = kind == RequestKind::kPush;
  SliceTies ties;
  PARALLAX_RETURN_IF_ERROR(checks_.check(slices, push ? "push" : "reduce", &ties));
  for (const parallax_slice_t& slice : slices) {
    PARALLAX_RETURN_IF_ERROR(check_taken(slice, step, push));
  }
  return {};
}

Status ContributionCalls::check(std::span<const parallax_slice_t> slices, size_t at, uint64_t step,
                                bool push) {
  const parallax_slice_t& slice = slices[at];
  const char* call = push ? "push" : "reduce";
  PARALLAX_RETURN_IF_ERROR(check_taken(slice, step, push));
  const uint32_t number = checks_.number_of(slice);
  const Contributed earlier = pipeline_.state(step).contributed[number];
  PARALLAX_RETURN_IF_ERROR(checks_.check_finite(slice, call));
  if (checks_.member_of(slice) != Registry::kNotFused) {
    fused_.add(slice, at, ties_.tied(at));
    return {};
  }
  // The first slice of a step always fits; a later one may bring rows that are new.
  if (ties_.again(at)) return {};
  const bool tied = ties_.tied(at);
  if (tied && is_pair(slices, at, step)) ties_.pair(at);
  if (earlier == Contributed::kNothing && (!tied || ties_.paired(at))) return {};
  return check_sum(slices, at, step, call);
}

// Of a variable's first slice in the call: a dense one of a variable with row ids, and one of rows
// behind it, of one type, and nothing else in the step: the exchange sums them as it reads them.
bool ContributionCalls::is_pair(std::span<const parallax_slice_t> slices, size_t at,
                                uint64_t step) const {
  const size_t next = ties_.next(at);
  if (next == 0 || ties_.next(next) != 0 || slices[at].more != 0) return false;
  const uint32_t number = checks_.number_of(slices[at]);
  if (pipeline_.state(step).contributed[number] != Contributed::kNothing) return false;
  const PullSlice first = checks_.slice_of(slices[at]), second = checks_.slice_of(slices[next]);
  return first.every_row && !second.every_row && first.dtype == second.dtype;
}

// Whether a variable's slices of the call, from its first on, fit this rank's sum of the step,
// which is there then.
Status ContributionCalls::check_sum(std::span<const parallax_slice_t> slices, size_t at,
                                    uint64_t step, const char* call) {
  VariableRuntime& runtime = group_.runtime(checks_.number_of(slices[at]));
  const Variable& variable = *runtime.variable;
  // Of a failure alone: a step allocates nothing.
  const auto lead = [&] {
    return std::string(call) + ": variable '" + variable.name + "': the slices ";
  };
  const Status there = group_.reserve_sum(runtime, pipeline_.window().calls_slot(step));
  if (!there.ok()) {
    return limit(lead() + "of one call need a sum of their own: " + there.message() +
                 "; nothing of this call was added")
        .about_variable(variable.id);
  }
  if (!variable.ids_declared()) return {};
  StepSum& sum = *runtime.sums[pipeline_.window().calls_slot(step)];
  if (pipeline_.state(step).contributed[runtime.id] == Contributed::kNothing) sum.clear(step);
  tied_rows_.clear();
  size_t i = at;
  do {
    tied_rows_.push_back(checks_.slice_of(slices[i]).rows());
    i = ties_.next(i);
  } while (i != 0);
  if (sum.fits(tied_rows_)) return {};
  return limit(lead() + "of step " + std::to_string(step) +
               " have more than rows_max = " + std::to_string(variable.rows_max) +
               " distinct rows together; nothing of this call was added; register a larger "
               "rows_max")
      .about_variable(variable.id)
      .about_field("rows_max");
}

Status ContributionCalls::post(RequestKind kind, uint64_t step,
                               std::span<const parallax_slice_t> slices, Request** request,
                               const Staged& staged) {
  const bool push = kind == RequestKind::kPush;
  PARALLAX_RETURN_IF_ERROR(checks_.check(slices, push ? "push" : "reduce", &ties_));
  fused_.begin();
  // All slices are checked before the first is noted: a refused call has contributed nothing.
  for (size_t i = 0; i < slices.size(); ++i) {
    PARALLAX_RETURN_IF_ERROR(check(slices, i, step, push));
  }
  PARALLAX_RETURN_IF_ERROR(fused_.check(slices, ties_, step, push ? "push" : "reduce"));
  TakenRequest taken(requests_, staged.request);
  PARALLAX_RETURN_IF_ERROR(taken.take(kind, step));
  Request& posted = *taken;
  // Before anything is noted: if there is no room, nothing was contributed.
  posted.slices.reserve(slices.size());
  if (fused_.any()) posted.parts.reserve(slices.size());
  if (!push) PARALLAX_RETURN_IF_ERROR(reserve_results(slices, staged.result_dtypes, &posted));
  StepState& state = pipeline_.state(step);
  for (size_t i = 0; i < slices.size(); ++i) {
    PullSlice& posted_slice = posted.slices.emplace_back(checks_.slice_of(slices[i]));
    if (posted_slice.every_row) {
      // The lowest, as votes take the lowest of all ranks: one variable changes at a time.
      state.dense_variable = std::min(state.dense_variable, posted_slice.variable);
    }
    posted_slice.more = slices[i].more != 0;
    posted_slice.again = ties_.again(i);
    posted_slice.way = take(i, posted_slice, state);
    if (i < staged.arriving.size()) posted_slice.arriving = staged.arriving[i];
    if (i < staged.leaving.size()) posted_slice.leaving = staged.leaving[i];
    PARALLAX_CHECK(posted_slice.arriving == nullptr || posted_slice.way == SliceWay::kItself);
  }
  ++state.unstarted;
  ++state.contributions_open;
  queue_.push(&posted);
  *request = taken.keep();
  return {};
}

// Room for what a reduce gives back.
Status ContributionCalls::reserve_results(std::span<const parallax_slice_t> slices,
                                          std::span<const uint32_t> dtypes, Request* posted) {
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
      results_.reserve(group_.runtime(checks_.number_of(slices[i])), checks_.variable_of(slices[i]),
                       i < dtypes.size() ? dtypes[i] : checks_.dtype_of_slice(slices[i]), &rows);
    }
  } catch (const std::bad_alloc&) {
    for (RowsResult& rows : posted->rows) rows = {};  // frees memory: the sentence needs some
    const Variable& variable = checks_.variable_of(slices[i]);
    return limit("reduce: variable '" + variable.name + "': no memory for the rows of " +
                 std::to_string(group_.columns().world()) + " ranks, up to " +
                 std::to_string(results_.most_rows(variable)) +
                 "; nothing was given; register a smaller rows_max");
  }
  return {};
}

// Notes that a slice was contributed, and adds it to the step sum if it is one of several, at once:
// the caller's buffer is free when the call's request is done.
SliceWay ContributionCalls::take(size_t at, const PullSlice& slice, StepState& state) {
  if (slice.member != Registry::kNotFused) {
    return fused_.take(at, slice, state);
  }
  Contributed& contributed = state.contributed[slice.variable];
  const VariableRuntime& runtime = group_.runtime(slice.variable);
  const std::unique_ptr<StepSum>& sum = runtime.sums[pipeline_.window().calls_slot(state.step)];
  const bool tied = ties_.tied(at);
  if (!ties_.again(at)) {
    const bool first = contributed == Contributed::kNothing;
    if (contributed == Contributed::kPart) --state.parts_left;
    if (slice.more) ++state.parts_left;
    contributed = slice.more ? Contributed::kPart : Contributed::kAll;
    if (ties_.paired(at)) return SliceWay::kWithRows;
    if (first && !slice.more && !tied) return SliceWay::kItself;
    if (first) sum->clear(state.step);
  } else if (ties_.paired(at)) {
    return SliceWay::kWithAnother;
  }
  if (runtime.variable->ids_declared()) {
    sum->add_rows(slice.rows());
  } else {
    sum->add_dense({slice.values, slice.dtype});
  }
  if (!tied) return SliceWay::kInSum;
  return ties_.again(at) ? SliceWay::kWithAnother : SliceWay::kInTiedSum;
}

// ---- contributing

void ContributionCalls::advance(int64_t now_ns) {
  held_.advance(now_ns);
  queue_.finish_those([&](Request& request) {
    if (!request.started && pipeline_.window().may_start(request.step)) start(request, now_ns);
    if (request.started && request.kind == RequestKind::kReduce) hand_back(request);
    if (!is_over(request)) return false;
    if (request.rows_given != RowsGiven::kStay) {
      --pipeline_.state(request.step).contributions_open;
    }
    return true;
  });
}

bool ContributionCalls::is_over(const Request& request) const {
  if (!request.started || request.pending != 0) return false;
  if (request.rows_given == RowsGiven::kHeld) return false;
  if (request.rows_given == RowsGiven::kStay) return held_.is_applied(request);
  // Only a reduce has entries in slice_done: a push is done once nothing borrows its buffers.
  return std::find(request.slice_done.begin() + request.slices_done, request.slice_done.end(), 0) ==
         request.slice_done.end();
}

void ContributionCalls::start(Request& request, int64_t now_ns) {
  request.started = true;
  const uint64_t row_bytes = held_.bytes_of(request);
  bool holds = false;
  --pipeline_.state(request.step).unstarted;
  size_t run_end = 0, settled = 0;
  uint64_t queued_bytes = 0;
  const uint64_t queued_bytes_max =
      kQueuedBytesOfAPeer * std::clamp(group_.columns().world() - 1, 1u, kQueuedPeersMax);
  bool together = false;
  ByteRange run;
  for (size_t i = 0; i < request.slices.size(); ++i) {
    if (i == run_end) run = run_from(request, i, &run_end);
    if (i == settled && request.kind == RequestKind::kReduce) {
      const auto left = std::span(request.slices).subspan(i);
      const size_t staged = pipeline_.runs().stage(request.step, left, &request.pending);
      const LentRuns::Given given =
          staged > 0
              ? LentRuns::Given{.count = staged, .together = true}
              : pipeline_.runs().give(request.step, left.first(run_end - i), run, &request.pending);
      settled += given.count;
      together = given.together;
    }
    if (together) continue;
    // With `more` it is in the step sum, which goes out with the last micro-batch.
    if (request.slices[i].more) continue;
    if (request.slices[i].member == Registry::kNotFused) ask_for_next(request, i);
    holds |= contribute(request, request.slices[i], {run, row_bytes}, &request.pending);
    queued_bytes += bytes_of(request.slices[i]);
    if (queued_bytes < queued_bytes_max) continue;
    // Of what may be many variables the first leave before the next are looked at.
    outbox_.pump(false);
    queued_bytes = 0;
  }
  if (holds) held_.hold(request, now_ns);
}

// Slices of many variables: what giving the next ones takes.
void ContributionCalls::ask_for_next(const Request& request, size_t at) const {
  const size_t count = request.slices.size();
  const auto runtime_at = [&](size_t i) -> const VariableRuntime& {
    return group_.runtime(request.slices[i].variable);
  };
  prefetch_variables(at, count, request.step, runtime_at);
  if (at + 3 < count) group_.pulls().prefetch(request.slices[at + 3].variable);
  if (at + 1 >= count) return;
  const PullSlice& next = request.slices[at + 1];
  group_.pulls().prefetch_ids(next.variable);
  runtime_at(at + 1).exchange_at(request.step).prefetch_given(request.step);
}

// Of this rank's own numbers.
uint64_t ContributionCalls::bytes_of(const PullSlice& slice) const {
  const Variable& variable = *group_.runtime(slice.variable).variable;
  const uint64_t rows = variable.ids_declared() && !slice.every_row ? slice.count : variable.rows;
  return rows * variable.row_elements * bytes_of_dtype(slice.dtype);
}

// Of a dense slice; of rows none, which are neither lent nor written.
ByteRange ContributionCalls::elements_of(const PullSlice& slice) const {
  const Variable& variable = *group_.runtime(slice.variable).variable;
  if (variable.ids_declared()) return {};
  return ByteRange::at(slice.values, variable.elements() * bytes_of_dtype(slice.dtype));
}

// The memory of a slice and of those behind it in the call that lie one behind the other, aligned
// or not: as parameters that a program has laid out in one block.
ByteRange ContributionCalls::run_from(const Request& request, size_t first, size_t* end) const {
  ByteRange run = elements_of(request.slices[first]);
  *end = first + 1;
  for (; *end < request.slices.size(); ++*end) {
    const ByteRange next = elements_of(request.slices[*end]);
    const uint64_t gap = next.first - (run.first + run.bytes);
    if (run.bytes == 0 || next.bytes == 0 || gap >= kRunGapEnd) break;
    run.bytes += gap + next.bytes;
  }
  return run;
}

// True: rows of it are held.
bool ContributionCalls::contribute(Request& request, const PullSlice& slice, const Around& around,
                                   uint32_t* pending) {
  if (slice.way == SliceWay::kWithAnother || slice.way == SliceWay::kInSumYet) return false;
  const bool reduce = request.kind == RequestKind::kReduce;
  // The aggregate of several slices goes to each of them, from where the exchange keeps it.
  const bool placed = reduce && slice.way != SliceWay::kInTiedSum;
  const Destination result = placed ? Destination{slice.into, slice.dtype} : Destination();
  if (slice.way == SliceWay::kInSum || slice.way == SliceWay::kInTiedSum) {
    contribute_sum(slice.variable, request.step, result, pending);
    return false;
  }
  const VariableRuntime& runtime = group_.runtime(slice.variable);
  // What others have lent of it was checked as it came.
  PARALLAX_CHECK(pipeline_.runs().goes_alone(request.step, slice.variable));
  Contribution contribution;
  if (!runtime.variable->ids_declared()) {
    // Lasting: of a reduce it is the caller's until the aggregate is there, which may take its
    // place.
    contribution = {.elements = {slice.values, slice.dtype}, .lasting = reduce, .result = result};
    contribution.after = slice.after;
    if (reduce) contribution.borrowed = around.run;
    contribution.arriving = slice.arriving;
    if (slice.arriving != nullptr) contribution.lasting = false;
    // Else what is there is not the result yet.
    if (placed && !runtime.variable->counts_contributors()) contribution.leaving = slice.leaving;
  } else if (FusedCalls::goes_in_parts(slice.way)) {
    contribution = fused_.parts_until(slice, request);
  } else {
    contribution.rows = slice.rows();
    contribution.arriving = slice.arriving;
    contribution.may_stay = around.row_bytes > 0 && slice.way == SliceWay::kItself &&
                            held_.may_stay(slice, around.row_bytes);
    if (slice.way == SliceWay::kWithRows) {
      const auto other =
          std::find_if(&slice + 1, std::as_const(request.slices).data() + request.slices.size(),
                       [&slice](const PullSlice& each) { return each.variable == slice.variable; });
      contribution.more = other->rows();
    } else if (!slice.every_row) {
      contribution.coalesced = group_.pulls().pulled_ids(slice.variable);
    }
  }
  Exchange& exchange = runtime.exchange_at(request.step);
  exchange.contribute(request.step, contribution, pending);
  return contribution.may_stay && exchange.holds(request.step);
}

void ContributionCalls::contribute_sum(uint32_t variable, uint64_t step, const Destination& result,
                                       uint32_t* pending) {
  const VariableRuntime& runtime = group_.runtime(variable);
  const StepSum& sum = *runtime.sums[pipeline_.window().calls_slot(step)];
  PARALLAX_CHECK(pipeline_.runs().goes_alone(step, variable));
  Contribution contribution;
  if (runtime.variable->ids_declared()) {
    contribution.rows = sum.rows();
  } else {
    // A step sum is not written again before this step is finished.
    contribution = {.elements = sum.dense(), .lasting = true, .result = result};
  }
  runtime.exchange_at(step).contribute(step, contribution, pending);
}

void ContributionCalls::end(uint64_t step) {
  held_.end(step);
  StepState& state = pipeline_.state(step);
  if (state.parts_left == 0) return;
  state.parts_left = 0;
  for (uint32_t variable = 0; variable < group_.size(); ++variable) {
    if (state.contributed[variable] != Contributed::kPart) continue;
    state.contributed[variable] = Contributed::kAll;
    if (!fused_.end_parts(group_.runtime(variable), state)) {
      contribute_sum(variable, step, {}, &state.sums_pending);
    }
  }
}

// ---- handing back

void ContributionCalls::hand_back(Request& reduce) {
  // The result may go where the slice came from, which this rank's sends may still be reading.
  if (reduce.pending != 0) return;
  // This comes in every pass, and to ask one variable among many is a cache miss: of those that are
  // not there so many are asked, from the first on. What is behind them is seldom there either, and
  // the request is complete only with all.
  constexpr uint32_t kAskedMax = 16;
  uint32_t asked = 0;
  for (uint32_t i = reduce.slices_done; i < reduce.slices.size() && asked < kAskedMax; ++i) {
    if (reduce.slice_done[i] != 0) {
      if (i == reduce.slices_done) ++reduce.slices_done;
      continue;
    }
    const PullSlice& slice = reduce.slices[i];
    const VariableRuntime& runtime = group_.runtime(slice.variable);
    const Exchange& exchange = runtime.exchange_at(reduce.step);
    if (!exchange.state(reduce.step).delivered) {
      ++asked;
      continue;
    }
    reduce.slice_done[i] = 1;
    if (i == reduce.slices_done) ++reduce.slices_done;
    give(runtime, reduce.step, exchange.whole(reduce.step), slice, &reduce.rows[i]);
  }
}

void ContributionCalls::give(const VariableRuntime& runtime, uint64_t step,
                             const ReducedGradient& whole, const PullSlice& slice,
                             RowsResult* rows) {
  if (slice.staged == nullptr) return results_.give(runtime, step, whole, slice, rows);
  PullSlice there = slice;
  there.into = slice.staged;
  results_.give(runtime, step, whole, there, rows);
  std::memcpy(slice.into, slice.staged, runtime.variable->elements() * bytes_of_dtype(slice.dtype));
}

}  // namespace parallax
