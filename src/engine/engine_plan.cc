// SPDX-License-Identifier: Apache-2.0
// Measuring while running, choosing a plan from it, and moving variables to where it puts them. See
// engine.h.
#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "engine/engine.h"
#include "planner/choice.h"

namespace parallax {

TopologyFacts Engine::topology_facts() const { return {columns_.host_count(), columns_.world()}; }

// ---- measuring

// Which variables a step's votes count: those with ids, in windows that take turns, the same at
// every rank since votes are added up.
void Engine::count_rows(uint64_t step, Vote* vote) {
  const uint32_t total = static_cast<uint32_t>(ids_variables_.size());
  if (settled_ || total == 0) return;
  const uint32_t windows = (total + kCountsPerVote - 1) / kCountsPerVote;
  vote->counts_first = static_cast<uint32_t>((step - 1) % windows) * kCountsPerVote;
  vote->counts_size = std::min(kCountsPerVote, total - vote->counts_first);
  for (uint32_t i = 0; i < vote->counts_size; ++i) {
    const uint32_t variable = ids_variables_[vote->counts_first + i];
    const ExchangeCounts counts = exchange_at(*runtimes_[variable], step).counts(step);
    vote->counts[i] = {counts.touched_rows, counts.union_rows,
                       pull_exchange_.pulled_rows(variable, step)};
  }
}

void Engine::measure(const Vote& vote) {
  if (settled_ || announcing_) return;
  for (uint32_t i = 0; i < vote.counts_size; ++i) {
    const uint32_t index = vote.counts_first + i;
    if (index >= ids_variables_.size()) return;
    Runtime& runtime = *runtimes_[ids_variables_[index]];
    if (vote.counts[i].union_rows == 0) continue;  // not trained in this step: it says nothing
    runtime.touched_sum += static_cast<double>(vote.counts[i].touched);
    runtime.union_sum += static_cast<double>(vote.counts[i].union_rows);
    runtime.pulled_sum += static_cast<double>(vote.counts[i].pulled);
    ++runtime.measured_steps;
  }
  // The plan is made once the most measured variable has its steps: the others have had as many
  // chances.
  uint32_t measured_steps = ids_variables_.empty() ? options_.plan_after_steps : 0;
  for (const uint32_t variable : ids_variables_) {
    measured_steps = std::max(measured_steps, runtimes_[variable]->measured_steps);
  }
  const uint32_t last_window =
      ids_variables_.empty() ? 0
                             : static_cast<uint32_t>(ids_variables_.size() - 1) / kCountsPerVote;
  if (measured_steps < options_.plan_after_steps) return;
  // Only after the last window, so that all windows have had equally many turns.
  if (vote.counts_first / kCountsPerVote != last_window) return;
  const double hosts = columns_.host_count();
  for (const uint32_t variable : ids_variables_) {
    Runtime& runtime = *runtimes_[variable];
    if (runtime.measured_steps == 0) continue;  // never trained: it stays where it is
    const double steps = runtime.measured_steps;
    VariableFacts& facts = runtime.facts;
    facts.measured = true;
    facts.touched_rows_per_host = runtime.touched_sum / steps / hosts;
    facts.union_rows = runtime.union_sum / steps;
    facts.pulled_rows_per_host = runtime.pulled_sum / steps / hosts;
    // Pulls of a mirror are no messages, and not counted. Sharded, it would be pulled about as it
    // is touched.
    if (runtime.plan.placement == Placement::kMirrored) {
      facts.pulled_rows_per_host = facts.touched_rows_per_host;
    }
  }
  settled_plan_ = settled_plan(all_facts(), topology_facts(), options_.plan_mode);
  for (const uint32_t variable : ids_variables_) {
    // Such a variable stays where it is.
    if (runtimes_[variable]->facts.given_dense ||
        !fits_memory(*runtimes_[variable], settled_plan_[variable])) {
      settled_plan_[variable] = runtimes_[variable]->plan;
    }
  }
  announcing_ = true;
}

// Whether this rank may reserve what a new plan of a variable takes, beside all that there is.
// Every rank should have the same limit; one that has less than the root fails the job by name in
// begin_change.
bool Engine::fits_memory(const Runtime& runtime, const VariablePlan& plan) {
  if (options_.memory_max_bytes == 0 || plan == runtime.plan) return true;
  uint64_t bytes = 0;
  for (const auto& each : runtimes_) {
    bytes += each->exchange->arena().reserved_bytes();
    if (each->next_exchange != nullptr) bytes += each->next_exchange->arena().reserved_bytes();
    if (each->next_table != nullptr) bytes += each->next_table->needed_bytes();
    if (each->table != nullptr) bytes += each->table->needed_bytes();
    if (each->table != nullptr && each->table->sharded()) {
      bytes += PullExchange::needed_bytes(columns_, *each->variable, each->partition);
    }
  }
  const uint32_t variable = static_cast<uint32_t>(runtime.variable - variables_.data());
  // It is never reserved: only its size is asked.
  bytes += new_exchange(runtime, variable, plan.method)->needed_bytes();
  if (plan.placement != runtime.plan.placement) {
    const bool sharded = plan.placement == Placement::kSharded;
    bytes += Table(*runtime.variable, runtime.partition, options_.rank, sharded).needed_bytes();
    if (sharded) {
      bytes += PullExchange::needed_bytes(columns_, *runtime.variable, runtime.partition);
    }
  }
  return bytes <= options_.memory_max_bytes;
}

void Engine::add_plan_entries(Decision* decision) {
  if (!announcing_ || settled_) return;
  while (announce_cursor_ < ids_variables_.size() && decision->entry_count < kEntriesPerDecision) {
    const uint32_t variable = ids_variables_[announce_cursor_++];
    const VariableFacts& facts = runtimes_[variable]->facts;
    decision->entries[decision->entry_count++] = {
        variable, settled_plan_[variable], static_cast<float>(facts.touched_rows_per_host),
        static_cast<float>(facts.union_rows), static_cast<float>(facts.pulled_rows_per_host)};
  }
  // A plan with more entries than a decision holds is announced by several.
  decision->settled = announce_cursor_ == ids_variables_.size();
}

// The root's: whether a variable with row ids that got a dense slice becomes dense now. Not while
// it is moving, nor in the decision that may announce its settled plan: it is asked again with the
// next dense slice.
uint32_t Engine::choose_dense(uint32_t variable) {
  if (variable >= runtimes_.size() || (announcing_ && !settled_)) return kNoVariable;
  const Runtime& runtime = *runtimes_[variable];
  if (!runtime.variable->ids_declared() || runtime.change_step != 0 || runtime.facts.given_dense) {
    return kNoVariable;
  }
  VariableFacts facts = runtime.facts;
  facts.given_dense = true;
  const VariablePlan plan = settled_choice(facts, topology_facts(), options_.plan_mode);
  return fits_memory(runtime, plan) ? variable : kNoVariable;
}

Status Engine::make_dense(uint32_t variable, uint64_t effective_step) {
  if (variable == kNoVariable) return {};
  PARALLAX_CHECK(variable < runtimes_.size());
  Runtime& runtime = *runtimes_[variable];
  runtime.facts.given_dense = true;
  const VariablePlan plan = settled_choice(runtime.facts, topology_facts(), options_.plan_mode);
  return plan == runtime.plan ? Status() : begin_change(runtime, plan, effective_step);
}

std::vector<VariableFacts> Engine::all_facts() const {
  std::vector<VariableFacts> facts;
  for (const auto& runtime : runtimes_) facts.push_back(runtime->facts);
  return facts;
}

Plan Engine::plan() const {
  Plan plan;
  for (const auto& runtime : runtimes_) plan.push_back(runtime->plan);
  return plan;
}

// ---- moving

Status Engine::begin_change(Runtime& runtime, const VariablePlan& plan, uint64_t effective_step) {
  const Status begun = lay_out_change(runtime, plan, effective_step);
  if (begun.ok()) return begun;
  return {begun.code(), "plan: moving variable '" + runtime.variable->name + "' of " +
                            rank_name(options_.rank) + ": " + begun.message() +
                            ", or pin the plan"};
}

Status Engine::lay_out_change(Runtime& runtime, const VariablePlan& plan, uint64_t effective_step) {
  PARALLAX_CHECK(runtime.change_step == 0);
  if (!fits_memory(runtime, plan)) {
    return limit("more than its memory_max_bytes of " + std::to_string(options_.memory_max_bytes) +
                 "; give every rank the same limit");
  }
  const uint32_t variable = static_cast<uint32_t>(runtime.variable - variables_.data());
  runtime.next_plan = plan;
  runtime.next_exchange = new_exchange(runtime, variable, plan.method);
  PARALLAX_RETURN_IF_ERROR(runtime.next_exchange->reserve());
  runtime.change_step = effective_step;
  if (plan.placement == runtime.plan.placement) return {};
  const bool sharded = plan.placement == Placement::kSharded;
  runtime.next_table =
      std::make_unique<Table>(*runtime.variable, runtime.partition, options_.rank, sharded);
  PARALLAX_RETURN_IF_ERROR(runtime.next_table->reserve());
  if (sharded) {
    return pull_exchange_.add_variable(variable, *runtime.variable, runtime.partition);
  }
  // From every other owner come the elements of every array, and one section with its count of
  // updates.
  runtime.migrate_left = 0;
  for (uint32_t owner = 0; owner < columns_.world(); ++owner) {
    if (owner == options_.rank || runtime.table->owned_elements(owner, 0) == 0) continue;
    ++runtime.migrate_left;
    for (uint32_t array = 0; array < runtime.table->array_count(); ++array) {
      runtime.migrate_left += runtime.table->owned_elements(owner, array);
    }
  }
  return {};
}

// Sharded to mirrored: every owner sends its shard to every rank. Mirrored to sharded: every owner
// has its shard in its mirror.
void Engine::migrate(Runtime& runtime) {
  if (runtime.next_table == nullptr) return;
  const uint32_t variable = static_cast<uint32_t>(runtime.variable - variables_.data());
  Table& from = *runtime.table;
  Table& to = *runtime.next_table;
  if (to.sharded()) {
    to.take_own_part(from);
    return;
  }
  // This rank owns nothing of it.
  if (from.array(0).empty()) return;
  to.set_updates(from.updates());
  Send send;
  send.header.kind = SectionKind::kMigrate;
  send.header.encoding = Encoding::kDense;
  send.header.tag = variable;
  send.header.step = runtime.change_step;
  send.format.element_bytes = send.format.source_bytes =
      static_cast<uint32_t>(from.element_bytes());
  for (uint32_t array = 0; array < from.array_count(); ++array) {
    send.header.part = static_cast<uint8_t>(array);
    send.dense = from.array(array).data();
    send.count = from.array(array).size() / from.element_bytes();
    PARALLAX_CHECK(to.place_part(array, options_.rank, 0, from.array(array)));
    send_part(runtime, send);
  }
  // The count of updates, which Adam's formula needs: one more section, under the next part.
  send.header.encoding = Encoding::kBytes;
  send.header.part = static_cast<uint8_t>(from.array_count());
  send.header.first = from.updates();
  send.count = 0;
  send_part(runtime, send);
}

void Engine::send_part(Runtime& runtime, Send send) {
  // migrated() waits for it: the sends read a table that the switch frees.
  send.pending = &runtime.migrate_pending;
  for (uint32_t rank = 0; rank < columns_.world(); ++rank) {
    if (rank == options_.rank) continue;
    ++runtime.migrate_pending;
    outbox_.add(rank, send);
  }
}

bool Engine::on_migrate(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (header.tag >= runtimes_.size()) return false;
  Runtime& runtime = *runtimes_[header.tag];
  if (header.step != runtime.change_step || runtime.next_table == nullptr ||
      runtime.next_table->sharded() || runtime.migrate_left == 0) {
    return false;
  }
  Table& to = *runtime.next_table;
  if (header.part == to.array_count()) {  // how often it was updated, the same at every owner
    to.set_updates(header.first);
    --runtime.migrate_left;
    return header.encoding == Encoding::kBytes && header.count == 0;
  }
  // migrate_left bounds how much comes; place_part() checks that it is the sender's to say.
  if (header.part > to.array_count() || header.encoding != Encoding::kDense ||
      header.count > runtime.migrate_left ||
      section.payload.size() != header.count * to.element_bytes() ||
      !to.place_part(header.part, from, header.first, section.payload)) {
    return false;
  }
  runtime.migrate_left -= header.count;
  return true;
}

bool Engine::migrated(Step& step) {
  return std::all_of(runtimes_.begin(), runtimes_.end(), [&step](const auto& runtime) {
    return runtime->change_step != step.step + 1 ||
           (runtime->migrate_left == 0 && runtime->migrate_pending == 0);
  });
}

void Engine::switch_over(Runtime& runtime) {
  const uint32_t variable = static_cast<uint32_t>(runtime.variable - variables_.data());
  PARALLAX_LOG(kInfo, kPlan,
               rank_name(options_.rank) + ": '" + runtime.variable->name + "' goes from " +
                   method_name(runtime.plan.method) + " to " +
                   method_name(runtime.next_plan.method) + " with step " +
                   std::to_string(runtime.change_step));
  runtime.plan = runtime.next_plan;
  // Kept until the next step is finished: sends may still read it.
  runtime.old_exchange = std::move(runtime.exchange);
  runtime.exchange = std::move(runtime.next_exchange);
  runtime.change_step = 0;
  if (runtime.next_table == nullptr) return;
  runtime.table = std::move(runtime.next_table);
  if (runtime.table->sharded()) {
    pull_exchange_.set_table(variable, runtime.table.get());
  } else {
    pull_exchange_.remove_variable(variable);
  }
}

}  // namespace parallax
