// SPDX-License-Identifier: Apache-2.0
// Starting and answering pulls. See pull_calls.h.
#include "engine/pull_calls.h"

#include "group/mirror.h"

namespace parallax {

void PullCalls::reserve() {
  queue_.reserve();
  sharded_slices_.reserve(PARALLAX_SLICES_MAX);
}

void PullCalls::post(Request* request) {
  StepState& state = pipeline_.state(request->step);
  ++state.pulls_left;
  ++state.unstarted;
  queue_.push(request);
}

void PullCalls::advance() {
  PullExchange& exchange = group_.pulls();
  while (!queue_.empty()) {
    Request& pull = queue_.front();
    if (!pipeline_.window().may_start(pull.step)) return;
    if (!pull.started) start(pull);
    if (exchange.active() && !exchange.finished()) return;
    // Mirrors are as of the step before only once that one is applied here.
    if (!pipeline_.window().is_current(pull.step)) return;
    // Fills in padding and duplicates, which did not travel.
    if (exchange.active()) exchange.finish();
    for (const PullSlice& slice : pull.slices) {
      const VariableRuntime& runtime = group_.runtime(slice.variable);
      if (runtime.plan.placement == Placement::kMirrored) read_mirror(runtime, slice);
    }
    --pipeline_.state(pull.step).pulls_left;
    queue_.finish_front({});
  }
}

void PullCalls::start(Request& pull) {
  pull.started = true;
  --pipeline_.state(pull.step).unstarted;
  sharded_slices_.clear();
  for (const PullSlice& slice : pull.slices) {
    if (group_.runtime(slice.variable).sharded_at(pull.step)) sharded_slices_.push_back(slice);
  }
  if (!sharded_slices_.empty()) group_.pulls().start(pull.step, sharded_slices_);
}

}  // namespace parallax
