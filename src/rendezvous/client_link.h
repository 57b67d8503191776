// SPDX-License-Identifier: Apache-2.0
// ClientLink: a connection by which a rank joins a tcp rendezvous at another rank's port: it tries
// the addresses there in turn, with pauses, proves who it is, and is then a stream of sealed frames
// whose meaning is the owner's. Sockets are non-blocking; nothing blocks. One thread, or under its
// owner's lock.
#ifndef PARALLAX_RENDEZVOUS_CLIENT_LINK_H_
#define PARALLAX_RENDEZVOUS_CLIENT_LINK_H_

#include <poll.h>

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/frame_stream.h"
#include "rendezvous/handshake.h"
#include "rendezvous/tcp_address.h"
#include "rendezvous/tcp_entry.h"

namespace parallax {

class ClientLink {
 public:
  enum class Phase { kSeeking, kConnecting, kTalking, kJoined, kOver };

  // To the port of rank `server_rank`. `options` and `entry` outlive it.
  ClientLink(const RendezvousOptions& options, const TcpEntry& entry, uint32_t server_rank = 0)
      : options_(options), entry_(entry), server_rank_(server_rank) {}

  Phase phase() const { return phase_; }
  bool joined() const { return phase_ == Phase::kJoined; }
  bool over() const { return phase_ == Phase::kOver; }
  // Whether it seeks and has no address to try.
  bool lost() const { return addresses_.empty() && phase_ == Phase::kSeeking; }
  void aim(std::vector<SocketAddress> addresses) { addresses_ = std::move(addresses); }
  // What the last try came to; "" if there was none.
  const std::string& last_try() const { return last_try_; }
  // Where and who answered; once joined.
  const SocketAddress& address() const { return address_; }
  const Introduction& peer() const { return handshake_->peer(); }
  FrameStream& stream() { return stream_; }
  const FrameStream& stream() const { return stream_; }

  // One pass until it has joined. The error with which the other side refuses this rank.
  Status advance(int64_t now_ns);
  // Gives up this try, because of `why`, and makes another after a pause.
  void again(const std::string& why);
  // Until when it need not be looked at, unless its socket becomes ready; of use until it joined.
  int64_t due_ns() const { return try_ns_; }
  void waits(std::vector<pollfd>* fds) const;
  // For good.
  void close();

 private:
  void seek(int64_t now_ns);
  void on_connected(int64_t now_ns);
  Status shake_hands(int64_t now_ns);

  const RendezvousOptions& options_;
  const TcpEntry& entry_;
  const uint32_t server_rank_;
  std::vector<SocketAddress> addresses_;
  size_t tries_count_ = 0;
  SocketAddress address_;  // tried last
  Phase phase_ = Phase::kSeeking;
  FrameStream stream_;
  std::optional<ClientHandshake> handshake_;
  int64_t try_ns_ = 0;    // seeking: when to try next; later: when to give this try up
  int64_t pause_ns_ = 0;  // between tries
  std::string last_try_;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_CLIENT_LINK_H_
