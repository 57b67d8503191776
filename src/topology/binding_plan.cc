// SPDX-License-Identifier: Apache-2.0
// Sharing out the NUMA nodes of a host, and the settings that overrule it. See binding_plan.h.
#include "topology/binding_plan.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "base/check.h"
#include "topology/pu_list.h"

namespace parallax {

namespace {

constexpr size_t kShownMax = 64;  // bytes of a wrong value that a message repeats

using Nodes = std::vector<const NumaNode*>;

std::string quoted(std::string_view text) {
  return "'" + std::string(text.substr(0, kShownMax)) + (text.size() > kShownMax ? "...'" : "'");
}

std::string counted(size_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::vector<uint32_t> indices_of(const Nodes& nodes) {
  std::vector<uint32_t> indices;
  indices.reserve(nodes.size());
  for (const NumaNode* node : nodes) indices.push_back(node->index);
  std::sort(indices.begin(), indices.end());
  return indices;
}

std::string name_of(const Nodes& nodes) {
  return (nodes.size() == 1 ? "node " : "nodes ") + pu_list_text(indices_of(nodes));
}

bool overlap(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  std::vector<uint32_t> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return !both.empty();
}

// The machine's nodes with PUs. Memory beside the PUs of another node (HBM, a GPU's) is no place of
// its own: ordinary memory comes first.
Nodes places_of(const Topology& topology) {
  Nodes places;
  for (const NumaNode& node : topology.numa_nodes) {
    if (node.pu_indices.empty()) continue;
    const bool beside = std::any_of(places.begin(), places.end(), [&](const NumaNode* other) {
      return overlap(node.pu_indices, other->pu_indices);
    });
    if (!beside) places.push_back(&node);
  }
  return places;
}

Nodes with_most(const Nodes& nodes) {
  size_t most = 0;
  for (const NumaNode* node : nodes) most = std::max(most, node->allowed.size());
  Nodes best;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(best),
               [&](const NumaNode* node) { return node->allowed.size() == most; });
  return best;
}

// This rank's part, consecutive: at least one, and of several ranks none has all.
Nodes share_of(const Nodes& nodes, const BindingRequest& request) {
  const uint64_t count = nodes.size();
  const uint64_t first = request.local_rank * count / request.local_world;
  const uint64_t end =
      std::max(first + 1, (request.local_rank + uint64_t{1}) * count / request.local_world);
  return {nodes.begin() + static_cast<ptrdiff_t>(first),
          nodes.begin() + static_cast<ptrdiff_t>(end)};
}

BindingPlan placed_on(const Nodes& nodes, std::string why) {
  BindingPlan plan;
  plan.nodes = indices_of(nodes);
  for (const NumaNode* node : nodes) {
    plan.pus.insert(plan.pus.end(), node->allowed.begin(), node->allowed.end());
  }
  std::sort(plan.pus.begin(), plan.pus.end());
  plan.why = std::move(why);
  return plan;
}

BindingPlan nothing(std::string why) { return {.pus = {}, .nodes = {}, .why = std::move(why)}; }

BindingPlan place_auto(const Topology& topology, const BindingRequest& request) {
  const Nodes places = places_of(topology);
  if (places.size() == 1) return nothing("the machine has one NUMA node");
  Nodes usable;
  std::copy_if(places.begin(), places.end(), std::back_inserter(usable),
               [](const NumaNode* node) { return !node->allowed.empty(); });
  if (usable.empty()) return nothing("no PU is known that this process may use");
  const std::string rank = "rank " + std::to_string(request.local_rank) + " of the " +
                           counted(request.local_world, "rank") + " on this host";
  if (usable.size() == 1) {
    return placed_on(usable, "this process may use PUs of " + name_of(usable) + " alone");
  }
  if (topology.bound) {
    const Nodes best = with_most(usable);
    const Nodes mine = share_of(best, request);
    std::string why = "this process was bound to " + counted(topology.pus_allowed, "PU") + "; ";
    why += name_of(best) + (best.size() == 1 ? " has" : " have") + " most of them";
    if (best.size() > 1 && mine.size() < best.size()) why += ", shared out: " + rank;
    return placed_on(mine, std::move(why));
  }
  if (request.local_world == 1) return nothing("the only rank of its host has the whole machine");
  const Nodes mine = share_of(usable, request);
  return placed_on(mine, rank + ", which share out " + name_of(usable));
}

Status place_on_node(const Topology& topology, uint32_t index, BindingPlan* plan) {
  const std::string setting = "bind is 'node:" + std::to_string(index) + "': ";
  Nodes all;
  for (const NumaNode& node : topology.numa_nodes) all.push_back(&node);
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const NumaNode* node) { return node->index == index; });
  const char* const remedy = "; name another, or use \"auto\" or \"none\"";
  if (found == all.end()) {
    return invalid(setting + "the machine has no such NUMA node, it has " + name_of(all) + remedy);
  }
  if ((*found)->allowed.empty()) {
    return invalid(setting + "it has no PU that this process may use" + remedy);
  }
  *plan = placed_on({*found}, "asked for");
  return {};
}

