// SPDX-License-Identifier: Apache-2.0
// Membership: who is alive. Every rank watches a few others (watch_neighbours) by leases of our
// own, since a transport sees neither a stopped process nor a silent partition: any message renews
// the lease, and where none is due a heartbeat is. It watches whom it has ever talked to as well: a
// single silent link holds up a step as surely as a dead rank. The first loss ends the epoch; the
// sentence that names it is flooded to all watched, so that every rank names the same culprit, and
// a rank that exits because of that loss is not itself reported as the cause.
//
// A connection that breaks is a suspicion only: who was at its other end may have ended because of
// another loss, and the notice of that comes from another rank. It has a moment to come; then the
// suspicion is a loss. An expired lease, and what a transport calls dead, is one at once.
//
// A state machine without I/O: the engine tells it what was heard and sent, and asks what is due.
// A rank that was itself held up (stopped, or starved of CPU) gives its neighbours that time before
// it judges them, since their messages may be waiting unread. And what has lately held it up will
// hold up others of its machine: it waits for them so much longer than the lease, up to twice as
// long. Engine's owner only.
#ifndef PARALLAX_MEMBERSHIP_MEMBERSHIP_H_
#define PARALLAX_MEMBERSHIP_MEMBERSHIP_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace parallax {

class Membership {
 public:
  Membership(std::vector<uint32_t> neighbours, int64_t lease_ns, int64_t now_ns);

  // Of any rank but this one; the first contact starts its watch.
  void heard(uint32_t rank, int64_t now_ns);
  void sent(uint32_t rank, int64_t now_ns);
  // A neighbour that left in good order is watched no more.
  void dismiss(uint32_t rank);

  // The connection to this rank broke. It is watched by no lease any more.
  void suspect(uint32_t rank, std::string_view why, int64_t now_ns);
  struct Suspicion {
    uint32_t rank = kNoNeighbour;
    std::string why;
    int64_t left_ns = 0;  // until it is a loss
  };
  // Takes the oldest one whose moment has passed; false if there is none. Ask after messages were
  // read.
  bool take_ripe(Suspicion* ripe);

  // Call on every pass of the engine, before messages are read.
  void passed(int64_t now_ns);

  // A watched rank whose lease is over, or kNoNeighbour. Ask after messages were read.
  uint32_t expired(int64_t now_ns) const;
  // A watched rank to which a heartbeat is due, or kNoNeighbour; ask until there is none.
  uint32_t heartbeat_due(int64_t now_ns);
  // Nothing is due before. Something may still not be due at it, since messages put deadlines off.
  int64_t next_deadline_ns() const;

  const std::vector<uint32_t>& neighbours() const { return neighbours_; }
  // Neighbours and whom this rank has talked to: who will see it leave.
  const std::vector<uint32_t>& watched() const { return watched_; }
  int64_t lease_ns() const { return lease_ns_; }
  // The longest that a pass was late, forgotten in a few leases; at most a lease.
  int64_t strain_ns() const { return strain_ns_; }
  // This rank was held up for so long, within the last leases, that others may have lost it.
  bool lapsed() const { return passed_ns_ < lapsed_until_ns_; }

  static constexpr uint32_t kNoNeighbour = UINT32_MAX;
  static constexpr int64_t kHeartbeatsPerLease = 4;
  static constexpr int64_t kLatenessesPerLease = 32;  // what is less counts as none
  static constexpr int64_t kLapseLeases = 4;          // as long as the others may take to leave
  // How long until a suspicion is a loss: far longer than a notice takes through all ranks, and
  // with passes as late as timers are still less than 100 ms.
  static constexpr int64_t kSuspicionNsMax = 90 * kNanosecondsPerMillisecond;
  // A suspicion takes this many passes at least, so that a rank that was held up reads its messages
  // first.
  static constexpr int64_t kSuspicionPasses = 4;

 private:
  struct Watch {
    int64_t heard_ns;
    int64_t sent_ns;
    bool dismissed = false;
  };

  Watch& watch(uint32_t rank, int64_t now_ns);
  int64_t earliest_ns() const;
  int64_t suspicion_ns() const {
    return std::min(kSuspicionNsMax, lease_ns_ / kHeartbeatsPerLease);
  }

  const std::vector<uint32_t> neighbours_;
  const int64_t lease_ns_;
  std::vector<uint32_t> watched_;  // neighbours first, then in order of first contact
  std::unordered_map<uint32_t, Watch> watches_;
  std::vector<Suspicion> suspicions_;  // in order of time
  int64_t passed_ns_;
  int64_t strain_ns_ = 0;
  int64_t lapsed_until_ns_ = 0;
  // No deadline is earlier. Messages only put deadlines off, so a pass looks at every watch only
  // once this is reached, a few times in a lease, not with every message.
  int64_t due_ns_;
};

}  // namespace parallax

#endif  // PARALLAX_MEMBERSHIP_MEMBERSHIP_H_
