// SPDX-License-Identifier: Apache-2.0
// The end of a step: ended, voted, decided, applied. See step_pipeline.h.
#include "group/step_pipeline.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace parallax {

void StepPipeline::reserve() {
  for (StepState& state : states_) state.contributed.resize(parts_.group.size());
}

uint64_t StepPipeline::begin() {
  const uint64_t step = window_.begin();
  StepState& begun = state(step);
  // Keeps its memory across the reset: a step allocates nothing.
  std::vector<Contributed> contributed = std::move(begun.contributed);
  std::fill(contributed.begin(), contributed.end(), Contributed::kNothing);
  begun = StepState();
  begun.contributed = std::move(contributed);
  begun.step = step;
  own_time_.begin(step);
  return step;
}

void StepPipeline::end(uint64_t step, const StepEnd& end) {
  window_.end(step);
  state(step).end = end;
}

bool StepPipeline::may_say_ended(uint64_t step) const {
  const StepState& ending = state(step);
  return window_.is_ending(step) && !ending.ended_sent && ending.unstarted == 0 &&
         ending.pulls_left == 0 && window_.may_start(step);
}

void StepPipeline::say_ended(uint64_t step) {
  StepState& ending = state(step);
  if (!contributed(ending)) return;
  ending.ended_sent = true;
  Send send;
  send.header.kind = SectionKind::kStepEnded;
  send.header.step = step;
  send.header.tag = UINT32_MAX;  // of no variable in particular
  const Columns& columns = parts_.group.columns();
  for (uint32_t column = 0; column < columns.count(); ++column) {
    // As data: control would overtake the slices that it speaks of.
    parts_.outbox.add(columns.leader(columns.host(), column), send);
  }
  // Its exchanges ask for it too, leader or not.
  if (!columns.is_leader()) parts_.outbox.add(columns.rank(), send);
}

Status StepPipeline::advance(Finished* finished) {
  if (!window_.is_ending(window_.next_to_vote())) return {};
  StepState& step = state(window_.next_to_vote());
  if (step.ended_sent && !step.voted && reduced(step)) vote(step);
  if (parts_.trees[TreeKind::kVote].take_complete()) pass_votes_on();
  if (step.decided && !step.applying && delivered(step)) apply(step);
  if (!step.applying || step.applies_left > 0) return {};
  // The updates have run. New plans are laid out, variables whose placement changes with the next
  // step are moved, then the step is finished.
  if (!step.migrating) {
    step.migrating = true;
    PARALLAX_RETURN_IF_ERROR(parts_.plan_control.take(step.decision, step.step));
    parts_.migration.move(step.step + 1);
  }
  if (parts_.migration.moved(step.step + 1) && returned(step)) *finished = finish(step);
  return {};
}

// True if all exchanges are `ready` in the step. A cursor stands at the first variable that is not,
// and only moves on. What is asked of a variable serves every cursor that stands there: with many
// variables a look at one is a cache miss or two, so all checks of a step together take about one.
bool StepPipeline::all(StepState& step, uint32_t StepState::*cursor,
                       bool ExchangeState::*ready) const {
  const Group& group = parts_.group;
  uint32_t& at = step.*cursor;
  while (at < group.size()) {
    const uint32_t asked = at;
    const ExchangeState now = group.runtime(asked).exchange_at(step.step).state(step.step);
    if (now.contributed && step.contributed_cursor == asked) ++step.contributed_cursor;
    if (now.reduced && step.reduced_cursor == asked) ++step.reduced_cursor;
    if (now.delivered && step.delivered_cursor == asked) ++step.delivered_cursor;
    if (!(now.*ready)) return false;
  }
  return true;
}

// ---- votes

void StepPipeline::vote(StepState& step) {
  step.voted = true;
  Vote vote;
  fill_vote(step, &vote);
  vote_.merge(vote);
  parts_.trees[TreeKind::kVote].join();
}

