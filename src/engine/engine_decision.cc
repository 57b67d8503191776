// SPDX-License-Identifier: Apache-2.0
// The request of step_end, from the last slice of the step on. See engine.h and
// group/step_pipeline.h.
#include <bit>
#include <iomanip>
#include <limits>
#include <sstream>

#include "engine/engine.h"

namespace parallax {

namespace {

std::string said(const StepScalars& scalars) {
  std::ostringstream text;  // all digits that tell floats apart
  text << std::setprecision(std::numeric_limits<float>::max_digits10) << "rank " << scalars.rank
       << " has learning_rate " << std::bit_cast<float>(scalars.learning_rate_bits)
       << " and clip_norm " << std::bit_cast<float>(scalars.clip_norm_bits);
  return text.str();
}

}  // namespace

void Engine::advance_step_end() {
  const StepWindow& window = pipeline_.window();
  for (uint64_t step = window.next_to_vote(); window.is_ending(step); ++step) {
    if (!pipeline_.may_say_ended(step)) continue;
    contribution_calls_.end(step);
    pipeline_.say_ended(step);
  }
  StepPipeline::Finished finished;
  const Status status = pipeline_.advance(&finished);
  if (!status.ok()) return failure_.abort(status);
  if (finished.step != 0) finish_step_end(finished);
}

void Engine::finish_step_end(const StepPipeline::Finished& finished) {
  const Decision& decision = pipeline_.state(finished.step).decision;
  Request* end = std::exchange(step_ends_[StepWindow::slot(finished.step)], nullptr);
  end->info = {.size = sizeof end->info,
               .step = finished.step,
               .committed = decision.outcome == Outcome::kCommit ? 1u : 0u,
               .contributors = decision.contributors,
               .gradient_norm = decision.gradient_norm,
               .clip_scale = decision.clip_scale,
               .plan_changed = finished.plan_changed ? 1u : 0u,
               .reserved = 0};
  if (decision.outcome != Outcome::kMismatch) return requests_.finish(end, {});
  requests_.finish(end, {PARALLAX_MISMATCH, "step_end: step " + std::to_string(finished.step) +
                                                " was discarded: " + said(decision.first) + ", " +
                                                said(decision.second)});
}

}  // namespace parallax
