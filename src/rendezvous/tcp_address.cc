// SPDX-License-Identifier: Apache-2.0
// Parsing, naming and judging addresses: see the header.
#include "rendezvous/tcp_address.h"

#include <netdb.h>

#include <charconv>
#include <cstring>

#include "base/codec.h"
#include "rendezvous/handshake.h"

namespace parallax {

namespace {

constexpr size_t kHostBytesMax = 255;

int look_up(const TcpAddress& tcp_address, int flags, std::vector<SocketAddress>* addresses) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  const int failure = ::getaddrinfo(tcp_address.host.c_str(),
                                    std::to_string(tcp_address.port).c_str(), &hints, &found);
  if (failure != 0) return failure;
  addresses->clear();
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (each->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.bytes = each->ai_addrlen;
    addresses->push_back(address);
  }
  ::freeaddrinfo(found);
  return addresses->empty() ? EAI_NONAME : 0;
}

Status wrong(std::string_view where, const std::string& why) {
  return invalid("options.rendezvous is 'tcp:" + std::string(where.substr(0, kHostBytesMax)) +
                 "': " + why);
}

}  // namespace

std::string TcpAddress::text() const {
  const bool six = host.find(':') != std::string::npos;
  return (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Status parse_tcp_address(std::string_view where, TcpAddress* tcp_address) {
  const std::string_view whole = where;
  const size_t hash = where.find('#');
  if (hash != std::string_view::npos) {
    tcp_address->job.assign(where.substr(hash + 1));
    where = where.substr(0, hash);
    if (tcp_address->job.empty() || tcp_address->job.size() > kJobNameBytesMax ||
        !is_printable(tcp_address->job)) {
      return wrong(whole, "what follows # names the job in 1 to " +
                              std::to_string(kJobNameBytesMax) + " printable bytes");
    }
  }
  // As other libraries have it; a resolver would be asked for "//HOST" until the deadline.
  if (where.starts_with("//")) {
    return wrong(whole, "write it without //: tcp:HOST:PORT, such as tcp:127.0.0.1:29500");
  }
  const size_t colon = where.rfind(':');
  if (colon == std::string_view::npos) {
    return wrong(whole, "give tcp:HOST:PORT, such as tcp:127.0.0.1:29500");
  }
  std::string_view host = where.substr(0, colon);
  const std::string_view port = where.substr(colon + 1);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || host.size() > kHostBytesMax || !is_printable(host) ||
      host.find_first_of("[]/ ") != std::string_view::npos) {
    return wrong(whole, "its host is empty or no name or address");
  }
  if (!bracketed && host.find(':') != std::string_view::npos) {
    return wrong(whole, "write an IPv6 address in brackets: tcp:[::1]:29500");
  }
  uint32_t number = 0;
  const auto [end, failure] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (failure != std::errc() || end != port.data() + port.size() || number > UINT16_MAX) {
    return wrong(whole, "its port must be a number from 1 to 65535");
  }
  if (number == 0) {
    return wrong(whole,
                 "with port 0 the system would choose one that the other ranks cannot "
                 "know; give a port from 1 to 65535, or use parallax_unique_id");
  }
  tcp_address->host.assign(host);
  tcp_address->port = static_cast<uint16_t>(number);
  return {};
}

bool is_numeric(const TcpAddress& tcp_address) {
  std::vector<SocketAddress> ignored;
  return look_up(tcp_address, AI_NUMERICHOST, &ignored) == 0;
}

Status resolve(const TcpAddress& tcp_address, std::vector<SocketAddress>* addresses) {
  const int failure = look_up(tcp_address, 0, addresses);
  if (failure == 0) return {};
  return io_error("options.rendezvous: cannot resolve host '" + tcp_address.host +
                  "': " + ::gai_strerror(failure));
}

Status check_trust(const TcpAddress& tcp_address, std::span<const SocketAddress> addresses,
                   bool secret) {
  if (secret) return {};
  for (const SocketAddress& address : addresses) {
    if (is_loopback(address)) continue;
    return invalid(
        "the rendezvous at " + tcp_address.text() + " is open to other machines (" +
        to_text(address) +
        "), and there is no secret: whoever reaches the port could join. Give every rank the same "
        "one, in a file of mode 0600 that PARALLAX_SECRET_FILE or options.secret_file names (made "
        "by: openssl rand -hex 32), or in PARALLAX_SECRET; or meet at 127.0.0.1");
  }
  return {};
}

}  // namespace parallax
