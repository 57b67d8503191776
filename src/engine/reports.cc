// SPDX-License-Identifier: Apache-2.0
// Plan and counts as JSON, and the sentences of timeouts. See reports.h.
#include "engine/reports.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace parallax {

// ---- reports

// Of the group's variables.
std::vector<uint32_t> Reports::committed_ids() const {
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < parts_.registry.size(); ++id) {
    if (parts_.registry.number_of(id) < parts_.group.size()) ids.push_back(id);
  }
  return ids;
}

// Of a table that goes by itself: nothing.
FusedFacts Reports::fused_facts(uint32_t id) const {
  const Registry& registry = parts_.registry;
  if (registry.member_of(id) == Registry::kNotFused) return {};
  const uint32_t number = registry.number_of(id), first = registry.id_of(number);
  return {.name = registry[id].name,
          .first = registry[first].name,
          .tables = static_cast<uint32_t>(registry.numbered()[number]->fused.size()),
          .rows = registry[id].rows,
          .is_first = id == first};
}

std::string Reports::plan_json() const {
  const std::vector<VariableFacts> facts = parts_.plan_control.facts();
  const Plan plan = parts_.group.plan();
  std::vector<VariableFacts> own_facts;
  std::vector<FusedFacts> fused;
  Plan own_plan;
  for (const uint32_t id : committed_ids()) {
    const uint32_t number = parts_.registry.number_of(id);
    own_facts.push_back(facts[number]);
    fused.push_back(fused_facts(id));
    own_plan.push_back(plan[number]);
  }
  return explain_json(own_facts, parts_.group.topology(), parts_.plan_mode, own_plan,
                      parts_.plan_control.settled(), fused);
}

namespace {

// Empty: a device was never asked to.
nlohmann::json coalesced_json(const CoalesceCounts& counts) {
  if (counts.slices + counts.slices_by_host == 0) return {};
  return {{"slices", counts.slices},
          {"rows", counts.rows},
          {"copied_rows", counts.copied_rows},
          {"saved_bytes", counts.saved_bytes},
          {"slices_by_host", counts.slices_by_host},
          {"why_by_host", counts.why_by_host}};
}

// Null: nobody was late.
nlohmann::json late_json(const LateRank& late, const Columns& columns) {
  if (late.steps == 0) return nullptr;
  return {{"rank", late.rank},
          {"host", columns.map().names[columns.host_of(late.rank)]},
          {"phase", step_phase_name(late.phase)},
          {"ms", late.late_ms},
          {"steps", late.steps}};
}

nlohmann::json wire_json(const std::string& name, const VariableTraffic& wire) {
  return {{"name", name},
          {"wire_sent_bytes", wire.sent_bytes},
          {"wire_placed_bytes", wire.placed_bytes},
          {"wire_spared_bytes", wire.spared_bytes},
          {"wire_received_bytes", wire.received_bytes}};
}

void add_fused(const FusedFacts& fused, nlohmann::json* variable) {
  if (fused.tables == 0) return;
  (*variable)["fused"] = {{"first", fused.first}, {"tables", fused.tables}};
}

void add_what_few_have(const VariableRuntime& runtime, const Group::MemoryUse& memory,
                       nlohmann::json* variable) {
  if (runtime.variable->exchange_bytes_max != 0) {
    (*variable)["exchange_chunks"] = chunks_of(runtime.plan.method, runtime.facts).count;
  }
  if (memory.device_bytes == 0) return;
  (*variable)["memory_device"] = memory.device;
  (*variable)["memory_device_bytes"] = memory.device_bytes;
}

}  // namespace

