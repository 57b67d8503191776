// SPDX-License-Identifier: Apache-2.0
// Leases. See membership.h.
#include "membership/membership.h"

namespace parallax {

Membership::Membership(std::vector<uint32_t> neighbours, int64_t lease_ns, int64_t now_ns)
    : neighbours_(std::move(neighbours)),
      lease_ns_(lease_ns),
      watched_(neighbours_),
      passed_ns_(now_ns),
      due_ns_(now_ns + lease_ns / kHeartbeatsPerLease) {
  for (const uint32_t rank : neighbours_) watches_[rank] = {now_ns, now_ns};
}

Membership::Watch& Membership::watch(uint32_t rank, int64_t now_ns) {
  // The first word to or from a rank starts its watch: it may hold up a step from now on.
  const auto [found, is_new] = watches_.try_emplace(rank, Watch{now_ns, now_ns});
  if (is_new) {
    watched_.push_back(rank);
    due_ns_ = std::min(due_ns_, now_ns + lease_ns_ / kHeartbeatsPerLease);
  }
  return found->second;
}

void Membership::heard(uint32_t rank, int64_t now_ns) { watch(rank, now_ns).heard_ns = now_ns; }

void Membership::sent(uint32_t rank, int64_t now_ns) { watch(rank, now_ns).sent_ns = now_ns; }

void Membership::dismiss(uint32_t rank) {
  const auto found = watches_.find(rank);
  if (found != watches_.end()) found->second.dismissed = true;
}

void Membership::suspect(uint32_t rank, std::string_view why, int64_t now_ns) {
  // No lease any more: over a broken connection nothing could renew it.
  watch(rank, now_ns).dismissed = true;
  suspicions_.push_back({rank, std::string(why), suspicion_ns()});
}

bool Membership::take_ripe(Suspicion* ripe) {
  const auto found =
      std::find_if(suspicions_.begin(), suspicions_.end(),
                   [](const Suspicion& suspicion) { return suspicion.left_ns <= 0; });
  if (found == suspicions_.end()) return false;
  *ripe = std::move(*found);
  suspicions_.erase(found);
  return true;
}

void Membership::passed(int64_t now_ns) {
  const int64_t away_ns = now_ns - passed_ns_;
  // The driver sleeps until the deadline at most, so what comes later is this rank's own lateness.
  // A little late it always is: see kLatenessesPerLease.
  const int64_t late_ns = now_ns - std::max(passed_ns_, next_deadline_ns());
  passed_ns_ = now_ns;
  // By the share of two leases that has passed, so that it fades alike with few passes or many; and
  // by 1 ns more, so that it ends.
  const double fading =
      std::min(1.0, static_cast<double>(away_ns) / (2.0 * static_cast<double>(lease_ns_)));
  strain_ns_ -=
      std::min(strain_ns_, static_cast<int64_t>(static_cast<double>(strain_ns_) * fading) + 1);
  if (late_ns > lease_ns_ / kLatenessesPerLease) {
    strain_ns_ = std::clamp(late_ns, strain_ns_, lease_ns_);
  }
  for (Suspicion& suspicion : suspicions_) {
    // A long pass counts as a short one: the notice may lie unread in this rank's own messages.
    suspicion.left_ns -= std::min(away_ns, suspicion_ns() / kSuspicionPasses + 1);
  }
  // Longer than heartbeats alone ever leave between passes: this rank was held up, not its peers.
  // They get that time back.
  if (away_ns <= lease_ns_ / 2) return;
  lapsed_until_ns_ = now_ns + kLapseLeases * lease_ns_;
  for (auto& [rank, watch] : watches_) watch.heard_ns = std::min(now_ns, watch.heard_ns + away_ns);
}

uint32_t Membership::expired(int64_t now_ns) const {
  // One comparison for nearly every pass: see due_ns_.
  if (now_ns < due_ns_) return kNoNeighbour;
  for (const uint32_t rank : watched_) {
    const Watch& watch = watches_.at(rank);
    // What holds up this rank holds up others of its machine too.
    if (!watch.dismissed && now_ns - watch.heard_ns >= lease_ns_ + strain_ns_) return rank;
  }
  return kNoNeighbour;
}

uint32_t Membership::heartbeat_due(int64_t now_ns) {
  if (now_ns < due_ns_) return kNoNeighbour;
  for (const uint32_t rank : watched_) {
    const Watch& watch = watches_.at(rank);
    if (!watch.dismissed && now_ns - watch.sent_ns >= lease_ns_ / kHeartbeatsPerLease) return rank;
  }
  // Only here, where no heartbeat is left to be sent: expired() was asked before.
  due_ns_ = earliest_ns();
  return kNoNeighbour;
}

int64_t Membership::next_deadline_ns() const {
  int64_t next_ns = due_ns_;
  for (const Suspicion& suspicion : suspicions_) {
    const int64_t step_ns = suspicion_ns() / kSuspicionPasses + 1;
    next_ns = std::min(next_ns, passed_ns_ + std::clamp<int64_t>(suspicion.left_ns, 0, step_ns));
  }
  return next_ns;
}

int64_t Membership::earliest_ns() const {
  int64_t next_ns = kNever;
  for (const auto& [rank, watch] : watches_) {
    if (watch.dismissed) continue;
    next_ns = std::min({next_ns, watch.heard_ns + lease_ns_ + strain_ns_,
                        watch.sent_ns + lease_ns_ / kHeartbeatsPerLease});
  }
  return next_ns;
}

}  // namespace parallax
