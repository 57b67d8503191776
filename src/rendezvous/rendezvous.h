// SPDX-License-Identifier: Apache-2.0
// Rendezvous: how the ranks of a job find each other: an allgather of small blobs, in numbered
// rounds (first endpoints, then "I am connected to all"). Owned by the driver of one rank; one
// thread calls it.
//
// allgather() blocks up to its deadline. A rank that came and then sends no keepalive for lease_ms
// is PEER_LOST, named with its host, where the kind of rendezvous can tell (file and tcp). A rank
// that never came is TIMEOUT. Each rank sends keepalives from make_rendezvous to
// finish_bootstrap().
//
// A rank that gives up says why by leave(), and the others report the same sentence, so that all
// ranks report the same culprit, even if each saw a different peer disconnect first. Destroying a
// rendezvous before finish_bootstrap() is leaving without a reason.
//
//   make_rendezvous -> allgather, allgather... -> finish_bootstrap -> (the job runs) -> finish
#ifndef PARALLAX_RENDEZVOUS_RENDEZVOUS_H_
#define PARALLAX_RENDEZVOUS_RENDEZVOUS_H_

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

  // The error that all ranks report because one of them left (rank_list.h: departed); OK if none
  // left, or where the kind of rendezvous cannot tell. Over tcp it waits for rank 0's answer, a
  // fifth of the lease at most.
  virtual Status verdict() = 0;

  // The rendezvous is over: no further allgather; keepalives end (the engine's leases take over).
  virtual void finish_bootstrap() = 0;

  // At the job's end: rank 0 removes what the rendezvous left behind. To be called only once every
  // rank is known to be through its last allgather (all have said goodbye, or the job has failed):
  // a rank that is still in one reports PEER_LOST.
  virtual Status finish() = 0;

  // Where these ranks meet if they are threads of one process (InprocTransport is made of it);
  // null otherwise. Shared: see hub.h.
  virtual std::shared_ptr<InprocHub> hub() const { return nullptr; }
};

// Chosen by options.rendezvous ("env" was replaced before: see launcher.h), options.allgather or
// options.unique_id; a world of one rank needs none of them. `host` is the resolved name of this
// host. INVALID names the option; IO names the directory or the address.
Status make_rendezvous(const parallax_options_t& options, const std::string& host,
                       const Clock& clock, std::unique_ptr<Rendezvous>* rendezvous);

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_RENDEZVOUS_H_
