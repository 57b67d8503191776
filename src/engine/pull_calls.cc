// SPDX-License-Identifier: Apache-2.0
// Starting and answering pulls. See pull_calls.h.
#include "engine/pull_calls.h"

#include <algorithm>
#include <utility>

#include "group/mirror.h"

namespace parallax {

namespace {

// A step is being applied here: what is read of a mirror may be in part.
bool updates(const StepPipeline& pipeline) {
  const uint64_t next = pipeline.window().next_to_vote();
  const StepState& state = pipeline.state(next);
  return state.step == next && state.applying;
}

}  // namespace

void PullCalls::reserve() {
  queue_.reserve();
  sharded_slices_.reserve(PARALLAX_SLICES_MAX);
}

void PullCalls::post(Request* request) {
  StepState& state = pipeline_.state(request->step);
  queue_.push(request);
  ++state.pulls_left;
  ++state.unstarted;
}

void PullCalls::advance() {
  PullExchange& exchange = group_.pulls();
  while (!queue_.empty()) {
    Request& pull = queue_.front();
    if (!pull.started && !may_start(pull)) return;
    if (!pull.started) start(pull);
    if (exchange.active() && !exchange.finished()) return;
    // Mirrors are as of the step before only once that one is applied here.
    if (!pipeline_.window().is_current(pull.step)) return;
    if (exchange.active()) {
      // Fills in padding and duplicates, which did not travel.
      exchange.finish();
      exchange.give_to_tables(&left_);
    }
    if (left_ > 0) return;
    if (pull.slices_done < pull.slices.size()) {
      start_round(pull);
      continue;
    }
    if (!reads_mirrors_) {
      // With staleness the next update may be under way.
      if (updates(pipeline_)) return;
      read_mirrors(pull);
      reads_mirrors_ = left_ > 0;
      if (reads_mirrors_) return;
    }
    reads_mirrors_ = false;
    --pipeline_.state(pull.step).pulls_left;
    queue_.finish_front({});
  }
}

// What the step before is not known to be is of no matter to who asks. Early, this rank's leaders
// know that it pulls no more for that step; and where the shards lie does not change between the
// two.
bool PullCalls::may_start(const Request& pull) const {
  const uint64_t before = pull.step - 1;
  const StepWindow& window = pipeline_.window();
  // With staleness only what its owners know already, or hear of by themselves, is left to wait
  // for: their leaders answer one step's pulls after the other's.
  if (window.staleness() > 0) return window.is_current(pull.step);
  if (window.may_start(pull.step)) return true;
  return group_.pulls().early() && pipeline_.state(before).ended_sent &&
         std::all_of(pull.slices.begin(), pull.slices.end(), [&](const PullSlice& slice) {
           const VariableRuntime& runtime = group_.runtime(slice.variable);
           return !runtime.facts.on_device &&
                  runtime.sharded_at(before) == runtime.sharded_at(pull.step);
         });
}

// Of those in host memory, at once.
void PullCalls::read_mirrors(const Request& pull) {
  for (const PullSlice& slice : pull.slices) {
    const VariableRuntime& runtime = group_.runtime(slice.variable);
    if (runtime.plan.placement != Placement::kMirrored) continue;
    read_mirror(runtime, slice, &left_);
  }
}

void PullCalls::start(Request& pull) {
  pull.started = true;
  pull.slice_done.assign(pull.slices.size(), 0);
  --pipeline_.state(pull.step).unstarted;
  start_round(pull);
}

// Of those that are left, the slices that go together.
void PullCalls::start_round(Request& pull) {
  ++round_;
  in_round_.resize(group_.size());  // grows with what was registered, not in a step
  sharded_slices_.clear();
  size_t left = pull.slices.size();
  for (size_t at = pull.slices_done; at < pull.slices.size(); ++at) {
    const PullSlice& slice = pull.slices[at];
    if (pull.slice_done[at] != 0 || !group_.runtime(slice.variable).sharded_at(pull.step)) continue;
    if (!joins_round(slice)) {
      left = std::min(left, at);
      continue;
    }
    pull.slice_done[at] = 1;
    sharded_slices_.push_back(slice);
    sharded_slices_.back().again = came_again(slice);
  }
  pull.slices_done = static_cast<uint32_t>(left);
  if (!sharded_slices_.empty()) group_.pulls().start(pull.step, sharded_slices_);
}

// Of fused tables: in the round.
bool PullCalls::came_again(const PullSlice& slice) {
  if (group_.runtime(slice.variable).variable->fused.empty()) return false;
  // Grows with what was registered, not in a step.
  if (slice.member >= member_rounds_.size()) member_rounds_.resize(slice.member + 1);
  return std::exchange(member_rounds_[slice.member], round_) == round_;
}

bool PullCalls::joins_round(const PullSlice& slice) {
  InRound& there = in_round_[slice.variable];
  if (there.round != round_) {
    there = {
        .round = round_, .rows = slice.count, .dtype = slice.dtype, .on_device = slice.on_device};
    return true;
  }
  if (there.dtype != slice.dtype || there.on_device != slice.on_device) return false;
  const Variable& variable = *group_.runtime(slice.variable).variable;
  if (variable.ids_declared() && there.rows + slice.count > variable.rows_max) return false;
  there.rows += slice.count;
  return true;
}

}  // namespace parallax
