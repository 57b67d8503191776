// SPDX-License-Identifier: Apache-2.0
// Rendezvous: how the ranks of a job meet: an allgather of small blobs, in numbered rounds (first
// endpoints, then "I am connected to all"). Owned by the driver of one rank; one thread calls it.
//
// allgather() blocks up to its deadline. A rank that announced itself and then shows no sign of
// life for lease_ms is PEER_LOST, named with its host, where the means can tell (all but the
// callback); one that never came is TIMEOUT. From its making to settle(), a rank shows its own
// signs of life.
//
// A rank that gives up says why by leave(), and the others then repeat its sentence: whoever broke
// the meeting is named by all, though each may see another rank go first. Destroying it before
// settle() is leaving without a reason.
//
//   make_rendezvous -> allgather, allgather... -> settle -> (the job runs) -> finish
#ifndef PARALLAX_TRANSPORT_RENDEZVOUS_RENDEZVOUS_H_
#define PARALLAX_TRANSPORT_RENDEZVOUS_RENDEZVOUS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "parallax/parallax.h"

namespace parallax {

class InprocHub;

inline constexpr uint32_t kLeaseMillisecondsDefault = 5000;

struct RendezvousOptions {
  uint32_t rank = 0;
  uint32_t world = 1;
  std::string host;
  uint32_t lease_ms = kLeaseMillisecondsDefault;
  const Clock* clock = nullptr;  // outlives the rendezvous
  std::string ended_ranks = {};  // a file, see ended_ranks.h; "" for none
};

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  // "file", "inproc", "tcp", "callback", "solo": for errors.
  virtual std::string_view name() const = 0;

  // Every rank brings at most kEndpointBytesMax bytes; (*all)[r] is rank r's. Every rank makes the
  // same calls.
  virtual Status allgather(std::span<const std::byte> mine, int64_t deadline_ns,
                           std::vector<std::string>* all) = 0;

  // This rank gives up because of `why`, an error. To be called before anything is torn down that
  // others would see break. The first call counts; no allgather follows.
  virtual void leave(const Status& why) = 0;

  // What those say that wait for a rank that left (rank_list.h: departed), or OK if none did. Where
  // the means cannot tell: OK. Waits for rank 0's answer over tcp, a fifth of the lease at most.
  virtual Status verdict() = 0;

  // The meeting is over: no further allgather; signs of life end (the engine's leases take over).
  virtual void settle() = 0;

  // At the job's end: rank 0 removes what the meeting left behind. Only once every rank is known to
  // be through its last allgather (all have said goodbye, or the job has failed): one that is not
  // answers PEER_LOST.
  virtual Status finish() = 0;

  // Where these ranks meet if they are threads of one process (InprocTransport is made of it);
  // null otherwise. Shared: see hub.h.
  virtual std::shared_ptr<InprocHub> hub() const { return nullptr; }
};

// By options.rendezvous (but "env": see launcher.h), options.allgather or options.unique_id; with
// world <= 1 by none. `host` is the resolved name of this host. INVALID names the option; IO names
// the directory or the address.
Status make_rendezvous(const parallax_options_t& options, const std::string& host,
                       const Clock& clock, std::unique_ptr<Rendezvous>* rendezvous);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_RENDEZVOUS_RENDEZVOUS_H_
