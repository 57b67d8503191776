// SPDX-License-Identifier: Apache-2.0
// TcpMember, the caller's side: see the header. tcp_member_run.cc is the thread's.
#include "rendezvous/tcp_member.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/check.h"
#include "base/codec.h"
#include "base/rank_list.h"
#include "base/threads.h"
#include "rendezvous/roster.h"
#include "transport/endpoint.h"

namespace parallax {

namespace {
constexpr uint32_t kAnswerMsMax = 1000;  // the longest wait for an answer of rank 0

int64_t answer_patience_ns(const RendezvousOptions& options) {
  return std::min(options.lease_ms / kKeepalivesPerLease, kAnswerMsMax) *
         kNanosecondsPerMillisecond;
}
}  // namespace

TcpMember::TcpMember(const RendezvousOptions& options, TcpEntry entry, TcpAddress tcp_address)
    : options_(options),
      entry_(std::move(entry)),
      tcp_address_(std::move(tcp_address)),
      bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      ended_(options),
      looked_ns_(options.clock->now_ns()) {}

Status TcpMember::create(const RendezvousOptions& options, TcpEntry entry, TcpAddress tcp_address,
                         std::unique_ptr<Rendezvous>* rendezvous) {
  std::unique_ptr<TcpMember> made(new TcpMember(options, std::move(entry), std::move(tcp_address)));
  if (!made->bell_.valid()) {
    return limit(std::string("open: no descriptor for the rendezvous: ") + std::strerror(errno) +
                 "; raise ulimit -n");
  }
  if (is_numeric(made->tcp_address_)) PARALLAX_RETURN_IF_ERROR(made->find());
  PARALLAX_RETURN_IF_ERROR(start_thread(&made->runner_, [raw = made.get()] { raw->run(); }));
  *rendezvous = std::move(made);
  return {};
}

TcpMember::~TcpMember() {
  if (!bootstrapped_) leave({});
  if (!runner_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    stop_ns_ = std::min(stop_ns_, options_.clock->now_ns() + kGoodbyeNs);
  }
  wake();
  runner_.join();
}

void TcpMember::wake() const {
  const uint64_t one = 1;
  (void)!::write(bell_.get(), &one, sizeof one);
}

// Sleeps a little; false at the deadline. In a loop over what is waited for.
bool TcpMember::wait_locked(int64_t deadline_ns) {
  if (options_.clock->now_ns() >= deadline_ns) return false;
  changed_.wait_for(mutex_, kLookAtClock);
  return true;
}

bool TcpMember::met_locked() const { return blobs_.size() == options_.world; }

bool TcpMember::over_locked() const {
  return met_locked() || phase_ == Phase::kOver || !verdict_.ok();
}

void TcpMember::say_locked(FrameKind kind, std::string_view body) {
  channel_->seal(kind, body, &out_);
  wake();
}

void TcpMember::bring_locked() {
  brought_ = true;
  std::string body;
  put_number(&body, round_);
  body.append(mine_);
  say_locked(FrameKind::kBring, body);
}

Status TcpMember::allgather(std::span<const std::byte> mine, int64_t deadline_ns,
                            std::vector<std::string>* all) {
  const MutexLock lock(mutex_);
  PARALLAX_CHECK(mine.size() <= kEndpointBytesMax && !bootstrapped_);
  mine_.assign(reinterpret_cast<const char*>(mine.data()), mine.size());
  blobs_.clear();
  brought_ = false;
  if (phase_ == Phase::kJoined) bring_locked();
  bool over = false;
  for (int64_t speak_ns = 0; !over && speak_ns < deadline_ns;) {
    if (speak_ns != 0) {
      ask_locked();
      say_waiting("at " + entry_.where, missing_locked(), deadline_ns - speak_ns);
    }
    speak_ns = options_.clock->now_ns() + kSilenceNs;
    while (!over_locked() && wait_locked(std::min(speak_ns, deadline_ns))) continue;
    over = over_locked();
  }
  if (!over) {
    ask_locked();
    return verdict_.ok() ? missed_deadline("at " + entry_.where, missing_locked()) : verdict_;
  }
  if (!met_locked()) return verdict_;
  *all = std::move(blobs_);
  blobs_.clear();
  ++round_;
  return {};
}

// Asks rank 0 why the rendezvous is over, if it is, and who is missing. Waits a fifth of the lease,
// or a second, at most.
void TcpMember::ask_locked() {
  if (phase_ != Phase::kJoined) return;
  std::string body;
  put_number(&body, round_);
  say_locked(FrameKind::kAsk, body);
  const uint64_t asked = ++asked_count_;
  const int64_t until_ns = options_.clock->now_ns() + answer_patience_ns(options_);
  while (answered_count_ < asked && phase_ != Phase::kOver && wait_locked(until_ns)) continue;
}

std::string TcpMember::missing_locked() const {
  if (phase_ == Phase::kJoined) {
    return missing_.empty() ? "rank 0 came but has not got this far" : missing_;
  }
  return "rank 0 never came" + (last_try_.empty() ? std::string() : " (" + last_try_ + ")");
}

// Waits until rank 0 has the reason, so that a rank that sees this one disconnect and then asks
// rank 0 learns why.
void TcpMember::leave(const Status& why) {
  const MutexLock lock(mutex_);
  if (left_ || bootstrapped_) return;
  left_ = true;
  if (phase_ != Phase::kJoined || !verdict_.ok()) return;
  std::string body;
  put_status(&body, why);
  say_locked(FrameKind::kLeave, body);
  const int64_t until_ns = options_.clock->now_ns() + answer_patience_ns(options_);
  while (verdict_.ok() && phase_ != Phase::kOver && wait_locked(until_ns)) continue;
}

Status TcpMember::verdict() {
  const MutexLock lock(mutex_);
  if (verdict_.ok() && !bootstrapped_) ask_locked();
  return left_ ? Status() : verdict_;
}

void TcpMember::finish_bootstrap() {
  {
    const MutexLock lock(mutex_);
    if (bootstrapped_) return;
    bootstrapped_ = true;
    stopping_ = true;
    stop_ns_ = options_.clock->now_ns() + kGoodbyeNs;
    if (phase_ == Phase::kJoined) say_locked(FrameKind::kBye, {});
  }
  wake();
  runner_.join();
}

Status TcpMember::finish() {
  finish_bootstrap();
  return {};
}

}  // namespace parallax
