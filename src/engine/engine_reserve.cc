// SPDX-License-Identifier: Apache-2.0
// What commit reserves for the variables, within the limits of the options. See engine.h.
#include <algorithm>

#include "base/log.h"
#include "engine/engine.h"

namespace parallax {

std::unique_ptr<Exchange> Engine::new_exchange(const Runtime& runtime, uint32_t variable,
                                               Method method) {
  // With allgatherv every host sums the gathered rows by itself: in one order, else replicas would
  // drift apart.
  const bool ordered = options_.deterministic || method == Method::kAllgatherv;
  return make_exchange(columns_, runtime.gradient_partition, outbox_, compute_,
                       {.variable = variable,
                        .method = method,
                        .rows_max = runtime.variable->rows_max,
                        .ordered = ordered,
                        .sum = runtime.variable->sum_type(),
                        .counted = runtime.variable->counts_ranks()});
}

// A row is never cut: with its headers it must fit one message.
Status Engine::check_row_bytes(const Variable& variable) const {
  if (!variable.ids_declared()) return {};
  const uint64_t bytes = sizeof(MessageHeader) + sizeof(SectionHeader) + sizeof(uint32_t) +
                         variable.gradient_elements() * bytes_of_sum(variable.sum_type());
  const uint64_t most = transport_.message_bytes_max();
  if (bytes <= most) return {};
  return limit("commit: variable '" + variable.name + "': a row of " +
               std::to_string(variable.row_elements) + " elements takes a message of " +
               std::to_string(bytes) + " bytes, and transport " + std::string(transport_.name()) +
               " carries " + std::to_string(most) +
               "; register it as DENSE, or cut its rows into narrower ones");
}

Status Engine::build_runtimes() {
  std::vector<VariableFacts> facts;
  for (const Variable& variable : variables_) {
    const uint32_t id = static_cast<uint32_t>(runtimes_.size());
    PARALLAX_RETURN_IF_ERROR(check_row_bytes(variable));
    const auto partition_of = [&](uint64_t row_elements) {
      return Partition(variable.rows, row_elements, variable.ids_declared(), columns_.world(), id);
    };
    // Two partitions: a row of a gradient may end in a count of ranks, a row of the value never.
    auto runtime = std::make_unique<Runtime>(partition_of(variable.row_elements),
                                             partition_of(variable.gradient_elements()));
    runtime->variable = &variable;
    runtime->engine = this;
    runtime->facts = {.name = variable.name,
                      .rows = variable.rows,
                      .row_elements = variable.row_elements,
                      .element_bytes = bytes_of_sum(variable.sum_type()),
                      .tag = variable.tag,
                      .managed = variable.managed(),
                      .ids_declared = variable.ids_declared(),
                      .integer = !is_floating(variable.dtype)};
    for (std::unique_ptr<StepSum>& sum : runtime->sums) {
      if (variable.accumulate) sum = std::make_unique<StepSum>(variable);
    }
    if (variable.ids_declared()) ids_variables_.push_back(id);
    facts.push_back(runtime->facts);
    runtimes_.push_back(std::move(runtime));
  }
  const Plan plan = initial_plan(facts, topology_facts(), options_.plan_mode);
  for (uint32_t id = 0; id < runtimes_.size(); ++id) {
    Runtime& runtime = *runtimes_[id];
    runtime.plan = plan[id];
    runtime.exchange = new_exchange(runtime, id, runtime.plan.method);
    if (runtime.variable->managed()) {
      runtime.table = std::make_unique<Table>(*runtime.variable, runtime.partition, options_.rank,
                                              runtime.plan.placement == Placement::kSharded);
    }
  }
  // Before the first reservation, so that a refusal can name the sizes of all variables.
  PARALLAX_RETURN_IF_ERROR(check_memory());
  return reserve_runtimes();
}

Status Engine::reserve_runtimes() {
  for (uint32_t id = 0; id < runtimes_.size(); ++id) {
    const Status reserved = reserve_runtime(id);
    if (reserved.ok()) continue;
    const Footprint wanted = footprint(*runtimes_[id]);
    return {reserved.code(),
            "commit: variable '" + wanted.name + "' of " + rank_name(options_.rank) + ": " +
                reserved.message() + "; it takes " + shown_bytes(wanted.table_bytes) +
                " for values and state and " + shown_bytes(wanted.buffer_bytes) + " for buffers; " +
                smaller_remedy(wanted) + ", or raise ulimit -v"};
  }
  for (Step& step : steps_) step.contributed.resize(runtimes_.size());
  const size_t sends_per_variable = columns_.host_count() + columns_.locals().size() + 4;
  // An estimate of what the legs of a step queue; more is counted as growth.
  outbox_.reserve_sends(4 * sends_per_variable * std::max<size_t>(4, runtimes_.size()));
  return {};
}

Status Engine::reserve_runtime(uint32_t id) {
  Runtime& runtime = *runtimes_[id];
  PARALLAX_RETURN_IF_ERROR(runtime.exchange->reserve());
  // Later steps are opened by finish_step, two ahead.
  runtime.exchange->open(1);
  runtime.exchange->open(2);
  for (const std::unique_ptr<StepSum>& sum : runtime.sums) {
    if (sum != nullptr) PARALLAX_RETURN_IF_ERROR(sum->reserve());
  }
  if (runtime.table == nullptr) return {};
  PARALLAX_RETURN_IF_ERROR(runtime.table->reserve());
  if (!runtime.table->sharded()) return {};
  PARALLAX_RETURN_IF_ERROR(pull_exchange_.add_variable(id, *runtime.variable, runtime.partition));
  pull_exchange_.set_table(id, runtime.table.get());
  return {};
}

Footprint Engine::footprint(const Runtime& runtime) const {
  Footprint footprint = {.name = runtime.variable->name,
                         .ids_declared = runtime.variable->ids_declared()};
  // needed_bytes() lays the exchange out anew, which would lose one that is reserved.
  const size_t reserved = runtime.exchange->arena().reserved_bytes();
  footprint.buffer_bytes = reserved > 0 ? reserved : runtime.exchange->needed_bytes();
  for (const std::unique_ptr<StepSum>& sum : runtime.sums) {
    if (sum != nullptr) footprint.buffer_bytes += sum->needed_bytes();
  }
  if (runtime.table == nullptr) return footprint;
  footprint.table_bytes = runtime.table->needed_bytes();
  if (runtime.table->sharded()) {
    footprint.buffer_bytes +=
        PullExchange::needed_bytes(columns_, *runtime.variable, runtime.partition);
  }
  return footprint;
}

// Shards are of even size, so each rank of a host knows what all of its ranks take.
Status Engine::check_memory() const {
  if (options_.memory_max_bytes == 0 && options_.memory_check == MemoryCheck::kOff) return {};
  std::vector<Footprint> footprints;
  footprints.reserve(runtimes_.size());
  for (const auto& runtime : runtimes_) footprints.push_back(footprint(*runtime));
  PARALLAX_RETURN_IF_ERROR(check_memory_max(footprints));
  if (options_.memory_check == MemoryCheck::kOff) return {};
  const std::string shortage =
      memory_shortage(footprints, static_cast<uint32_t>(columns_.locals().size()),
                      columns_.map().names[columns_.host()], options_.machine);
  if (shortage.empty()) return {};
  if (options_.memory_check == MemoryCheck::kRefuse) {
    return limit("commit: " + shortage + "; memory_check is refuse");
  }
  if (columns_.local() == 0) {  // once a host
    PARALLAX_LOG(kWarn, kPlan, "commit: " + shortage + "; memory_check = off says no more of it");
  }
  return {};
}

Status Engine::check_memory_max(const std::vector<Footprint>& footprints) const {
  const uint64_t total = total_bytes(footprints);
  if (options_.memory_max_bytes == 0 || total <= options_.memory_max_bytes) return {};
  const Footprint& largest = *std::max_element(
      footprints.begin(), footprints.end(),
      [](const Footprint& a, const Footprint& b) { return a.bytes() < b.bytes(); });
  return limit("commit: " + rank_name(options_.rank) + " would reserve " + std::to_string(total) +
               " bytes, memory_max_bytes is " + std::to_string(options_.memory_max_bytes) +
               "; variable '" + largest.name + "' takes " + std::to_string(largest.bytes()) +
               " of them (" + std::to_string(largest.table_bytes) + " for values and state, " +
               std::to_string(largest.buffer_bytes) + " for buffers); " + smaller_remedy(largest) +
               ", or raise memory_max_bytes");
}

// A piece of the initial values; true when all are filled in.
bool Engine::fill_tables() {
  uint64_t elements_left = kFillElementsPerPass;
  while (fill_cursor_ < runtimes_.size()) {
    Table* table = runtimes_[fill_cursor_]->table.get();
    if (table == nullptr || table->initialize(&elements_left)) {
      ++fill_cursor_;
    } else {
      busy_ = true;
      return false;
    }
  }
  return true;
}

}  // namespace parallax
