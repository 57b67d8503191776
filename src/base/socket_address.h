// SPDX-License-Identifier: Apache-2.0
// SocketAddress: an IPv4 or IPv6 address with its port, as the kernel has it. Pure; any thread.
#ifndef PARALLAX_BASE_SOCKET_ADDRESS_H_
#define PARALLAX_BASE_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

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

}  // namespace parallax

#endif  // PARALLAX_BASE_SOCKET_ADDRESS_H_
