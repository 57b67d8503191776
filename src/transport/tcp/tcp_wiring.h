// SPDX-License-Identifier: Apache-2.0
// Connecting at open, by all rails of a rank at once: who is late on one of them holds up no other
// rank on another, so that all who live are connected by the deadline and only others are named.
// For the transport's owner; blocks.
#ifndef PARALLAX_TRANSPORT_TCP_TCP_WIRING_H_
#define PARALLAX_TRANSPORT_TCP_TCP_WIRING_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/module/network_transport.h"
#include "transport/tcp/tcp_peer.h"

namespace parallax {

class TcpTransport;

// As NetworkTransport::wire() says. `whole` polls `rails`, which are all of it.
Status wire_tcp(NetworkTransport& whole, std::span<TcpTransport* const> rails,
                std::span<const uint32_t> ranks, int64_t deadline_ns, uint32_t* missing);

// "at 10.0.0.2:31000 from 10.0.0.1 on eth0": for whoever looks for the cut, or for an address that
// is not meant. `own` is where this rank listens.
std::string tcp_path(const TcpPeer& peer, const SocketAddress& own);

// Who waits, and for whom.
struct TcpLate {
  uint32_t own_rank = 0;
  SocketAddress listens;      // at which address it does
  bool accept_lacks = false;  // it has no descriptor left for those who connect to it
  std::vector<const TcpPeer*> peers = {};
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_WIRING_H_