Status place_on_pus(const Topology& topology, const std::vector<uint32_t>& pus, BindingPlan* plan) {
  const auto missing = std::find_if(pus.begin(), pus.end(), [&](uint32_t pu) {
    return !std::binary_search(topology.pu_indices.begin(), topology.pu_indices.end(), pu);
  });
  if (missing != pus.end()) {
    return invalid("bind is 'pus:" + pu_list_text(pus).substr(0, kShownMax) +
                   "': the machine has no PU " + std::to_string(*missing) + ", it has " +
                   pu_list_text(topology.pu_indices) +
                   "; name others, or use \"auto\" or \"none\"");
  }
  *plan = {.pus = pus, .nodes = {}, .why = "asked for"};
  const Nodes places = places_of(topology);
  Nodes holding;
  std::copy_if(places.begin(), places.end(), std::back_inserter(holding),
               [&](const NumaNode* node) { return overlap(node->pu_indices, pus); });
  // On every node: first touch does as well.
  if (holding.size() < places.size()) plan->nodes = indices_of(holding);
  return {};
}

}  // namespace

Status parse_bind(std::string_view text, Bind* bind) {
  constexpr std::string_view kNodePrefix = "node:", kPusPrefix = "pus:";
  *bind = {};
  if (text.empty() || text == "auto") return {};
  if (text == "none") {
    bind->mode = Bind::Mode::kNone;
    return {};
  }
  std::vector<uint32_t> numbers;
  if (text.starts_with(kNodePrefix)) {
    const std::string_view number = text.substr(kNodePrefix.size());
    if (number.find_first_of(",-") == number.npos && parse_pu_list(number, &numbers)) {
      *bind = {.mode = Bind::Mode::kNode, .node = numbers[0], .pus = {}};
      return {};
    }
    return invalid("bind is " + quoted(text) + "; after node: stands the number of one NUMA node");
  }
  if (text.starts_with(kPusPrefix)) {
    if (parse_pu_list(text.substr(kPusPrefix.size()), &numbers)) {
      *bind = {.mode = Bind::Mode::kPus, .node = 0, .pus = std::move(numbers)};
      return {};
    }
    return invalid("bind is " + quoted(text) + "; after pus: stands a list of PUs such as 0-3,8");
  }
  return invalid("bind is " + quoted(text) +
                 "; it must be auto, none, node:N (a NUMA node) or pus:LIST (such as pus:0-3,8)");
}

Status plan_binding(const Topology& topology, const BindingRequest& request, BindingPlan* plan) {
  PARALLAX_CHECK(request.local_rank < request.local_world);
  switch (request.bind.mode) {
    case Bind::Mode::kNone:
      *plan = nothing("asked for: none");
      return {};
    case Bind::Mode::kNode:
      return place_on_node(topology, request.bind.node, plan);
    case Bind::Mode::kPus:
      return place_on_pus(topology, request.bind.pus, plan);
    case Bind::Mode::kAuto:
      break;
  }
  *plan = place_auto(topology, request);
  return {};
}

}  // namespace parallax