void StepPipeline::fill_vote(const StepState& step, Vote* vote) const {
  const Group& group = parts_.group;
  const StepEnd& end = step.end;
  vote->any = true;
  vote->contributors = end.absent ? 0 : 1;
  vote->found_inf = end.found_inf ? 1 : 0;
  vote->scalars = {std::bit_cast<uint32_t>(end.learning_rate),
                   std::bit_cast<uint32_t>(end.clip_norm), group.columns().rank()};
  // One exact sum for each reduction: only the root knows the contributors to divide by.
  if (end.clip_norm > 0) {
    for (const auto& runtime : group.runtimes()) {
      if (!runtime->variable->managed()) continue;
      // Rows that are divided by their own count of ranks are means already: like a sum, they are
      // divided by nothing more.
      const uint32_t kind =
          runtime->variable->counts_ranks() ? uint32_t{PARALLAX_SUM} : runtime->variable->reduction;
      vote->norm_kinds |= 1u << kind;
      add_squared_norm(runtime->exchange_at(step.step).owned(step.step), &vote->norms[kind]);
    }
  }
  const uint32_t dense = step.dense_variable;
  if (dense != kNoVariable && !group.runtime(dense).facts.given_dense) vote->dense_variable = dense;
  vote->pace = PaceVote::of(group.columns().rank(), own_time_.of(step.step));
  parts_.plan_control.count_rows(step.step, vote);
}

bool StepPipeline::merge_vote(std::span<const std::byte> payload) {
  Vote vote;
  if (!decode_vote(payload, &vote)) return false;
  // Added up as they come; this rank's own joins in vote().
  vote_.merge(vote);
  return true;
}

void StepPipeline::pass_votes_on() {
  std::array<std::byte, kVoteBytesMax> bytes;
  const bool root = parts_.trees[TreeKind::kVote].is_root();
  const size_t used = root ? encode_decision(decide(), bytes) : encode_vote(vote_, bytes);
  vote_.clear();
  const auto payload = std::span(bytes).first(used);
  // The root takes its own decision by the same way, through the same checks.
  if (parts_.trees.pass_on(TreeKind::kVote, payload)) PARALLAX_CHECK(take_decision(payload));
}

// ---- the decision

// The root's: everything that ends the step, computed once and sent to all, so that no two ranks
// can come to another scale, rate or plan.
Decision StepPipeline::decide() {
  const uint32_t world = parts_.group.columns().world();
  Decision decision;
  decision.contributors = vote_.contributors;
  decision.learning_rate = std::bit_cast<float>(vote_.scalars.learning_rate_bits);
  const float clip_norm = std::bit_cast<float>(vote_.scalars.clip_norm_bits);
  if (clip_norm > 0) {
    const double contributors = std::max(1u, vote_.contributors);
    const double factors[kReductionKinds] = {1.0, 1.0 / world, 1.0 / contributors};
    double square = 0;
    for (uint32_t kind = 0; kind < kReductionKinds; ++kind) {
      square += factors[kind] * factors[kind] * vote_.norms[kind].value();
    }
    decision.gradient_norm = std::sqrt(square);
    const double scale = clip_norm / (decision.gradient_norm + 1e-6);
    decision.clip_scale = scale > 1 ? 1 : scale;  // NaN stays NaN, as in PyTorch
  }
  decision.outcome = vote_.found_inf > 0 ? Outcome::kDiscard : Outcome::kCommit;
  if (vote_.disagree) {
    decision.outcome = Outcome::kMismatch;
    decision.first = vote_.scalars;
    decision.second = vote_.other;
  }
  parts_.plan_control.decide(vote_, &decision);
  const int64_t now_ns = parts_.clock.now_ns();
  late_window_.add(vote_.pace, world, now_ns - std::exchange(decided_ns_, now_ns));
  decision.late = late_window_.late();
  if (late_window_.news(decision.late, now_ns)) say_late(decision.late);
  return decision;
}

// In the log, once.
void StepPipeline::say_late(const LateRank& late) const {
  PARALLAX_LOG(kWarn, kStep,
               rank_name(parts_.group.columns().map(), late.rank) + " is late: in " +
                   std::to_string(late.steps) + " of the last " +
                   std::to_string(LateWindow::kWindowSteps) + " steps the others waited for it, " +
                   std::to_string(late.late_ms) + " ms a step, most of it before its " +
                   step_phase_name(late.phase) +
                   (late.phase == StepPhase::kPush ? " or reduce" : "") +
                   "; its own program takes so long, not the network: look at its input, and for "
                   "a busy or slow machine");
}

