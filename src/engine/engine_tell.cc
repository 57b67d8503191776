// SPDX-License-Identifier: Apache-2.0
// What the engine tells of itself: reports, and what a timeout waits for. See engine.h.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "planner/explain.h"

namespace parallax {

// ---- reports

std::string Engine::plan_json() const {
  return explain_json(group_.facts(), group_.topology(), options_.plan_mode, plan(),
                      plan_settled());
}

std::string Engine::stats_json() const {
  const auto traffic = [](const Traffic& of) {
    return nlohmann::json{{"sent_bytes", of.sent_bytes},
                          {"received_bytes", of.received_bytes},
                          {"sent_messages", of.sent_messages},
                          {"received_messages", of.received_messages}};
  };
  nlohmann::json variables = nlohmann::json::array();
  Group::MemoryUse all;
  for (const auto& runtime : group_.runtimes()) {
    const Group::MemoryUse memory = group_.memory_use(*runtime);
    all.reserved_bytes += memory.reserved_bytes;
    all.touched_bytes += memory.touched_bytes;
    variables.push_back({{"name", runtime->variable->name},
                         {"wire_sent_bytes", runtime->wire_sent_bytes},
                         {"wire_received_bytes", runtime->wire_received_bytes},
                         {"memory_reserved_bytes", memory.reserved_bytes},
                         {"memory_touched_bytes", memory.touched_bytes}});
  }
  nlohmann::json stats = {
      {"rank", options_.rank},
      {"steps_committed", pipeline_.window().finished()},
      {"transport", transport_.name()},
      {"wire", traffic(wire_)},
      {"local", traffic(local_)},
      {"variables", variables},
      {"memory", {{"reserved_bytes", all.reserved_bytes}, {"touched_bytes", all.touched_bytes}}},
      {"late", nullptr},
      {"dropped_messages", dropped_messages_},
      {"growth_count", growth_count()}};
  if (pipeline_.late().steps > 0) {
    stats["late"] = {
        {"rank", pipeline_.late().rank},
        {"host", group_.columns().map().names[group_.columns().host_of(pipeline_.late().rank)]},
        {"phase", step_phase_name(pipeline_.late().phase)},
        {"ms", pipeline_.late().late_ms},
        {"steps", pipeline_.late().steps}};
  }
  return stats.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// ---- what a timeout is waiting for

// The others first: what this rank still owes is told only where nobody else owes anything.
std::string Engine::waiting_for(std::vector<uint32_t> ranks, const std::string& what) const {
  if (ranks.empty()) return "";
  std::erase(ranks, options_.rank);
  return (ranks.empty() ? "this rank" : rank_names(options_.hosts, ranks)) + " " + what;
}

std::string Engine::tree_missing(TreeKind kind, const std::string& call) const {
  const TreeSync& sync = trees_[kind];
  const std::string text =
      waiting_for(sync.missing_children(), "to " + call + ", or one that it waits for");
  return text.empty() && !sync.is_root() ? rank_name(options_.hosts, sync.parent()) + " to answer"
                                         : text;
}

std::string Engine::describe_missing(const Request& request) const {
  switch (request.kind) {
    case RequestKind::kCommit:
      return "commit waits for " + tree_missing(TreeKind::kCommit, "commit");
    case RequestKind::kClose:
      return "close waits for " +
             tree_missing(goodbye_.all_closing() ? TreeKind::kCloseConfirm : TreeKind::kClose,
                          "close");
    case RequestKind::kBarrier:
      return "barrier waits for " + tree_missing(TreeKind::kBarrier, "call barrier");
    case RequestKind::kBroadcast:
      return "broadcast waits for " + waiting_for(broadcast_.missing_ranks(), "to call broadcast");
    case RequestKind::kRows:
    case RequestKind::kEvaluate:
      return "the rows of variable '" + variables_[row_calls_.variable()].name + "' wait for " +
             waiting_for(row_calls_.missing_ranks(), "to answer");
    default:
      return describe_step_missing(request);
  }
}

std::string Engine::describe_step_missing(const Request& request) const {
  const std::string step = "step " + std::to_string(request.step);
  if (!pipeline_.window().may_start(request.step)) {
    return step + " waits for the decision of step " + std::to_string(request.step - 1) + ": " +
           tree_missing(TreeKind::kVote, "end that step");
  }
  // Ranks of a host pull together: one that pulls once more than another waits, and whoever waits
  // for a reduce of it waits for the pull that the other does not make.
  const PullWait pull = group_.pulls().waiting(request.step);
  const std::string number = "pull " + std::to_string(pull.number);
  const std::string missing = waiting_for(pull.missing, "to pull once more or end the step");
  if (request.kind == RequestKind::kPull) {
    if (missing.empty()) return "pull of " + step + " waits for its owners";
    return number + " of " + step + " waits for " + missing;
  }
  if (pipeline_.window().is_decided(request.step)) {
    const std::string text = waiting_for(outbox_.peers_with_data(), "to take what is due to it");
    if (!text.empty()) return step + " is decided, and waits for " + text;
  }
  std::string pulls;
  if (!missing.empty()) {
    pulls = number + " of " + waiting_for(pull.here, "waits for ") + missing;
    const StepState& state = pipeline_.state(request.step);
    const bool ours = state.step == request.step && state.pulls_left > 0;
    if (request.kind == RequestKind::kStepEnd && ours) {
      return step + " does not end before its pulls are answered: " + pulls;
    }
    pulls = "; " + pulls;
  }
  // A reduce waits for its own variables, a step_end for all. Of what others sum, this rank knows
  // only whose sum it waits for, and from other variables perhaps who keeps them waiting.
  std::string variable, of_others;
  const auto look_at = [&](const Runtime& runtime) {
    const MissingRanks ranks = runtime.exchange_at(request.step).missing(request.step);
    if (variable.empty() && !ranks.empty()) {
      variable = "variable '" + runtime.variable->name + "': ";
      of_others = waiting_for(ranks.to_return, "to sum it");
    }
    return waiting_for(ranks.to_give, "to give it or end the step");
  };
  for (const PullSlice& slice : request.slices) {
    const Runtime& runtime = group_.runtime(slice.variable);
    const std::string text = look_at(runtime);
    if (text.empty()) continue;
    return step + " waits for variable '" + runtime.variable->name + "': " + text + pulls;
  }
  for (const auto& runtime : group_.runtimes()) {
    const std::string text = look_at(*runtime);
    if (text.empty()) continue;
    return step + " waits for " + variable + (of_others.empty() ? "" : of_others + ", ") + text +
           pulls;
  }
  if (!of_others.empty()) return step + " waits for " + variable + of_others + pulls;
  return step + " waits for " + tree_missing(TreeKind::kVote, "end the step") + pulls;
}

}  // namespace parallax
