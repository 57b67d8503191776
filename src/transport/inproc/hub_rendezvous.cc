// SPDX-License-Identifier: Apache-2.0
// HubRendezvous: see the header for owners, threads and what blocks.
#include "transport/inproc/hub_rendezvous.h"

#include <chrono>

#include "base/rank_list.h"

namespace parallax {

namespace {
// The clock is injected, but a condition variable waits by real time: so the clock is read this
// often.
constexpr std::chrono::milliseconds kLookAtClock{5};
}  // namespace

HubRendezvous::HubRendezvous(uint32_t world) : seats_(world) {}

bool HubRendezvous::enter(uint32_t rank, const std::string& host) {
  const MutexLock lock(mutex_);
  Seat& seat = seats_[rank];
  if (seat.presence != Presence::kAbsent) return false;
  seat.presence = Presence::kHere;
  seat.host = host;
  return true;
}

void HubRendezvous::leave(uint32_t rank, const Status& why) {
  const MutexLock lock(mutex_);
  Seat& seat = seats_[rank];
  if (seat.presence == Presence::kLeft) return;
  seat.presence = Presence::kLeft;
  seat.why = why;
  changed_.notify_all();
}

Status HubRendezvous::verdict() const {
  const MutexLock lock(mutex_);
  for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
    if (!seats_[rank].why.ok()) return departed(rank, seats_[rank].host, seats_[rank].why);
  }
  return {};
}

bool HubRendezvous::anyone_left() const {
  const MutexLock lock(mutex_);
  for (const Seat& seat : seats_) {
    if (seat.presence == Presence::kLeft) return true;
  }
  return false;
}

Status HubRendezvous::exchange(uint32_t rank, std::string mine, const Clock& clock,
                               int64_t deadline_ns, std::vector<std::string>* all) {
  const MutexLock lock(mutex_);
  const auto world = static_cast<uint32_t>(seats_.size());
  const uint64_t number = seats_[rank].round++;
  Round& round = rounds_[number];  // stays valid while others insert: a map's nodes do not move
  if (round.blobs.empty()) {
    round.blobs.resize(world);
    round.brought.resize(world);
  }
  round.blobs[rank] = std::move(mine);
  round.brought[rank] = true;
  if (++round.brought_count == world) changed_.notify_all();
  int64_t speak_ns = clock.now_ns() + kSilenceNs;
  while (round.brought_count < world) {
    PARALLAX_RETURN_IF_ERROR(left_locked(round));
    const int64_t now_ns = clock.now_ns();
    if (now_ns >= deadline_ns) {
      return timed_out("the rendezvous passed its deadline: " + missing_locked(round));
    }
    if (now_ns >= speak_ns) {
      speak_ns = now_ns + kSilenceNs;
      say_waiting("of this process's ranks", missing_locked(round), deadline_ns - now_ns);
    }
    changed_.wait_for(mutex_, kLookAtClock);
  }
  *all = round.blobs;
  if (++round.taken_count == world) rounds_.erase(number);
  return {};
}

Status HubRendezvous::left_locked(const Round& round) const {
  for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
    if (!round.brought[rank] && seats_[rank].presence == Presence::kLeft) {
      return departed(rank, seats_[rank].host, seats_[rank].why);
    }
  }
  return {};
}

std::string HubRendezvous::missing_locked(const Round& round) const {
  std::vector<uint32_t> absent;
  std::vector<uint32_t> late;
  for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
    if (round.brought[rank]) continue;
    (seats_[rank].presence == Presence::kAbsent ? absent : late).push_back(rank);
  }
  return describe_missing(absent, late);
}

}  // namespace parallax
