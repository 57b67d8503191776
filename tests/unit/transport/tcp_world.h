// SPDX-License-Identifier: Apache-2.0
// Makes tcp transports in this process, over loopback, each knowing all others. Tests only; one
// thread makes them, they may then be used by one thread each.
#ifndef PARALLAX_TESTS_UNIT_TRANSPORT_TCP_WORLD_H_
#define PARALLAX_TESTS_UNIT_TRANSPORT_TCP_WORLD_H_

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "transport/tcp/tcp_rails.h"
#include "transport/tcp/tcp_transport.h"

namespace parallax {

using TcpRanks = std::vector<std::unique_ptr<TcpTransport>>;

inline TcpOptions tcp_options(uint32_t rank, uint32_t world) {
  TcpOptions options;
  options.rank = rank;
  options.world = world;
  options.net_device = "lo";
  options.job = 4711;
  options.epoch = 7;
  return options;
}

// Over IPv6, where this machine has it.
inline TcpOptions tcp_options_six() {
  TcpOptions options = tcp_options(0, 1);
  options.own_address = "::1";
  return options;
}

inline bool has_six() {
  SocketAddress address;
  return choose_own_address(tcp_options_six(), &address).ok();
}

inline std::unique_ptr<TcpTransport> make_tcp(const TcpOptions& options) {
  std::unique_ptr<TcpTransport> transport;
  const Status status = TcpTransport::create(options, &transport);
  EXPECT_TRUE(status.ok()) << status.message();
  return transport;
}

template <typename Made>
void introduce_tcp(std::vector<std::unique_ptr<Made>>& ranks) {
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    for (uint32_t peer = 0; peer < ranks.size(); ++peer) {
      if (peer == rank) continue;
      const Status status = ranks[rank]->connect(peer, ranks[peer]->address());
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

// `common` but for rank and world.
inline TcpRanks make_tcp_ranks(uint32_t world, TcpOptions common = tcp_options(0, 1)) {
  TcpRanks ranks;
  common.world = world;
  for (common.rank = 0; common.rank < world; ++common.rank) ranks.push_back(make_tcp(common));
  introduce_tcp(ranks);
  return ranks;
}

// The sockets of this process that tcp gives a timeout: the ends of connections that stand.
inline std::vector<int> tcp_connections() {
  std::vector<int> sockets;
  for (int descriptor = 3; descriptor < 4096; ++descriptor) {
    int timeout_ms = 0;
    socklen_t bytes = sizeof timeout_ms;
    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, &bytes) == 0 &&
        timeout_ms != 0) {
      sockets.push_back(descriptor);
    }
  }
  return sockets;
}

// The algorithm of congestion control that a socket has.
inline std::string congestion_of(int socket) {
  char name[16] = {};
  socklen_t bytes = sizeof name - 1;
  EXPECT_EQ(::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
  return name;
}

using TcpRailRanks = std::vector<std::unique_ptr<TcpRails>>;

// Not yet introduced; `rails` of each, all over loopback.
inline TcpRailRanks make_tcp_rails(uint32_t world, size_t rails, const Clock* clock = nullptr) {
  TcpOptions common = tcp_options(0, 1);
  TcpRailRanks ranks(world);
  common.world = world;
  for (common.rank = 0; common.rank < world; ++common.rank) {
    const std::vector<std::string> more_devices(rails - 1, "lo");
    const Status status = TcpRails::create(common, more_devices, &ranks[common.rank], clock);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return ranks;
}

}  // namespace parallax

#endif  // PARALLAX_TESTS_UNIT_TRANSPORT_TCP_WORLD_H_
