// SPDX-License-Identifier: Apache-2.0
// TcpNetwork: what a job's options and settings make of transport tcp: its keys, from the secret by
// which the ranks meet, the interface, the ports, and how frames are protected. Reads the secret's
// file and asks the kernel for interfaces; blocks on nothing else. Any thread.
#ifndef PARALLAX_JOB_TCP_NETWORK_H_
#define PARALLAX_JOB_TCP_NETWORK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/crypto.h"
#include "base/settings.h"
#include "base/status.h"
#include "parallax/parallax.h"
#include "transport/module/network_transport.h"
#include "transport/tcp/tcp_strangers.h"

namespace parallax {

struct TcpNetworkRequest {
  const parallax_options_t* options = nullptr;
  const Settings* settings = nullptr;
  std::string device = {};  // "eth0"; empty: the default route's
  uint32_t world = 0;
  uint64_t job = 0;  // random; rank 0's
  uint32_t epoch = 0;
  int64_t lease_ns = 0;
};

// INVALID: it would be open to other machines and there is no secret, or no such interface or range
// of ports; IO, LIMIT as TcpTransport.
Status make_tcp_network(const TcpNetworkRequest& request,
                        std::unique_ptr<NetworkTransport>* network);

// "eth1,eth2"; "": none. INVALID.
Status parse_tcp_rails(std::string_view text, std::vector<std::string>* devices);

// "31000-31999"; "": any. INVALID.
Status parse_tcp_ports(std::string_view text, TcpPorts* ports);

}  // namespace parallax

#endif  // PARALLAX_JOB_TCP_NETWORK_H_