nlohmann::json Reports::variables_json(MemoryOfAll* memory_of_all) const {
  nlohmann::json variables = nlohmann::json::array();
  for (const uint32_t id : committed_ids()) {
    const std::string& name = parts_.registry[id].name;
    const FusedFacts fused = fused_facts(id);
    const uint32_t number = parts_.registry.number_of(id);
    const VariableRuntime& runtime = parts_.group.runtime(number);
    // Of fused tables the first has all.
    const bool has_any = fused.tables == 0 || fused.is_first;
    const Group::MemoryUse memory = has_any ? parts_.group.memory_use(runtime) : Group::MemoryUse();
    memory_of_all->all.reserved_bytes += memory.reserved_bytes;
    memory_of_all->all.touched_bytes += memory.touched_bytes;
    variables.push_back(
        wire_json(name, has_any ? parts_.traffic.variable(number) : VariableTraffic()));
    variables.back()["memory_reserved_bytes"] = memory.reserved_bytes;
    variables.back()["memory_touched_bytes"] = memory.touched_bytes;
    add_what_few_have(runtime, memory, &variables.back());
    add_fused(fused, &variables.back());
    if (memory.device_bytes > 0) memory_of_all->of_devices[memory.device] += memory.device_bytes;
  }
  return variables;
}

