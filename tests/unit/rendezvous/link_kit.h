// SPDX-License-Identifier: Apache-2.0
// What tests of one connection of the tcp rendezvous share: two ends without a network, and ranks
// of one job that know its key. Tests only.
#ifndef PARALLAX_TESTS_UNIT_RENDEZVOUS_LINK_KIT_H_
#define PARALLAX_TESTS_UNIT_RENDEZVOUS_LINK_KIT_H_

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "base/tcp_socket.h"
#include "base/unique_fd.h"
#include "rendezvous/frame_stream.h"
#include "rendezvous/tcp_entry.h"
#include "rendezvous/tcp_listen.h"
#include "unit/rendezvous/rendezvous_kit.h"

namespace parallax::link_kit {

using rendezvous_kit::has;
using rendezvous_kit::kClock;
using rendezvous_kit::kForeverMs;

inline constexpr uint32_t kWorld = 4;

inline std::pair<UniqueFd, UniqueFd> connected() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

inline RendezvousOptions options_of(uint32_t rank) {
  return {.rank = rank,
          .world = kWorld,
          .host = "host" + std::to_string(rank),
          .lease_ms = kForeverMs,
          .clock = &kClock};
}

inline TcpEntry entry_with(const std::string& secret) {
  return {.where = "here", .job = "job", .secret = true, .key = derive_key(secret, kJobKey)};
}

// Listens at a port of 127.0.0.1 of the system's choosing.
inline UniqueFd listen_somewhere(SocketAddress* address) {
  UniqueFd listener;
  EXPECT_TRUE(tcp_listen(make_address(std::string("\x7f\0\0\1", 4), 0), &listener).ok());
  EXPECT_TRUE(tcp_name(listener, address).ok());
  return listener;
}

}  // namespace parallax::link_kit

#endif  // PARALLAX_TESTS_UNIT_RENDEZVOUS_LINK_KIT_H_
