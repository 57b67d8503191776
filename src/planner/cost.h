// SPDX-License-Identifier: Apache-2.0
// Cost: bytes that one party receives per step, one pure function per method, under its name. A
// party is a host; with one host, a rank (counted_parties). Averages over parties: owners are
// hashed, and uneven ones move load between hosts but not the sum. Any thread; nothing blocks.
//
// Elements cost what was counted from their schedule (VariableFacts::to_all, to_owners), with N
// parties and V rows of R bytes 2 (N-1)/N V R by the direct one. Rows go by formulas, as in
// docs/planning.md, ids included: s touched and t pulled rows per party, u rows in the union,
// I = kRowIdBytes:
//   allreduce    its schedule
//   made_dense   its schedule, which begins at the leaders of hosts; with one host, the rows on
//                their way to the leaders beside it, (N-1)/N s (R+I)
//   allgatherv   (N-1) s (R+I); with one host as reduce_rows, for there each leader sums its part
//   reduce_rows  (N-1)/N (s+u) (R+I)        (N-1)/N s up to the owners, (N-1)/N u back
//   push_pull    (N-1)/N (s+t) (R+I)        (N-1)/N s pushed with their ids, whose elements may be
//                rounded between hosts (VariableFacts::pushed); (N-1)/N t pulled,
//                ids up and rows back. The ids of a push travel a second time although it is mostly
//                a subset of the pull before it: a push that refers to the pulled list, which the
//                wire format has room for (Encoding::kValues), is not built
//   push_pull, dense: its schedule up, (N-1)/N V R back, no ids
// Headers of messages are left out: per peer and phase there is one.
#ifndef PARALLAX_PLANNER_COST_H_
#define PARALLAX_PLANNER_COST_H_

#include <cstdint>
#include <string>

#include "planner/plan.h"

namespace parallax::cost {

inline constexpr double kRowIdBytes = 4;  // a row key on the wire (src/variable/partition.h)

// N of the formulas: hosts, or ranks when there is one host. Then nothing crosses a wire, and the
// formulas count what ranks read of each other through shared memory.
uint32_t counted_parties(const TopologyFacts& topology);

// Methods for rows read the measured figures, the others what was counted from the schedules: that
// nothing was is our bug.
double allreduce(const VariableFacts& facts, const TopologyFacts& topology);
double allgatherv(const VariableFacts& facts, const TopologyFacts& topology);
double reduce_rows(const VariableFacts& facts, const TopologyFacts& topology);
double made_dense(const VariableFacts& facts, const TopologyFacts& topology);
double push_pull(const VariableFacts& facts, const TopologyFacts& topology);

// By method.
double received_bytes(Method method, const VariableFacts& facts, const TopologyFacts& topology);

// No method can receive fewer when every party needs the union: (s + u (N-2)/N) (R+I), the rows of
// the others that are not its own (docs/planning.md). For reports and tests.
double replicated_bound(const VariableFacts& facts, const TopologyFacts& topology);

// Whether the method's cost reads the measured figures.
bool needs_measurement(Method method, const VariableFacts& facts, const TopologyFacts& topology);

// The cost with its figures: "3 hosts x 812 rows x 260 bytes".
std::string formula(Method method, const VariableFacts& facts, const TopologyFacts& topology);

// "812", "2755.4": a figure as a person reads it.
std::string figure(double value);

}  // namespace parallax::cost

#endif  // PARALLAX_PLANNER_COST_H_
