// SPDX-License-Identifier: Apache-2.0
// GroupWorld: the groups of a whole job over a SectionNetwork, without engines: each rank has its
// group and what moves its variables. Sections of changes of plan alone travel.
#ifndef PARALLAX_TESTS_UNIT_GROUP_GROUP_WORLD_H_
#define PARALLAX_TESTS_UNIT_GROUP_GROUP_WORLD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/compute.h"
#include "group/group.h"
#include "group/migration.h"
#include "support/registries.h"
#include "support/slot_maps.h"
#include "unit/server/layouts.h"
#include "unit/server/section_network.h"
#include "world/view.h"

namespace parallax::testkit {

// Of a managed variable with row ids.
inline constexpr VariablePlan kMirroredPlan = {Placement::kMirrored, Method::kAllgatherv};
inline constexpr VariablePlan kShardedPlan = {Placement::kSharded, Method::kPushPull};

inline Variable held(const std::string& name, uint64_t rows, uint64_t rows_max = 0) {
  Variable variable;
  variable.name = name;
  variable.rows = rows;
  variable.row_elements = 2;
  variable.rows_max = rows_max;
  return variable;
}

inline Variable managed(const std::string& name, uint64_t rows, uint64_t rows_max = 0,
                        uint32_t rule = PARALLAX_RULE_SGD) {
  Variable variable = held(name, rows, rows_max);
  variable.rule = rule;
  variable.init = PARALLAX_INIT_UNIFORM;
  variable.init_low = -1;
  variable.init_high = 1;
  variable.init_seed = rows;
  return variable;
}

class GroupWorld {
 public:
  struct Rank {
    Rank(const View& view, uint32_t rank, const GroupOptions& options, Outbox& outbox)
        : group(view, rank, options, outbox, compute), migration(group, outbox) {}
    InlineCompute compute;
    Group group;
    Migration migration;
  };

  // Without slots every rank owns alike; without domains of memory each host has one.
  GroupWorld(const std::vector<uint32_t>& hosts, std::vector<Variable> variables,
             const GroupOptions& options = {}, const SlotMap& slots = {},
             const std::vector<uint32_t>& domains = {})
      : view_(first_view(with_domains(host_map(hosts), domains), 1, slots)),
        variables_(std::move(variables)),
        network_(static_cast<uint32_t>(hosts.size()), hosts.size()) {
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      ranks_.push_back(std::make_unique<Rank>(view_, rank, options, network_.outbox(rank)));
    }
    network_.on_section([this](uint32_t to, uint32_t from, const Section& section) {
      return ranks_[to]->migration.on_section(from, section);
    });
  }

  // The status of the last rank: all have the same to say.
  Status build() {
    Status status;
    for (const auto& rank : ranks_) status = rank->group.add(pointers_to(variables_));
    return status;
  }
  void fill() {
    for (const auto& rank : ranks_) {
      while (!rank->group.fill()) {
      }
    }
  }

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  Rank& operator[](uint32_t rank) { return *ranks_[rank]; }
  const std::vector<Variable>& variables() const { return variables_; }
  SectionNetwork& network() { return network_; }

 private:
  static HostMap with_domains(HostMap hosts, const std::vector<uint32_t>& domains) {
    std::vector<NearMemory> places;
    for (const uint32_t domain : domains) places.push_back({.node = domain});
    if (!places.empty()) set_domains(&hosts, places);
    return hosts;
  }

  const View view_;
  const std::vector<Variable> variables_;
  SectionNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_GROUP_GROUP_WORLD_H_
