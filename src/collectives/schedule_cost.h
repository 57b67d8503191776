// SPDX-License-Identifier: Apache-2.0
// The cost of a schedule, counted from its operations: what is received, sent and added. It is the
// planner's figure of every way that elements can go, from the builder that will be run.
//
// Design notes. Counting all ranks of a large job would take its ranks squared in operations, for
// each variable. What a plan compares is an average over parties, and that needs few of them: where
// each range goes its own way (DenseAlgorithm::by_range), hosts of one size do alike of an even
// split, so one of each size stands for all; and each element of a range goes as often as any other
// of the job, so an average element's way is counted once and a variable's cost is that times its
// elements. So a cost is exact for the direct schedule and the tree, whoever owns how much, and for
// the ring but for two blocks at most. Counts are whole numbers until the last division: all ranks
// of a job have the same cost, bit for bit.
//
// Pure; values in, values out. ScheduleCosts has one owner at a time.
#ifndef PARALLAX_COLLECTIVES_SCHEDULE_COST_H_
#define PARALLAX_COLLECTIVES_SCHEDULE_COST_H_

#include <cstdint>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/schedule.h"
#include "planner/plan.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

// Of one rank.
struct ScheduleCounts {
  uint64_t received_elements = 0;  // from other parties: other hosts; with one host, other ranks
  uint64_t sends = 0;              // to anyone
  uint64_t added_elements = 0;     // to what a sum had already
};
ScheduleCounts count(const Schedule& schedule, const Columns& columns);

// What the elements of the variables of one job cost. Remembers what it counted: variables that go
// alike share it, whatever their sizes.
class ScheduleCosts {
 public:
  struct Way {
    bool ordered = false, returned = true, of_hosts = false;  // see AllreduceShape
    bool operator==(const Way&) const = default;
  };

  // The map outlives this.
  explicit ScheduleCosts(const HostMap& hosts) : hosts_(hosts) {}

  ScheduleCost of(const DenseAlgorithm& algorithm, const Partition& partition,
                  uint32_t element_bytes, const Way& way);

 private:
  // Of all ranks together, in a job where each has a block, or where one block is all.
  struct Counted {
    const DenseAlgorithm* algorithm;
    Way way;
    uint64_t elements = 0, ranges = 0;
    ScheduleCounts all;
  };

  DenseShape shape_of(const Partition& partition, const Way& way) const;
  const Counted& counted(const DenseAlgorithm& algorithm, const Way& way);

  const HostMap& hosts_;
  std::vector<Counted> counted_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_SCHEDULE_COST_H_