bool StepPipeline::take_decision(std::span<const std::byte> payload) {
  Decision decision;
  if (!decode_decision(payload, &decision) || !parts_.plan_control.fits(decision)) return false;
  StepState& step = state(window_.next_to_vote());
  PARALLAX_CHECK(step.step == window_.next_to_vote() && step.voted && !step.decided);
  step.decided = true;
  step.decision = decision;
  if (decision.late.rank < parts_.group.columns().world()) late_ = decision.late;
  window_.decide();
  parts_.group.pulls().decided(window_.decided());
  return true;
}

// ---- updates

void StepPipeline::apply(StepState& step) {
  step.applying = true;
  // A discarded step goes on all the same: its plan entries hold, its buffers are handed on.
  if (step.decision.outcome != Outcome::kCommit) return;
  const double contributors = std::max(1u, step.decision.contributors);
  const double factors[kReductionKinds] = {1.0, 1.0 / parts_.group.columns().world(),
                                           1.0 / contributors};
  for (const auto& runtime : parts_.group.runtimes()) {
    const Variable& variable = *runtime->variable;
    if (!variable.managed()) continue;
    const Exchange& exchange = runtime->exchange_at(step.step);
    runtime->gradient =
        runtime->table->sharded() ? exchange.owned(step.step) : exchange.whole(step.step);
    if (!runtime->gradient.has_values && !runtime->gradient.contributed) continue;
    // Rows that count their ranks are divided one by one, in the table.
    submit_apply(step, *runtime, variable.counts_ranks() ? 1.0 : factors[variable.reduction]);
  }
}

void StepPipeline::submit_apply(StepState& step, VariableRuntime& runtime, double mean) {
  const Variable& variable = *runtime.variable;
  runtime.arguments = {.rule = variable.rule,
                       .learning_rate = step.decision.learning_rate,
                       .scale = mean * step.decision.clip_scale,
                       .epsilon = variable.epsilon,
                       .beta1 = variable.beta1,
                       .beta2 = variable.beta2,
                       .momentum = variable.momentum,
                       .nesterov = variable.nesterov};
  const ReducedGradient& gradient = runtime.gradient;
  runtime.applies_left = &step.applies_left;
  runtime.apply_job.context = &runtime;
  runtime.apply_job.cost_bytes =
      runtime.table->element_bytes() *
      (gradient.rows ? gradient.row_count * variable.row_elements : gradient.count);
  runtime.apply_job.run = [](ComputeJob& job) {
    VariableRuntime& applying = *static_cast<VariableRuntime*>(job.context);
    applying.table->apply(applying.gradient, applying.arguments);
  };
  runtime.apply_job.done = [](ComputeJob& job) {
    --*static_cast<VariableRuntime*>(job.context)->applies_left;
  };
  ++step.applies_left;
  parts_.compute.submit(runtime.apply_job);
}

// True if no send is left that reads memory which the end of the step hands on to step + 2, or
// frees. Peers that keep to the protocol took all of it before the step was decided, except what
// other variables have under way. One that takes nothing, and goes on all the same, is waited for,
// until the deadline of the request.
bool StepPipeline::returned(const StepState& step) const {
  if (step.sums_pending != 0 || step.contributions_open != 0) return false;
  return !parts_.migration.frees_memory(step.step + 1) || parts_.outbox.peers_with_data().empty();
}

StepPipeline::Finished StepPipeline::finish(StepState& step) {
  Group& group = parts_.group;
  // All that the exchanges of an older plan had to send was sent: see returned().
  const bool plan_changed = parts_.migration.switch_over(step.step + 1);
  window_.finish();
  PARALLAX_LOG(kTrace, kStep,
               group.name() + ": step " + std::to_string(step.step) + " is decided and applied");
  for (const auto& runtime : group.runtimes()) {
    // Early enough: peers send for that step once the next one is decided, which takes our vote.
    runtime->exchange_at(window_.opens()).open(window_.opens());
  }
  own_time_.open(window_.next_to_vote(), parts_.clock.now_ns());
  group.pulls().open(window_.opens());
  // After the switch of tables: it answers pulls that were held back, out of the new ones.
  group.pulls().applied(window_.finished());
  return {.step = step.step, .plan_changed = plan_changed};
}

}  // namespace parallax
