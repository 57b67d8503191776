// SPDX-License-Identifier: Apache-2.0
// Builders of schedules that combine nothing: pure functions from the shape of a job to what one
// rank sends and receives. `given`: which numbers of the whole each rank gives. Proved by
// tests/unit/collectives/copy_schedules_test.cc.
#ifndef PARALLAX_COLLECTIVES_COPY_SCHEDULES_H_
#define PARALLAX_COLLECTIVES_COPY_SCHEDULES_H_

#include <cstdint>
#include <span>

#include "collectives/schedule.h"
#include "world/patterns.h"

namespace parallax {

// Each rank's to the leaders of its column on all hosts, and from there to the ranks of the host:
// the way back of allreduce_direct.
Schedule allgather_direct(const Columns& columns, std::span<const Range> given);

// Down the tree of the root, piece by piece. `root_too`: into the root's result as well.
Schedule broadcast_tree(const Columns& columns, uint32_t root, uint64_t elements, bool root_too);

// Each rank's to the root at once.
Schedule gather_direct(const Columns& columns, uint32_t root, std::span<const Range> given);

// Each pair at once. Pairwise (schedule.h): sends count what is sent, receives what is received.
// What a rank has for itself is not in it.
Schedule alltoallv_direct(const Columns& columns, std::span<const uint64_t> send_counts,
                          std::span<const uint64_t> recv_counts);

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_COPY_SCHEDULES_H_
