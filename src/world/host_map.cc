// SPDX-License-Identifier: Apache-2.0
// Numbering of hosts by first appearance, and the names of ranks. Pure; any thread; nothing blocks.
#include "world/host_map.h"

#include <unordered_map>

namespace parallax {

HostMap map_hosts(std::span<const std::string> host_names) {
  HostMap map;
  map.host_of.reserve(host_names.size());
  map.local_of.reserve(host_names.size());
  std::unordered_map<std::string, uint32_t> host_by_name;
  for (uint32_t rank = 0; rank < host_names.size(); ++rank) {
    const std::string& name = host_names[rank];
    const auto next = static_cast<uint32_t>(map.names.size());
    const auto [entry, is_new] = host_by_name.emplace(name, next);
    if (is_new) {
      map.names.push_back(name);
      map.ranks_of.emplace_back();
    }
    std::vector<uint32_t>& ranks = map.ranks_of[entry->second];
    map.host_of.push_back(entry->second);
    map.local_of.push_back(static_cast<uint32_t>(ranks.size()));
    ranks.push_back(rank);
  }
  return map;
}

std::string rank_name(const HostMap& hosts, uint32_t rank) {
  const std::string name = "rank " + std::to_string(rank);
  if (rank >= hosts.host_of.size()) return name;
  return name + " (host " + hosts.names[hosts.host_of[rank]] + ")";
}

std::string rank_names(const HostMap& hosts, std::span<const uint32_t> ranks) {
  constexpr size_t kNamed = 4;
  std::string names;
  for (size_t i = 0; i < ranks.size() && i < kNamed; ++i) {
    names += (i == 0 ? "" : ", ") + rank_name(hosts, ranks[i]);
  }
  if (ranks.size() > kNamed) names += " and " + std::to_string(ranks.size() - kNamed) + " more";
  return names;
}

}  // namespace parallax
