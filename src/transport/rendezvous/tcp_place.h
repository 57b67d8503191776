// SPDX-License-Identifier: Apache-2.0
// Where a tcp meeting is: "HOST:PORT", "[IPV6]:PORT", with "#JOB" behind it if the job has a name.
// Parsing is pure; resolve() asks the system's resolver, which blocks for a name as long as that
// takes. Any thread.
#ifndef PARALLAX_TRANSPORT_RENDEZVOUS_TCP_PLACE_H_
#define PARALLAX_TRANSPORT_RENDEZVOUS_TCP_PLACE_H_

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
// Of 4 (IPv4) or 16 (IPv6) bytes in network order.
SocketAddress make_address(std::string_view bytes, uint16_t port);
// Every address of this machine, IPv4 or IPv6 as `family` says.
SocketAddress any_address(int family, uint16_t port);

struct TcpPlace {
  std::string host;
  uint16_t port = 0;
  std::string job;

  std::string text() const;  // without the job
};

// INVALID names what is wrong with `where`, and the remedy.
Status parse_tcp_place(std::string_view where, TcpPlace* place);
// Numbers need no resolver.
bool is_numeric(const TcpPlace& place);
Status resolve(const TcpPlace& place, std::vector<SocketAddress>* addresses);

// Without a secret only loopback will do: INVALID says what to set.
Status check_trust(const TcpPlace& place, std::span<const SocketAddress> addresses, bool secret);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_RENDEZVOUS_TCP_PLACE_H_
