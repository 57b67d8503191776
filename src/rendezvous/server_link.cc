// SPDX-License-Identifier: Apache-2.0
// From stranger to member, or away: see the header. All bytes are a stranger's until the handshake
// is done, and those of a rank, still to be checked, after it.
#include "rendezvous/server_link.h"

namespace parallax {

namespace {
constexpr size_t kStrangerBytesPerPass = kHandshakeBodyBytesMax + kFrameHeadBytes;
constexpr size_t kMemberBytesPerPass = kSealedBodyBytesMax;
}  // namespace

ServerLink::ServerLink(UniqueFd socket, const SocketAddress& from, ServerHandshake handshake,
                       int64_t deadline_ns)
    : from_(from), deadline_ns_(deadline_ns), handshake_(std::move(handshake)) {
  stream_.socket = std::move(socket);
}

bool ServerLink::receive(const Admit& admit, Status* refused) {
  const bool member = stage_ == Stage::kMember;
  const bool open = stream_.receive(member ? kMemberBytesPerPass : kStrangerBytesPerPass);
  if (stage_ == Stage::kStranger) shake_hands(open, admit, refused);
  if (stage_ == Stage::kClosing) stream_.in.clear();
  return open;
}

// A peer whose proof arrives together with the end of its connection has given up waiting and will
// connect again. It must not become a member, or the end of this connection would count as its
// loss.
void ServerLink::shake_hands(bool open, const Admit& admit, Status* refused) {
  Handshake::Phase phase = handshake_.advance(&stream_.in, &stream_.out);
  if (phase == Handshake::Phase::kProven && !open) return;
  if (phase == Handshake::Phase::kProven) {
    phase = handshake_.welcome(admit(handshake_.peer()), &stream_.out);
  }
  if (phase == Handshake::Phase::kFailed) *refused = handshake_.status();
  if (phase != Handshake::Phase::kDone) return;
  stage_ = Stage::kMember;
  stream_.channel = handshake_.channel();
}

void ServerLink::turn_away() { stage_ = stream_.out.empty() ? Stage::kClosed : Stage::kClosing; }

bool ServerLink::send() {
  if (stage_ == Stage::kClosed) return true;
  const bool sent = stream_.send();
  if (sent && stage_ == Stage::kClosing && stream_.out.empty() && !shut_) {
    shut_ = true;
    (void)::shutdown(stream_.socket.get(), SHUT_WR);
  }
  return sent;
}

}  // namespace parallax
