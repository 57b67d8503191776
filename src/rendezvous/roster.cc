// SPDX-License-Identifier: Apache-2.0
// Who came, brought, left and fell silent: see the header. Pure.
#include "rendezvous/roster.h"

#include <algorithm>

#include "base/rank_list.h"
#include "rendezvous/handshake.h"
#include "rendezvous/roster_frames.h"

namespace parallax {

int64_t silence_max_ns(uint32_t lease_ms, uint32_t peer_lease_ms) {
  return std::max(lease_ms, peer_lease_ms) * kNanosecondsPerMillisecond / kKeepalivesPerLease *
         (kKeepalivesPerLease - 1);
}

Status silent(uint32_t rank, const std::string& host, int64_t silence_ns,
              const std::string& where) {
  return peer_lost(rank_name(rank, host) + " sent no keepalive for " +
                   std::to_string(silence_ns / kNanosecondsPerMillisecond) +
                   " ms while ranks met at " + where +
                   ": it is stopped, its host is down or the network is cut");
}

Status hung_up(uint32_t rank, const std::string& host, const std::string& where) {
  return peer_lost(rank_name(rank, host) + " ended while ranks met at " + where +
                   ": its connection closed");
}

Roster::Roster(const RendezvousOptions& options, std::string where)
    : options_(options), where_(std::move(where)), seats_(options.world) {
  seats_[0].presence = Presence::kHere;
  seats_[0].host = options.host;
}

Status Roster::admit(uint32_t rank, const std::string& host, uint32_t lease_ms, int64_t now_ns) {
  Seat& seat = seats_[rank];
  if (!verdict_.ok()) return verdict_;
  if (seat.presence != Presence::kAbsent) {
    return invalid("rank " + std::to_string(rank) + " of host " + host +
                   " came to the rendezvous at " + where_ + ", where rank " + std::to_string(rank) +
                   " of host " + seat.host +
                   " is already: two ranks have one number, or another job meets "
                   "there; name each job on all its ranks, as in tcp:HOST:PORT#NAME");
  }
  seat.presence = Presence::kHere;
  seat.host = host;
  seat.heard_ns = now_ns;
  seat.silence_max_ns = silence_max_ns(options_.lease_ms, lease_ms);
  return {};
}

void Roster::forgive(int64_t now_ns) {
  for (Seat& seat : seats_) seat.heard_ns = now_ns;
}

bool Roster::bring(uint32_t rank, uint64_t round, std::string_view blob) {
  Seat& seat = seats_[rank];
  if (round != seat.round || round > complete_count_) return false;
  seat.blobs[round % 2].assign(blob);
  if (!seat.children_port) seat.children_port.emplace();
  ++seat.round;
  if (++brought_count_[round % 2] < seats_.size()) return true;
  brought_count_[round % 2] = 0;
  digests_[round % 2] = digest_of(
      world(), [&](uint32_t each) -> const std::string& { return this->blob(round, each); });
  ++complete_count_;
  return true;
}

bool Roster::listens(uint32_t rank, const SocketAddress& at) {
  if (seats_[rank].children_port) return false;
  seats_[rank].children_port = at;
  return true;
}

const SocketAddress* Roster::children_port(uint32_t rank) const {
  const auto& port = seats_[rank].children_port;
  return port ? &*port : nullptr;
}

void Roster::broken(const Status& why) {
  if (verdict_.ok()) verdict_ = why;
}

void Roster::left(uint32_t rank, const Status& why) {
  broken(departed(rank, seats_[rank].host, why));
  done(rank);
}

void Roster::hung_up(uint32_t rank) {
  if (seats_[rank].presence != Presence::kHere) return;
  broken(parallax::hung_up(rank, seats_[rank].host, where_));
  done(rank);
}

// A rank that came is judged by its connection: its process may end once it is through.
void Roster::ended(const EndedRank& who) {
  if (seats_[who.rank].presence != Presence::kAbsent) return;
  broken(ended_before_rendezvous(who, "at " + where_));
}

void Roster::judge(int64_t now_ns) {
  for (uint32_t rank = 1; rank < seats_.size(); ++rank) {
    const Seat& seat = seats_[rank];
    if (seat.presence != Presence::kHere || now_ns - seat.heard_ns < seat.silence_max_ns) continue;
    broken(silent(rank, seat.host, seat.silence_max_ns, where_));
    done(rank);
  }
}

int64_t Roster::judge_due_ns() const {
  int64_t due_ns = kNever;
  for (uint32_t rank = 1; rank < seats_.size(); ++rank) {
    const Seat& seat = seats_[rank];
    if (seat.presence == Presence::kHere) {
      due_ns = std::min(due_ns, seat.heard_ns + seat.silence_max_ns);
    }
  }
  return due_ns;
}

std::string Roster::missing(uint64_t round) const {
  std::vector<uint32_t> absent;
  std::vector<uint32_t> late;
  for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
    if (seats_[rank].round > round) continue;
    (seats_[rank].presence == Presence::kAbsent ? absent : late).push_back(rank);
  }
  return describe_missing(absent, late);
}

uint32_t Roster::here_count() const {
  return static_cast<uint32_t>(std::count_if(seats_.begin(), seats_.end(), [](const Seat& seat) {
    return seat.presence == Presence::kHere;
  }));
}

}  // namespace parallax