std::string Reports::stats_json() const {
  const auto traffic = [](const Traffic& of) {
    return nlohmann::json{{"sent_bytes", of.sent_bytes},
                          {"received_bytes", of.received_bytes},
                          {"sent_messages", of.sent_messages},
                          {"received_messages", of.received_messages}};
  };
  MemoryOfAll memory;
  const nlohmann::json variables = variables_json(&memory);
  nlohmann::json local = traffic(parts_.traffic.local());
  local["lent_bytes"] = parts_.outbox.lending().counts().lent_bytes;
  local["read_bytes"] = parts_.outbox.lending().counts().read_bytes;
  local["written_bytes"] = parts_.outbox.lending().counts().written_bytes;
  nlohmann::json stats = {{"rank", parts_.group.columns().rank()},
                          {"steps_committed", parts_.pipeline.window().finished()},
                          {"transport", parts_.transport},
                          {"wire", traffic(parts_.traffic.wire())},
                          {"local", local},
                          {"variables", variables},
                          {"memory",
                           {{"reserved_bytes", memory.all.reserved_bytes},
                            {"touched_bytes", memory.all.touched_bytes}}},
                          {"nccl",
                           {{"registered_buffers", parts_.registered.count},
                            {"registered_buffer_bytes", parts_.registered.bytes},
                            {"refused_buffers", parts_.registered.refused},
                            {"gather_windows", parts_.registered.windows},
                            {"gather_window_bytes", parts_.registered.window_bytes},
                            {"program_windows", parts_.registered.program_windows},
                            {"program_window_bytes", parts_.registered.program_window_bytes}}},
                          {"late", late_json(parts_.pipeline.late(), parts_.group.columns())},
                          {"early_rows", early_rows()},
                          {"looked_up_rows", parts_.group.rows().scratch.looked_up()},
                          {"dropped_messages", parts_.traffic.dropped_messages()},
                          {"growth_count", growth_count()}};
  for (const auto& [device, bytes] : memory.of_devices) {
    stats["memory"]["devices"].push_back({{"device", device}, {"bytes", bytes}});
  }
  if (nlohmann::json coalesced = coalesced_json(parts_.device_calls.coalesced());
      !coalesced.empty()) {
    stats["coalesced_on_devices"] = std::move(coalesced);
  }
  return stats.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// ---- what a timeout is waiting for

// The others first: what this rank still owes is told only where nobody else owes anything.
std::string Reports::waiting_for(std::vector<uint32_t> ranks, const std::string& what,
                                 ErrorFacts& about) const {
  if (ranks.empty()) return "";
  const HostMap& map = parts_.group.columns().map();
  std::erase(ranks, parts_.group.columns().rank());
  if (ranks.empty()) return "this rank " + what;
  note_peer(map, ranks.front(), about);
  return rank_names(map, ranks) + " " + what;
}

std::string Reports::tree_missing(TreeKind kind, const std::string& call, ErrorFacts& about) const {
  const TreeSync& sync = parts_.trees[kind];
  const std::string text =
      waiting_for(sync.missing_children(), "to " + call + ", or one that it waits for", about);
  return text.empty() && !sync.is_root() ? waiting_for({sync.parent()}, "to answer", about) : text;
}

std::string Reports::votes_missing(const std::string& call, ErrorFacts& about) const {
  const bool by_tree = !parts_.pipeline.votes_to_all() || parts_.pipeline.votes_by_host();
  const std::string text = by_tree ? tree_missing(TreeKind::kVote, call, about) : "";
  if (!text.empty() || !parts_.pipeline.votes_to_all()) return text;
  return waiting_for(parts_.pipeline.missing_votes(), "to " + call + ", or one that it waits for",
                     about);
}

std::string Reports::commit_missing(ErrorFacts& about) const {
  if (parts_.broadcast.active()) {
    std::string text =
        waiting_for(parts_.broadcast.missing_ranks(), "to pass on what rank 0 has", about);
    if (!text.empty()) return text;
    return waiting_for(parts_.outbox.peers_with_data(), "to take what is due to it", about);
  }
  const uint32_t probed = parts_.probe.waits_for();
  if (probed != kNoRank) return waiting_for({probed}, "to answer while links are measured", about);
  if (parts_.forms_communicator) {
    return "its ranks' devices to form a communicator out of the job's";
  }
  // A rank joins once its initial values are filled in.
  if (!parts_.trees[TreeKind::kCommit].joined()) return "this rank to fill in initial values";
  return tree_missing(TreeKind::kCommit, "commit", about);
}

Status Reports::missing(const Request& request) const {
  ErrorFacts about;
  if (request.step != 0) about.step = request.step;
  std::string text = describe_missing(request, about);
  return timed_out(std::move(text)).about(std::move(about));
}

std::string Reports::describe_missing(const Request& request, ErrorFacts& about) const {
  std::string device = parts_.device_calls.waits_for(request);
  if (!device.empty()) return device;
  switch (request.kind) {
    case RequestKind::kCommit:
      return "commit waits for " + commit_missing(about);
    case RequestKind::kClose:
      return "close waits for " +
             tree_missing(parts_.goodbye.all_closing() ? TreeKind::kCloseConfirm : TreeKind::kClose,
                          "close", about);
    case RequestKind::kBarrier:
      return "barrier waits for " + tree_missing(TreeKind::kBarrier, "call barrier", about);
    case RequestKind::kBroadcast:
      return "broadcast waits for " +
             waiting_for(parts_.broadcast.missing_ranks(), "to call broadcast", about);
    case RequestKind::kRows:
    case RequestKind::kEvaluate:
      about.variable =
          parts_.registry.id_of_row(parts_.row_calls.variable(), parts_.row_calls.first_row());
      return "the rows of variable '" + parts_.registry[about.variable].name + "' wait for " +
             waiting_for(parts_.row_calls.missing_ranks(), "to answer", about);
    case RequestKind::kSplit:
      return "split waits for " +
             waiting_for(parts_.splits.missing_ranks(request),
                         "to split by the same ranks, or one that it waits for", about);
    case RequestKind::kCollective:
      return describe_collective_missing(request, about);
    default:
      return describe_step_missing(request, about);
  }
}

std::string Reports::describe_collective_missing(const Request& request, ErrorFacts& about) const {
  const CollectiveWait wait = parts_.collectives.waiting(request);
  const std::string text = name_of(wait.key) + " (" + collective_name(wait.kind) + ") waits for ";
  if (wait.behind) return text + "the one of its tag before it";
  if (!wait.to_call.empty()) {
    return text + waiting_for(wait.to_call, "to call it, or one that it waits for", about);
  }
  if (!wait.to_answer.empty()) {
    return text + waiting_for(wait.to_answer, "to say that all have called it", about);
  }
  if (!wait.to_send.empty()) {
    return text + waiting_for(wait.to_send, "to send what it has for it", about);
  }
  return text + waiting_for(parts_.outbox.peers_with_data(), "to take what is due to it", about);
}

std::string Reports::describe_step_missing(const Request& request, ErrorFacts& about) const {
  const std::string step = "step " + std::to_string(request.step);
  const StepWindow& window = parts_.pipeline.window();
  // With staleness a pull may go before steps that are not decided.
  const bool goes_before = request.kind == RequestKind::kPull && window.staleness() > 0 &&
                           window.is_current(request.step);
  if (!window.may_start(request.step) && !goes_before) {
    return step + " waits for the decision of step " + std::to_string(window.decided() + 1) + ": " +
           votes_missing("end that step", about);
  }
  const StepState& state = parts_.pipeline.state(request.step);
  const bool pulls = state.step == request.step && state.pulls_left > 0;
  const std::string missing =
      pulls ? waiting_for(parts_.group.pulls().missing_ranks(), "to answer", about) : "";
  const std::string device = parts_.group.device_work();
  if (request.kind == RequestKind::kPull) {
    const std::string last = device.empty() ? "its owners" : device;
    return "pull of " + step + " waits for " + (missing.empty() ? last : missing);
  }
  // Where votes wait for no sum, what is queued may be of the next step.
  const auto& runtimes = parts_.group.runtimes();
  const bool sums_left = std::any_of(runtimes.begin(), runtimes.end(), [&](const auto& runtime) {
    return !runtime->exchange_at(request.step).missing(request.step).empty();
  });
  if (window.is_decided(request.step) && !sums_left) {
    const std::string text =
        waiting_for(parts_.outbox.peers_with_data(), "to take what is due to it", about);
    if (!text.empty()) return step + " is decided, and waits for " + text;
    if (!device.empty()) return step + " is decided, and waits for " + device;
  }
  if (request.kind == RequestKind::kStepEnd && !missing.empty()) {
    return step + " does not end before its pulls are answered: one waits for " + missing;
  }
  return describe_sum_missing(request, about);
}

// What sums keep a push, a reduce or a step_end waiting.
std::string Reports::describe_sum_missing(const Request& request, ErrorFacts& about) const {
  const std::string step = "step " + std::to_string(request.step);
  // A reduce waits for its own variables, a step_end for all. Of what others sum, this rank knows
  // only whose sum it waits for, and from other variables perhaps who keeps them waiting.
  std::string variable, of_others;
  const auto look_at = [&](const VariableRuntime& runtime) {
    MissingRanks ranks = runtime.exchange_at(request.step).missing(request.step);
    // Of what they have lent in runs the exchange knows nothing.
    std::erase_if(ranks.to_give, [&](uint32_t rank) {
      return parts_.pipeline.runs().awaits(rank, request.step, runtime.id);
    });
    if (variable.empty() && !ranks.empty()) {
      variable = "variable '" + runtime.variable->name + "': ";
      about.variable = parts_.registry.id_of(runtime.id);
      of_others = waiting_for(ranks.to_return, "to sum it", about);
      if (of_others.empty()) {
        of_others = waiting_for(
            ranks.to_tell, "to say that nothing more of it comes, or one that it waits for", about);
      }
    }
    return waiting_for(ranks.to_give, "to give it or end the step", about);
  };
  for (const PullSlice& slice : request.slices) {
    const VariableRuntime& runtime = parts_.group.runtime(slice.variable);
    const std::string text = look_at(runtime);
    if (text.empty()) continue;
    about.variable = parts_.registry.id_given(
        slice.variable, [&slice](uint32_t member) { return member == slice.member; });
    return step + " waits for variable '" + parts_.registry[about.variable].name + "': " + text;
  }
  for (const auto& runtime : parts_.group.runtimes()) {
    const std::string text = look_at(*runtime);
    if (text.empty()) continue;
    return step + " waits for " + variable + (of_others.empty() ? "" : of_others + ", ") + text;
  }
  if (!of_others.empty()) return step + " waits for " + variable + of_others;
  return step + " waits for " + votes_missing("end the step", about);
}

}  // namespace parallax
