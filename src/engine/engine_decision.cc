// SPDX-License-Identifier: Apache-2.0
// The end of a step: ended, voted, decided, applied. See engine.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

#include "base/check.h"
#include "base/log.h"
#include "engine/engine.h"

namespace parallax {

void Engine::advance_step_end() {
  // Two steps may be ending at a time: the next one may end while this one is being decided.
  for (uint64_t t = window_.next_to_vote(); window_.is_ending(t); ++t) {
    Step& step = step_state(t);
    // kStepEnded tells the leaders that no slice and no pull of this rank is still to come.
    const bool all_here = step.unstarted == 0 && step.pulls_left == 0 && window_.may_start(t);
    if (step.ended_sent || !all_here) continue;
    contribute_parts(step);
    if (all_contributed(step)) send_ended(step);
  }
  if (!window_.is_ending(window_.next_to_vote())) return;
  Step& step = step_state(window_.next_to_vote());
  TreeSync& tree = trees_[TreeKind::kVote];
  if (step.ended_sent && !step.voted && all_reduced(step)) {
    step.voted = true;
    Vote vote;
    fill_vote(step, &vote);
    vote_.merge(vote);
    tree.join();
  }
  if (tree.take_complete()) {
    std::array<std::byte, kVoteBytesMax> bytes;
    const size_t used =
        tree.is_root() ? encode_decision(decide(), bytes) : encode_vote(vote_, bytes);
    vote_.clear();
    const auto payload = std::span(bytes).first(used);
    // The root takes its own decision by the same way, through the same checks.
    if (trees_.pass_on(TreeKind::kVote, payload)) {
      PARALLAX_CHECK(on_answer(TreeKind::kVote, payload));
    }
  }
  if (step.decided && !step.applying && all_delivered(step)) apply(step);
  if (step.applying && step.applies_left == 0) applied(step);
}

// A cursor stands at the first variable that is not ready and only moves on, so that all checks of
// a step together look at each variable about once.

bool Engine::all_contributed(Step& step) {
  while (
      step.contributed_cursor < group_.size() &&
      group_.runtime(step.contributed_cursor).exchange_at(step.step).state(step.step).contributed) {
    ++step.contributed_cursor;
  }
  return step.contributed_cursor == group_.size();
}

bool Engine::all_reduced(Step& step) {
  while (step.reduced_cursor < group_.size() &&
         group_.runtime(step.reduced_cursor).exchange_at(step.step).state(step.step).reduced) {
    ++step.reduced_cursor;
  }
  return step.reduced_cursor == group_.size();
}

bool Engine::all_delivered(Step& step) {
  while (step.delivered_cursor < group_.size() &&
         group_.runtime(step.delivered_cursor).exchange_at(step.step).state(step.step).delivered) {
    ++step.delivered_cursor;
  }
  return step.delivered_cursor == group_.size();
}

void Engine::send_ended(Step& step) {
  step.ended_sent = true;
  Send send;
  send.header.kind = SectionKind::kStepEnded;
  send.header.step = step.step;
  send.header.tag = UINT32_MAX;  // of no variable in particular
  for (uint32_t column = 0; column < group_.columns().count(); ++column) {
    // As data: control would overtake the slices that it speaks of.
    outbox_.add(group_.columns().leader(group_.columns().host(), column), send);
  }
}

void Engine::fill_vote(const Step& step, Vote* vote) {
  const Request& end = *step.end;
  vote->any = true;
  vote->contributors = end.absent ? 0 : 1;
  vote->found_inf = end.found_inf ? 1 : 0;
  vote->scalars = {std::bit_cast<uint32_t>(end.learning_rate),
                   std::bit_cast<uint32_t>(end.clip_norm), options_.rank};
  // One exact sum for each reduction: only the root knows the contributors to divide by.
  if (end.clip_norm > 0) {
    for (const auto& runtime : group_.runtimes()) {
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
  if (dense != kNoVariable && !group_.runtime(dense).facts.given_dense)
    vote->dense_variable = dense;
  vote->pace = PaceVote::of(options_.rank, own_time_.of(step.step));
  plan_control_.count_rows(step.step, vote);
}

// The root's: everything that ends the step, computed once and sent to all, so that no two ranks
// can come to another scale, rate or plan.
Decision Engine::decide() {
  Decision decision;
  decision.contributors = vote_.contributors;
  decision.learning_rate = std::bit_cast<float>(vote_.scalars.learning_rate_bits);
  const float clip_norm = std::bit_cast<float>(vote_.scalars.clip_norm_bits);
  if (clip_norm > 0) {
    const double contributors = std::max(1u, vote_.contributors);
    const double factors[kReductionKinds] = {1.0, 1.0 / group_.columns().world(),
                                             1.0 / contributors};
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
  plan_control_.decide(vote_, &decision);
  const int64_t now_ns = clock_.now_ns();
  late_window_.add(vote_.pace, group_.columns().world(),
                   now_ns - std::exchange(root_decided_ns_, now_ns));
  decision.late = late_window_.late();
  if (late_window_.news(decision.late, now_ns)) say_late(decision.late);
  return decision;
}

void Engine::on_decision(const Decision& decision) {
  Step& step = step_state(window_.next_to_vote());
  PARALLAX_CHECK(step.step == window_.next_to_vote() && step.voted && !step.decided);
  step.decided = true;
  step.decision = decision;
  if (decision.late.rank < group_.columns().world()) late_ = decision.late;
  window_.decide();
}

void Engine::apply(Step& step) {
  step.applying = true;
  // A discarded step goes on to applied() too: its plan entries hold, its buffers are handed on.
  if (step.decision.outcome != Outcome::kCommit) return;
  const double contributors = std::max(1u, step.decision.contributors);
  const double factors[kReductionKinds] = {1.0, 1.0 / group_.columns().world(), 1.0 / contributors};
  for (const auto& each : group_.runtimes()) {
    Runtime& runtime = *each;
    const Variable& variable = *runtime.variable;
    if (!variable.managed()) continue;
    const Exchange& exchange = runtime.exchange_at(step.step);
    runtime.gradient =
        runtime.table->sharded() ? exchange.owned(step.step) : exchange.whole(step.step);
    if (!runtime.gradient.has_values && !runtime.gradient.contributed) continue;
    // Rows that count their ranks are divided one by one, in the table.
    const double mean = variable.counts_ranks() ? 1.0 : factors[variable.reduction];
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
      Runtime& applying = *static_cast<Runtime*>(job.context);
      applying.table->apply(applying.gradient, applying.arguments);
    };
    runtime.apply_job.done = [](ComputeJob& job) {
      --*static_cast<Runtime*>(job.context)->applies_left;
    };
    ++step.applies_left;
    compute_.submit(runtime.apply_job);
  }
}

// The updates have run. New plans are laid out, variables whose placement changes with the next
// step are moved, then the step is finished.
void Engine::applied(Step& step) {
  if (!step.migrating) {
    step.migrating = true;
    const Status taken = plan_control_.take(step.decision, step.step);
    if (!taken.ok()) return fail(taken, SectionKind::kAbort, options_.rank);
    migration_.move(step.step + 1);
  }
  if (migration_.moved(step.step + 1) && returned(step)) finish_step(step);
}

// True if no send is left that reads memory which the end of the step hands on to step + 2, or
// frees. Peers that keep to the protocol took all of it before the step was decided, except what
// other variables have under way. One that takes nothing, and goes on all the same, is waited for,
// until the deadline of the request.
bool Engine::returned(const Step& step) const {
  if (step.sums_pending != 0) return false;
  for (const Request* request : active_) {
    const bool gave = request->kind == RequestKind::kPush || request->kind == RequestKind::kReduce;
    if (gave && request->step == step.step && request->pending != 0) return false;
  }
  return !migration_.frees_memory(step.step + 1) || outbox_.peers_with_data().empty();
}

void Engine::finish_step(Step& step) {
  // All that the exchanges of an older plan had to send was sent: see returned().
  const bool plan_changed = migration_.switch_over(step.step + 1);
  window_.finish();
  PARALLAX_LOG(kTrace, kStep,
               rank_name(options_.hosts, options_.rank) + ": step " + std::to_string(step.step) +
                   " is decided and applied");
  for (const auto& runtime : group_.runtimes()) {
    // Early enough: peers send for that step once the next one is decided, which takes our vote.
    runtime->exchange_at(window_.opens()).open(window_.opens());
  }
  own_time_.open(window_.next_to_vote(), clock_.now_ns());
  group_.pulls().open(window_.opens());
  // After the switch of tables: it answers pulls that were held back, out of the new ones.
  group_.pulls().applied(window_.finished());
  const Decision& decision = step.decision;
  Request& end = *std::exchange(step.end, nullptr);
  end.info = {.size = sizeof end.info,
              .step = step.step,
              .committed = decision.outcome == Outcome::kCommit ? 1u : 0u,
              .contributors = decision.contributors,
              .gradient_norm = decision.gradient_norm,
              .clip_scale = decision.clip_scale,
              .plan_changed = plan_changed ? 1u : 0u,
              .reserved = 0};
  if (decision.outcome != Outcome::kMismatch) {
    requests_.finish(&end, {});
    return;
  }
  const auto said = [](const StepScalars& scalars) {
    std::ostringstream text;  // all digits that tell floats apart
    text << std::setprecision(std::numeric_limits<float>::max_digits10) << "rank " << scalars.rank
         << " has learning_rate " << std::bit_cast<float>(scalars.learning_rate_bits)
         << " and clip_norm " << std::bit_cast<float>(scalars.clip_norm_bits);
    return text.str();
  };
  requests_.finish(&end, {PARALLAX_MISMATCH, "step_end: step " + std::to_string(step.step) +
                                                 " was discarded: " + said(decision.first) + ", " +
                                                 said(decision.second)});
}

}  // namespace parallax
