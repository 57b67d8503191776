// SPDX-License-Identifier: Apache-2.0
// Addresses as text and as bytes: see the header.
#include "base/socket_address.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cstring>

#include "base/check.h"

namespace parallax {

std::string to_text(const SocketAddress& address) {
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address.storage), address.bytes, host,
                    sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  const std::string name = host;
  const bool six = address.storage.ss_family == AF_INET6;
  return (six ? "[" + name + "]" : name) + ":" + port;
}

bool is_loopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in four;
    std::memcpy(&four, &address.storage, sizeof four);
    return ntohl(four.sin_addr.s_addr) >> 24 == 127;
  }
  if (address.storage.ss_family != AF_INET6) return false;
  sockaddr_in6 six;
  std::memcpy(&six, &address.storage, sizeof six);
  return IN6_IS_ADDR_LOOPBACK(&six.sin6_addr) ||
         (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr) && six.sin6_addr.s6_addr[12] == 127);
}

uint16_t port_of(const SocketAddress& address) {
  // The port lies at the same place in both families.
  sockaddr_in four;
  std::memcpy(&four, &address.storage, sizeof four);
  return ntohs(four.sin_port);
}

std::string address_bytes(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in four;
    std::memcpy(&four, &address.storage, sizeof four);
    return {reinterpret_cast<const char*>(&four.sin_addr), sizeof four.sin_addr};
  }
  sockaddr_in6 six;
  std::memcpy(&six, &address.storage, sizeof six);
  return {reinterpret_cast<const char*>(&six.sin6_addr), sizeof six.sin6_addr};
}

SocketAddress make_address(std::string_view bytes, uint16_t port) {
  SocketAddress address;
  if (bytes.size() == sizeof(in_addr)) {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    std::memcpy(&four.sin_addr, bytes.data(), bytes.size());
    std::memcpy(&address.storage, &four, sizeof four);
    address.bytes = sizeof four;
  } else {
    PARALLAX_CHECK(bytes.size() == sizeof(in6_addr));
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    std::memcpy(&six.sin6_addr, bytes.data(), bytes.size());
    std::memcpy(&address.storage, &six, sizeof six);
    address.bytes = sizeof six;
  }
  return address;
}

SocketAddress any_address(int family, uint16_t port) {
  return make_address(std::string(family == AF_INET6 ? sizeof(in6_addr) : sizeof(in_addr), '\0'),
                      port);
}

}  // namespace parallax
