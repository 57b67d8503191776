// SPDX-License-Identifier: Apache-2.0
// The address of a tcp rendezvous: "HOST:PORT" or "[IPV6]:PORT", with "#JOB" behind it if the job
// has a name. Parsing is pure; resolve() asks the system's resolver, which blocks for a name as
// long as that takes. Any thread.
#ifndef PARALLAX_RENDEZVOUS_TCP_ADDRESS_H_
#define PARALLAX_RENDEZVOUS_TCP_ADDRESS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/socket_address.h"
#include "base/status.h"

namespace parallax {

struct TcpAddress {
  std::string host;
  uint16_t port = 0;
  std::string job;

  std::string text() const;  // without the job
};

// INVALID names what is wrong with `where`, and the remedy.
Status parse_tcp_address(std::string_view where, TcpAddress* tcp_address);
// Whether the host is a numeric address, which needs no resolver.
bool is_numeric(const TcpAddress& tcp_address);
Status resolve(const TcpAddress& tcp_address, std::vector<SocketAddress>* addresses);

// INVALID, with what to set, unless there is a secret or all addresses are loopback: without a
// secret whoever reaches the port could join.
Status check_trust(const TcpAddress& tcp_address, std::span<const SocketAddress> addresses,
                   bool secret);

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_TCP_ADDRESS_H_
