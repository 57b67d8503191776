// SPDX-License-Identifier: Apache-2.0
// topology_json(): the struct of topology.h as JSON. Pure; any thread; nothing blocks.
#include <nlohmann/json.hpp>

#include "topology/topology.h"

namespace parallax {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const NumaNode& node) {
  return {{"index", node.index}, {"memory_bytes", node.memory_bytes}, {"pus", node.pus}};
}

Json json_of(const Cache& cache) {
  return {{"level", cache.level},           {"kind", cache.kind},
          {"size_bytes", cache.size_bytes}, {"line_bytes", cache.line_bytes},
          {"count", cache.count},           {"pus_sharing", cache.pus_sharing}};
}

Json json_of(const NicPort& port) {
  return {{"number", port.number}, {"state", port.state}, {"link_layer", port.link_layer}};
}

Json json_of(const Nic& nic);

template <typename Item>
Json list_of(const std::vector<Item>& items) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(json_of(item));
  return list;
}

Json json_of(const Nic& nic) {
  return {{"name", nic.name},
          {"numa_node", nic.numa_node == kNoNumaNode ? Json(nullptr) : Json(nic.numa_node)},
          {"ports", list_of(nic.ports)}};
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
                      {"memory_bytes", topology.memory_bytes},
                      {"numa_nodes", list_of(topology.numa_nodes)},
                      {"caches", list_of(topology.caches)},
                      {"nics", list_of(topology.nics)}};
  return whole.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace parallax
