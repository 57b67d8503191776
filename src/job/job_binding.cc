// SPDX-License-Identifier: Apache-2.0
// From settings to a plan, from the plan to a binding, and the report. See job_binding.h.
#include "job/job_binding.h"

#include <algorithm>
#include <vector>

#include "topology/pu_list.h"

namespace parallax {

Status JobBinding::prepare(const std::string& bind, const std::string& xml_path) {
  bind_text_ = bind.empty() ? "auto" : bind;
  xml_path_ = xml_path;
  const Status parsed = parse_bind(bind, &request_.bind);
  if (!parsed.ok()) return parsed.prefixed("open: ");
  if (xml_path_.empty()) {
    if (request_.bind.mode == Bind::Mode::kNone) return {};
    if (request_.bind.mode == Bind::Mode::kAuto && online_numa_nodes().size() == 1 &&
        one_last_cache()) {
      plan_.why = "the machine has one NUMA node";
      return {};
    }
  } else {
    const Status read = read_topology_xml(xml_path_, &xml_);
    if (!read.ok()) return read.prefixed("open: ");
  }
  const Status found = discover({.hwloc_xml = xml_, .devices = false}, &topology_);
  if (!found.ok()) {
    if (!xml_path_.empty()) {
      return found.prefixed("open: topology_xml is '" + xml_path_ + "': ");
    }
    if (request_.bind.mode != Bind::Mode::kAuto) {
      return found.prefixed("open: bind is '" + bind_text_ + "': ");
    }
    // With bind = auto a machine that hwloc cannot read is no error: nothing is bound.
    plan_.why = found.message();
    return {};
  }
  decidable_ = true;
  // Checked before the rendezvous: a wrong setting must fail before others wait for this rank.
  return decide(0, 1);
}

Status JobBinding::decide(uint32_t local_rank, uint32_t local_world) {
  request_.local_rank = local_rank;
  request_.local_world = local_world;
  if (decidable_ || request_.bind.mode == Bind::Mode::kNone) {
    const Status placed = plan_binding(topology_, request_, &plan_);
    if (!placed.ok()) return placed.prefixed("open: ");
  }
  if (decidable_) {
    std::vector<uint32_t> pus = plan_.pus;
    for (const NumaNode& node : topology_.numa_nodes) {
      if (plan_.pus.empty()) pus.insert(pus.end(), node.allowed.begin(), node.allowed.end());
    }
    std::sort(pus.begin(), pus.end());
    pus.erase(std::unique(pus.begin(), pus.end()), pus.end());
    place_ = near_memory(topology_, pus, &place_why_);
  }
  binding_ = xml_path_.empty() ? std::make_unique<Binding>(plan_.pus, plan_.nodes)
                               : std::make_unique<Binding>();
  return {};
}

Status JobBinding::machine(Topology* topology) const {
  return discover({.hwloc_xml = xml_}, topology);
}

nlohmann::json JobBinding::report() const {
  nlohmann::json threads = nlohmann::json::array();
  for (const Binding::Thread& thread : binding_->threads()) {
    threads.push_back({{"name", thread.name}, {"pus", pu_list_text(thread.pus)}});
    if (!thread.error.empty()) threads.back()["error"] = thread.error;
  }
  const Binding::Memory memory = binding_->memory();
  nlohmann::json placed = {{"areas", memory.areas}, {"bytes", memory.bytes}};
  if (memory.refused > 0) {
    placed["refused"] = memory.refused;
    placed["error"] = memory.error;
  }
  const auto number = [](uint32_t known) {
    return known == NearMemory::kUnknown ? nlohmann::json() : nlohmann::json(known);
  };
  const nlohmann::json domain = {
      {"node", number(place_.node)}, {"last_cache", number(place_.cache)}, {"why", place_why_}};
  return {{"bind", bind_text_},
          {"topology", xml_path_.empty() ? "this machine" : xml_path_},
          {"local_rank", request_.local_rank},
          {"local_world", request_.local_world},
          {"pus", pu_list_text(plan_.pus)},
          {"nodes", plan_.nodes},
          {"why", plan_.why},
          {"bound", xml_path_.empty() && !plan_.pus.empty()},
          {"domain", domain},
          {"threads", threads},
          {"memory", placed}};
}

}  // namespace parallax
