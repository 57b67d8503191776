// SPDX-License-Identifier: Apache-2.0
// Who is held. See tcp_turns.h.
#include "transport/tcp/tcp_turns.h"

#include "transport/tcp/tcp_tags.h"

namespace parallax {

// One whose end was noted while it is held is none of epoll's, which would tell of that over and
// over, asked or not.
void watch_tcp_link(const UniqueFd& epoll, TcpPeer& peer) {
  TcpLink& link = *peer.link;
  uint32_t events = link.waits_for_room ? EPOLLOUT : 0u;
  events |= link.unheard ? EPOLLRDHUP : kTcpHears;
  if (link.unheard && peer.ended) events = 0;
  if (events == link.events) return;
  int operation = EPOLL_CTL_MOD;
  if (link.events == 0) operation = EPOLL_CTL_ADD;
  if (events == 0) operation = EPOLL_CTL_DEL;
  (void)watch_tcp_peer(epoll, operation, link.socket, peer.rank, events);
  link.events = events;
}

void TcpTurns::hold(uint32_t rank) {
  TcpPeer& peer = *peers_[rank];
  if (!peer.held) ++held_count_;
  peer.held = true;
}

void TcpTurns::resume(uint32_t rank) {
  TcpPeer& peer = *peers_[rank];
  if (!peer.held) return;
  peer.held = false;
  --held_count_;
  if (!peer.resumed) resumed_.push_back(&peer);  // has room for every peer
  peer.resumed = true;
  if (peer.link == nullptr || !peer.link->unheard) return;
  peer.link->unheard = false;
  watch_tcp_link(epoll_, peer);
}

TcpPeer* TcpTurns::take_resumed() {
  if (resumed_.empty()) return nullptr;
  TcpPeer* const peer = resumed_.back();
  resumed_.pop_back();
  peer->resumed = false;
  return peer;
}

void TcpTurns::note_end(TcpPeer& peer) {
  if (!peer.ended) ended_.push_back(&peer);  // has room for every peer
  peer.ended = true;
  if (peer.link == nullptr) return;
  peer.link->unheard = true;
  watch_tcp_link(epoll_, peer);
}

const TcpPeer* TcpTurns::take_ended() {
  if (ended_.empty()) return nullptr;
  const TcpPeer* const peer = ended_.back();
  ended_.pop_back();
  return peer;
}

void TcpTurns::leave_out_held(std::span<TcpPeer* const> connected) {
  if (held_count_ == 0) return;
  for (TcpPeer* const peer : connected) {
    if (!peer->holds_message() || peer->link->unheard) continue;
    peer->link->unheard = true;
    watch_tcp_link(epoll_, *peer);
  }
}

}  // namespace parallax
