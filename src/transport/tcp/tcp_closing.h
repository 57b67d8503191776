// SPDX-License-Identifier: Apache-2.0
// How a rank's connections end in order, over all of its rails at once: all of them say goodbye,
// then what was sent is handed over, and only then is any of them shut down. So who listens to one
// rail does not find another ended ahead of what this rank said last, and a peer that takes nothing
// holds up no other.
//
// For the transport's owner, as it goes: blocks for kTcpCloseNsMax at most, however many rails.
#ifndef PARALLAX_TRANSPORT_TCP_TCP_CLOSING_H_
#define PARALLAX_TRANSPORT_TCP_TCP_CLOSING_H_

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "transport/tcp/tcp_turns.h"

namespace parallax {

inline constexpr int64_t kTcpCloseNsMax = 250 * kNanosecondsPerMillisecond;

// The peers of each rail, which are all gone behind it.
void close_tcp(std::span<const TcpTurns::Peers* const> rails);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_CLOSING_H_
