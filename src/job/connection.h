// SPDX-License-Identifier: Apache-2.0
// Connection: by what the ranks of a job are connected, and how a job tells that: in its first line
// of the log, and in its report. Plain values; any thread; nothing blocks.
#ifndef PARALLAX_JOB_CONNECTION_H_
#define PARALLAX_JOB_CONNECTION_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "transport/faulty/faulty_transport.h"
#include "transport/module/loader.h"
#include "world/host_map.h"

namespace parallax {

struct Connection {
  bool one_process = false;  // the ranks are its threads
  ModuleReport module;
  std::string carrier;      // between hosts: "UCX 1.13.1", "tcp"
  std::string carrier_why;  // "the default"
  std::string network;      // description of the transport between hosts
  std::string network_why;  // why this device
};

// "rank 0 of 4: libparallax 0.2.0, host 'a', 2 hosts; ...": the transport and device by which each
// other rank is reached, and why.
std::string start_line(const Connection& connection, const HostMap& hosts, uint32_t rank);

// The keys "hosts", "network" and "module" of the topology report.
nlohmann::json connection_report(const Connection& connection, const HostMap& hosts);
// Its key "faults": how many of each were done.
nlohmann::json faults_report(const FaultyTransport& faulty);

}  // namespace parallax

#endif  // PARALLAX_JOB_CONNECTION_H_
