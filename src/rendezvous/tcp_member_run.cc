// SPDX-License-Identifier: Apache-2.0
// TcpMember, the thread's side: finds rank 0, proves itself, listens. See tcp_member.h.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/codec.h"
#include "rendezvous/roster.h"
#include "rendezvous/tcp_member.h"
#include "rendezvous/tcp_socket.h"
#include "transport/endpoint.h"

namespace parallax {

namespace {
constexpr int64_t kPauseMinNs = 5 * kNanosecondsPerMillisecond;
constexpr int64_t kPauseMaxNs = 200 * kNanosecondsPerMillisecond;
constexpr int64_t kConnectNs = 5000 * kNanosecondsPerMillisecond;
constexpr size_t kBytesPerPass = 4 * kSealedBodyBytesMax;
}  // namespace

// No exception leaves the thread: lack of memory, or a failed check, ends the rendezvous.
void TcpMember::run() {
  try {
    for (;;) {
      bool unknown = false;
      {
        const MutexLock lock(mutex_);
        unknown = addresses_.empty() && phase_ == Phase::kSeeking;
      }
      if (unknown) {
        Status found = find();
        const MutexLock lock(mutex_);
        if (found.code() == PARALLAX_INVALID) {
          end(std::move(found));
        } else if (!found.ok()) {
          again(found.message());
        }
      }
      int fd = -1;
      bool sends = false;
      int64_t wake_ns = 0;
      {
        const MutexLock lock(mutex_);
        fd = socket_.get();
        sends = phase_ == Phase::kConnecting || !out_.empty();
        wake_ns = due_ns();
      }
      sleep(fd, sends, wake_ns);
      ended_.look(options_.clock->now_ns());
      const MutexLock lock(mutex_);
      if (!look()) return;
    }
  } catch (const std::exception& error) {
    const MutexLock lock(mutex_);
    end(internal(std::string("the thread of the rendezvous: ") + error.what()));
  }
}

// Resolves rank 0's address, outside the lock: a resolver may block for long.
Status TcpMember::find() {
  std::vector<SocketAddress> addresses;
  PARALLAX_RETURN_IF_ERROR(resolve(tcp_address_, &addresses));
  PARALLAX_RETURN_IF_ERROR(check_trust(tcp_address_, addresses, entry_.secret));
  const MutexLock lock(mutex_);
  addresses_ = std::move(addresses);
  return {};
}

int64_t TcpMember::due_ns() const {
  if (phase_ == Phase::kOver) return stop_ns_;
  if (phase_ != Phase::kJoined) return std::min({stop_ns_, try_ns_, ended_.due_ns()});
  return std::min(stop_ns_, keepalive_due_ns_);
}

void TcpMember::sleep(int fd, bool sends, int64_t due_ns) const {
  const int64_t left_ns = std::max<int64_t>(0, due_ns - options_.clock->now_ns());
  const int64_t left_ms = std::min<int64_t>(left_ns / kNanosecondsPerMillisecond + 1, 1000);
  pollfd fds[2] = {{bell_.get(), POLLIN, 0},
                   {fd, static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0}};
  (void)::poll(fds, fd >= 0 ? 2 : 1, left_ns == 0 ? 0 : static_cast<int>(left_ms));
  uint64_t rung = 0;
  (void)!::read(bell_.get(), &rung, sizeof rung);
}

// One pass; false when the thread's work is done.
bool TcpMember::look() {
  const int64_t now_ns = options_.clock->now_ns();
  if (!stopping_) {
    if (phase_ == Phase::kSeeking) seek(now_ns);
    if (phase_ == Phase::kConnecting) on_connected(now_ns);
    if (phase_ == Phase::kTalking) talk(now_ns);
    if (phase_ != Phase::kJoined && phase_ != Phase::kOver) mind_rank_0();
  }
  if (phase_ == Phase::kJoined) keep(now_ns);
  looked_ns_ = now_ns;
  changed_.notify_all();
  if (!stopping_) return true;
  const bool said = phase_ != Phase::kJoined || out_.empty();
  if (said) socket_.reset();
  return !said && now_ns < stop_ns_;
}

void TcpMember::seek(int64_t now_ns) {
  if (now_ns < try_ns_ || addresses_.empty()) return;
  const SocketAddress& address = addresses_[address_++ % addresses_.size()];
  const int failure = tcp_connect(address, &socket_);
  if (failure != 0) {
    again("connecting to " + to_text(address) + ": " + std::strerror(failure));
    return;
  }
  phase_ = Phase::kConnecting;
  try_ns_ = now_ns + kConnectNs;
}

void TcpMember::on_connected(int64_t now_ns) {
  pollfd writable = {socket_.get(), POLLOUT, 0};
  if (::poll(&writable, 1, 0) != 1) {
    if (now_ns >= try_ns_) again("connecting to " + entry_.where + ": no answer");
    return;
  }
  const int failure = tcp_connected(socket_);
  if (failure != 0) {
    again("connecting to " + entry_.where + ": " + std::strerror(failure));
    return;
  }
  phase_ = Phase::kTalking;
  handshake_.emplace(introduce(options_, entry_), entry_.key);
  handshake_->start(&out_);
  try_ns_ = now_ns + kIntroductionNs;
}

void TcpMember::talk(int64_t now_ns) {
  const bool open = tcp_receive(socket_, kHandshakeBodyBytesMax, &in_);
  const Handshake::Phase phase = handshake_->advance(&in_, &out_);
  if (phase == Handshake::Phase::kFailed) {
    end(handshake_->status());
    return;
  }
  if (!tcp_send(socket_, &out_) || !open) {
    // Rank 0 also hangs up where too many came at once, so this rank tries again.
    again("rank 0, or what listens at " + entry_.where + ", hung up before it knew this rank");
    return;
  }
  if (phase != Handshake::Phase::kDone) {
    if (now_ns >= try_ns_) again("what listens at " + entry_.where + " gives no answer");
    return;
  }
  channel_ = handshake_->channel();
  phase_ = Phase::kJoined;
  heard_ns_ = keepalive_due_ns_ = looked_ns_ = now_ns;
  if (!brought_) bring_locked();
}

void TcpMember::keep(int64_t now_ns) {
  const Introduction& host = handshake_->peer();
  const int64_t lease_ns = options_.lease_ms * kNanosecondsPerMillisecond;
  if (now_ns - looked_ns_ > lease_ns / 2) heard_ns_ = now_ns;  // this rank was held up itself
  const bool open = tcp_receive(socket_, kBytesPerPass, &in_);
  size_t at = 0;
  Took took = Took::kFrame;
  while (took == Took::kFrame) {
    Frame frame;
    size_t used = 0;
    took = channel_->open(std::string_view(in_).substr(at), &frame, &used);
    if (took != Took::kFrame) break;
    heard_ns_ = now_ns;
    if (!on_frame(frame)) took = Took::kBroken;
    at += used;
  }
  in_.erase(0, at);
  const int64_t silence_ns = silence_max_ns(options_.lease_ms, host.lease_ms);
  if (took == Took::kBroken) {
    end(peer_lost(rank_name(0, host.host) + " sent, while ranks met at " + entry_.where +
                  ", what is not a rank's or was changed on its way"));
  } else if (!open) {
    end(hung_up(0, host.host, entry_.where));
  } else if (now_ns - heard_ns_ >= silence_ns) {
    end(silent(0, host.host, silence_ns, entry_.where));
  }
  if (phase_ != Phase::kJoined) return;
  if (now_ns >= keepalive_due_ns_) {
    channel_->seal(FrameKind::kKeepalive, {}, &out_);
    keepalive_due_ns_ = now_ns + lease_ns / kKeepalivesPerLease;
  }
  if (!tcp_send(socket_, &out_)) end(hung_up(0, host.host, entry_.where));
}

// False: rank 0 sends no such frame.
bool TcpMember::on_frame(const Frame& frame) {
  std::string_view body = frame.body;
  Status said;
  switch (frame.kind) {
    case FrameKind::kKeepalive:
      return body.empty();
    case FrameKind::kBlobs:
      return on_blobs(body);
    case FrameKind::kVerdict:
      if (!take_status(&body, &said) || said.ok() || !body.empty()) return false;
      if (verdict_.ok()) verdict_ = said;
      return true;
    case FrameKind::kAnswer: {
      if (answered_count_ >= asked_count_ || !take_status(&body, &said)) return false;
      ByteReader reader(body);
      if (!reader.text(&missing_, kSentenceBytesMax) || !is_printable(missing_)) return false;
      if (verdict_.ok()) verdict_ = said;
      ++answered_count_;
      return true;
    }
    default:
      return false;
  }
}

bool TcpMember::on_blobs(std::string_view body) {
  ByteReader reader(body);
  uint64_t round = 0;
  uint32_t first = 0;
  uint32_t count = 0;
  if (!reader.number(&round) || !reader.number(&first) || !reader.number(&count) ||
      round != round_ || first != blobs_.size() || count > options_.world - first) {
    return false;
  }
  for (uint32_t i = 0; i < count; ++i) {
    blobs_.emplace_back();
    if (!reader.text(&blobs_.back(), kEndpointBytesMax)) return false;
  }
  return reader.empty();
}

// While this rank has no connection, only the launcher can tell it that rank 0 has ended. It then
// names the rank that ended first, since rank 0 may have ended because of it.
void TcpMember::mind_rank_0() {
  if (ended_.find(0) == nullptr) return;
  end(ended_before_rendezvous(ended_.all().front(), "at " + entry_.where));
}

// Connects again after a pause.
void TcpMember::again(const std::string& why) {
  last_try_ = why;
  phase_ = Phase::kSeeking;
  socket_.reset();
  handshake_.reset();
  in_.clear();
  out_.clear();
  pause_ns_ = std::clamp(2 * pause_ns_, kPauseMinNs, kPauseMaxNs);
  try_ns_ = options_.clock->now_ns() + pause_ns_;
}

// INVALID and IO concern this rank alone, and the sentence says so; others are sentences that all
// ranks report alike.
void TcpMember::end(Status why) {
  if (why.code() == PARALLAX_INVALID || why.code() == PARALLAX_IO) {
    why = Status(why.code(), "rank " + std::to_string(options_.rank) +
                                 " cannot join the rendezvous at " + entry_.where + ": " +
                                 why.message());
  }
  if (verdict_.ok()) verdict_ = std::move(why);
  phase_ = Phase::kOver;
  socket_.reset();
  out_.clear();
}

}  // namespace parallax
