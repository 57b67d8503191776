// SPDX-License-Identifier: Apache-2.0
// Measuring while running, and choosing a plan from it. See plan_control.h.
#include "group/plan_control.h"

#include <algorithm>

#include "collectives/schedule_cost.h"
#include "group/algorithm_costs.h"
#include "planner/choice.h"
#include "planner/cost.h"

namespace parallax {

std::vector<VariableFacts> PlanControl::facts() const {
  std::vector<VariableFacts> all = group_.facts();
  AlgorithmChoice& algorithms = group_.algorithms();
  ScheduleCosts costs(group_.columns().map());
  for (const auto& runtime : group_.runtimes()) {
    VariableFacts& facts = all[runtime->id];
    const bool rows = runtime->variable->ids_declared();
    const Method to_all = rows ? Method::kMadeDense : Method::kAllreduce;
    DenseShape shape = dense_shape_of(group_, *runtime, to_all);
    shape.of_hosts = rows;
    const auto& timed = algorithms.alternatives(shape, runtime->variable->sum_type());
    for (const AlgorithmChoice::Timed& each : timed) {
      if (each.chosen) {
        facts.to_all =
            costs.of(*each.algorithm, runtime->gradient_partition(to_all), facts.element_bytes,
                     {.ordered = group_.sums_in_order(to_all), .of_hosts = rows});
      }
      if (timed.size() == 1) continue;
      facts.timed.push_back({.name = each.algorithm->name,
                             .microseconds = static_cast<double>(each.picoseconds) / 1e6,
                             .chosen = each.chosen});
    }
    if (rows || !facts.managed) continue;
    facts.to_owners = costs.of(
        direct_algorithm(), runtime->gradient_partition(Method::kPushPull), facts.element_bytes,
        {.ordered = group_.sums_in_order(Method::kPushPull), .returned = false});
  }
  return all;
}

void PlanControl::add_variables(uint64_t finished) {
  if (options_.fixed || end_ == group_.with_ids().size()) return;
  // Before the first step nothing is measured yet; and of a settled plan nothing any more.
  if (settled_ || finished == 0) measure_from(finished + 1);
}

void PlanControl::measure_from(uint64_t step) {
  settled_ = false;
  if (any_measured_) first_ = end_;
  any_measured_ = false;
  end_ = group_.with_ids().size();
  first_step_ = step;
  measured_.clear();
  steps_counted_ = 0;
  announcing_ = false;
  announce_cursor_ = 0;
}

// Which variables a step's votes count: those that are measured, in windows that take turns, the
// same at every rank since votes are added up.
void PlanControl::count_rows(uint64_t step, Vote* vote) const {
  const auto total = static_cast<uint32_t>(measuring().size());
  if (settled_ || total == 0) return;
  const uint32_t windows = (total + kCountsPerVote - 1) / kCountsPerVote;
  vote->counts_first = static_cast<uint32_t>((step - first_step_) % windows) * kCountsPerVote;
  vote->counts_size = std::min(kCountsPerVote, total - vote->counts_first);
  for (uint32_t i = 0; i < vote->counts_size; ++i) {
    const uint32_t variable = measuring()[vote->counts_first + i];
    const ExchangeCounts counts = group_.runtime(variable).exchange_at(step).counts(step);
    // With one host the parties that the planner counts are its ranks.
    const bool one_host = group_.columns().host_count() == 1;
    vote->counts[i] = {one_host ? counts.given_rows : counts.touched_rows, counts.union_rows,
                       group_.pulls().pulled_rows(variable, step)};
  }
}

void PlanControl::decide(const Vote& votes, Decision* decision) {
  measure(votes);
  decision->dense_variable = choose_dense(votes.dense_variable);
  add_entries(decision);
}

void PlanControl::measure(const Vote& votes) {
  if (settled_ || announcing_) return;
  ++steps_counted_;
  measured_.resize(measuring().size());
  for (uint32_t i = 0; i < votes.counts_size; ++i) {
    const uint32_t place = votes.counts_first + i;
    if (place >= measured_.size()) return;
    if (votes.counts[i].union_rows == 0) continue;  // not trained in this step: it says nothing
    Measured& measured = measured_[place];
    measured.touched += static_cast<double>(votes.counts[i].touched);
    measured.union_rows += static_cast<double>(votes.counts[i].union_rows);
    measured.pulled += static_cast<double>(votes.counts[i].pulled);
    ++measured.steps;
  }
  if (measured_enough(votes)) settle();
}

// Once the most measured variable has its steps: the others have had as many chances.
bool PlanControl::measured_enough(const Vote& votes) const {
  if (most_steps() < options_.after_steps && !waited_enough()) return false;
  // Only after the last window, so that all windows have had equally many turns.
  return votes.counts_first / kCountsPerVote == last_window();
}

// Of nothing all is measured.
uint32_t PlanControl::most_steps() const {
  uint32_t steps = measured_.empty() ? options_.after_steps : 0;
  for (const Measured& measured : measured_) steps = std::max(steps, measured.steps);
  return steps;
}

uint32_t PlanControl::last_window() const {
  return measured_.empty() ? 0 : static_cast<uint32_t>(measured_.size() - 1) / kCountsPerVote;
}

// Others wait, and these may never be trained.
bool PlanControl::waited_enough() const {
  return end_ < group_.with_ids().size() &&
         steps_counted_ >= kChancesMax * options_.after_steps * (last_window() + 1);
}

void PlanControl::settle() {
  const double parties = cost::counted_parties(group_.topology());
  const uint32_t most = most_steps();
  for (size_t place = 0; place < measured_.size(); ++place) {
    const Measured& measured = measured_[place];
    // Never trained: it stays where it is. One that was let go after a few steps too, and is
    // measured again with those that waited.
    if (measured.steps == 0 || most < options_.after_steps) continue;
    VariableRuntime& runtime = group_.runtime(measuring()[place]);
    const double steps = measured.steps;
    VariableFacts& facts = runtime.facts;
    facts.measured = true;
    facts.touched_rows_per_host = measured.touched / steps / parties;
    facts.union_rows = measured.union_rows / steps;
    // Leaders ask for what their ranks want together: with one host that stands for each rank's.
    // Else what they ask other hosts for was counted, which own what one host does not.
    const double hosts = group_.columns().host_count();
    const double others = hosts > 1 ? (hosts - 1) / hosts : 1;
    facts.pulled_rows_per_host = measured.pulled / steps / hosts / others;
    // Pulls of a mirror are no messages, and not counted. Sharded, it would be pulled about as it
    // is touched.
    if (runtime.plan.placement == Placement::kMirrored) {
      facts.pulled_rows_per_host = facts.touched_rows_per_host;
    }
  }
  choose_codings(group_);
  settled_plan_ = settled_plan(facts(), group_.topology(), options_.mode);
  for (const uint32_t variable : measuring()) {
    const VariableRuntime& runtime = group_.runtime(variable);
    // Such a variable stays where it is.
    if (runtime.facts.given_dense || !group_.fits_memory(runtime, settled_plan_[variable])) {
      settled_plan_[variable] = runtime.plan;
    }
  }
  announcing_ = true;
}

void PlanControl::add_entries(Decision* decision) {
  if (!announcing_ || settled_) return;
  const std::span<const uint32_t> variables = measuring();
  while (announce_cursor_ < variables.size() && decision->entry_count < kEntriesPerDecision) {
    const uint32_t variable = variables[announce_cursor_++];
    const VariableFacts& facts = group_.runtime(variable).facts;
    decision->entries[decision->entry_count++] = {
        variable, settled_plan_[variable], static_cast<float>(facts.touched_rows_per_host),
        static_cast<float>(facts.union_rows), static_cast<float>(facts.pulled_rows_per_host)};
  }
  // A plan with more entries than a decision holds is announced by several.
  decision->settled = announce_cursor_ == variables.size();
}

// Whether a variable with row ids that got a dense slice becomes dense now. Not while it is moving,
// nor in the decision that may announce its settled plan: it is asked again with the next dense
// slice.
uint32_t PlanControl::choose_dense(uint32_t variable) const {
  if (options_.fixed || variable >= group_.size() || (announcing_ && !settled_)) return kNoVariable;
  const VariableRuntime& runtime = group_.runtime(variable);
  if (!runtime.variable->ids_declared() || runtime.change.step != 0 || runtime.facts.given_dense) {
    return kNoVariable;
  }
  VariableFacts dense = facts()[variable];
  dense.given_dense = true;
  const VariablePlan plan = settled_choice(dense, group_.topology(), options_.mode);
  return group_.fits_memory(runtime, plan) ? variable : kNoVariable;
}

// What a plan that is announced may make of a variable. Who got a dense slice meanwhile passes the
// entry over, and who cannot move for want of memory is told what it is.
bool PlanControl::may_become(const VariableRuntime& runtime, const VariablePlan& plan) const {
  if (plan == runtime.plan || runtime.facts.given_dense) return true;
  if (runtime.facts.on_device && plan.placement != runtime.plan.placement) return false;
  return pin_allows(plan, runtime.facts, options_.mode);
}

bool PlanControl::fits(const Decision& decision) const {
  const auto has_ids = [this](uint32_t variable) {
    return variable < group_.size() && group_.runtime(variable).variable->ids_declared();
  };
  const uint32_t dense = decision.dense_variable;
  if (options_.fixed && (dense != kNoVariable || decision.entry_count != 0)) return false;
  if (dense != kNoVariable &&
      (!has_ids(dense) || decision.entry_count != 0 || group_.runtime(dense).change.step != 0)) {
    return false;
  }
  for (uint32_t i = 0; i < decision.entry_count; ++i) {
    const PlanEntry& entry = decision.entries[i];
    const bool numbers = entry.touched_rows_per_host >= 0 && entry.union_rows >= 0 &&
                         entry.pulled_rows_per_host >= 0;
    if (!has_ids(entry.variable) || !numbers) return false;
    const VariableRuntime& runtime = group_.runtime(entry.variable);
    const std::vector<VariablePlan> plans = fitting_plans(runtime.facts);
    if (std::find(plans.begin(), plans.end(), entry.plan) == plans.end()) return false;
    if (!may_become(runtime, entry.plan)) return false;
    // An entry of a variable that was made dense meanwhile is passed over when it is taken.
    if (runtime.change.step != 0 && !runtime.facts.given_dense) return false;
  }
  return true;
}

Status PlanControl::take(const Decision& decision, uint64_t step) {
  settled_ = settled_ || decision.settled;
  for (uint32_t i = 0; i < decision.entry_count; ++i) {
    const PlanEntry& entry = decision.entries[i];
    VariableRuntime& runtime = group_.runtime(entry.variable);
    any_measured_ = any_measured_ || entry.union_rows > 0;
    runtime.facts.measured = entry.union_rows > 0;
    runtime.facts.touched_rows_per_host = entry.touched_rows_per_host;
    runtime.facts.union_rows = entry.union_rows;
    runtime.facts.pulled_rows_per_host = entry.pulled_rows_per_host;
    if (entry.plan == runtime.plan || runtime.facts.given_dense) continue;
    PARALLAX_RETURN_IF_ERROR(migration_.begin(runtime, entry.plan, step + 2));
  }
  if (decision.entry_count > 0) choose_codings(group_);
  // The next step is the first that counts what a commit has added meanwhile.
  if (decision.settled && end_ < group_.with_ids().size()) measure_from(step + 1);
  if (decision.dense_variable == kNoVariable) return {};
  VariableRuntime& runtime = group_.runtime(decision.dense_variable);
  runtime.facts.given_dense = true;
  const VariablePlan plan = settled_choice(runtime.facts, group_.topology(), options_.mode);
  return plan == runtime.plan ? Status() : migration_.begin(runtime, plan, step + 2);
}

}  // namespace parallax
