// SPDX-License-Identifier: Apache-2.0
// Getting in touch with the others, news first. See contact.h.
#include "job/contact.h"

#include <algorithm>

namespace parallax {

namespace {

// After a broken connection, for news of who is lost; with the last pause less than 100 ms.
constexpr int64_t kVerdictNs = 85 * kNanosecondsPerMillisecond;
constexpr int64_t kVerdictPauseNs = 10 * kNanosecondsPerMillisecond;
// After silence.
constexpr int64_t kPatienceNs = 150 * kNanosecondsPerMillisecond;

// Longer over the network: a rank that is silent there may itself be waiting for a rank of its
// host, and reports that one when its own time is up.
int64_t patience_ns(ContactWay way, int64_t lease_ns) {
  return way == ContactWay::kNetwork ? std::max(2 * kPatienceNs, lease_ns / 5) : kPatienceNs;
}

}  // namespace

Status make_contact(const ContactMeans& means, ContactWay way, int64_t deadline_ns,
                    const std::function<Status(int64_t deadline_ns)>& others) {
  // Four fifths, so that all ranks hear of a silent one within the lease.
  const int64_t lease_end_ns = means.clock.now_ns() + means.lease_ns / 5 * 4;
  Status reached = others(std::min(deadline_ns, lease_end_ns));
  if (reached.ok()) return reached;
  // Known for certain, and better than what others make of it who wait for this rank.
  if (reached.code() == PARALLAX_LIMIT) {
    means.rendezvous.leave(reached);
    return reached;
  }
  const bool silent = reached.code() == PARALLAX_TIMEOUT;
  // A rank that hung up may have had a reason, which it left at the rendezvous: that is asked for
  // before the rank is blamed.
  int64_t judge_ns =
      means.clock.now_ns() + (silent ? patience_ns(way, means.lease_ns) : kVerdictNs);
  if (silent) judge_ns = std::min(judge_ns, deadline_ns);
  Status said = means.rendezvous.verdict();
  while (said.ok() && means.clock.now_ns() < judge_ns) {
    means.pause(kVerdictPauseNs);
    said = means.rendezvous.verdict();
  }
  if (!said.ok()) {
    reached = said;
  } else if (silent && lease_end_ns < deadline_ns) {
    reached = peer_lost(reached.message());
  }
  means.rendezvous.leave(reached);
  return reached;
}

}  // namespace parallax
