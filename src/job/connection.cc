// SPDX-License-Identifier: Apache-2.0
// The words for a connection. See connection.h.
#include "job/connection.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/version.h"
#include "topology/pu_list.h"

namespace parallax {

namespace {

using Ranks = std::vector<uint32_t>;

// The others, of this rank's host or of all other hosts.
Ranks others(const HostMap& hosts, uint32_t own, bool same_host) {
  Ranks ranks;
  for (uint32_t rank = 0; rank < hosts.host_of.size(); ++rank) {
    const bool here = hosts.host_of[rank] == hosts.host_of[own];
    if (rank != own && here == same_host) ranks.push_back(rank);
  }
  return ranks;
}

// "rank 3", "ranks 1-3,7"
std::string ranks_text(const Ranks& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + pu_list_text(ranks);
}

NetworkWay way_to(const Connection& connection, uint32_t rank) {
  return rank < connection.ways.size() ? connection.ways[rank] : NetworkWay();
}

// Those that are reached alike, in the order of the first of each.
std::vector<std::pair<NetworkWay, Ranks>> by_way(const Connection& connection, const Ranks& ranks) {
  std::vector<std::pair<NetworkWay, Ranks>> groups;
  for (const uint32_t rank : ranks) {
    const NetworkWay way = way_to(connection, rank);
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&way](const auto& group) { return group.first == way; });
    if (found == groups.end()) {
      groups.push_back({way, {rank}});
    } else {
      found->second.push_back(rank);
    }
  }
  return groups;
}

// "to ranks 2-3: rc_verbs/mlx5_0:1 to mlx5_0:1; to rank 4"
std::string ways_text(const Connection& connection, const Ranks& ranks) {
  std::string text;
  for (const auto& [way, alike] : by_way(connection, ranks)) {
    text += (text.empty() ? "to " : "; to ") + ranks_text(alike);
    if (!way.text.empty()) text += ": " + way.text;
  }
  return text;
}

}  // namespace

std::vector<NetworkWay> ways_of(NetworkTransport& network, uint32_t world) {
  std::vector<NetworkWay> ways;
  for (uint32_t rank = 0; rank < world; ++rank) ways.push_back(network.way_to(rank));
  return ways;
}

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
    line += "transport shm to " + ranks_text(others(hosts, rank, true)) + " of this host" +
            (host_count > 1 ? ", " : "");
  }
  if (host_count > 1) {
    line += connection.carrier + " between hosts (" + connection.carrier_why +
            "): " + connection.network + " (" + connection.network_why + "), " +
            ways_text(connection, others(hosts, rank, false));
  }
  return line;
}

std::vector<std::string> way_warnings(const Connection& connection, uint32_t rank) {
  Ranks worse;
  for (uint32_t to = 0; to < connection.ways.size(); ++to) {
    if (!connection.ways[to].lacks.empty()) worse.push_back(to);
  }
  std::vector<std::string> warnings;
  for (const auto& [way, alike] : by_way(connection, worse)) {
    warnings.push_back("open: rank " + std::to_string(rank) + " reaches " + ranks_text(alike) +
                       " by " + way.text + ", of " + connection.network + ": " + way.lacks);
  }
  return warnings;
}

void log_connection(const Connection& connection, const HostMap& hosts, uint32_t rank) {
  PARALLAX_LOG(kInfo, kInit, start_line(connection, hosts, rank));
  for (const std::string& warning : way_warnings(connection, rank)) {
    PARALLAX_LOG(kWarn, kNet, warning);
  }
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
  nlohmann::json ways = nlohmann::json::array();
  for (const NetworkWay& way : connection.ways) ways.push_back(way.text);
  return {{"hosts", named},
          {"ways", ways},
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
