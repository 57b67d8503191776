// SPDX-License-Identifier: Apache-2.0
// The choice of ports by rank: those that work, of them the nearest, of them the fastest, and
// these shared out among the ranks that choose from the same. See rails.h.
#include "topology/rails.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "topology/binding_plan.h"
#include "topology/nic_ports.h"

namespace parallax {
namespace {

using Names = std::vector<std::string>;

bool is_named(const std::string& device, const Rail& rail) {
  return device.empty() || device == rail.nic || device == rail_name(rail);
}

// Those that work; *trouble: of the others, why not.
std::vector<Rail> working_rails(const Topology& topology, const std::string& device, bool* is_here,
                                std::string* trouble) {
  std::vector<std::pair<Rail, std::string>> working;  // with the link layer
  *is_here = device.empty();
  const auto ill = [&](const std::string& name, const std::string& why) {
    *trouble += (trouble->empty() ? "" : "; ") + name + ": " + why;
  };
  for (const Nic& nic : topology.nics) {
    if (nic.ports.empty() && (device.empty() || device == nic.name)) {
      *is_here = true;
      ill(nic.name, nic.error.empty() ? "it has no ports" : nic.error);
    }
    for (const NicPort& port : nic.ports) {
      const Rail rail = {.nic = nic.name, .port = port.number, .rate_mbit_s = port.rate_mbit_s};
      if (!is_named(device, rail)) continue;
      *is_here = true;
      const std::string why = port_trouble(port);
      if (why.empty()) {
        working.emplace_back(rail, port.link_layer);
      } else {
        ill(rail_name(rail), why);
      }
    }
  }
  const auto slower = [](const auto& a, const auto& b) {
    return std::tuple(a.first.rate_mbit_s, a.second == "infiniband") <
           std::tuple(b.first.rate_mbit_s, b.second == "infiniband");
  };
  const auto fastest = std::max_element(working.begin(), working.end(), slower);
  std::vector<Rail> rails;
  for (const auto& [rail, link_layer] : working) {
    if (link_layer == fastest->second) rails.push_back(rail);
  }
  return rails;
}

// What a rank is near to, and the NICs nearest to that.
struct Home {
  std::string why;
  Names nics;
  std::string assumed = {};  // ", ...": by what it is taken for its home
};

// The GPU that is taken for a rank's; null: none can be told. *assumed: by what.
const Gpu* gpu_of(const Topology& topology, const RailRequest& request, uint32_t local_rank,
                  std::string* assumed) {
  const VisibleGpus visible = visible_gpus(topology, request.cuda);
  const std::string doubt = visible.doubt.empty() ? "" : " (" + visible.doubt + ")";
  // Launchers that give each rank a GPU show it that one alone, by its number.
  const bool has_one_alone = visible.gpus.size() == 1 && request.local_ranks > 1;
  // But number 0 is also what each finds as its own where a control group hides the others.
  const bool tells = has_one_alone && local_rank == request.local_rank && visible.gpus[0] != 0;
  if (visible.all || (has_one_alone && !tells)) {
    if (topology.gpus.size() < request.local_ranks) return nullptr;
    *assumed = ", taken for that of local rank " + std::to_string(local_rank) + doubt;
    return &topology.gpus[local_rank];
  }
  if (has_one_alone) {
    *assumed = ", the one that CUDA_VISIBLE_DEVICES shows" + doubt;
    return &topology.gpus[visible.gpus[0]];
  }
  if (visible.gpus.size() < request.local_ranks) {
    *assumed = visible.doubt.empty() ? ", as CUDA_VISIBLE_DEVICES shows fewer GPUs than ranks"
                                     : ", as " + visible.doubt;
    return nullptr;
  }
  *assumed = ", taken for that of local rank " + std::to_string(local_rank) +
             ", by CUDA_VISIBLE_DEVICES" + doubt;
  return &topology.gpus[visible.gpus[local_rank]];
}

Home home_of(const Topology& topology, const RailRequest& request, uint32_t local_rank) {
  Home home;
  if (const Gpu* const gpu = gpu_of(topology, request, local_rank, &home.assumed)) {
    home.why = "nearest to GPU " + gpu->pci_bus_id;
    home.nics = gpu->nics;
    return home;
  }
  BindingPlan plan;
  const Status planned = plan_binding(
      topology, {.bind = {}, .local_rank = local_rank, .local_world = request.local_ranks}, &plan);
  std::string nodes;
  for (const NumaNode& node : topology.numa_nodes) {
    const bool has =
        std::find(plan.nodes.begin(), plan.nodes.end(), node.index) != plan.nodes.end();
    if (!planned.ok() || !has) continue;
    nodes += (nodes.empty() ? "" : ", ") + std::to_string(node.index);
    home.nics.insert(home.nics.end(), node.nics.begin(), node.nics.end());
  }
  if (nodes.empty()) return {"this rank has the whole machine", {}, home.assumed};
  home.why = "nearest to NUMA node " + nodes;
  return home;
}

// The fastest of those whose NIC is named; of all where none of these is there.
std::vector<Rail> candidates(const std::vector<Rail>& working, const Home& home, std::string* why) {
  std::vector<Rail> near;
  for (const Rail& rail : working) {
    if (std::find(home.nics.begin(), home.nics.end(), rail.nic) != home.nics.end()) {
      near.push_back(rail);
    }
  }
  *why = near.empty() && !home.nics.empty() ? "none of those " + home.why + " works" : home.why;
  if (near.empty()) near = working;
  uint32_t fastest = 0;
  for (const Rail& rail : near) fastest = std::max(fastest, rail.rate_mbit_s);
  std::erase_if(near, [fastest](const Rail& rail) { return rail.rate_mbit_s < fastest; });
  return near;
}

// The `index`-th of `count` ranks with this choice.
std::vector<Rail> rails_of(const std::vector<Rail>& choice, size_t index, size_t count) {
  std::vector<Rail> own;
  for (size_t at = index; at < choice.size(); at += count) own.push_back(choice[at]);
  if (own.empty()) own.push_back(choice[index % choice.size()]);
  return own;
}

}  // namespace

std::string rail_name(const Rail& rail) { return rail.nic + ":" + std::to_string(rail.port); }

Status plan_rails(const Topology& topology, const RailRequest& request,
                  std::vector<RankRails>* ranks) {
  bool is_here = false;
  std::string trouble;
  const std::vector<Rail> working = working_rails(topology, request.device, &is_here, &trouble);
  if (topology.nics.empty()) {
    return unsupported("there is no RDMA device: " + topology.no_nics_why);
  }
  if (!is_here) {
    std::string have;
    for (const Nic& nic : topology.nics) have += (have.empty() ? "" : ", ") + nic.name;
    return invalid("there is no RDMA device " + request.device + ", there are " + have);
  }
  if (working.empty()) return unsupported("no port of an RDMA device works: " + trouble);
  std::vector<std::vector<Rail>> choices(request.local_ranks);
  std::map<Names, std::vector<uint32_t>> alike;  // ranks by what they choose from
  ranks->assign(request.local_ranks, {});
  for (uint32_t rank = 0; rank < request.local_ranks; ++rank) {
    const Home home = request.device.empty() ? home_of(topology, request, rank)
                                             : Home{request.device + " was asked for", {}};
    choices[rank] = candidates(working, home, &(*ranks)[rank].why);
    (*ranks)[rank].assumed = home.assumed;
    Names names;
    for (const Rail& rail : choices[rank]) names.push_back(rail_name(rail));
    alike[names].push_back(rank);
  }
  for (const auto& [names, who] : alike) {
    for (size_t i = 0; i < who.size(); ++i) {
      (*ranks)[who[i]].rails = rails_of(choices[who[i]], i, who.size());
    }
  }
  return {};
}

}  // namespace parallax
