// SPDX-License-Identifier: Apache-2.0
// Leases and hosts of all ranks. See endpoint_checks.h.
#include "job/endpoint_checks.h"

#include <string>
#include <string_view>

namespace parallax {

Status check_leases(const std::vector<Endpoint>& all) {
  for (const Endpoint& endpoint : all) {
    if (endpoint.lease_ms == all[0].lease_ms) continue;
    return Status(PARALLAX_MISMATCH, "open: option lease_ms: rank 0 has " +
                                         std::to_string(all[0].lease_ms) + ", rank " +
                                         std::to_string(endpoint.rank) + " has " +
                                         std::to_string(endpoint.lease_ms))
        .about_field("lease_ms")
        .about_peer(endpoint.rank, endpoint.host);
  }
  return {};
}

Status check_carriers(const std::vector<Endpoint>& all) {
  for (const Endpoint& endpoint : all) {
    if (endpoint.carrier == all[0].carrier) continue;
    const auto takes = [](const Endpoint& each) {
      constexpr const char* kNames[] = {"\"ucx\"", "\"rdma\"", "\"tcp\""};
      return std::string(" takes ") + kNames[static_cast<size_t>(each.carrier)];
    };
    return Status(PARALLAX_MISMATCH, "open: option transport: rank 0" + takes(all[0]) + ", rank " +
                                         std::to_string(endpoint.rank) + " (host " + endpoint.host +
                                         ")" + takes(endpoint) +
                                         ": between hosts all go one way; set "
                                         "PARALLAX_TRANSPORT alike on every rank")
        .about_field("transport")
        .about_peer(endpoint.rank, endpoint.host);
  }
  return {};
}

Status check_hosts(const std::vector<Endpoint>& all, const HostMap& hosts, const char* transport) {
  for (const Endpoint& endpoint : all) {
    const Endpoint& first = all[hosts.ranks_of[hosts.host_of[endpoint.rank]][0]];
    if (endpoint.machine == first.machine) continue;
    return invalid("open: ranks " + std::to_string(first.rank) + " and " +
                   std::to_string(endpoint.rank) + " both say host '" + endpoint.host +
                   "' but cannot share memory (another machine, container or network namespace); "
                   "give them different host options")
        .about_field("host")
        .about_peer(endpoint.rank, endpoint.host);
  }
  if (transport != nullptr && std::string_view(transport) == "shm" && hosts.ranks_of.size() > 1) {
    return invalid("open: transport is \"shm\", but the ranks are on " +
                   std::to_string(hosts.ranks_of.size()) + " hosts; use \"tcp\"")
        .about_field("transport");
  }
  if (hosts.ranks_of.size() == 1) return {};
  return check_carriers(all);
}

}  // namespace parallax
