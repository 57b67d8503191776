// SPDX-License-Identifier: Apache-2.0
// HubRendezvous: the allgather of ranks that are threads of one process, in numbered rounds. Owned
// by the hub. Any thread may call; exchange() blocks until the round is whole, a rank leaves, or
// the deadline passes.
#ifndef PARALLAX_TRANSPORT_INPROC_HUB_RENDEZVOUS_H_
#define PARALLAX_TRANSPORT_INPROC_HUB_RENDEZVOUS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace parallax {

class HubRendezvous {
 public:
  explicit HubRendezvous(uint32_t world);

  // False: a rank of this number is or was here.
  bool enter(uint32_t rank, const std::string& host);
  // `why` is OK if the rank left in order, or gave no reason; the first call counts.
  void leave(uint32_t rank, const Status& why);
  bool anyone_left() const;
  // The error of the lowest rank that left with a reason; OK if none did.
  Status verdict() const;

  // Every rank brings `mine` and gets all. Each rank counts its own calls, which number the rounds.
  Status exchange(uint32_t rank, std::string mine, const Clock& clock, int64_t deadline_ns,
                  std::vector<std::string>* all);

 private:
  enum class Presence { kAbsent, kHere, kLeft };
  struct Seat {
    Presence presence = Presence::kAbsent;
    std::string host;
    Status why;          // why it left
    uint64_t round = 0;  // its next one
  };
  struct Round {
    std::vector<std::string> blobs;
    std::vector<bool> brought;
    uint32_t brought_count = 0;
    uint32_t taken_count = 0;
  };

  std::string missing_locked(const Round& round) const PARALLAX_REQUIRES(mutex_);
  Status left_locked(const Round& round) const PARALLAX_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Seat> seats_ PARALLAX_GUARDED_BY(mutex_);
  std::map<uint64_t, Round> rounds_ PARALLAX_GUARDED_BY(mutex_);  // at most two at a time
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_INPROC_HUB_RENDEZVOUS_H_
