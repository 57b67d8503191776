// SPDX-License-Identifier: Apache-2.0
// Seeking, connecting, proving oneself, and again: see the header.
#include "rendezvous/client_link.h"

#include <algorithm>
#include <cstring>

#include "base/tcp_socket.h"

namespace parallax {

namespace {
constexpr int64_t kPauseMinNs = 5 * kNanosecondsPerMillisecond;
constexpr int64_t kPauseMaxNs = 200 * kNanosecondsPerMillisecond;
constexpr int64_t kConnectNs = 5000 * kNanosecondsPerMillisecond;
}  // namespace

Status ClientLink::advance(int64_t now_ns) {
  if (phase_ == Phase::kSeeking) seek(now_ns);
  if (phase_ == Phase::kConnecting) on_connected(now_ns);
  return phase_ == Phase::kTalking ? shake_hands(now_ns) : Status();
}

void ClientLink::seek(int64_t now_ns) {
  if (now_ns < try_ns_ || addresses_.empty()) return;
  address_ = addresses_[tries_count_++ % addresses_.size()];
  const int failure = tcp_connect(address_, &stream_.socket);
  if (failure != 0) {
    again("connecting to " + to_text(address_) + ": " + std::strerror(failure));
    return;
  }
  phase_ = Phase::kConnecting;
  try_ns_ = now_ns + kConnectNs;
}

void ClientLink::on_connected(int64_t now_ns) {
  pollfd writable = {stream_.socket.get(), POLLOUT, 0};
  if (::poll(&writable, 1, 0) != 1) {
    if (now_ns >= try_ns_) again("connecting to " + entry_.where + ": no answer");
    return;
  }
  const int failure = tcp_connected(stream_.socket);
  if (failure != 0) {
    again("connecting to " + entry_.where + ": " + std::strerror(failure));
    return;
  }
  phase_ = Phase::kTalking;
  handshake_.emplace(introduce(options_, entry_), entry_.key, server_rank_);
  handshake_->start(&stream_.out);
  try_ns_ = now_ns + kIntroductionNs;
}

Status ClientLink::shake_hands(int64_t now_ns) {
  const bool open = stream_.receive(kHandshakeBodyBytesMax);
  const Handshake::Phase phase = handshake_->advance(&stream_.in, &stream_.out);
  if (phase == Handshake::Phase::kFailed) return handshake_->status();
  if (!stream_.send() || !open) {
    // Rank 0 also hangs up where too many came at once, so this rank tries again.
    again("rank 0, or what listens at " + entry_.where + ", hung up before it knew this rank");
  } else if (phase == Handshake::Phase::kDone) {
    stream_.channel = handshake_->channel();
    phase_ = Phase::kJoined;
  } else if (now_ns >= try_ns_) {
    again("what listens at " + entry_.where + " gives no answer");
  }
  return {};
}

void ClientLink::again(const std::string& why) {
  last_try_ = why;
  phase_ = Phase::kSeeking;
  stream_.close();
  handshake_.reset();
  pause_ns_ = std::clamp(2 * pause_ns_, kPauseMinNs, kPauseMaxNs);
  try_ns_ = options_.clock->now_ns() + pause_ns_;
}

void ClientLink::waits(std::vector<pollfd>* fds) const {
  if (!stream_.socket.valid()) return;
  fds->push_back(stream_.waits());
  if (phase_ == Phase::kConnecting) fds->back().events = POLLIN | POLLOUT;
}

void ClientLink::close() {
  phase_ = Phase::kOver;
  stream_.close();
}

}  // namespace parallax
