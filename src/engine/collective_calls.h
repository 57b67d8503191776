// SPDX-License-Identifier: Apache-2.0
// CollectiveCalls: barriers, broadcasts and the collectives of CollectiveRounds, which all ranks
// call alike and outside of any step's order. One barrier and one broadcast is under way at a time,
// in the order of the calls. Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_COLLECTIVE_CALLS_H_
#define PARALLAX_ENGINE_COLLECTIVE_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/broadcast.h"
#include "engine/collective_rounds.h"
#include "engine/job_phase.h"
#include "engine/request_queue.h"
#include "group/trees.h"
#include "message/outbox.h"
#include "world/patterns.h"

namespace parallax {

class CollectiveCalls {
 public:
  // All outlive this. `ordered`: sums are in a fixed order of ranks.
  CollectiveCalls(const Columns& columns, bool ordered, const JobPhase& phase, Trees& trees,
                  Broadcast& broadcast, Outbox& outbox, RequestPool& requests)
      : columns_(columns),
        phase_(phase),
        trees_(trees),
        exchange_(broadcast),
        requests_(requests),
        barriers_(requests),
        broadcasts_(requests),
        rounds_({columns, trees, outbox, requests, ordered}) {}

  // INVALID, STATE, LIMIT, or what failed the job.
  Status barrier(Request** request);
  Status broadcast(std::byte* buffer, uint64_t bytes, uint32_t root, Request** request);

  // INVALID and UNSUPPORTED name the field. LIMIT: also without memory. One that is refused has
  // its place among those of the other ranks, unless too many requests are not released.
  Status collective(const parallax_collective_t& call, Request** request);
  CollectiveRounds& rounds() { return rounds_; }
  const CollectiveRounds& rounds() const { return rounds_; }

  // No call of this rank is under way, and nothing is wrong with another's.
  bool at_rest() const {
    return !out_of_place_ && barriers_.empty() && broadcasts_.empty() && rounds_.at_rest() &&
           exchange_.mismatch().empty();
  }
  // Moves on what can be moved. Not OK: ranks disagree about a broadcast, or one has closed that
  // others wait for, and the job fails.
  Status advance();
  // The answer of TreeKind::kBarrier; false: not a payload of it.
  [[nodiscard]] bool on_barrier_answer(std::span<const std::byte> payload);

  // The job is over.
  void finish_all(const Status& status);

 private:
  Status post(const parallax_collective_t& call, Request** request);
  Status refuse_for_memory(uint64_t tag);
  void advance_barrier();
  Status advance_broadcast();

  const Columns& columns_;
  const JobPhase& phase_;
  Trees& trees_;
  Broadcast& exchange_;
  RequestPool& requests_;
  RequestQueue barriers_;
  RequestQueue broadcasts_;
  CollectiveRounds rounds_;
  bool out_of_place_ = false;  // a collective of this rank has no place among the others'
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_COLLECTIVE_CALLS_H_
