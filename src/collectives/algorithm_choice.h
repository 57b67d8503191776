// SPDX-License-Identifier: Apache-2.0
// AlgorithmChoice: which algorithm of algorithms.h elements go by: of those that may, the one whose
// schedules take least time by the constants of the job (schedule_time.h). Every rank of a group
// has the same constants, and so chooses alike.
//
// Design notes. Elements are looked at in classes, four for each doubling, and each class is asked
// for once. Schedules of many ranks would be long in playing. So where a job is larger than what is
// played, its time follows from that of two smaller ones of its hosts: an algorithm of ranges takes
// as much more for each host more, ranges staying as long as they are; one of halving for each
// doubling, the tree for each level. Of a host with many ranks the first few stand for all.
//
// One owner at a time; nothing blocks. A class costs a few milliseconds where ranks are many.
#ifndef PARALLAX_COLLECTIVES_ALGORITHM_CHOICE_H_
#define PARALLAX_COLLECTIVES_ALGORITHM_CHOICE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/schedule_time.h"
#include "planner/constants.h"

namespace parallax {

class AlgorithmChoice {
 public:
  // The map outlives this. With the standard constants.
  explicit AlgorithmChoice(const HostMap& hosts) : hosts_(hosts) {}

  const CostConstants& constants() const { return constants_; }
  // For all that is asked from now on.
  void use(const CostConstants& constants);

  // Hosts and ranks are this job's, whatever the shape says.
  const DenseAlgorithm& of(const DenseShape& shape, SumType sum);
  // Whether the constants matter to it at all.
  bool is_open(const DenseShape& shape) const;

  struct Timed {
    const DenseAlgorithm* algorithm = nullptr;
    uint64_t picoseconds = 0;
    bool chosen = false;
  };
  // All that may carry it, in the order of the table; one alone is not timed. Until use(), or the
  // end of this.
  const std::vector<Timed>& alternatives(const DenseShape& shape, SumType sum);

 private:
  // Algorithm, its way, hosts or ranks that are played, ranges that have elements.
  using PlayedKey = std::tuple<const DenseAlgorithm*, uint32_t, uint32_t, uint64_t>;
  // Elements, way, which rows apply, sum.
  using ChoiceKey = std::tuple<uint64_t, uint32_t, uint32_t, SumType>;

  DenseShape own(DenseShape shape) const;
  uint64_t time(const DenseAlgorithm& algorithm, const DenseShape& shape, SumType sum);
  uint64_t time_by_level(const DenseAlgorithm& algorithm, const DenseShape& shape, SumType sum);
  uint64_t time_of(const DenseAlgorithm& algorithm, const DenseShape& shape, SumType sum,
                   uint32_t parties);
  const ScheduleTime& played(const DenseAlgorithm& algorithm, const DenseShape& shape,
                             uint32_t parties, uint64_t ranges);

  const HostMap& hosts_;
  CostConstants constants_;
  std::map<PlayedKey, std::unique_ptr<ScheduleTime>> played_;
  std::map<ChoiceKey, std::vector<Timed>> timed_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_ALGORITHM_CHOICE_H_
