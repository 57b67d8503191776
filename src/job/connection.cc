// SPDX-License-Identifier: Apache-2.0
// The words for a connection. See connection.h.
#include "job/connection.h"

#include <vector>

#include "base/version.h"
#include "topology/pu_list.h"

namespace parallax {

namespace {

// "rank 3", "ranks 1-3,7": the others, of this rank's host or of all other hosts.
std::string ranks_text(const HostMap& hosts, uint32_t own, bool same_host) {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < hosts.host_of.size(); ++rank) {
    const bool here = hosts.host_of[rank] == hosts.host_of[own];
    if (rank != own && here == same_host) ranks.push_back(rank);
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + pu_list_text(ranks);
}

}  // namespace

std::string start_line(const Connection& connection, const HostMap& hosts, uint32_t rank) {
  const size_t world = hosts.host_of.size();
  const size_t host_count = hosts.ranks_of.size();
  const size_t local = hosts.ranks_of[hosts.host_of[rank]].size();
  std::string line = "rank " + std::to_string(rank) + " of " + std::to_string(world) +
                     ": libparallax " + kVersionText + ", host '" +
                     hosts.names[hosts.host_of[rank]] + "', " + std::to_string(host_count) +
                     (host_count == 1 ? " host" : " hosts") + "; ";
  if (connection.one_process || world == 1) {
    return line + "transport inproc: " +
           (world == 1 ? "one rank alone" : "the ranks are threads of one process");
  }
  if (local > 1) {
    line += "transport shm to " + ranks_text(hosts, rank, true) + " of this host" +
            (host_count > 1 ? ", " : "");
  }
  if (host_count > 1) {
    line += connection.carrier + " between hosts (" + connection.carrier_why +
            "): " + connection.network + " (" + connection.network_why + "), to " +
            ranks_text(hosts, rank, false);
  }
  return line;
}

nlohmann::json connection_report(const Connection& connection, const HostMap& hosts) {
  nlohmann::json named = nlohmann::json::array();
  for (size_t i = 0; i < hosts.names.size(); ++i) {
    named.push_back({{"name", hosts.names[i]}, {"ranks", hosts.ranks_of[i]}});
    if (hosts.domain_of.empty()) continue;
    std::vector<std::vector<uint32_t>> domains(domain_count(hosts, static_cast<uint32_t>(i)));
    for (const uint32_t rank : hosts.ranks_of[i]) domains[hosts.domain_of[rank]].push_back(rank);
    named.back()["domains"] = domains;
  }
  return {{"hosts", named},
          {"carrier", connection.carrier},
          {"carrier_why", connection.carrier_why},
          {"network", connection.network},
          {"module",
           {{"path", connection.module.path},
            {"library", connection.module.library},
            {"environment", connection.module.environment},
            {"tried", connection.module.tried}}}};
}

nlohmann::json faults_report(const FaultyTransport& faulty) {
  return {{"delayed", faulty.delayed_count()},
          {"silenced", faulty.silenced_count()},
          {"stalled", faulty.stalled_count()},
          {"closed", faulty.closed_count()}};
}

}  // namespace parallax
