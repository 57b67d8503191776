// SPDX-License-Identifier: Apache-2.0
// TcpTransport: the conformance suite over loopback, for each way to protect frames.
#include "unit/transport/conformance.h"
#include "unit/transport/tcp_world.h"

namespace parallax {
namespace {

std::unique_ptr<conformance::World> tcp_world_of(uint32_t world, const TcpOptions& options) {
  TcpRanks ranks = make_tcp_ranks(world, options);
  std::vector<std::unique_ptr<Transport>> transports(std::make_move_iterator(ranks.begin()),
                                                     std::make_move_iterator(ranks.end()));
  return std::make_unique<conformance::PlainWorld>(std::move(transports));
}

std::unique_ptr<conformance::World> make_tcp_world(uint32_t world) {
  return tcp_world_of(world, tcp_options(0, 1));
}

// Without AES in hardware, and with keys that change every few frames.
std::unique_ptr<conformance::World> make_tcp_world_chacha(uint32_t world) {
  TcpOptions options = tcp_options(0, 1);
  options.aes_hardware = false;
  options.frames_per_key = 5;
  return tcp_world_of(world, options);
}

std::unique_ptr<conformance::World> make_tcp_world_authenticated(uint32_t world) {
  TcpOptions options = tcp_options(0, 1);
  options.security = TcpSecurity::kAuthenticate;
  options.frames_per_key = 5;
  return tcp_world_of(world, options);
}

std::unique_ptr<conformance::World> make_tcp_world_plain(uint32_t world) {
  TcpOptions options = tcp_options(0, 1);
  options.security = TcpSecurity::kHandshake;
  return tcp_world_of(world, options);
}

// Two connections to each rank, which messages take in turn.
std::unique_ptr<conformance::World> make_tcp_world_rails(uint32_t world) {
  TcpRailRanks ranks = make_tcp_rails(world, 2);
  introduce_tcp(ranks);
  std::vector<std::unique_ptr<Transport>> transports(std::make_move_iterator(ranks.begin()),
                                                     std::make_move_iterator(ranks.end()));
  return std::make_unique<conformance::PlainWorld>(std::move(transports));
}

// Over IPv4 where there is no other; TcpTransport.ranks_listen_by_one_family then says so.
std::unique_ptr<conformance::World> make_tcp_world_six(uint32_t world) {
  return tcp_world_of(world, has_six() ? tcp_options_six() : tcp_options(0, 1));
}

CONFORM(tcp, make_tcp_world)
CONFORM(tcp_chacha, make_tcp_world_chacha)
CONFORM(tcp_authenticated, make_tcp_world_authenticated)
CONFORM(tcp_plain, make_tcp_world_plain)
CONFORM(tcp_six, make_tcp_world_six)
CONFORM(tcp_rails, make_tcp_world_rails)

}  // namespace
}  // namespace parallax
