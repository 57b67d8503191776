// SPDX-License-Identifier: Apache-2.0
// The map of a world of ranks, by any number that tells their hosts apart. Tests only.
#ifndef PARALLAX_TESTS_SUPPORT_HOST_MAP_OF_H_
#define PARALLAX_TESTS_SUPPORT_HOST_MAP_OF_H_

#include <cstdint>
#include <string>
#include <vector>

#include "world/host_map.h"

namespace parallax::testkit {

inline HostMap host_map(const std::vector<uint32_t>& hosts) {
  std::vector<std::string> names;
  for (const uint32_t host : hosts) names.push_back("host" + std::to_string(host));
  return map_hosts(names);
}

// One host of ranks in these domains of memory.
inline HostMap map_of_domains(const std::vector<uint32_t>& domains) {
  HostMap hosts = host_map(std::vector<uint32_t>(domains.size()));
  std::vector<NearMemory> places;
  for (const uint32_t domain : domains) places.push_back({.node = domain});
  set_domains(&hosts, places);
  return hosts;
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_HOST_MAP_OF_H_
