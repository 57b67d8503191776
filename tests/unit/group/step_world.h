// SPDX-License-Identifier: Apache-2.0
// StepWorld: whole groups over a network of sections that make steps, without engines or requests.
// Tests only.
#ifndef PARALLAX_TESTS_UNIT_GROUP_STEP_WORLD_H_
#define PARALLAX_TESTS_UNIT_GROUP_STEP_WORLD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "group/step_pipeline.h"
#include "support/shared_host.h"
#include "unit/group/group_world.h"

namespace parallax::testkit {

class StepClock final : public Clock {
 public:
  int64_t now_ns() const override { return 1; }
};

// Every rank holds one managed variable of kElements numbers, 0 at the start, with rule SGD; or one
// that the framework holds.
class StepWorld {
 public:
  static constexpr uint64_t kElements = 6;

  struct Rank {
    Rank(const HostMap& hosts, uint32_t rank, Outbox& outbox, const Clock& clock)
        : group(first_view(hosts), rank, {}, outbox, compute),
          migration(group, outbox),
          plan_control(group, migration, {}),
          trees(hosts, rank, outbox),
          pipeline({group, plan_control, migration, trees, outbox, compute, clock}) {}
    InlineCompute compute;
    Group group;
    Migration migration;
    PlanControl plan_control;
    Trees trees;
    StepPipeline pipeline;
    std::vector<uint64_t> finished;
    std::vector<float> gradient = std::vector<float>(kElements);
    uint32_t pending = 0;
  };

  explicit StepWorld(const std::vector<uint32_t>& hosts, uint32_t rates = 0)
      : StepWorld(hosts, managed("dense", kElements / 2), rates) {}
  // `shared`: the ranks' memory, which outlives this.
  StepWorld(const std::vector<uint32_t>& hosts, Variable variable, uint32_t rates,
            SharedHost* shared = nullptr)
      : hosts_(host_map(hosts)),
        variables_{std::move(variable)},
        network_(static_cast<uint32_t>(hosts.size()), hosts.size()) {
    variables_[0].rates = rates;
    variables_[0].init = PARALLAX_INIT_CONSTANT;
    variables_[0].init_low = variables_[0].init_high = 0;
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      if (shared != nullptr) network_.set_memory(rank, &shared->rank(rank));
      Rank& added =
          *ranks_.emplace_back(std::make_unique<Rank>(hosts_, rank, network_.outbox(rank), clock_));
      EXPECT_TRUE(added.group.add(pointers_to(variables_)).ok());
      EXPECT_TRUE(added.group.fill());
      added.pipeline.add_variables();
    }
    network_.on_section([this](uint32_t to, uint32_t from, const Section& section) {
      ++sections_[section.header.kind];
      const bool fits = take(*ranks_[to], from, section);
      advance(*ranks_[to]);
      return fits;
    });
    network_.on_packed([this](uint32_t rank) { advance(*ranks_[rank]); });
  }

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  Rank& operator[](uint32_t rank) { return *ranks_[rank]; }
  SectionNetwork& network() { return network_; }

  void contribute(uint32_t rank, uint64_t step, float number) {
    Rank& at = *ranks_[rank];
    std::fill(at.gradient.begin(), at.gradient.end(), number);
    Contribution slice;
    slice.elements = {reinterpret_cast<std::byte*>(at.gradient.data()), PARALLAX_F32};
    at.group.runtime(0).exchange_at(step).contribute(step, slice, &at.pending);
  }
  void end(uint32_t rank, uint64_t step, const StepEnd& end) {
    ranks_[rank]->pipeline.end(step, end);
    advance(*ranks_[rank]);
  }
  // A step in which rank r contributes r + 1, unless it is absent.
  void step(const std::function<void(uint32_t rank, StepEnd* end)>& adjust = {}) {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      const uint64_t step = ranks_[rank]->pipeline.begin();
      StepEnd with = {.learning_rate = 1};
      if (adjust) adjust(rank, &with);
      if (!with.absent) contribute(rank, step, static_cast<float>(rank + 1));
      end(rank, step, with);
    }
    settle();
  }
  void settle() {
    network_.settle();
    for (const auto& rank : ranks_) advance(*rank);
    network_.settle();
    EXPECT_TRUE(network_.refusals().empty()) << told(network_.refusals());
  }
  float value(uint32_t rank) {
    float value = 0;
    std::memcpy(&value, ranks_[rank]->group.runtime(0).table->element(kElements - 1), sizeof value);
    return value;
  }
  // Of a kind, that have come anywhere so far.
  uint64_t sections(SectionKind kind) { return sections_[kind]; }
  const Decision& decision(uint32_t rank, uint64_t step) {
    return ranks_[rank]->pipeline.state(step).decision;
  }

 private:
  static void advance(Rank& rank) {
    for (int round = 0; round < 2; ++round) {
      const StepWindow& window = rank.pipeline.window();
      for (uint64_t step = window.next_to_vote(); window.is_ending(step); ++step) {
        if (rank.pipeline.may_say_ended(step)) rank.pipeline.say_ended(step);
      }
      StepPipeline::Finished finished;
      const Status status = rank.pipeline.advance(&finished);
      EXPECT_TRUE(status.ok()) << status.message();
      if (finished.step != 0) rank.finished.push_back(finished.step);
      while (ComputeJob* job = rank.compute.take_done()) job->done(*job);
    }
  }

  static bool take(Rank& rank, uint32_t from, const Section& section) {
    const SectionHeader& header = section.header;
    switch (header.kind) {
      case SectionKind::kTreeUp:
        if (header.part != 0) {
          return rank.trees.take_part(from, section) &&
                 rank.pipeline.merge_vote_part(header.step, section.payload);
        }
        return rank.trees.take_report(from, section) &&
               rank.pipeline.merge_vote(header.step, section.payload);
      case SectionKind::kTreeDown:
        return rank.trees.take_answer(from, section) &&
               rank.pipeline.take_decision(section.payload);
      case SectionKind::kVote:
        return rank.pipeline.take_vote(from, section);
      case SectionKind::kStepEnded:
        if (rank.pipeline.window().is_over(header.step)) return true;
        for (const auto& runtime : rank.group.runtimes()) {
          runtime->exchange_at(header.step).end(from, header.step);
        }
        return true;
      case SectionKind::kTablePlace:
      case SectionKind::kTablesCurrent:
        return rank.group.pulls().on_tables(from, section,
                                            rank.pipeline.window().is_over(header.step));
      default:
        return rank.pipeline.window().admits(header.step) &&
               rank.group.runtime(header.tag).exchange_at(header.step).on_section(from, section);
    }
  }

  const HostMap hosts_;
  const StepClock clock_;
  std::vector<Variable> variables_;
  SectionNetwork network_;
  std::map<SectionKind, uint64_t> sections_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_GROUP_STEP_WORLD_H_
