// SPDX-License-Identifier: Apache-2.0
// RowTime: how long a step of row ids that the framework holds takes, by each method that could
// carry it, from what was measured of its rows and of the machines (constants.h). By it the methods
// of such a variable are compared, not by bytes: within a host there is no wire, and what rows cost
// beside their bytes decides, as messages do where rows are few.
//
// What all methods do alike is counted too, for a gain to be a share of the whole: a rank finds its
// distinct rows, leaders read those of their host's ranks, and the result is put in order. What
// differs goes by method. With H hosts of M ranks, P in all, rows of B bytes with their id, s
// touched rows a party and u in the union, V of the variable:
//   allgatherv   (H-1) s over the wire, and H s/M summed by each leader
//   reduce_rows  (H-1)/H (s+u) over the wire in two rounds, s/M summed by each owner, u/M copied
//   made_dense   V/M filled and s/M copied into them, then the schedule of the elements; at the end
//                each rank looks at all V for those that are rows
// and, behind each, u rows or V elements to the other ranks of the host. With one host the first
// two are alike but for a hop of the second. Where leaders send to many hosts they do so one after
// the other, and all wait for the last. In C chunks there are C times as many messages and rounds,
// and what a rank gives and gets is copied once more.
//
// Pure, in doubles that no library function rounds; any thread; nothing blocks.
#ifndef PARALLAX_PLANNER_ROW_TIME_H_
#define PARALLAX_PLANNER_ROW_TIME_H_

#include <string>

#include "planner/plan.h"

namespace parallax::cost {

// Nanoseconds.
struct RowTime {
  double wire = 0;      // bytes between hosts, which the ranks of a host share a port for
  double memory = 0;    // bytes inside a host: moved, copied, added
  double rows = 0;      // of each row that is looked up, copied or sorted, beside its bytes
  double messages = 0;  // their overhead, and what waits for one another
  double microseconds() const { return (wire + memory + rows + messages) / 1000; }
};

// Of rows that were measured; by a method of rows.
RowTime row_time(Method method, const VariableFacts& facts, const TopologyFacts& topology);

// "312 us (wire 200, memory 40, rows 60, messages 12)".
std::string time_text(const RowTime& time);

}  // namespace parallax::cost

#endif  // PARALLAX_PLANNER_ROW_TIME_H_
