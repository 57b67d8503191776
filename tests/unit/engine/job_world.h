// SPDX-License-Identifier: Apache-2.0
// JobWorld: the parts of the engines of a whole job over a SectionNetwork, without the engines. Its
// ranks have one variable of each of two ways: `rows`, sharded, with row ids, and `dense`, held by
// the framework.
#ifndef PARALLAX_TESTS_UNIT_ENGINE_JOB_WORLD_H_
#define PARALLAX_TESTS_UNIT_ENGINE_JOB_WORLD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/collective_calls.h"
#include "engine/row_calls.h"
#include "engine/step_calls.h"
#include "message/kinds.h"
#include "unit/group/group_world.h"

namespace parallax::testkit {

class JobWorld {
 public:
  static constexpr uint32_t kRows = 0;
  static constexpr uint32_t kDense = 1;
  static constexpr uint64_t kRowCount = 40;

  class StoppedClock final : public Clock {
   public:
    int64_t now_ns() const override { return 1; }
  };
  struct Rank {
    Rank(const HostMap& hosts, uint32_t rank, Outbox& outbox, const Clock& clock,
         const std::vector<Variable>& variables)
        : group(hosts, rank, {}, outbox, compute),
          migration(group, outbox),
          plan_control(group, migration, {}),
          broadcast(hosts, rank, outbox),
          trees(hosts, rank, outbox),
          pipeline({group, plan_control, migration, trees, outbox, compute, clock}),
          rows(group, pipeline.window(), phase, outbox, requests),
          collectives(group.columns().world(), phase, trees, broadcast, requests),
          steps({.clock = clock,
                 .registry = variables,
                 .phase = phase,
                 .group = group,
                 .pipeline = pipeline,
                 .row_calls = rows,
                 .requests = requests}) {}
    InlineCompute compute;
    RequestPool requests{{}};
    Group group;
    Migration migration;
    PlanControl plan_control;
    Broadcast broadcast;
    Trees trees;
    StepPipeline pipeline;
    Status failure;
    JobPhase phase{failure};
    RowCalls rows;
    CollectiveCalls collectives;
    StepCalls steps;
  };

  explicit JobWorld(const std::vector<uint32_t>& hosts)
      : hosts_(host_map(hosts)),
        variables_{managed("rows", kRowCount, 5, PARALLAX_RULE_SGD), held("dense", 3)},
        network_(static_cast<uint32_t>(hosts.size()), hosts.size()) {
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      Rank& added = *ranks_.emplace_back(
          std::make_unique<Rank>(hosts_, rank, network_.outbox(rank), clock_, variables_));
      EXPECT_TRUE(added.group.build(variables_).ok());
      EXPECT_TRUE(added.group.fill());
      added.pipeline.reserve();
      added.steps.reserve();
      added.phase.commit();
      added.phase.run();
    }
    network_.on_section([this](uint32_t to, uint32_t from, const Section& section) {
      const bool fits = take(*ranks_[to], from, section);
      advance(to);
      return fits;
    });
    network_.on_packed([this](uint32_t rank) { advance(rank); });
  }

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  Rank& operator[](uint32_t rank) { return *ranks_[rank]; }
  SectionNetwork& network() { return network_; }
  void settle() {
    for (uint32_t rank = 0; rank < size(); ++rank) advance(rank);
    network_.settle();
    EXPECT_TRUE(network_.refusals().empty()) << told(network_.refusals());
  }

 private:
  static bool take(Rank& rank, uint32_t from, const Section& section) {
    const SectionHeader& header = section.header;
    switch (layer_of(header.kind)) {
      case Layer::kTree:
        return header.kind == SectionKind::kTreeUp
                   ? rank.trees.take_report(from, section) &&
                         rank.pipeline.merge_vote(section.payload)
                   : rank.trees.take_answer(from, section) &&
                         rank.pipeline.take_decision(section.payload);
      case Layer::kStep:
        if (rank.pipeline.window().is_over(header.step)) return true;
        rank.group.pulls().end_local(from, header.step);
        for (const auto& runtime : rank.group.runtimes()) {
          runtime->exchange_at(header.step).end(from, header.step);
        }
        return true;
      case Layer::kExchange:
        return rank.group.runtime(header.tag).exchange_at(header.step).on_section(from, section);
      case Layer::kPull:
        return rank.group.pulls().on_section(from, section);
      case Layer::kRowAccess:
        return rank.rows.on_section(from, section);
      default:
        return false;
    }
  }

  // Twice: a job that ran may let go of what a call waits for.
  void advance(uint32_t number) {
    Rank& rank = *ranks_[number];
    for (int round = 0; round < 2; ++round) {
      EXPECT_TRUE(rank.steps.advance().ok());
      rank.rows.advance();
      EXPECT_TRUE(rank.collectives.advance().ok());
      while (ComputeJob* job = rank.compute.take_done()) job->done(*job);
    }
  }

  const HostMap hosts_;
  const StoppedClock clock_;
  const std::vector<Variable> variables_;
  SectionNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_ENGINE_JOB_WORLD_H_
