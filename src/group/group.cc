// SPDX-License-Identifier: Apache-2.0
// What a group reserves for its variables, within the limits of the options. See group.h.
#include "group/group.h"

#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "group/algorithm_costs.h"
#include "group/row_ceilings.h"
#include "group/step_window.h"

namespace parallax {

namespace {

constexpr const char* kTableMemory = "table_memory";

Status reserve_exchange(VariableRuntime& runtime, uint64_t finished) {
  PARALLAX_RETURN_IF_ERROR(runtime.exchange->reserve());
  // Later steps are opened when a step is finished, two ahead.
  runtime.exchange->open(finished + 1);
  runtime.exchange->open(finished + 2);
  return {};
}

}  // namespace

Group::Group(View view, uint32_t rank, GroupOptions options, Outbox& outbox, Compute& compute)
    : options_(std::move(options)),
      view_(std::move(view)),
      columns_(view_.hosts, rank),
      domains_(columns_),
      outbox_(outbox),
      compute_(std::make_unique<ComputeShare>(compute)),
      algorithms_(std::make_unique<AlgorithmChoice>(view_.hosts)),
      entries_(std::make_unique<Entries>(columns_, options_.boards ? outbox.boards() : nullptr)),
      staging_(
          std::make_unique<HostStaging>(columns_, outbox.lending(), options_.row_ways.in_place)),
      rows_(std::make_unique<Rows>()),
      table_memory_(columns_, outbox.lending(),
                    options_.staleness == 0 && options_.row_ways.in_place),
      pulls_(std::make_unique<PullExchange>(
          columns_, outbox,
          PullOptions{.early_bytes_min = options_.row_ways.early_bytes_min,
                      .staleness = options_.staleness,
                      .in_place = options_.row_ways.in_place,
                      .push_listed = options_.row_ways.push_listed,
                      .scratch = &rows_->scratch})) {}

std::unique_ptr<Exchange> Group::new_exchange(const VariableRuntime& runtime, Method method) const {
  // Until they are applied, which is then done in the pass that has asked whether they can be read.
  const bool rows_stay = options_.row_ways.in_place && runtime.variable->managed() &&
                         method == Method::kPushPull && !runtime.facts.on_device &&
                         compute_->at_once();
  const bool elements_of_held = !runtime.variable->managed() && !runtime.variable->ids_declared();
  const bool means = elements_of_held && runtime.variable->reduction == PARALLAX_MEAN_WORLD;
  return make_exchange(
      columns_, runtime.gradient_partition(method), outbox_, *compute_,
      {.variable = runtime.id,
       .method = method,
       .rows_max = runtime.variable->rows_max,
       .ordered = sums_in_order(method),
       .sum = runtime.variable->sum_type(),
       .dtype = elements_of_held ? runtime.variable->dtype : ExchangeOptions::kSumsOwn,
       .factor = means ? 1.0 / columns_.world() : 1.0,
       .wire = method == Method::kPushPull ? runtime.variable->pushed_dtype()
                                           : ExchangeOptions::kSumsOwn,
       .held = !runtime.variable->managed(),
       .counted = runtime.variable->counts_ranks(),
       .counts_contributors = runtime.variable->counts_contributors(),
       .priority = runtime.variable->priority,
       .marker_hosts_max = options_.marker_hosts_max,
       .algorithms = algorithms_.get(),
       .entries = entries_.get(),
       .staging = has_staged_block(runtime, method) ? staging_.get() : nullptr,
       .domains = domains_.any() ? &domains_ : nullptr,
       .scratch = &rows_->scratch,
       .chunk_rows = chunks_of(method, runtime.facts).rows,
       .rows_stay = rows_stay,
       // With staleness the rows of several steps are asked for before those of the first are
       // pushed.
       .pulled = method == Method::kPushPull && options_.staleness == 0 ? pulls_.get() : nullptr,
       .codings = &runtime.codings,
       .unsent = method == Method::kPushPull ? &rows_->unsent : nullptr});
}

namespace {

WireNumbers wire_numbers(uint32_t dtype) {
  return {.bytes = bytes_of_dtype(dtype), .has_code = has_number_code(dtype)};
}

// That may be touched in a step, on the average.
double rows_of_host(const Variable& variable, const HostMap& hosts) {
  const uint64_t given = variable.rows_max * hosts.host_of.size() / hosts.ranks_of.size();
  return static_cast<double>(std::min(variable.rows, given));
}

std::unique_ptr<VariableRuntime> new_runtime(uint32_t number, const Variable& variable,
                                             const View& view, size_t sums, bool at_once) {
  auto runtime = std::make_unique<VariableRuntime>(number, variable, view.slots, view.ranks);
  runtime->facts = {.name = variable.name,
                    .rows = variable.rows,
                    .row_elements = variable.row_elements,
                    .element_bytes = bytes_of_sum(variable.sum_type()),
                    .pulled = wire_numbers(variable.stored_dtype()),
                    .pushed = wire_numbers(variable.pushed_dtype()),
                    .tag = variable.tag,
                    .managed = variable.managed(),
                    .ids_declared = variable.ids_declared(),
                    .integer = !is_floating(variable.dtype),
                    .touched_rows_per_host = rows_of_host(variable, view.hosts),
                    .placement_pin = variable.pin.placement,
                    .method_pin = variable.pin.method,
                    .ceiling = {.bytes_max = variable.exchange_bytes_max},
                    .on_device = variable.table_memory != PARALLAX_MEMORY_HOST};
  runtime->sums.resize(sums);
  for (std::unique_ptr<StepSum>& sum : runtime->sums) {
    // Fused tables may come in several calls, which jobs do not take as they are.
    const bool in_calls = !variable.fused.empty() && !at_once;
    if (variable.accumulate || in_calls) sum = std::make_unique<StepSum>(variable);
  }
  return runtime;
}

// Of a block of each variable's rows, where the ranks of the host read them.
std::vector<uint64_t> staged_bytes_of(std::span<const std::unique_ptr<VariableRuntime>> runtimes) {
  std::vector<uint64_t> bytes;
  for (const auto& runtime : runtimes) bytes.push_back(staged_bytes(*runtime));
  return bytes;
}

// Of a step.
constexpr uint64_t kSlabBytes = 1024 * 1024;

// One of them may be given in memory that ranks of the host don't map, and is summed by all of
// them.
bool has_shared_sum(std::span<const std::unique_ptr<VariableRuntime>> runtimes) {
  return std::any_of(runtimes.begin(), runtimes.end(), [](const auto& runtime) {
    const Variable& variable = *runtime->variable;
    return !variable.managed() && !variable.ids_declared() &&
           variable.elements() * bytes_of_sum(variable.sum_type()) >= kReturnedBytesMin;
  });
}

}  // namespace

Status Group::add(std::span<const Variable* const> variables, uint64_t finished) {
  entries_->find_boards();
  const size_t first = runtimes_.size();
  for (const Variable* variable : variables) {
    if (variable->ids_declared()) with_ids_.push_back(size());
    runtimes_.push_back(new_runtime(size(), *variable, view_,
                                    StepWindow(options_.staleness).depth(), compute_->at_once()));
  }
  const auto added = std::span(runtimes_).subspan(first);
  for (const auto& runtime : added) {
    PARALLAX_RETURN_IF_ERROR(find_chunks(*this, outbox_, options_.marker_hosts_max, runtime.get()));
  }
  staging_->add(staged_bytes_of(added));
  // Where a bound is set, memory is for what needs it.
  const bool bounded = options_.memory_max_bytes != 0;
  const bool stages = entries_->usable() && outbox_.lending().may_be_written() && !bounded;
  if (stages && has_shared_sum(added)) staging_->add_slab(kSlabBytes);
  choose_codings(*this);
  const Plan plan = initial_plan(facts(), topology(), options_.plan_mode);
  for (const auto& each : added) {
    VariableRuntime& runtime = *each;
    runtime.plan = plan[runtime.id];
    runtime.exchange = new_exchange(runtime, runtime.plan.method);
    if (!is_on_boards(*runtime.exchange)) entries_->are_not_all();
    if (runtime.variable->managed()) {
      runtime.table = std::make_unique<Table>(*runtime.variable, runtime.partition, columns_.rank(),
                                              runtime.plan.placement == Placement::kSharded);
    }
  }
  // Before the first reservation, so that a refusal can name the sizes of all variables.
  if (!added.empty()) PARALLAX_RETURN_IF_ERROR(check_memory());
  for (const auto& runtime : added) {
    const Status reserved = reserve(*runtime, finished);
    if (reserved.ok()) continue;
    // Of a device it says all itself.
    if (reserved.facts().field == kTableMemory) return reserved;
    const Footprint wanted = footprint(*runtime);
    return {reserved.code(), "commit: variable '" + wanted.name + "' of " + name() + ": " +
                                 reserved.message() + "; it takes " +
                                 shown_bytes(wanted.table_bytes) + " for values and state and " +
                                 shown_bytes(wanted.buffer_bytes) + " for buffers; " +
                                 smaller_remedy(wanted) + ", or raise ulimit -v"};
  }
  return {};
}

Status Group::set_exchange(uint32_t variable, std::unique_ptr<Exchange> exchange,
                           uint64_t finished) {
  runtime(variable).exchange = std::move(exchange);
  if (!is_on_boards(*runtime(variable).exchange)) entries_->are_not_all();
  return reserve_exchange(runtime(variable), finished);
}

Status Group::reserve(VariableRuntime& runtime, uint64_t finished) {
  PARALLAX_RETURN_IF_ERROR(reserve_exchange(runtime, finished));
  for (const std::unique_ptr<StepSum>& sum : runtime.sums) {
    if (sum != nullptr) PARALLAX_RETURN_IF_ERROR(sum->reserve());
  }
  if (runtime.table == nullptr) return {};
  PARALLAX_RETURN_IF_ERROR(runtime.facts.on_device ? reserve_table_on_device(runtime)
                                                   : table_memory_.reserve(*runtime.table));
  if (!runtime.table->sharded()) return {};
  PARALLAX_RETURN_IF_ERROR(
      pulls_->add_variable(runtime.id, *runtime.variable, runtime.partition, &runtime.codings));
  pulls_->set_table(runtime.id, runtime.table.get());
  return {};
}

Status Group::reserve_table_on_device(VariableRuntime& runtime) {
  Table& table = *runtime.table;
  // An owner of nothing needs none.
  runtime.facts.table = "other ranks' devices";
  if (table.device() == nullptr) return table.reserve();
  DeviceShare share;
  Status status =
      options_.devices ? options_.devices(&share) : unsupported("this job has no way to a device");
  // Ranks of a host go on over its devices, as those of a launcher do.
  if (status.ok()) status = table.reserve(share, columns_.local());
  if (!status.ok()) {
    return status
        .prefixed("commit: variable '" + runtime.variable->name + "' of " + name() +
                  ": its table is to lie on a device (table_memory is PARALLAX_MEMORY_CUDA) and "
                  "takes " +
                  shown_bytes(table.device()->needed_bytes()) + " for values and state: ")
        .about_variable(runtime.variable->id)
        .about_field(kTableMemory);
  }
  runtime.facts.table = "device " + std::to_string(table.store()->device());
  on_devices_.push_back(runtime.id);
  return {};
}

Status Group::advance_devices() {
  for (const uint32_t number : on_devices_) {
    const Variable& variable = *runtime(number).variable;
    DeviceStore& store = *runtime(number).table->store();
    const Status status = store.advance();
    if (status.ok()) continue;
    return status
        .prefixed(name() + ": variable '" + variable.name + "', whose table lies on device " +
                  std::to_string(store.device()) + ": ")
        .about_variable(variable.id);
  }
  return {};
}

bool Group::devices_busy() const {
  return std::any_of(on_devices_.begin(), on_devices_.end(),
                     [this](uint32_t number) { return runtime(number).table->store()->busy(); });
}

void Group::abandon_devices() {
  for (const uint32_t number : on_devices_) runtime(number).table->store()->abandon();
}

std::string Group::device_work() const {
  for (const uint32_t number : on_devices_) {
    const DeviceStore& store = *runtime(number).table->store();
    if (!store.busy()) continue;
    return "device " + std::to_string(store.device()) + " to work on the table of variable '" +
           runtime(number).variable->name + "'";
  }
  return "";
}

Status Group::reserve_sum(VariableRuntime& runtime, size_t slot) {
  if (runtime.sums[slot] != nullptr) return {};
  auto sum = std::make_unique<StepSum>(*runtime.variable);
  if (options_.memory_max_bytes > 0) {
    uint64_t bytes = sum->needed_bytes() + reserved_bytes();
    if (options_.other_footprints) bytes += total_bytes(options_.other_footprints());
    if (bytes > options_.memory_max_bytes) {
      return limit(shown_bytes(sum->needed_bytes()) + " more than memory_max_bytes of " +
                   std::to_string(options_.memory_max_bytes) + " allows; raise it");
    }
  }
  PARALLAX_RETURN_IF_ERROR(sum->reserve());
  runtime.sums[slot] = std::move(sum);
  ++growth_count_;
  return {};
}

Footprint Group::footprint(const VariableRuntime& runtime) const {
  Footprint footprint = {.name = runtime.variable->name,
                         .ids_declared = runtime.variable->ids_declared(),
                         .made_dense = runtime.plan.method == Method::kMadeDense &&
                                       chunks_of(Method::kMadeDense, runtime.facts).rows == 0};
  if (runtime.exchange == nullptr) return footprint;  // a commit ended in its midst
  // needed_bytes() lays the exchange out anew, which would lose one that is reserved.
  const size_t reserved = runtime.exchange->arena().reserved_bytes();
  footprint.buffer_bytes = reserved > 0 ? reserved : runtime.exchange->needed_bytes();
  footprint.buffer_bytes += staging_->reserved_bytes(runtime.id);
  for (const std::unique_ptr<StepSum>& sum : runtime.sums) {
    if (sum != nullptr) footprint.buffer_bytes += sum->needed_bytes();
  }
  // Of one that moves, or has moved just now, both.
  for (const auto* exchange : {&runtime.change.exchange, &runtime.old_exchange}) {
    if (*exchange != nullptr) footprint.buffer_bytes += (*exchange)->arena().reserved_bytes();
  }
  bool pulled = false;
  for (const auto* table : {&runtime.table, &runtime.change.table}) {
    if (*table == nullptr) continue;
    footprint.table_bytes += (*table)->needed_bytes();
    pulled = pulled || (*table)->sharded();
  }
  if (pulled) {
    footprint.buffer_bytes +=
        PullExchange::needed_bytes(columns_, *runtime.variable, runtime.partition);
  }
  return footprint;
}

std::vector<Footprint> Group::footprints() const {
  std::vector<Footprint> footprints;
  footprints.reserve(runtimes_.size());
  for (const auto& runtime : runtimes_) footprints.push_back(footprint(*runtime));
  return footprints;
}

namespace {

Status check_memory_max(const std::vector<Footprint>& footprints, const std::string& name,
                        uint64_t max_bytes, bool of_others) {
  const uint64_t total = total_bytes(footprints);
  if (max_bytes == 0 || total <= max_bytes) return {};
  const Footprint& largest = *std::max_element(
      footprints.begin(), footprints.end(),
      [](const Footprint& a, const Footprint& b) { return a.bytes() < b.bytes(); });
  return limit("commit: " + name + " would reserve " + std::to_string(total) + " bytes" +
               (of_others ? " with the job's other groups" : "") + ", memory_max_bytes is " +
               std::to_string(max_bytes) + "; variable '" + largest.name + "' takes " +
               std::to_string(largest.bytes()) + " of them (" +
               std::to_string(largest.table_bytes) + " for values and state, " +
               std::to_string(largest.buffer_bytes) + " for buffers); " + smaller_remedy(largest) +
               ", or raise memory_max_bytes");
}

}  // namespace

// As if every rank of the host owned as much as this one, as long as slots are shared evenly.
Status Group::check_memory() const {
  if (options_.memory_max_bytes == 0 && options_.memory_check == MemoryCheck::kOff) return {};
  std::vector<Footprint> footprints = this->footprints();
  if (options_.other_footprints) {
    std::vector<Footprint> others = options_.other_footprints();
    std::move(others.begin(), others.end(), std::back_inserter(footprints));
  }
  PARALLAX_RETURN_IF_ERROR(check_memory_max(footprints, name(), options_.memory_max_bytes,
                                            footprints.size() > runtimes_.size()));
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

bool Group::fill() {
  uint64_t elements_left = kFillElements;
  while (fill_cursor_ < runtimes_.size()) {
    Table* table = runtimes_[fill_cursor_]->table.get();
    if (table != nullptr && !table->initialize(&elements_left)) return false;
    ++fill_cursor_;
  }
  return true;
}

std::vector<VariableFacts> Group::facts() const {
  std::vector<VariableFacts> facts;
  for (const auto& runtime : runtimes_) facts.push_back(runtime->facts);
  return facts;
}

Plan Group::plan() const {
  Plan plan;
  for (const auto& runtime : runtimes_) plan.push_back(runtime->plan);
  return plan;
}

bool Group::fits_memory(const VariableRuntime& runtime, const VariablePlan& plan) const {
  if (options_.memory_max_bytes == 0 || plan == runtime.plan) return true;
  uint64_t bytes = options_.other_footprints ? total_bytes(options_.other_footprints()) : 0;
  bytes += staging_->reserved_bytes();
  for (const auto& each : runtimes_) {
    bytes += each->exchange->arena().reserved_bytes();
    const VariableRuntime::Change& change = each->change;
    if (change.exchange != nullptr) bytes += change.exchange->arena().reserved_bytes();
    if (change.table != nullptr) bytes += change.table->needed_bytes();
    if (each->table != nullptr) bytes += each->table->needed_bytes();
    if (each->table != nullptr && each->table->sharded()) {
      bytes += PullExchange::needed_bytes(columns_, *each->variable, each->partition);
    }
  }
  // It is never reserved: only its size is asked.
  bytes += new_exchange(runtime, plan.method)->needed_bytes();
  if (plan.placement != runtime.plan.placement) {
    const bool sharded = plan.placement == Placement::kSharded;
    bytes += Table(*runtime.variable, runtime.partition, columns_.rank(), sharded).needed_bytes();
    if (sharded) {
      bytes += PullExchange::needed_bytes(columns_, *runtime.variable, runtime.partition);
    }
  }
  return bytes <= options_.memory_max_bytes;
}

template <typename Look>
void Group::look_at_arenas(const VariableRuntime& runtime, Look look) const {
  for (const auto* exchange :
       {&runtime.exchange, &runtime.change.exchange, &runtime.old_exchange}) {
    if (*exchange != nullptr) look((*exchange)->arena());
  }
  for (const auto* table : {&runtime.table, &runtime.change.table}) {
    if (*table != nullptr) look((*table)->arena());
  }
  for (const std::unique_ptr<StepSum>& sum : runtime.sums) {
    if (sum != nullptr) look(sum->arena());
  }
  if (const Arena* arena = pulls_->arena_of(runtime.id)) look(*arena);
}

Group::MemoryUse Group::memory_use(const VariableRuntime& runtime) const {
  MemoryUse use;
  look_at_arenas(runtime, [&use](const Arena& arena) {
    use.reserved_bytes += arena.reserved_bytes();
    use.touched_bytes += arena.touched_bytes();
  });
  use.reserved_bytes += staging_->reserved_bytes(runtime.id);
  if (runtime.table != nullptr && runtime.table->store() != nullptr) {
    use.device = runtime.table->store()->device();
    use.device_bytes = runtime.table->store()->device_bytes();
  }
  return use;
}

uint64_t Group::reserved_bytes() const {
  // The scratch is what the variable with the most rows has reserved for itself, and leaves
  // untouched meanwhile.
  uint64_t bytes = staging_->reserved_bytes();
  for (const auto& runtime : runtimes_) {
    look_at_arenas(*runtime, [&bytes](const Arena& arena) { bytes += arena.reserved_bytes(); });
  }
  return bytes;
}

uint64_t Group::touched_bytes() const {
  uint64_t bytes = staging_->touched_bytes() + rows_->scratch.arena().touched_bytes();
  for (const auto& runtime : runtimes_) {
    look_at_arenas(*runtime, [&bytes](const Arena& arena) { bytes += arena.touched_bytes(); });
  }
  return bytes;
}

}  // namespace parallax
