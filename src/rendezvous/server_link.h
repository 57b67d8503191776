// SPDX-License-Identifier: Apache-2.0
// ServerLink: a connection that a rank accepted at its port of the tcp rendezvous. It is a
// stranger's until the peer has proved who it is, then a member's; who is turned away is told why,
// and has until a deadline to hang up. Never blocks. One thread, or under its owner's lock.
#ifndef PARALLAX_RENDEZVOUS_SERVER_LINK_H_
#define PARALLAX_RENDEZVOUS_SERVER_LINK_H_

#include <functional>
#include <string>

#include "base/unique_fd.h"
#include "rendezvous/frame_stream.h"
#include "rendezvous/handshake.h"
#include "rendezvous/tcp_address.h"

namespace parallax {

class ServerLink {
 public:
  enum class Stage { kStranger, kMember, kClosing, kClosed };

  // Whether a peer that knows the key may join.
  using Admit = std::function<Status(const Introduction& peer)>;

  ServerLink(UniqueFd socket, const SocketAddress& from, ServerHandshake handshake,
             int64_t deadline_ns);

  Stage stage() const { return stage_; }
  // A member's.
  uint32_t rank() const { return handshake_.peer().rank; }
  const SocketAddress& from() const { return from_; }
  // Of a stranger, or one that is closing.
  int64_t deadline_ns() const { return deadline_ns_; }
  // Whether a stranger has said who it is, be it true or not.
  bool introduced() const { return !handshake_.peer().nonce.empty(); }
  FrameStream& stream() { return stream_; }
  const FrameStream& stream() const { return stream_; }

  // Reads what has arrived, and of a stranger's bytes takes the handshake's. False: the connection
  // is at its end. *refused says why a stranger is no member, and is OK where it is, or may be.
  bool receive(const Admit& admit, Status* refused);
  // Sends what is ready. False: the connection broke.
  bool send();
  // What the peer was told is still sent.
  void turn_away();
  void close() { stage_ = Stage::kClosed; }

 private:
  void shake_hands(bool open, const Admit& admit, Status* refused);

  FrameStream stream_;
  SocketAddress from_;
  int64_t deadline_ns_;
  ServerHandshake handshake_;
  Stage stage_ = Stage::kStranger;
  bool shut_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_SERVER_LINK_H_
