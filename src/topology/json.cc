// SPDX-License-Identifier: Apache-2.0
// topology_json(): the struct of topology.h as JSON. Pure; any thread; nothing blocks.
#include <nlohmann/json.hpp>

#include "topology/pu_list.h"
#include "topology/topology.h"

namespace parallax {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const NumaNode& node) {
  return {{"index", node.index},
          {"memory_bytes", node.memory_bytes},
          {"pus", node.pus},
          {"pu_indices", pu_list_text(node.pu_indices)},
          {"allowed", pu_list_text(node.allowed)},
          {"nics", node.nics}};
}

Json json_of(const Cache& cache) {
  return {{"level", cache.level},           {"kind", cache.kind},
          {"size_bytes", cache.size_bytes}, {"line_bytes", cache.line_bytes},
          {"count", cache.count},           {"pus_sharing", cache.pus_sharing}};
}

Json json_of(const std::vector<uint32_t>& pus) { return pu_list_text(pus); }

Json numa_json(int32_t node) { return node == kNoNumaNode ? Json(nullptr) : Json(node); }

Json json_of(const NicGid& gid);
Json json_of(const NicPort& port);
Json json_of(const Nic& nic);
Json json_of(const Gpu& gpu);

template <typename Item>
Json list_of(const std::vector<Item>& items) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(json_of(item));
  return list;
}

Json json_of(const NicGid& gid) {
  return {{"index", gid.index},
          {"address", gid.address},
          {"type", gid.type},
          {"net_device", gid.net_device},
          {"net_mtu_bytes", gid.net_mtu_bytes}};
}

Json json_of(const NicPort& port) {
  return {{"number", port.number},
          {"state", port.state},
          {"link_layer", port.link_layer},
          {"physical_state", port.physical_state},
          {"rate_mbit_s", port.rate_mbit_s},
          {"mtu_bytes", port.mtu_bytes},
          {"mtu_bytes_max", port.mtu_bytes_max},
          {"lid", port.lid},
          {"gids", list_of(port.gids)}};
}

Json json_of(const Nic& nic) {
  return {{"name", nic.name},
          {"pci_bus_id", nic.pci_bus_id},
          {"numa_node", numa_json(nic.numa_node)},
          {"ports", list_of(nic.ports)},
          {"firmware", nic.firmware},
          {"error", nic.error}};
}

Json json_of(const Gpu& gpu) {
  return {{"pci_bus_id", gpu.pci_bus_id},
          {"vendor", gpu.vendor},
          {"model", gpu.model},
          {"numa_node", numa_json(gpu.numa_node)},
          {"nics", gpu.nics}};
}

}  // namespace

std::string topology_json(const Topology& topology) {
  const Json whole = {{"host", topology.host},
                      {"machine_id", topology.machine_id},
                      {"boot_id", topology.boot_id},
                      {"packages", topology.packages},
                      {"cores", topology.cores},
                      {"pus", topology.pus},
                      {"pus_allowed", topology.pus_allowed},
                      {"bound", topology.bound},
                      {"pu_indices", pu_list_text(topology.pu_indices)},
                      {"memory_bytes", topology.memory_bytes},
                      {"numa_nodes", list_of(topology.numa_nodes)},
                      {"caches", list_of(topology.caches)},
                      {"last_caches", list_of(topology.last_caches)},
                      {"nics", list_of(topology.nics)},
                      {"gpus", list_of(topology.gpus)},
                      {"no_nics_why", topology.no_nics_why}};
  return whole.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace parallax
