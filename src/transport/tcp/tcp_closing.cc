// SPDX-License-Identifier: Apache-2.0
// Goodbye, what was sent, and the end. See tcp_closing.h.
#include "transport/tcp/tcp_closing.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "transport/tcp/tcp_peer.h"

namespace parallax {

namespace {

constexpr int kReadsMax = 64;  // then others are looked at

template <typename Visit>
void each_of(std::span<const TcpTurns::Peers* const> rails, Visit visit) {
  for (const TcpTurns::Peers* const peers : rails) {
    for (const auto& peer : *peers) {
      if (peer != nullptr && peer->link != nullptr) visit(*peer);
    }
  }
}

// True: its kernel has taken all, or takes nothing any more. A close with bytes unread resets the
// connection, and with it what the peer's kernel has not taken yet: so these are read.
bool is_taken(TcpPeer& peer) {
  TcpLink& link = *peer.link;
  const int socket = link.socket.get();
  if (link.broken == 0) {
    peer.outgoing.unblock();
    link.broken = peer.outgoing.flush(socket, link.sealer, peer);
  }
  std::array<char, 16384> unread;
  for (int i = 0; i < kReadsMax; ++i) {
    const ssize_t bytes = ::recv(socket, unread.data(), unread.size(), MSG_DONTWAIT);
    if (bytes > 0 || (bytes < 0 && errno == EINTR)) continue;
    if (bytes == 0 || errno != EAGAIN) return true;  // the peer has closed too
    break;
  }
  if (link.broken != 0) return true;
  int untaken = 0;
  return peer.outgoing.empty() && (::ioctl(socket, SIOCOUTQ, &untaken) != 0 || untaken == 0);
}

}  // namespace

void close_tcp(std::span<const TcpTurns::Peers* const> rails) {
  using Phase = TcpPeer::Phase;
  const int64_t deadline_ns = SteadyClock().now_ns() + kTcpCloseNsMax;
  each_of(rails, [](TcpPeer& peer) {
    if (peer.phase == Phase::kConnected && peer.link->broken == 0) peer.outgoing.add_goodbye();
  });
  for (;;) {
    const TcpPeer* first = nullptr;  // of those that are waited for
    each_of(rails, [&](TcpPeer& peer) {
      if (peer.phase != Phase::kConnected && peer.phase != Phase::kFailed) return;
      if (is_taken(peer)) {
        peer.phase = Phase::kGone;
      } else if (first == nullptr) {
        first = &peer;
      }
    });
    if (first == nullptr || SteadyClock().now_ns() >= deadline_ns) break;
    // That the peer's kernel has taken something is no event.
    const short room = first->outgoing.empty() ? 0 : POLLOUT;
    pollfd changes = {first->link->socket.get(), static_cast<short>(POLLIN | room), 0};
    ::poll(&changes, 1, 1);
  }
  each_of(rails, [](TcpPeer& peer) {
    peer.phase = Phase::kGone;
    (void)::shutdown(peer.link->socket.get(), SHUT_WR);
  });
}

}  // namespace parallax
