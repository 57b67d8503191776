// SPDX-License-Identifier: Apache-2.0
// By what a TcpTransport knows the descriptors that epoll tells of: the kind in the upper half, the
// number of a rank or a stranger in the lower one. Any thread; nothing blocks.
#ifndef PARALLAX_TRANSPORT_TCP_TCP_TAGS_H_
#define PARALLAX_TRANSPORT_TCP_TCP_TAGS_H_

#include <sys/epoll.h>

#include <cstdint>

#include "base/unique_fd.h"

namespace parallax {

inline constexpr uint64_t kTcpTagKinds = 0xffffffffull << 32;
inline constexpr uint64_t kTcpListenerTag = 1ull << 32;
inline constexpr uint64_t kTcpTimerTag = 2ull << 32;
inline constexpr uint64_t kTcpStrangerTag = 3ull << 32;
inline constexpr uint64_t kTcpPeerTag = 4ull << 32;

// EPOLL_CTL_ADD, or EPOLL_CTL_MOD: from now on `epoll` tells of these events of a rank's socket.
inline bool watch_tcp_peer(const UniqueFd& epoll, int operation, const UniqueFd& socket,
                           uint32_t rank, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = kTcpPeerTag | rank;
  return epoll_ctl(epoll.get(), operation, socket.get(), &event) == 0;
}

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_TAGS_H_
