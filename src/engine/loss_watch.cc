// SPDX-License-Identifier: Apache-2.0
// Leases, suspicions and notices. See loss_watch.h.
#include "engine/loss_watch.h"

#include "message/told_failure.h"

namespace parallax {

bool LossWatch::check(int64_t now_ns) {
  // Nothing is due, in nearly every pass.
  if (now_ns < parts_.membership.next_deadline_ns()) return false;
  check_suspicions();
  check_leases(now_ns);
  if (parts_.failure.job_goes_on()) send_heartbeats(now_ns);
  return true;
}

void LossWatch::check_suspicions() {
  Membership::Suspicion ripe;
  while (parts_.failure.job_goes_on() && parts_.membership.take_ripe(&ripe)) {
    on_peer_gone(ripe.rank, ripe.why);
  }
}

void LossWatch::check_leases(int64_t now_ns) {
  while (parts_.failure.job_goes_on()) {
    const uint32_t expired = parts_.membership.expired(now_ns);
    if (expired == Membership::kNoNeighbour) return;
    // So that the transport does not report the same loss again.
    parts_.transport.forget(expired);
    parts_.outbox.drop(expired);
    on_peer_gone(expired,
                 "silent for its lease of " +
                     std::to_string(parts_.membership.lease_ns() / kNanosecondsPerMillisecond) +
                     " ms (process stopped, host down or network cut)");
  }
}

void LossWatch::send_heartbeats(int64_t now_ns) {
  uint32_t due = parts_.membership.heartbeat_due(now_ns);
  while (due != Membership::kNoNeighbour) {
    SectionHeader header;
    if (!parts_.outbox.has_queued(due)) parts_.outbox.send_bytes(due, header, {});
    // Queued: what credits hold back is no reason to queue more.
    parts_.membership.sent(due, now_ns);
    due = parts_.membership.heartbeat_due(now_ns);
  }
}

void LossWatch::on_lost(uint32_t rank, Loss loss, std::string_view why) {
  parts_.outbox.drop(rank);
  if (loss == Loss::kOwnLack) return parts_.failure.lack(rank, std::string(why));
  if (loss == Loss::kBroken && parts_.world > 2) {
    parts_.membership.suspect(rank, why, parts_.clock.now_ns());
  } else {
    on_peer_gone(rank, std::string(why));  // of two ranks nobody else can bring other news
  }
}

// A rank has ended or fallen silent, and no notice said why. Its leaving counts as the answer to
// the goodbye that this rank still waits for, unless this rank was held up for so long that the
// others may have lost it, and left for that.
void LossWatch::on_peer_gone(uint32_t rank, const std::string& why) {
  if (!parts_.goodbye.may_have_left(rank)) return parts_.failure.lose(rank, why);
  parts_.membership.dismiss(rank);
  if (!parts_.goodbye.waits_for(rank)) return;
  if (parts_.membership.lapsed()) {
    return parts_.failure.lose(
        rank, why + "; this rank was held up before, and the others may have lost it");
  }
  parts_.goodbye.take_leaving_as_answer();
}

bool LossWatch::on_section(const Section& section) {
  const SectionHeader& header = section.header;
  const auto told = [&section] {
    return ToldFailure::decode(
        {reinterpret_cast<const char*>(section.payload.data()), section.payload.size()});
  };
  switch (header.kind) {
    case SectionKind::kHeartbeat:
      return true;
    case SectionKind::kLost:
      if (!parts_.goodbye.confirmed()) {
        parts_.failure.fail(told(), PARALLAX_PEER_LOST, SectionKind::kLost, header.tag);
      }
      return true;
    case SectionKind::kAbort: {
      // The status is a peer's number: what this version does not know becomes ABORTED.
      const auto code = static_cast<int32_t>(header.first);
      const bool known = code <= PARALLAX_INVALID && code >= PARALLAX_INTERNAL;
      parts_.failure.fail(told(), known ? static_cast<parallax_status_t>(code) : PARALLAX_ABORTED,
                          SectionKind::kAbort, header.tag);
      return true;
    }
    default:
      return false;
  }
}

}  // namespace parallax
