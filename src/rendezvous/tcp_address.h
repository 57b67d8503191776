// SPDX-License-Identifier: Apache-2.0
// The address of a tcp rendezvous: "HOST:PORT" or "[IPV6]:PORT", with "#JOB" behind it if the job
// has a name. Parsing is pure; resolve() asks the system's resolver, which blocks for a name as
// long as that takes. Any thread.
#ifndef PARALLAX_RENDEZVOUS_TCP_ADDRESS_H_
#define PARALLAX_RENDEZVOUS_TCP_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace parallax {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
};

// "127.0.0.1:29500", "[::1]:29500".
std::string to_text(const SocketAddress& address);
bool is_loopback(const SocketAddress& address);
uint16_t port_of(const SocketAddress& address);
// The address without its port, in network order: 4 bytes (IPv4) or 16 (IPv6).
std::string address_bytes(const SocketAddress& address);
// Of 4 (IPv4) or 16 (IPv6) bytes in network order.
SocketAddress make_address(std::string_view bytes, uint16_t port);
// Every address of this machine, IPv4 or IPv6 as `family` says.
SocketAddress any_address(int family, uint16_t port);

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
