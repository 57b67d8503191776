// SPDX-License-Identifier: Apache-2.0
// See topology_tree.h.
#include "tool/topology_tree.h"

#include <algorithm>
#include <vector>

#include "topology/nic_ports.h"
#include "topology/rails.h"

namespace parallax::tool {

namespace {

struct Branch {
  std::string text;
  std::vector<Branch> below = {};
};

void draw(const std::vector<Branch>& branches, const std::string& indent, std::string* out) {
  for (size_t i = 0; i < branches.size(); ++i) {
    const bool last = i + 1 == branches.size();
    *out += indent + (last ? "`-- " : "|-- ") + branches[i].text + "\n";
    draw(branches[i].below, indent + (last ? "    " : "|   "), out);
  }
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

Branch branch_of(const NicPort& port) {
  Branch branch = {"port " + std::to_string(port.number) + ": " + port_text(port)};
  const NicGid* chosen = chosen_gid(port);
  for (const NicGid& gid : port.gids) {
    branch.below.push_back({"GID " + std::to_string(gid.index) + ": " + describe(gid) +
                            (&gid == chosen ? ", the one that UCX takes" : "")});
  }
  return branch;
}

Branch branch_of(const Nic& nic) {
  Branch branch = {"NIC " + nic.name};
  if (!nic.pci_bus_id.empty()) branch.text += " " + nic.pci_bus_id;
  if (!nic.firmware.empty()) branch.text += ", firmware " + nic.firmware;
  if (!nic.error.empty()) branch.text += ": " + nic.error;
  for (const NicPort& port : nic.ports) branch.below.push_back(branch_of(port));
  return branch;
}

Branch branch_of(const Gpu& gpu) {
  return {"GPU " + gpu.pci_bus_id + " " + gpu.vendor + " " + gpu.model +
          (gpu.nics.empty() ? "" : "; nearest " + joined(gpu.nics))};
}

std::vector<Branch> devices_of(const Topology& topology, int32_t node) {
  std::vector<Branch> branches;
  for (const Gpu& gpu : topology.gpus) {
    if (gpu.numa_node == node) branches.push_back(branch_of(gpu));
  }
  for (const Nic& nic : topology.nics) {
    if (nic.numa_node == node) branches.push_back(branch_of(nic));
  }
  return branches;
}

void draw_rails(const Topology& topology, std::string* out) {
  size_t ranks = topology.gpus.size();
  const char* const of = ranks > 0 ? "GPU" : "NUMA node";
  if (ranks == 0) ranks = std::max<size_t>(topology.numa_nodes.size(), 1);
  std::vector<RankRails> rails;
  const Status planned =
      plan_rails(topology, {.local_ranks = static_cast<uint32_t>(ranks)}, &rails);
  if (!planned.ok()) {
    *out += "Rails: none: " + planned.message() + "\n";
    return;
  }
  *out += std::string("Rails, with a rank for each ") + of + "\n";
  std::vector<Branch> branches;
  for (size_t rank = 0; rank < rails.size(); ++rank) {
    std::vector<std::string> names;
    for (const Rail& rail : rails[rank].rails) names.push_back(rail_name(rail));
    branches.push_back(
        {"local rank " + std::to_string(rank) + ": " + joined(names) + ", " + rails[rank].why});
  }
  draw(branches, "", out);
}

}  // namespace

std::string rate_text(uint32_t rate_mbit_s) {
  if (rate_mbit_s == 0) return "rate unknown";
  const uint32_t tenths = rate_mbit_s % 1000 / 100;
  return std::to_string(rate_mbit_s / 1000) + (tenths == 0 ? "" : "." + std::to_string(tenths)) +
         " Gbit/s";
}

std::string port_text(const NicPort& port) {
  std::string text = port.state;
  if (port.state != "active" && port.physical_state != "unknown") {
    text += " (" + port.physical_state + ")";
  }
  const std::string layer = port.link_layer == "infiniband" ? "InfiniBand"
                            : port.link_layer == "ethernet" ? "Ethernet"
                                                            : "link layer unknown";
  text += ", " + layer + ", " + rate_text(port.rate_mbit_s);
  if (port.mtu_bytes > 0) {
    text += ", MTU " + std::to_string(port.mtu_bytes) + " of " + std::to_string(port.mtu_bytes_max);
  }
  if (port.lid > 0) text += ", LID " + std::to_string(port.lid);
  return text;
}

std::string topology_tree(const Topology& topology) {
  std::string out;
  for (const NumaNode& node : topology.numa_nodes) {
    const std::vector<Branch> devices = devices_of(topology, static_cast<int32_t>(node.index));
    out += "NUMA node " + std::to_string(node.index) +
           (node.nics.empty() ? "" : "; nearest " + joined(node.nics)) + "\n";
    draw(devices, "", &out);
  }
  if (const std::vector<Branch> devices = devices_of(topology, kNoNumaNode); !devices.empty()) {
    out += "NUMA node unknown\n";
    draw(devices, "", &out);
  }
  if (topology.nics.empty()) {
    out += "NICs for RDMA: none" +
           (topology.no_nics_why.empty() ? "" : ": " + topology.no_nics_why) + "\n";
  } else {
    draw_rails(topology, &out);
  }
  return out;
}

}  // namespace parallax::tool
