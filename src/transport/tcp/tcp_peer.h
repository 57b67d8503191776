// SPDX-License-Identifier: Apache-2.0
// TcpPeer: what a TcpTransport knows of one rank: how to reach it, the attempt to connect or the
// connection, and the sends under way. Plain data, owned and used by the transport alone.
#ifndef PARALLAX_TRANSPORT_TCP_TCP_PEER_H_
#define PARALLAX_TRANSPORT_TCP_TCP_PEER_H_

#include <sys/epoll.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "transport/inproc/fifo.h"
#include "transport/tcp/tcp_frames.h"
#include "transport/tcp/tcp_handshake.h"
#include "transport/tcp/tcp_incoming.h"
#include "transport/tcp/tcp_outgoing.h"
#include "transport/transport.h"

namespace parallax {

// What epoll tells of a connection that is listened to: bytes, and its end ahead of them.
inline constexpr uint32_t kTcpHears = EPOLLIN | EPOLLRDHUP;

// A connection whose ends know each other.
struct TcpLink {
  TcpLink(UniqueFd connected, const TcpHandshake& handshake, size_t body_bytes_max)
      : socket(std::move(connected)),
        sealer(handshake.identity().suite, handshake.send_secret()),
        incoming(handshake.identity().suite, handshake.receive_secret(), body_bytes_max) {}

  UniqueFd socket;
  TcpSealer sealer;
  TcpIncoming incoming;
  uint32_t events = kTcpHears;  // that epoll tells of
  bool waits_for_room = false;  // EPOLLOUT is among them
  bool unheard = false;         // EPOLLIN is not: see TcpTurns
  int broken = 0;               // errno's number: nothing can be sent, what has come can be read
};

// The attempts of this rank to connect. One that fails is made again, until the deadline.
struct TcpDial {
  enum class Stage : uint8_t {
    kPaused,      // after an attempt that failed
    kConnecting,  // the kernel's handshake
    kTalking,     // TLS's
    kWaiting,     // for the peer's welcome: there is a TcpLink
  };
  Stage stage = Stage::kPaused;
  UniqueFd socket;
  std::unique_ptr<TcpHandshake> handshake;
  std::string in;
  std::string out;
  int64_t deadline_ns = 0;
  int64_t again_ns = 0;
  int64_t pause_ns = 0;
  std::string trouble;     // of the last attempt
  bool own_fault = false;  // this machine lacks what it takes
};

struct TcpPeer final : TcpOutgoing::Done {
  enum class Phase : uint8_t {
    kKnown,       // no connection yet
    kConnecting,  // this rank is at it
    kConnected,
    kFailed,  // to be reported by the next poll
    kGone,    // reported, or forgotten
  };

  TcpPeer(TcpBuffers& buffers, TcpCounters& counters) : outgoing(buffers, counters) {}
  void on_taken(uint64_t cookie) override { sent->push({rank, cookie}); }
  // Messages alone: before, the connection is still to be made.
  bool is_held() const { return held && phase == Phase::kConnected; }
  // Nothing of it is to be read until it is its turn.
  bool holds_message() const { return is_held() && link->incoming.at_message(); }

  struct Completion {
    uint32_t rank = 0;
    uint64_t cookie = 0;
  };

  uint32_t rank = 0;
  Phase phase = Phase::kKnown;
  bool needs_attention = false;
  bool held = false;     // what comes stays where it is
  bool resumed = false;  // no longer held: frames may lie in its buffer
  bool ended = false;    // while it was held
  Loss loss = Loss::kBroken;
  std::string failure;  // why, behind kFailed or `ended`
  TcpEndpoint endpoint;
  TcpOutgoing outgoing;
  uint32_t uncompleted = 0;  // accepted sends whose on_sent is still to come
  Fifo<Completion>* sent = nullptr;
  std::unique_ptr<TcpDial> dial;
  std::unique_ptr<TcpLink> link;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_TCP_TCP_PEER_H_
