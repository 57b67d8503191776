// SPDX-License-Identifier: Apache-2.0
// CollectiveCalls: barriers and broadcasts, which all ranks call alike and outside of any step's
// order. One barrier and one broadcast is under way at a time, in the order of the calls. Engine's
// owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_COLLECTIVE_CALLS_H_
#define PARALLAX_ENGINE_COLLECTIVE_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/broadcast.h"
#include "engine/job_phase.h"
#include "engine/request_queue.h"
#include "group/trees.h"

namespace parallax {

class CollectiveCalls {
 public:
  // All outlive this.
  CollectiveCalls(uint32_t world, const JobPhase& phase, Trees& trees, Broadcast& broadcast,
                  RequestPool& requests)
      : world_(world),
        phase_(phase),
        trees_(trees),
        exchange_(broadcast),
        requests_(requests),
        barriers_(requests),
        broadcasts_(requests) {}

  // INVALID, STATE, LIMIT, or what failed the job.
  Status barrier(Request** request);
  Status broadcast(std::byte* buffer, uint64_t bytes, uint32_t root, Request** request);

  // Moves on what can be moved. Not OK: ranks disagree about a broadcast, and the job fails.
  Status advance();
  // The answer of TreeKind::kBarrier; false: not a payload of it.
  [[nodiscard]] bool on_barrier_answer(std::span<const std::byte> payload);

  // The job is over.
  void finish_all(const Status& status);

 private:
  void advance_barrier();
  Status advance_broadcast();

  const uint32_t world_;
  const JobPhase& phase_;
  Trees& trees_;
  Broadcast& exchange_;
  RequestPool& requests_;
  RequestQueue barriers_;
  RequestQueue broadcasts_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_COLLECTIVE_CALLS_H_
