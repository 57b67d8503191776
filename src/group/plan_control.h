// SPDX-License-Identifier: Apache-2.0
// PlanControl: which plan the variables of a group follow, while running. Votes carry the rows that
// each rank counted to the root, which plans once it has counted enough, and announces the plan
// with its decisions; every rank takes it from there. A plan announced with the decision of step t
// is in force from t + 2 on: that is the first that no rank can have begun to send for, since
// sending for it takes the next decision.
//
// What a later commit has added is measured by itself, once what was there before is planned: a
// settled plan stays as it is. Where nobody trains what is measured, those that wait behind it are
// let in after a bounded number of steps, and it is measured on with them.
//
// A variable with row ids that gets a dense slice is dense from then on, whatever was measured: the
// root says so with a decision too. A plan may be fixed instead: it never changes then, as where
// calls may be more steps ahead than those two (StepWindow). Engine's owner only; nothing blocks.
#ifndef PARALLAX_GROUP_PLAN_CONTROL_H_
#define PARALLAX_GROUP_PLAN_CONTROL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "group/group.h"
#include "group/migration.h"
#include "group/vote.h"

namespace parallax {

class PlanControl {
 public:
  struct Options {
    parallax_plan_mode_t mode = PARALLAX_PLAN_AUTO;
    uint32_t after_steps = 8;  // measured
    bool fixed = false;        // the initial plan stays, and nothing is measured
  };

  // Both outlive this.
  PlanControl(Group& group, Migration& migration, Options options)
      : group_(group), migration_(migration), options_(options), settled_(options.fixed) {}

  // What a plan is made and explained from, by variable: the group's facts, with what elements
  // cost in its layout. Counted anew at each call, which is seldom: once for a settled plan, by the
  // root, and for reports. In a job of ten thousand ranks it takes tens of milliseconds.
  std::vector<VariableFacts> facts() const;

  // Nothing is measured any more: the plan stays.
  bool settled() const { return settled_; }
  // The group has more variables, between steps: the step after `finished` is the first with them.
  void add_variables(uint64_t finished);

  // Votes say how many rows there were, once they are summed.
  bool counts_rows() const { return !settled_ && !measuring().empty(); }
  // Into this rank's vote on a step: the rows that it counted.
  void count_rows(uint64_t step, Vote* vote) const;
  // The root's: what all votes on a step together change, into its decision.
  void decide(const Vote& votes, Decision* decision);

  // The decision is a peer's. A plan that does not fit its variable would move values that are not
  // there, or into memory that was not reserved.
  [[nodiscard]] bool fits(const Decision& decision) const;
  // Begins the changes that the decision of an applied step announces. LIMIT.
  Status take(const Decision& decision, uint64_t step);

 private:
  // While others wait to be measured, so many times the steps that a plan takes are left to those
  // that are.
  static constexpr uint64_t kChancesMax = 4;

  // Sums over the steps in which a variable was trained.
  struct Measured {
    double touched = 0, union_rows = 0, pulled = 0;
    uint32_t steps = 0;
  };

  // Of the variables with ids, those that are being measured.
  std::span<const uint32_t> measuring() const {
    return std::span(group_.with_ids()).subspan(first_, end_ - first_);
  }
  uint32_t most_steps() const;
  uint32_t last_window() const;
  void measure_from(uint64_t step);
  void measure(const Vote& votes);
  bool measured_enough(const Vote& votes) const;
  bool waited_enough() const;
  void settle();
  void add_entries(Decision* decision);
  bool may_become(const VariableRuntime& runtime, const VariablePlan& plan) const;
  uint32_t choose_dense(uint32_t variable) const;

  Group& group_;
  Migration& migration_;
  const Options options_;
  bool settled_;
  // Those that are measured, by place among the variables with ids: what came before is settled,
  // what comes behind waits. The same on all ranks, as is the step since when.
  size_t first_ = 0, end_ = 0;
  uint64_t first_step_ = 1;
  bool any_measured_ = false;  // of them, as their entries tell all ranks
  // The root's.
  std::vector<Measured> measured_;  // by place among them
  uint64_t steps_counted_ = 0;
  bool announcing_ = false;
  Plan settled_plan_;             // until announced
  uint32_t announce_cursor_ = 0;  // next of them to announce
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_PLAN_CONTROL_H_
