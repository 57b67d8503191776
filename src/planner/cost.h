// SPDX-License-Identifier: Apache-2.0
// Cost: bytes that one party receives per step, one pure function per method, under its name. A
// party is a host; with one host, a rank (counted_parties). Averages over parties: owners are
// hashed, and uneven ones move load between hosts but not the sum. Any thread; nothing blocks.
//
// Formulas, as in docs/planning.md, row ids included: N parties, V rows of R bytes, s touched
// and t pulled rows per party, u rows in the union, I = kRowIdBytes:
//   allreduce    2 (N-1)/N V R              reduce-scatter and allgather, or a tree
//   made_dense   2 (N-1)/N V R              the same, whatever was touched
//   allgatherv   (N-1) s (R+I)
//   reduce_rows  (N-1)/N (s+u) (R+I)        (N-1)/N s up to the owners, (N-1)/N u back
//   push_pull    (N-1)/N (s+t) (R+I)        (N-1)/N s pushed with their ids; (N-1)/N t pulled,
//                ids up and rows back. The ids of a push travel a second time although it is mostly
//                a subset of the pull before it: a push that refers to the pulled list, which the
//                wire format has room for (Encoding::kValues), is not built
//   push_pull, dense: 2 (N-1)/N V R, blocks up and back, no ids
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

// `parties` >= 1. Methods for rows read the measured figures.
double allreduce(const VariableFacts& facts, uint32_t parties);
double allgatherv(const VariableFacts& facts, uint32_t parties);
double reduce_rows(const VariableFacts& facts, uint32_t parties);
double made_dense(const VariableFacts& facts, uint32_t parties);
double push_pull(const VariableFacts& facts, uint32_t parties);

// By method.
double received_bytes(Method method, const VariableFacts& facts, uint32_t parties);

// No method can receive fewer when every party needs the union: (s + u (N-2)/N) (R+I), the rows of
// the others that are not its own (docs/planning.md). For reports and tests.
double replicated_bound(const VariableFacts& facts, uint32_t parties);

// Whether the method's formula reads the measured figures.
bool needs_measurement(Method method, const VariableFacts& facts);

// The formula with its figures: "3 hosts x 812 rows x 260 bytes".
std::string formula(Method method, const VariableFacts& facts, const TopologyFacts& topology);

// "812", "2755.4": a figure as a person reads it.
std::string figure(double value);

}  // namespace parallax::cost

#endif  // PARALLAX_PLANNER_COST_H_
