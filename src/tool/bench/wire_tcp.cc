// SPDX-License-Identifier: Apache-2.0
// Plain sockets: one TCP connection, blocking calls, no Nagle. Rank 1 listens at an address of each
// interface that the job may use; rank 0 connects to the first that answers, and proves by a random
// number that it is meant.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "tool/bench/wire_way.h"
#include "tool/machine.h"

namespace parallax::tool::bench {

namespace {

constexpr size_t kListenersMax = 8;
constexpr int64_t kConnectMs = 2000;
constexpr int64_t kMeetMs = 20'000;

struct SocketAddress {
  sockaddr_storage raw = {};
  socklen_t bytes = 0;
};

Status parse_address(const std::string& address, uint16_t port, SocketAddress* parsed) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (failed != 0) return io_error(address + ": " + gai_strerror(failed));
  std::memcpy(&parsed->raw, list->ai_addr, list->ai_addrlen);
  parsed->bytes = list->ai_addrlen;
  freeaddrinfo(list);
  return {};
}

const sockaddr* as_address(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.raw);
}

void set_timeout(int socket, int64_t timeout_ms) {
  const timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

class TcpWay final : public MessageWay {
 public:
  TcpWay(UniqueFd socket, std::string description)
      : socket_(std::move(socket)), description_(std::move(description)) {}
  std::string description() const override { return description_; }

 private:
  Status send(std::span<const std::byte> message) override {
    while (!message.empty()) {
      const ssize_t count = ::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return failed();
      message = message.subspan(static_cast<size_t>(count));
    }
    return {};
  }

  Status receive(std::span<std::byte> message) override {
    while (!message.empty()) {
      const ssize_t count = recv(socket_.get(), message.data(), message.size(), MSG_WAITALL);
      if (count < 0 && errno == EINTR) continue;
      if (count == 0) return io_error("tcp: the other rank has closed the connection");
      if (count < 0) return failed();
      message = message.subspan(static_cast<size_t>(count));
    }
    return {};
  }

  Status flush() override { return {}; }

  static Status failed() {
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return timed_out("tcp: the other rank sent nothing, or took nothing, in time");
    }
    return io_error(std::string("tcp: ") + std::strerror(errno));
  }

  UniqueFd socket_;
  std::string description_;
};

struct TcpListener {
  UniqueFd socket;
  std::string address;
  uint16_t port = 0;
};

Status listen_at(const std::string& address, TcpListener* listener) {
  SocketAddress where;
  PARALLAX_RETURN_IF_ERROR(parse_address(address, 0, &where));
  listener->socket = UniqueFd(::socket(where.raw.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SocketAddress bound;
  bound.bytes = sizeof bound.raw;
  const int socket = listener->socket.get();
  if (socket < 0 || bind(socket, as_address(where), where.bytes) != 0 || listen(socket, 16) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&bound.raw), &bound.bytes) != 0) {
    return io_error("listening on " + address + ": " + std::strerror(errno));
  }
  listener->address = address;
  listener->port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound.raw)->sin_port);
  return {};
}

// Until the rank comes that knows the number; whoever else connects is shown out.
Status accept_peer(const std::vector<TcpListener>& listeners, uint64_t secret, UniqueFd* made) {
  const SteadyClock clock;
  const int64_t until_ns = clock.now_ns() + kMeetMs * kNanosecondsPerMillisecond;
  for (const TcpListener& each : listeners) set_timeout(each.socket.get(), 50);
  while (clock.now_ns() < until_ns) {
    for (const TcpListener& each : listeners) {
      UniqueFd socket(accept4(each.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket.valid()) continue;
      set_timeout(socket.get(), kConnectMs);
      uint64_t said = 0;
      if (recv(socket.get(), &said, sizeof said, MSG_WAITALL) != sizeof said) continue;
      const char answer = 1;
      if (said != secret || ::send(socket.get(), &answer, 1, MSG_NOSIGNAL) != 1) continue;
      *made = std::move(socket);
      return {};
    }
  }
  return timed_out("tcp: rank 0 did not connect in " + std::to_string(kMeetMs) + " ms");
}

Status connect_peer(const nlohmann::json& card, UniqueFd* made, std::string* reached) {
  std::string why = "rank 1 has no address to listen at";
  const uint64_t secret = card.at("secret");
  for (const auto& each : card.at("listens")) {
    const std::string address = each.at(0);
    SocketAddress where;
    PARALLAX_RETURN_IF_ERROR(parse_address(address, each.at(1), &where));
    UniqueFd socket(::socket(where.raw.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    set_timeout(socket.get(), kConnectMs);
    char answer = 0;
    if (connect(socket.get(), as_address(where), where.bytes) == 0 &&
        ::send(socket.get(), &secret, sizeof secret, MSG_NOSIGNAL) == sizeof secret &&
        recv(socket.get(), &answer, 1, MSG_WAITALL) == 1) {
      *reached = address;
      *made = std::move(socket);
      return {};
    }
    why = address + ": " + std::strerror(errno);
  }
  return io_error("tcp: " + why + "; parallax doctor on both hosts says more");
}

}  // namespace

Status make_tcp_way(const WireContext& context, std::unique_ptr<RawWay>* way) {
  std::vector<TcpListener> listeners;
  nlohmann::json card = {{"secret", 0}, {"listens", nlohmann::json::array()}};
  std::random_device source;
  const uint64_t secret = uint64_t{source()} << 32 | source();
  if (context.group.rank() == 1) {
    card["secret"] = secret;
    for (const std::string& address : listen_addresses(context.settings.value("net_device").text,
                                                       context.one_machine, kListenersMax)) {
      TcpListener listener;
      if (!listen_at(address, &listener).ok()) continue;
      card["listens"].push_back({listener.address, listener.port});
      listeners.push_back(std::move(listener));
    }
  }
  std::string other;
  PARALLAX_RETURN_IF_ERROR(exchange_cards(context.group, card.dump(), &other));
  UniqueFd socket;
  std::string reached;
  if (context.group.rank() == 1) {
    PARALLAX_RETURN_IF_ERROR(accept_peer(listeners, secret, &socket));
  } else {
    PARALLAX_RETURN_IF_ERROR(connect_peer(nlohmann::json::parse(other), &socket, &reached));
  }
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  set_timeout(socket.get(), context.timeout_ms);
  *way = std::make_unique<TcpWay>(std::move(socket), "one connection to " + reached);
  return {};
}

}  // namespace parallax::tool::bench
