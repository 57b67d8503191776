// SPDX-License-Identifier: Apache-2.0
// The NUMA node and the cache that some PUs have in common. Pure. See topology.h.
#include <algorithm>

#include "topology/pu_list.h"
#include "topology/topology.h"

namespace parallax {

NearMemory near_memory(const Topology& topology, const std::vector<uint32_t>& pus,
                       std::string* why) {
  NearMemory place;
  if (pus.empty()) {
    *why = "which PUs it runs on is not known";
    return place;
  }
  const auto has_all = [&pus](const std::vector<uint32_t>& all) {
    return std::includes(all.begin(), all.end(), pus.begin(), pus.end());
  };
  // The first of those that have them: memory of another kind beside it comes behind.
  const auto node = std::find_if(topology.numa_nodes.begin(), topology.numa_nodes.end(),
                                 [&](const NumaNode& each) { return has_all(each.pu_indices); });
  const auto cache =
      std::find_if(topology.last_caches.begin(), topology.last_caches.end(), has_all);
  *why = "it runs on PUs " + pu_list_text(pus);
  if (node == topology.numa_nodes.end()) {
    *why += ", of several NUMA nodes";
    return place;
  }
  place.node = node->index;
  *why += ", of NUMA node " + std::to_string(place.node);
  if (cache != topology.last_caches.end()) {
    place.cache = static_cast<uint32_t>(cache - topology.last_caches.begin());
    *why += " and the cache of PUs " + pu_list_text(*cache);
  }
  return place;
}

}  // namespace parallax
