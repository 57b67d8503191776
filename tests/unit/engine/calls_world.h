// SPDX-License-Identifier: Apache-2.0
// CallsWorld: the calls of steps and of rows of a whole job over a SectionNetwork, without engines.
// Every rank has one sharded variable with row ids, `rows`, one dense mirror, and framework-held
// ones, dense and with row ids. Nothing is voted on: a step ends, and is not decided.
#ifndef PARALLAX_TESTS_UNIT_ENGINE_CALLS_WORLD_H_
#define PARALLAX_TESTS_UNIT_ENGINE_CALLS_WORLD_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/contribution_calls.h"
#include "engine/pull_calls.h"
#include "engine/row_calls.h"
#include "message/kinds.h"
#include "unit/group/group_world.h"

namespace parallax::testkit {

class CallsWorld {
 public:
  static constexpr uint32_t kRows = 0;
  static constexpr uint32_t kDense = 1;
  static constexpr uint32_t kHeld = 2;
  static constexpr uint32_t kHeldRows = 3;
  static constexpr uint32_t kEveryRow = 4;  // may be given whole
  static constexpr uint32_t kMore = 5;
  static constexpr uint64_t kRowCount = 40;

  class StoppedClock final : public Clock {
   public:
    int64_t now_ns() const override { return 1; }
  };
  struct Rank {
    Rank(const HostMap& hosts, uint32_t rank, Outbox& outbox, const Clock& clock,
         const Registry& registry, const SliceChecks& checks)
        : group(first_view(hosts), rank, {}, outbox, compute),
          migration(group, outbox),
          plan_control(group, migration, {}),
          trees(hosts, rank, outbox),
          pipeline({group, plan_control, migration, trees, outbox, compute, clock}),
          pulls(group, pipeline, requests),
          contributions(group, pipeline, outbox, checks, requests),
          rows(group, registry, pipeline.window(), phase, outbox, requests) {
      phase.run();
    }
    Status failure;
    JobPhase phase{failure};
    InlineCompute compute;
    RequestPool requests{{}};
    Group group;
    Migration migration;
    PlanControl plan_control;
    Trees trees;
    StepPipeline pipeline;
    PullCalls pulls;
    ContributionCalls contributions;
    RowCalls rows;
  };

  // `more_held`: dense framework-held ones beside those, from kMore on.
  explicit CallsWorld(const std::vector<uint32_t>& hosts, uint32_t more_held = 0)
      : hosts_(host_map(hosts)),
        registry_(registry_of(variables(more_held))),
        network_(static_cast<uint32_t>(hosts.size()), hosts.size()) {
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      Rank& added = *ranks_.emplace_back(
          std::make_unique<Rank>(hosts_, rank, network_.outbox(rank), clock_, *registry_, checks_));
      EXPECT_TRUE(added.group.add(registry_->numbered()).ok());
      EXPECT_TRUE(added.group.fill());
      added.pipeline.add_variables();
      added.pulls.reserve();
      added.contributions.reserve();
    }
    network_.on_section([this](uint32_t to, uint32_t from, const Section& section) {
      const bool fits = take(*ranks_[to], from, section);
      ++sections_[section.header.tag];
      advance(to);
      return fits;
    });
    network_.on_packed([this](uint32_t rank) { advance(rank); });
  }

  // So many came with that tag.
  uint64_t sections_of(uint32_t tag) const {
    const auto found = sections_.find(tag);
    return found == sections_.end() ? 0 : found->second;
  }
  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  Rank& operator[](uint32_t rank) { return *ranks_[rank]; }
  const Registry& registry() const { return *registry_; }
  const SliceChecks& checks() const { return checks_; }
  SectionNetwork& network() { return network_; }
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
  static std::vector<Variable> variables(uint32_t more_held) {
    std::vector<Variable> all = {managed("rows", kRowCount, 5, PARALLAX_RULE_ADAGRAD),
                                 managed("dense", 3), accumulating(held("held", 3)),
                                 accumulating(held("held rows", 9, 4)), held("every row", 9, 9)};
    for (uint32_t i = 0; i < more_held; ++i) all.push_back(held("more " + std::to_string(i), 3));
    return all;
  }

  static Variable accumulating(Variable variable) {
    variable.accumulate = true;
    return variable;
  }

  static bool take(Rank& rank, uint32_t from, const Section& section) {
    const SectionHeader& header = section.header;
    switch (layer_of(header.kind)) {
      case Layer::kRowAccess:
        return rank.rows.on_section(from, section);
      case Layer::kPull:
        return rank.group.pulls().on_section(from, section);
      case Layer::kExchange:
        return rank.group.runtime(header.tag).exchange_at(header.step).on_section(from, section);
      case Layer::kStep:
        if (!rank.group.pulls().end_local(from, header.step)) return false;
        for (const auto& runtime : rank.group.runtimes()) {
          runtime->exchange_at(header.step).end(from, header.step);
        }
        return true;
      default:
        return false;
    }
  }

  // Twice: a job that ran may let go of what a call waits for.
  void advance(uint32_t number) {
    Rank& rank = *ranks_[number];
    for (int round = 0; round < 2; ++round) {
      do {
        rank.pulls.advance();
      } while (network_.outbox(number).lending().read());
      rank.contributions.advance(0);
      const StepWindow& window = rank.pipeline.window();
      for (uint64_t step = window.next_to_vote(); window.is_ending(step); ++step) {
        if (!rank.pipeline.may_say_ended(step)) continue;
        rank.contributions.end(step);
        rank.pipeline.say_ended(step);
      }
      rank.rows.advance();
      while (ComputeJob* job = rank.compute.take_done()) job->done(*job);
    }
  }

  const HostMap hosts_;
  const StoppedClock clock_;
  const std::unique_ptr<Registry> registry_;
  const SliceChecks checks_{*registry_};
  SectionNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::map<uint32_t, uint64_t> sections_;  // that came, by tag
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_ENGINE_CALLS_WORLD_H_
