// SPDX-License-Identifier: Apache-2.0
// Who is reached, and who is blamed. See tcp_wiring.h.
#include "transport/tcp/tcp_wiring.h"

#include <poll.h>

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/interface.h"
#include "transport/module/wiring_receiver.h"
#include "transport/tcp/tcp_transport.h"

namespace parallax {

namespace {

constexpr int kWireWaitMs = 20;  // then the clock is looked at
// At the deadline: this rank may have been held up, and what connects others be here already.
constexpr int kLastPolls = 64;

// OK where nobody is late. What this rank lacks to connect to or to accept one of them counts
// before what is known of the first: LIMIT, or TIMEOUT.
Status why_late(const TcpLate& late, uint32_t* missing) {
  for (const TcpPeer* const peer : late.peers) {
    *missing = peer->rank;
    if (peer->dial != nullptr && peer->dial->own_fault) {
      return limit("no connection: " + peer->dial->trouble);
    }
    if (peer->rank < late.own_rank && late.accept_lacks) {
      return limit("no connection: this rank has no descriptor left to accept it: raise ulimit -n");
    }
  }
  if (late.peers.empty()) return {};
  const TcpPeer& first = *late.peers.front();
  *missing = first.rank;
  const bool unknown = first.dial == nullptr || first.dial->trouble.empty();
  return timed_out(
      "no connection by the deadline " + tcp_path(first, late.listens) + " (" +
      (unknown ? "stopped, still busy elsewhere, or the network is cut" : first.dial->trouble) +
      ")");
}

// Of all rails: the first lack of this rank's, else the first peer's.
Status why_any_is_late(std::span<const TcpLate> rails, uint32_t* missing) {
  Status first;
  for (const TcpLate& late : rails) {
    uint32_t who = 0;
    Status why = why_late(late, &who);
    if (why.ok() || (!first.ok() && why.code() != PARALLAX_LIMIT)) continue;
    *missing = who;
    first = std::move(why);
    if (first.code() == PARALLAX_LIMIT) break;
  }
  return first;
}

}  // namespace

std::string tcp_path(const TcpPeer& peer, const SocketAddress& own) {
  const SocketAddress& to = peer.endpoint.listens;
  const std::string device = interface_of(own), from = to_text(own);
  const bool same = address_bytes(own) == address_bytes(to) && !is_loopback(to);
  return "at " + to_text(to) + " from " + from.substr(0, from.rfind(':')) +
         (device.empty() ? "" : " on " + device) +
         (same ? ", which has the same address: name the interface by net_device" : "");
}

Status wire_tcp(NetworkTransport& whole, std::span<TcpTransport* const> rails,
                std::span<const uint32_t> ranks, int64_t deadline_ns, uint32_t* missing) {
  std::vector<TcpLate> late(rails.size());
  WiringReceiver receiver;
  for (int polls_left = kLastPolls;;) {
    bool all = true;
    for (size_t rail = 0; rail < rails.size(); ++rail) {
      PARALLAX_RETURN_IF_ERROR(rails[rail]->wire_on(ranks, &late[rail]));
      all = all && late[rail].peers.empty();
    }
    if (all) return {};
    const bool is_over = SteadyClock().now_ns() >= deadline_ns;
    if (is_over && polls_left-- == 0) return why_any_is_late(late, missing);
    const bool moved = whole.poll(receiver);
    *missing = receiver.lost_rank;
    if (receiver.own_lack) return limit("no connection: " + receiver.why);
    if (!receiver.why.empty()) return peer_lost(receiver.why);
    if (moved || is_over || !whole.arm()) continue;
    pollfd readable = {whole.wait_fd(), POLLIN, 0};
    ::poll(&readable, 1, kWireWaitMs);
  }
}

}  // namespace parallax
