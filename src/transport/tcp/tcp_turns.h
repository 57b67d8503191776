// SPDX-License-Identifier: Apache-2.0
// TcpTurns: whose messages a TcpTransport does not take yet. For the owner of several connections
// to one rank, which brings their messages in order (TcpRails). From hold() to resume() no message
// of that rank is delivered: one that has come waits in its buffer, what follows it at the kernel,
// in order, and nobody is woken for that. Credits ahead of it are taken. Nothing else changes. That
// its connection has ended, or cannot be made, is not
// reported either, but told to the owner, at once and once. Owned by the transport; one caller at a
// time; nothing blocks, nothing allocates but what tells of an end.
#ifndef PARALLAX_TRANSPORT_TCP_TCP_TURNS_H_
#define PARALLAX_TRANSPORT_TCP_TCP_TURNS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "transport/tcp/tcp_peer.h"

namespace parallax {

// Has epoll tell of what is wanted of a peer's connection, and of nothing else.
void watch_tcp_link(const UniqueFd& epoll, TcpPeer& peer);

class TcpTurns {
 public:
  using Peers = std::vector<std::unique_ptr<TcpPeer>>;

  // Both are the transport's. `peers`, by rank: as many as there will ever be.
  TcpTurns(const UniqueFd& epoll, const Peers& peers) : epoll_(epoll), peers_(peers) {
    resumed_.reserve(peers.size());
    ended_.reserve(peers.size());
  }

  const Peers& peers() const { return peers_; }

  // Of a rank that is connected to, from within callbacks too, but a resume() from one of the same
  // transport.
  void hold(uint32_t rank);
  void resume(uint32_t rank);

  // Accepted sends to this rank whose on_sent is still to come.
  uint32_t uncompleted(uint32_t rank) const {
    return peers_[rank] == nullptr ? 0 : peers_[rank]->uncompleted;
  }

  // Who was resumed since: frames may lie in its buffer, of which epoll does not tell. Null: none.
  TcpPeer* take_resumed();
  bool any_resumed() const { return !resumed_.empty(); }
  // Of one that is held: its connection has ended, for which `failure` is the reason, unless
  // reading it tells another.
  void note_end(TcpPeer& peer);
  // Whose end was noted since. Null: nobody's.
  const TcpPeer* take_ended();
  // Before a sleep: from now on epoll tells nothing but the end of those of whom a message is held,
  // until they are resumed.
  void leave_out_held(std::span<TcpPeer* const> connected);

 private:
  const UniqueFd& epoll_;
  const Peers& peers_;
  uint32_t held_count_ = 0;
  std::vector<TcpPeer*> resumed_;
  std::vector<const TcpPeer*> ended_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_TURNS_H_
