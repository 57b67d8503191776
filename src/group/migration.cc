// SPDX-License-Identifier: Apache-2.0
// Moving variables to where a new plan puts them. See migration.h.
#include "group/migration.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"

namespace parallax {

Status Migration::begin(VariableRuntime& runtime, const VariablePlan& plan, uint64_t step) {
  const Status begun = lay_out(runtime, plan, step);
  if (begun.ok()) return begun;
  return {begun.code(), "plan: moving variable '" + runtime.variable->name + "' of " +
                            group_.name() + ": " + begun.message() + ", or pin the plan"};
}

Status Migration::lay_out(VariableRuntime& runtime, const VariablePlan& plan, uint64_t step) {
  VariableRuntime::Change& change = runtime.change;
  PARALLAX_CHECK(change.step == 0);
  // Every rank should have the same limit; one that has less than the root ends here.
  if (!group_.fits_memory(runtime, plan)) {
    return limit("more than its memory_max_bytes of " + std::to_string(group_.memory_max_bytes()) +
                 "; give every rank the same limit");
  }
  change.plan = plan;
  change.exchange = group_.new_exchange(runtime, plan.method);
  PARALLAX_RETURN_IF_ERROR(change.exchange->reserve());
  change.step = step;
  if (plan.placement == runtime.plan.placement) return {};
  // Refused with the decision (PlanControl::fits()).
  if (runtime.facts.on_device) return internal("its table lies on a device, and stays there");
  const Columns& columns = group_.columns();
  const bool sharded = plan.placement == Placement::kSharded;
  change.table =
      std::make_unique<Table>(*runtime.variable, runtime.partition, columns.rank(), sharded);
  PARALLAX_RETURN_IF_ERROR(group_.table_memory().reserve(*change.table));
  if (sharded) {
    return group_.pulls().add_variable(runtime.id, *runtime.variable, runtime.partition,
                                       &runtime.codings);
  }
  // From every other owner come the elements of every array, and its counts of updates.
  change.elements_to_come = 0;
  const size_t counts = runtime.table->updates().all().size();
  for (uint32_t owner = 0; owner < columns.world(); ++owner) {
    if (owner == columns.rank() || runtime.table->owned_elements(owner, 0) == 0) continue;
    change.elements_to_come += counts;
    for (uint32_t array = 0; array < runtime.table->array_count(); ++array) {
      change.elements_to_come += runtime.table->owned_elements(owner, array);
    }
  }
  return {};
}

void Migration::move(uint64_t step) {
  for (const auto& runtime : group_.runtimes()) {
    const VariableRuntime::Change& change = runtime->change;
    if (change.step != step || change.table == nullptr) continue;
    if (change.table->sharded()) {
      change.table->take_own_part(*runtime->table);
    } else if (!runtime->table->array(0).empty()) {  // else this rank owns nothing of it
      send_shard(*runtime);
    }
  }
}

void Migration::send_shard(VariableRuntime& runtime) {
  Table& from = *runtime.table;
  Table& to = *runtime.change.table;
  const std::span<const uint64_t> counts = from.updates().all();
  PARALLAX_CHECK(to.updates().place(0, std::as_bytes(counts)));
  Send send;
  send.header.kind = SectionKind::kMigrate;
  send.header.encoding = Encoding::kDense;
  send.header.tag = runtime.id;
  send.header.step = runtime.change.step;
  for (uint32_t array = 0; array < from.array_count(); ++array) {
    send.header.part = static_cast<uint8_t>(array);
    send.format.element_bytes = send.format.source_bytes = bytes_of_dtype(from.dtype(array));
    send.dense = from.array(array).data();
    send.count = from.array(array).size() / bytes_of_dtype(from.dtype(array));
    PARALLAX_CHECK(to.place_part(array, group_.columns().rank(), 0, from.array(array)));
    send_to_all(runtime, send);
  }
  // The counts of updates, which Adam's formula needs, under the next part.
  send.header.part = static_cast<uint8_t>(from.array_count());
  send.format.element_bytes = send.format.source_bytes = sizeof counts[0];
  send.dense = reinterpret_cast<const std::byte*>(counts.data());
  send.count = counts.size();
  send_to_all(runtime, send);
}

void Migration::send_to_all(VariableRuntime& runtime, Send send) {
  // moved() waits for it: the sends read a table that the switch frees.
  send.pending = &runtime.change.sends_to_be_packed;
  for (uint32_t rank = 0; rank < group_.columns().world(); ++rank) {
    if (rank == group_.columns().rank()) continue;
    ++runtime.change.sends_to_be_packed;
    outbox_.add(rank, send);
  }
}

bool Migration::on_section(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (header.tag >= group_.size()) return false;
  VariableRuntime::Change& change = group_.runtime(header.tag).change;
  if (header.step != change.step || change.table == nullptr || change.table->sharded() ||
      change.elements_to_come == 0) {
    return false;
  }
  Table& to = *change.table;
  // How often it was updated, which is the same at every owner.
  const bool counts = header.part == to.array_count();
  // elements_to_come bounds how much comes; place_part() checks that it is the sender's to say.
  if (header.part > to.array_count() || header.encoding != Encoding::kDense ||
      header.count > change.elements_to_come ||
      section.payload.size() !=
          header.count * (counts ? sizeof(uint64_t) : bytes_of_dtype(to.dtype(header.part))) ||
      !(counts ? to.updates().place(header.first, section.payload)
               : to.place_part(header.part, from, header.first, section.payload))) {
    return false;
  }
  change.elements_to_come -= header.count;
  return true;
}

bool Migration::moved(uint64_t step) const {
  const auto& runtimes = group_.runtimes();
  return std::all_of(runtimes.begin(), runtimes.end(), [step](const auto& runtime) {
    const VariableRuntime::Change& change = runtime->change;
    return change.step != step || (change.elements_to_come == 0 && change.sends_to_be_packed == 0);
  });
}

bool Migration::frees_memory(uint64_t step) const {
  const auto& runtimes = group_.runtimes();
  return std::any_of(runtimes.begin(), runtimes.end(), [step](const auto& runtime) {
    return runtime->old_exchange != nullptr || runtime->change.step == step;
  });
}

bool Migration::switch_over(uint64_t step) {
  bool changed = false;
  for (const auto& runtime : group_.runtimes()) {
    runtime->old_exchange.reset();
    if (runtime->change.step != step) continue;
    switch_over(*runtime);
    changed = true;
  }
  return changed;
}

void Migration::switch_over(VariableRuntime& runtime) {
  VariableRuntime::Change& change = runtime.change;
  PARALLAX_LOG(kInfo, kPlan,
               group_.name() + ": '" + runtime.variable->name + "' goes from " +
                   method_name(runtime.plan.method) + " to " + method_name(change.plan.method) +
                   " with step " + std::to_string(change.step));
  runtime.plan = change.plan;
  // Kept until the next step is finished: sends may still read it.
  runtime.old_exchange = std::move(runtime.exchange);
  runtime.exchange = std::move(change.exchange);
  change.step = 0;
  if (change.table == nullptr) return;
  // Its readers have what they asked of it: they have voted since.
  group_.table_memory().unshare(*runtime.table);
  runtime.table = std::move(change.table);
  if (runtime.table->sharded()) {
    group_.pulls().set_table(runtime.id, runtime.table.get());
  } else {
    group_.pulls().remove_variable(runtime.id);
  }
}

}  // namespace parallax
