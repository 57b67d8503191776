// SPDX-License-Identifier: Apache-2.0
// PlanControl: which plan the variables of a group follow, while running. Votes carry the rows that
// each rank counted to the root, which plans once it has counted enough, and announces the plan
// with its decisions; every rank takes it from there. A plan announced with the decision of step t
// is in force from t + 2 on: that is the first that no rank can have begun to send for, since
// sending for it takes the next decision.
//
// A variable with row ids that gets a dense slice is dense from then on, whatever was measured: the
// root says so with a decision too. Engine's owner only; nothing blocks.
#ifndef PARALLAX_GROUP_PLAN_CONTROL_H_
#define PARALLAX_GROUP_PLAN_CONTROL_H_

#include <cstdint>
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
  };

  // Both outlive this.
  PlanControl(Group& group, Migration& migration, Options options)
      : group_(group), migration_(migration), options_(options) {}

  // What a plan is made and explained from, by variable id: the group's facts, with what elements
  // cost in its layout. Counted anew at each call, which is seldom: once for a settled plan, by the
  // root, and for reports. In a job of ten thousand ranks it takes tens of milliseconds.
  std::vector<VariableFacts> facts() const;

  // Nothing is measured any more: the plan stays.
  bool settled() const { return settled_; }

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
  // Sums over the steps in which a variable was trained.
  struct Measured {
    double touched = 0, union_rows = 0, pulled = 0;
    uint32_t steps = 0;
  };

  void measure(const Vote& votes);
  bool measured_enough(const Vote& votes) const;
  void settle();
  void add_entries(Decision* decision);
  uint32_t choose_dense(uint32_t variable) const;

  Group& group_;
  Migration& migration_;
  const Options options_;
  bool settled_ = false;
  // The root's.
  std::vector<Measured> measured_;  // by place among the variables with ids
  bool announcing_ = false;
  Plan settled_plan_;             // until announced
  uint32_t announce_cursor_ = 0;  // next of the variables with ids to announce
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_PLAN_CONTROL_H_
