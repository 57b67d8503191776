// SPDX-License-Identifier: Apache-2.0
// Connection: by what the ranks of a job are connected, and how a job tells that: in its first line
// of the log, and in its report. Plain values; any thread; nothing blocks.
#ifndef PARALLAX_JOB_CONNECTION_H_
#define PARALLAX_JOB_CONNECTION_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "transport/faulty/faulty_transport.h"
#include "transport/module/loader.h"
#include "transport/module/network_transport.h"
#include "world/host_map.h"

namespace parallax {

struct Connection {
  bool one_process = false;  // the ranks are its threads
  ModuleReport module;
  std::string carrier;      // between hosts: "UCX 1.13.1", "tcp"
  std::string carrier_why;  // "the default"
  std::string network;      // description of the transport between hosts
  std::string network_why;  // why this device
  // By rank; without a text: as `network` says, or not connected yet.
  std::vector<NetworkWay> ways = {};
};

// What was taken for each of that many ranks.
std::vector<NetworkWay> ways_of(NetworkTransport& network, uint32_t world);

// "rank 0 of 4: libparallax 0.2.0, host 'a', 2 hosts; ...": the transport and device by which each
// other rank is reached, and why.
std::string start_line(const Connection& connection, const HostMap& hosts, uint32_t rank);

// A sentence for each way that lacks something, with its ranks: what a user would want to hear of
// without having asked.
std::vector<std::string> way_warnings(const Connection& connection, uint32_t rank);

// Logs both: the line at info, the others at warn.
void log_connection(const Connection& connection, const HostMap& hosts, uint32_t rank);

// The keys "hosts", "carrier", "network", "ways" and "module" of the topology report.
nlohmann::json connection_report(const Connection& connection, const HostMap& hosts);
// Its key "faults": how many of each were done.
nlohmann::json faults_report(const FaultyTransport& faulty);

}  // namespace parallax

#endif  // PARALLAX_JOB_CONNECTION_H_
