// SPDX-License-Identifier: Apache-2.0
// TcpHost, the caller's side: see the header. tcp_host_serve.cc is the thread's.
#include "rendezvous/tcp_host.h"

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/check.h"
#include "base/rank_list.h"
#include "base/threads.h"
#include "transport/endpoint.h"

namespace parallax {

namespace {
int64_t descriptor_limit() {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur <= INT32_MAX;
  return known ? static_cast<int64_t>(limit.rlim_cur) : INT32_MAX;
}
}  // namespace

Introduction introduce(const RendezvousOptions& options, const TcpEntry& entry) {
  Introduction intro;
  intro.version =
      PARALLAX_VERSION_MAJOR * 10000 + PARALLAX_VERSION_MINOR * 100 + PARALLAX_VERSION_PATCH;
  intro.rank = options.rank;
  intro.host = options.host;
  intro.secret = entry.secret;
  intro.world = options.world;
  intro.lease_ms = options.lease_ms;
  intro.job = entry.job;
  intro.nonce = random_bytes(kNonceBytes);
  return intro;
}

TcpHost::TcpHost(const RendezvousOptions& options, TcpEntry entry, UniqueFd listener)
    : options_(options),
      entry_(std::move(entry)),
      descriptors_max_(descriptor_limit()),
      bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      ended_(options),
      listener_(std::move(listener)),
      roster_(options, entry_.where),
      looked_ns_(options.clock->now_ns()),
      keepalive_due_ns_(looked_ns_) {}

Status TcpHost::create(const RendezvousOptions& options, TcpEntry entry, UniqueFd listener,
                       std::unique_ptr<Rendezvous>* rendezvous) {
  std::unique_ptr<TcpHost> made(new TcpHost(options, std::move(entry), std::move(listener)));
  if (!made->bell_.valid()) {
    return limit(std::string("open: no descriptor for the rendezvous: ") + std::strerror(errno) +
                 "; raise ulimit -n");
  }
  PARALLAX_RETURN_IF_ERROR(start_thread(&made->server_, [raw = made.get()] { raw->serve(); }));
  *rendezvous = std::move(made);
  return {};
}

TcpHost::~TcpHost() {
  if (!bootstrapped_) leave({});
  if (!server_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stop_ns_ = std::min(stop_ns_, options_.clock->now_ns() + kGoodbyeNs);
  }
  wake();
  server_.join();
}

void TcpHost::wake() const {
  const uint64_t one = 1;
  (void)!::write(bell_.get(), &one, sizeof one);
}

Status TcpHost::allgather(std::span<const std::byte> mine, int64_t deadline_ns,
                          std::vector<std::string>* all) {
  const MutexLock lock(mutex_);
  PARALLAX_CHECK(mine.size() <= kEndpointBytesMax && !bootstrapped_);
  const uint64_t round = round_++;
  PARALLAX_CHECK(
      roster_.bring(0, round, {reinterpret_cast<const char*>(mine.data()), mine.size()}));
  wake();
  int64_t speak_ns = options_.clock->now_ns() + kSilenceNs;
  while (!roster_.complete(round)) {
    if (!roster_.verdict().ok()) return roster_.verdict();
    const int64_t now_ns = options_.clock->now_ns();
    if (now_ns >= deadline_ns) return missed_deadline("at " + entry_.where, missing_locked(round));
    if (now_ns >= speak_ns) {
      speak_ns = now_ns + kSilenceNs;
      say_waiting("at " + entry_.where, missing_locked(round), deadline_ns - now_ns);
    }
    changed_.wait_for(mutex_, kLookAtClock);
  }
  all->clear();
  for (uint32_t rank = 0; rank < options_.world; ++rank) all->push_back(roster_.blob(round, rank));
  return {};
}

std::string TcpHost::missing_locked(uint64_t round) const {
  std::string missing = roster_.missing(round);
  if (turned_away_count_ > 0) {
    missing += "; " + std::to_string(turned_away_count_) +
               (turned_away_count_ == 1 ? " connection was" : " connections were") +
               " turned away, the last from " + turned_away_last_;
  }
  return missing;
}

void TcpHost::leave(const Status& why) {
  {
    const MutexLock lock(mutex_);
    if (left_ || bootstrapped_) return;
    left_ = true;
    roster_.left(0, why);
  }
  wake();
}

Status TcpHost::verdict() {
  const MutexLock lock(mutex_);
  return left_ ? Status() : roster_.verdict();
}

// The thread goes on serving ranks that have not hung up yet: see the header.
void TcpHost::finish_bootstrap() {
  {
    const MutexLock lock(mutex_);
    if (bootstrapped_) return;
    bootstrapped_ = true;
    stop_ns_ = options_.clock->now_ns() + options_.lease_ms * kNanosecondsPerMillisecond;
  }
  wake();
}

Status TcpHost::finish() {
  finish_bootstrap();
  return {};
}

}  // namespace parallax
