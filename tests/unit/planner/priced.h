// SPDX-License-Identifier: Apache-2.0
// Facts with what their elements cost, as a group would give them to the planner: of ranks spread
// evenly over the hosts of a topology. Tests only.
#ifndef PARALLAX_TESTS_UNIT_PLANNER_PRICED_H_
#define PARALLAX_TESTS_UNIT_PLANNER_PRICED_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/schedule_cost.h"
#include "planner/plan.h"
#include "support/slot_maps.h"

namespace parallax::testkit {

// The costs of one topology, counted once.
class Pricer {
 public:
  explicit Pricer(const TopologyFacts& topology)
      : world_(topology.ranks), hosts_(map_of(topology)), costs_(hosts_) {}
  Pricer(const Pricer&) = delete;
  Pricer& operator=(const Pricer&) = delete;

  VariableFacts price(VariableFacts facts, const DenseAlgorithm& to_all) {
    const bool rows = carries_rows(facts);
    const Partition partition(facts.rows, facts.row_elements, rows, a_slot_each(world_), 0);
    facts.to_all = costs_.of(to_all, partition, facts.element_bytes, {.of_hosts = rows});
    facts.to_owners =
        costs_.of(direct_algorithm(), partition, facts.element_bytes, {.returned = false});
    return facts;
  }

 private:
  static HostMap map_of(const TopologyFacts& topology) {
    std::vector<std::string> names;
    for (uint32_t rank = 0; rank < topology.ranks; ++rank) {
      names.push_back(std::to_string(rank % topology.hosts));
    }
    return map_hosts(names);
  }

  const uint32_t world_;
  const HostMap hosts_;
  ScheduleCosts costs_;
};

inline VariableFacts priced(const VariableFacts& facts, const TopologyFacts& topology,
                            const DenseAlgorithm& to_all = direct_algorithm()) {
  static std::map<std::pair<uint32_t, uint32_t>, std::unique_ptr<Pricer>> pricers;
  std::unique_ptr<Pricer>& pricer = pricers[{topology.hosts, topology.ranks}];
  if (pricer == nullptr) pricer = std::make_unique<Pricer>(topology);
  return pricer->price(facts, to_all);
}

inline std::vector<VariableFacts> priced(std::vector<VariableFacts> all,
                                         const TopologyFacts& topology,
                                         const DenseAlgorithm& to_all = direct_algorithm()) {
  for (VariableFacts& facts : all) facts = priced(facts, topology, to_all);
  return all;
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_PLANNER_PRICED_H_
