// SPDX-License-Identifier: Apache-2.0
// CallsWorld: pulls and calls of rows of a whole job over a SectionNetwork, without engines. Every
// rank has one sharded variable with row ids, `rows`, and one dense mirror; no gradient travels.
#ifndef PARALLAX_TESTS_UNIT_ENGINE_CALLS_WORLD_H_
#define PARALLAX_TESTS_UNIT_ENGINE_CALLS_WORLD_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/pull_calls.h"
#include "engine/row_calls.h"
#include "message/kinds.h"
#include "unit/group/group_world.h"

namespace parallax::testkit {

class CallsWorld {
 public:
  static constexpr uint32_t kRows = 0;
  static constexpr uint32_t kDense = 1;
  static constexpr uint64_t kRowCount = 40;

  class StoppedClock final : public Clock {
   public:
    int64_t now_ns() const override { return 1; }
  };
  struct Rank {
    Rank(const HostMap& hosts, uint32_t rank, Outbox& outbox, const Clock& clock)
        : group(hosts, rank, {}, outbox, compute),
          migration(group, outbox),
          plan_control(group, migration, {}),
          trees(hosts, rank, outbox),
          pipeline({group, plan_control, migration, trees, outbox, compute, clock}),
          pulls(group, pipeline, requests),
          rows(group, pipeline.window(), outbox, requests) {}
    InlineCompute compute;
    RequestPool requests{{}};
    Group group;
    Migration migration;
    PlanControl plan_control;
    Trees trees;
    StepPipeline pipeline;
    PullCalls pulls;
    RowCalls rows;
  };

  explicit CallsWorld(const std::vector<uint32_t>& hosts)
      : hosts_(host_map(hosts)),
        variables_{managed("rows", kRowCount, 5, PARALLAX_RULE_ADAGRAD), managed("dense", 3),
                   held("held", 3)},
        network_(static_cast<uint32_t>(hosts.size()), hosts.size()) {
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      Rank& added =
          *ranks_.emplace_back(std::make_unique<Rank>(hosts_, rank, network_.outbox(rank), clock_));
      EXPECT_TRUE(added.group.build(variables_).ok());
      EXPECT_TRUE(added.group.fill());
      added.pipeline.reserve();
      added.pulls.reserve();
    }
    network_.on_section([this](uint32_t to, uint32_t from, const Section& section) {
      const bool of_rows = layer_of(section.header.kind) == Layer::kRowAccess;
      const bool fits = of_rows ? ranks_[to]->rows.on_section(from, section)
                                : ranks_[to]->group.pulls().on_section(from, section);
      advance(to);
      return fits;
    });
    network_.on_packed([this](uint32_t rank) { advance(rank); });
  }

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  Rank& operator[](uint32_t rank) { return *ranks_[rank]; }
  const SliceChecks& checks() const { return checks_; }
  void settle() {
    for (uint32_t rank = 0; rank < size(); ++rank) advance(rank);
    network_.settle();
    EXPECT_TRUE(network_.refusals().empty()) << told(network_.refusals());
  }
  // The value of a row, from its owner.
  std::vector<float> row(uint64_t row) {
    const Partition& partition = ranks_[0]->group.runtime(kRows).partition;
    const uint32_t row_key = partition.row_key_of(row);
    const VariableRuntime& runtime = ranks_[partition.owner_of(row_key)]->group.runtime(kRows);
    std::vector<float> value(2);
    std::memcpy(value.data(), runtime.table->row(row_key), 2 * sizeof(float));
    return value;
  }

 private:
  void advance(uint32_t rank) {
    ranks_[rank]->pulls.advance();
    ranks_[rank]->rows.advance();
  }

  const HostMap hosts_;
  const StoppedClock clock_;
  const std::vector<Variable> variables_;
  const SliceChecks checks_{variables_};
  SectionNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_ENGINE_CALLS_WORLD_H_
