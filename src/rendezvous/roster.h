// SPDX-License-Identifier: Apache-2.0
// Roster: what rank 0 knows of a tcp rendezvous: who came, what each brought to which round, who
// left, fell silent or was lost, and from that the verdict, the one sentence that all are told.
// Pure: time is a parameter, nothing is sent. One thread, or under its owner's lock.
//
// Blobs of two rounds are enough: a rank brings round k + 2 only once it has all blobs of round
// k + 1, and each rank brought its own to that round only once it had all of round k.
#ifndef PARALLAX_RENDEZVOUS_ROSTER_H_
#define PARALLAX_RENDEZVOUS_ROSTER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "rendezvous/ended_ranks.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/tcp_address.h"

namespace parallax {

inline constexpr uint32_t kKeepalivesPerLease = 5;

// A rank that is silent this long is lost: four fifths of the longer of the two leases, so that all
// ranks hear of the loss within the lease.
int64_t silence_max_ns(uint32_t lease_ms, uint32_t peer_lease_ms);
// "rank 3 (host b) sent no keepalive for 4000 ms while ranks met at X: ..."
Status silent(uint32_t rank, const std::string& host, int64_t silence_ns, const std::string& where);
Status hung_up(uint32_t rank, const std::string& host, const std::string& where);

class Roster {
 public:
  // `where` is the rendezvous address, for messages. Rank 0 counts as here from the start.
  Roster(const RendezvousOptions& options, std::string where);

  // INVALID: a rank of this number is or was here. Once there is a verdict, it is returned instead.
  Status admit(uint32_t rank, const std::string& host, uint32_t lease_ms, int64_t now_ns);
  void heard(uint32_t rank, int64_t now_ns) { seats_[rank].heard_ns = now_ns; }
  // Restarts every rank's silence at now_ns: for a host that was itself stopped or starved, whose
  // unread sockets would look like everyone's silence.
  void forgive(int64_t now_ns);
  // False: `round` is not the rank's next one, which no honest rank sends.
  bool bring(uint32_t rank, uint64_t round, std::string_view blob);
  bool complete(uint64_t round) const { return round < complete_count_; }
  const std::string& blob(uint64_t round, uint32_t rank) const {
    return seats_[rank].blobs[round % 2];
  }
  bool has_brought(uint32_t rank, uint64_t round) const { return seats_[rank].round > round; }
  // Of a round that is complete (digest_of); "": nobody brought anything to it, it is a barrier.
  const std::string& digest(uint64_t round) const { return digests_[round % 2]; }

  // Where the rank's children in the tree reach it; port 0: nowhere. False: it has said so before.
  bool listens(uint32_t rank, const SocketAddress& at);
  // Null: not known yet. A rank that brought a blob and did not say has port 0.
  const SocketAddress* children_port(uint32_t rank) const;

  // The rank gave up because of `why`; OK: without a reason.
  void left(uint32_t rank, const Status& why);
  void hung_up(uint32_t rank);
  // The rank no longer needs the rendezvous, and said so: closing its connection is no loss.
  void done(uint32_t rank) { seats_[rank].presence = Presence::kDone; }
  // The launcher reports that this rank's process has ended.
  void ended(const EndedRank& who);
  // The rendezvous cannot go on because of a failure of rank 0 itself.
  void broken(const Status& why);
  // Counts ranks that were silent for too long as lost.
  void judge(int64_t now_ns);
  // When to call judge() next if nothing is heard until then.
  int64_t judge_due_ns() const;

  // Why the rendezvous is over; OK while it is not. The first reason counts.
  const Status& verdict() const { return verdict_; }
  // "ranks 1 and 3 never came; rank 2 came but has not got this far"
  std::string missing(uint64_t round) const;
  uint32_t here_count() const;
  uint32_t world() const { return options_.world; }

 private:
  enum class Presence { kAbsent, kHere, kDone };
  struct Seat {
    Presence presence = Presence::kAbsent;
    std::string host;
    int64_t heard_ns = 0;
    int64_t silence_max_ns = 0;
    uint64_t round = 0;  // its next one
    std::array<std::string, 2> blobs;
    std::optional<SocketAddress> children_port;
  };

  const RendezvousOptions options_;
  const std::string where_;
  std::vector<Seat> seats_;
  std::array<uint32_t, 2> brought_count_{};
  uint64_t complete_count_ = 0;
  std::array<std::string, 2> digests_;
  Status verdict_;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_ROSTER_H_
