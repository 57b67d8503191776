// SPDX-License-Identifier: Apache-2.0
// Ranks of transport tcp in one thread, and one in the middle of a connection of two of them, who
// passes on what they send, bends it, and keeps it. Tests only.
#ifndef PARALLAX_TESTS_UNIT_TRANSPORT_TCP_MIDDLE_H_
#define PARALLAX_TESTS_UNIT_TRANSPORT_TCP_MIDDLE_H_

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/tcp_socket.h"
#include "unit/transport/conformance.h"
#include "unit/transport/tcp_world.h"

namespace parallax {

inline SocketAddress where(const TcpTransport& rank) {
  TcpEndpoint endpoint;
  EXPECT_TRUE(decode_tcp_endpoint(rank.address(), &endpoint).ok());
  return endpoint.listens;
}

inline UniqueFd call(const SocketAddress& address) {
  UniqueFd socket;
  EXPECT_EQ(tcp_connect(address, &socket), 0);
  return socket;
}

// Whether somebody who comes to the rank's port is let in by its kernel.
inline bool has_port(const TcpTransport& rank) {
  const UniqueFd socket = call(where(rank));
  int failure = 0;
  while ((failure = tcp_connected(socket)) == ENOTCONN) std::this_thread::yield();
  EXPECT_TRUE(failure == 0 || failure == ECONNREFUSED) << failure;
  return failure == 0;
}

// Ranks in one thread, and what each has heard.
struct Ranks {
  explicit Ranks(TcpRanks made) : at(std::move(made)), heard(at.size()) {}

  bool until(const std::function<bool()>& done, const std::function<void()>& meanwhile = {}) {
    const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
    while (!done()) {
      for (size_t rank = 0; rank < at.size(); ++rank) at[rank]->poll(heard[rank]);
      if (meanwhile) meanwhile();
      if (std::chrono::steady_clock::now() > give_up) return false;
    }
    return true;
  }

  void send(uint32_t from, uint32_t to, size_t bytes) {
    const uint64_t sequence = sent[from][to]++;
    auto& message = kept.emplace_back(conformance::make_message(from, sequence, bytes));
    const Segment segment{message.data(), bytes};
    ASSERT_TRUE(at[from]->send(to, {&segment, 1}, 4 * sequence + to).ok());
  }

  void greet(uint32_t a, uint32_t b) {
    send(a, b, 16);
    send(b, a, 16);
    ASSERT_TRUE(until(
        [&] { return heard[a].received[b] == sent[b][a] && heard[b].received[a] == sent[a][b]; }));
  }

  TcpRanks at;
  std::vector<conformance::Recorder> heard;
  std::array<std::array<uint64_t, 4>, 4> sent = {};
  std::vector<std::vector<std::byte>> kept;
};

// Passes on what two ranks send each other, and bends it.
class Middle {
 public:
  // In front of `rank`; its address is given out in place of the rank's.
  explicit Middle(const TcpTransport& rank) {
    EXPECT_TRUE(decode_tcp_endpoint(rank.address(), &endpoint_).ok());
    EXPECT_EQ(tcp_listen_at(make_address(std::string("\x7f\0\0\x01", 4), 0), &listener_), 0);
  }
  std::string address() {
    TcpEndpoint told = endpoint_;
    EXPECT_TRUE(tcp_name(listener_, &told.listens).ok());
    return encode_tcp_endpoint(told);
  }

  void pass() {
    SocketAddress from;
    UniqueFd socket;
    if (tcp_accept(listener_, &socket, &from) == Accepted::kOne) {
      client_ = std::move(socket);
      server_ = call(endpoint_.listens);
    }
    if (!client_.valid()) return;
    pass_on(client_, server_, &there_, there);
    pass_on(server_, client_, &back_, back);
  }
  void cut() {
    client_.reset();
    server_.reset();
  }

  // Behind what was passed on.
  void say_there(std::string bytes) { there_ += bytes; }
  void say_back(std::string bytes) { back_ += bytes; }

  // Bends what goes there, or back; the bytes of one direction are one stream.
  std::function<void(std::string*)> there, back;
  // All that came, before it was bent.
  std::string said_there, said_back;

 private:
  void pass_on(UniqueFd& from, UniqueFd& to, std::string* waiting,
               const std::function<void(std::string*)>& bend) {
    if (!from.valid() || !to.valid()) return;
    std::string in;
    const bool open = tcp_receive(from, 1 << 16, &in);
    (&from == &client_ ? said_there : said_back) += in;
    if (bend && !in.empty()) bend(&in);
    *waiting += in;
    (void)tcp_send(to, waiting);
    if (!open) cut();
  }

  TcpEndpoint endpoint_;
  UniqueFd listener_, client_, server_;
  std::string there_, back_;
};

// Two ranks, and one between them; they know each other well.
struct Watched {
  explicit Watched(TcpSecurity security = TcpSecurity::kEncrypt) : ranks(made(security)) {
    middle = std::make_unique<Middle>(*ranks.at[1]);
    EXPECT_TRUE(ranks.at[0]->connect(1, middle->address()).ok());
    EXPECT_TRUE(ranks.at[1]->connect(0, ranks.at[0]->address()).ok());
    ranks.send(0, 1, 16);
    EXPECT_TRUE(until([&] { return ranks.heard[1].received[0] == 1; }));
  }
  static TcpRanks made(TcpSecurity security) {
    TcpRanks made;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      TcpOptions options = tcp_options(rank, 2);
      options.security = security;
      made.push_back(make_tcp(options));
    }
    return made;
  }
  bool until(const std::function<bool()>& done) {
    return ranks.until(done, [this] { middle->pass(); });
  }

  Ranks ranks;
  std::unique_ptr<Middle> middle;
};

}  // namespace parallax

#endif  // PARALLAX_TESTS_UNIT_TRANSPORT_TCP_MIDDLE_H_
