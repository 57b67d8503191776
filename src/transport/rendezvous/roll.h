// SPDX-License-Identifier: Apache-2.0
// Roll: what rank 0 knows of a tcp meeting: who came, what each brought to which round, who left,
// fell silent or was lost, and so the verdict, the one sentence that all are told. Pure: time is
// given, nothing is sent. One thread, or under its owner's lock.
//
// At most two rounds are alive: a rank brings round k + 2 only when it has all of k + 1, which took
// everyone, who had all of k.
#ifndef PARALLAX_TRANSPORT_RENDEZVOUS_ROLL_H_
#define PARALLAX_TRANSPORT_RENDEZVOUS_ROLL_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "transport/rendezvous/ended_ranks.h"
#include "transport/rendezvous/rendezvous.h"

namespace parallax {

inline constexpr uint32_t kSignsPerLease = 5;

// Who is silent for so long is lost: four fifths of the longer lease of the two, so that all hear
// of it within the lease.
int64_t silence_max_ns(uint32_t lease_ms, uint32_t peer_lease_ms);
// "rank 3 (host b) gave no sign of life for 4000 ms while ranks met at X: ..."
Status silent(uint32_t rank, const std::string& host, int64_t silence_ns, const std::string& where);
Status hung_up(uint32_t rank, const std::string& host, const std::string& where);

class Roll {
 public:
  // `where` is the meeting's place, for sentences. Rank 0 is here from the start.
  Roll(const RendezvousOptions& options, std::string where);

  // INVALID: the rank is here already, or was. With a verdict: that.
  Status admit(uint32_t rank, const std::string& host, uint32_t lease_ms, int64_t now_ns);
  void heard(uint32_t rank, int64_t now_ns) { seats_[rank].heard_ns = now_ns; }
  // Nobody is judged by what happened while we did not look.
  void forgive(int64_t now_ns);
  // False: not its next round.
  bool bring(uint32_t rank, uint64_t round, std::string_view blob);
  bool complete(uint64_t round) const { return round < complete_count_; }
  const std::string& blob(uint64_t round, uint32_t rank) const {
    return seats_[rank].blobs[round % 2];
  }

  // It gave up because of `why`; OK: without a reason.
  void left(uint32_t rank, const Status& why);
  void hung_up(uint32_t rank);
  // It needs the meeting no more, which is in order.
  void gone(uint32_t rank) { seats_[rank].presence = Presence::kGone; }
  // As its launcher says.
  void ended(const EndedRank& who);
  // The meeting cannot go on: rank 0's own trouble.
  void broken(const Status& why);
  // Those silent for too long are lost.
  void judge(int64_t now_ns);
  // When judge() has to be asked next if nothing is heard until then.
  int64_t judge_due_ns() const;

  // Why the meeting is over; OK while it is not. The first reason counts.
  const Status& verdict() const { return verdict_; }
  // "ranks 1 and 3 never came; rank 2 came but has not got this far"
  std::string missing(uint64_t round) const;
  uint32_t here_count() const;

 private:
  enum class Presence { kAbsent, kHere, kGone };
  struct Seat {
    Presence presence = Presence::kAbsent;
    std::string host;
    int64_t heard_ns = 0;
    int64_t silence_max_ns = 0;
    uint64_t round = 0;  // its next one
    std::array<std::string, 2> blobs;
  };

  const RendezvousOptions options_;
  const std::string where_;
  std::vector<Seat> seats_;
  std::array<uint32_t, 2> brought_count_{};
  uint64_t complete_count_ = 0;
  Status verdict_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_RENDEZVOUS_ROLL_H_
