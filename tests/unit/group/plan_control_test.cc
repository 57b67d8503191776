// SPDX-License-Identifier: Apache-2.0
// When a root plans and what it announces, which decisions a rank takes, and what it begins then.
#include "group/plan_control.h"

#include <gtest/gtest.h>

#include <vector>

#include "unit/group/group_world.h"

namespace parallax::testkit {
namespace {

constexpr uint32_t kAfterSteps = 3;

class PlanControlTest : public testing::Test {
 protected:
  void build(std::vector<Variable> variables) {
    world_ = std::make_unique<GroupWorld>(std::vector<uint32_t>{0, 1}, std::move(variables));
    ASSERT_TRUE(world_->build().ok());
    world_->fill();
    control_ = std::make_unique<PlanControl>(group(), (*world_)[0].migration,
                                             PlanControl::Options{.after_steps = kAfterSteps});
    control_->add_variables(0);
  }
  Group& group() { return (*world_)[0].group; }
  VariableRuntime& runtime(uint32_t variable) { return group().runtime(variable); }
  // Votes on a step that counted the same of each variable of the first window.
  Decision decide(const RowCounts& counts, uint32_t dense = kNoVariable, uint32_t first = 0) {
    Vote votes;
    votes.dense_variable = dense;
    const auto total = static_cast<uint32_t>(group().with_ids().size());
    votes.counts_first = first;
    votes.counts_size = std::min(kCountsPerVote, total - first);
    for (uint32_t i = 0; i < votes.counts_size; ++i) votes.counts[i] = counts;
    Decision decision;
    control_->decide(votes, &decision);
    return decision;
  }

  std::unique_ptr<GroupWorld> world_;
  std::unique_ptr<PlanControl> control_;
};

TEST_F(PlanControlTest, PlansOnceItHasMeasuredEnoughAndAnnouncesIt) {
  build({managed("dense", 4), managed("rows", 1000, 50), held("held", 1000, 50)});
  const RowCounts counts = {.touched = 40, .union_rows = 30, .pulled = 20};
  for (uint32_t step = 1; step < kAfterSteps; ++step) {
    EXPECT_EQ(decide(counts).entry_count, 0u);
    EXPECT_EQ(decide({}).entry_count, 0u) << "a step without rows says nothing";
  }
  const Decision decision = decide(counts);
  EXPECT_TRUE(decision.settled);
  ASSERT_EQ(decision.entry_count, 2u);
  EXPECT_EQ(decision.entries[0].variable, 1u);
  EXPECT_EQ(decision.entries[1].variable, 2u);
  EXPECT_EQ(decision.entries[0].touched_rows_per_host, 20) << "40 over two hosts";
  EXPECT_EQ(decision.entries[0].union_rows, 30);
  EXPECT_EQ(decision.entries[0].pulled_rows_per_host, 20) << "10 of those that the other one owns";
  std::vector<VariableFacts> facts = control_->facts();
  for (const uint32_t variable : group().with_ids()) facts[variable].measured = true;
  const Plan expected = settled_plan(facts, group().topology(), PARALLAX_PLAN_AUTO);
  EXPECT_EQ(decision.entries[0].plan, expected[1]);
  EXPECT_EQ(decision.entries[1].plan, expected[2]);
  EXPECT_TRUE(control_->fits(decision));
  EXPECT_FALSE(control_->settled()) << "until the decision is taken";
  ASSERT_TRUE(control_->take(decision, 5).ok());
  EXPECT_TRUE(control_->settled());
  EXPECT_EQ(decide(counts).entry_count, 0u) << "it plans once";
}

TEST_F(PlanControlTest, APlanOfManyVariablesIsAnnouncedBySeveralDecisions) {
  constexpr uint32_t kMany = kEntriesPerDecision + 4;
  std::vector<Variable> variables;
  for (uint32_t i = 0; i < kMany; ++i) variables.push_back(held(std::to_string(i), 10, 2));
  build(std::move(variables));
  const RowCounts counts = {.touched = 4, .union_rows = 3, .pulled = 0};
  Decision decision;
  for (uint32_t step = 0; step < kAfterSteps; ++step) {
    for (uint32_t first = 0; first < kMany; first += kCountsPerVote) {
      EXPECT_EQ(decision.entry_count, 0u) << "the last window has not had its turn";
      decision = decide(counts, kNoVariable, first);
    }
  }
  EXPECT_EQ(decision.entry_count, kEntriesPerDecision);
  EXPECT_FALSE(decision.settled);
  ASSERT_TRUE(control_->take(decision, 7).ok());
  EXPECT_FALSE(control_->settled());
  decision = decide(counts);
  EXPECT_EQ(decision.entry_count, 4u);
  EXPECT_EQ(decision.entries[0].variable, kEntriesPerDecision);
  EXPECT_TRUE(decision.settled);
}

TEST_F(PlanControlTest, WindowsOfRowCountsTakeTurns) {
  std::vector<Variable> variables = {held("none", 4)};
  for (uint32_t i = 0; i < kCountsPerVote + 6; ++i) {
    variables.push_back(held(std::to_string(i), 10, 2));
  }
  build(std::move(variables));
  Vote vote;
  control_->count_rows(1, &vote);
  EXPECT_EQ(vote.counts_first, 0u);
  EXPECT_EQ(vote.counts_size, kCountsPerVote);
  vote.clear();
  control_->count_rows(2, &vote);
  EXPECT_EQ(vote.counts_first, kCountsPerVote);
  EXPECT_EQ(vote.counts_size, 6u);
}

// Given variables of a later commit: what is settled stays, they are measured by themselves.
TEST_F(PlanControlTest, WhatIsAddedLaterIsPlannedByItself) {
  build({managed("rows", 1000, 50)});
  const RowCounts counts = {.touched = 40, .union_rows = 30, .pulled = 20};
  Decision decision;
  for (uint32_t step = 0; step < kAfterSteps; ++step) decision = decide(counts);
  ASSERT_TRUE(decision.settled);
  ASSERT_TRUE(control_->take(decision, kAfterSteps).ok());
  const VariableFacts measured = runtime(0).facts;
  control_->add_variables(kAfterSteps);
  EXPECT_TRUE(control_->settled()) << "nothing is new";

  const std::vector<Variable> late = {managed("dense late", 4), managed("late", 1000, 50)};
  ASSERT_TRUE(group().add(pointers_to(late), kAfterSteps).ok());
  control_->add_variables(kAfterSteps);
  EXPECT_FALSE(control_->settled());
  Vote vote;
  control_->count_rows(kAfterSteps + 1, &vote);
  EXPECT_EQ(vote.counts_size, 1u) << "of the new one with ids alone";
  for (uint32_t step = 0; step < kAfterSteps; ++step) {
    EXPECT_FALSE(decision.settled && step > 0);
    Vote votes;
    votes.counts_size = 1;
    votes.counts[0] = {.touched = 4, .union_rows = 3, .pulled = 2};
    decision = {};
    control_->decide(votes, &decision);
  }
  EXPECT_TRUE(decision.settled);
  ASSERT_EQ(decision.entry_count, 1u);
  EXPECT_EQ(decision.entries[0].variable, 2u);
  EXPECT_EQ(decision.entries[0].union_rows, 3);
  ASSERT_TRUE(control_->take(decision, 2 * kAfterSteps).ok());
  EXPECT_TRUE(control_->settled());
  EXPECT_EQ(runtime(0).facts.union_rows, measured.union_rows);
}

// Given variables that nobody trains, and others that wait to be measured, expect these to be let
// in after a bounded number of steps, and both to be measured from then on; without others they
// keep their chance for ever.
TEST_F(PlanControlTest, WhatNobodyTrainsHoldsNobodyUpForEver) {
  build({managed("frozen", 1000, 50)});
  Decision decision;
  for (uint32_t step = 1; step <= 50; ++step) ASSERT_FALSE(decide({}).settled);
  const std::vector<Variable> late = {managed("late", 1000, 50)};
  ASSERT_TRUE(group().add(pointers_to(late), 50).ok());
  control_->add_variables(50);
  Vote none;
  none.counts_size = 1;
  control_->decide(none, &decision);
  ASSERT_TRUE(decision.settled) << "it had its chances";
  ASSERT_EQ(decision.entry_count, 1u);
  EXPECT_EQ(decision.entries[0].union_rows, 0);
  EXPECT_TRUE(control_->fits(decision));
  ASSERT_TRUE(control_->take(decision, 51).ok());
  EXPECT_FALSE(control_->settled());
  EXPECT_FALSE(runtime(0).facts.measured);
  Vote vote;
  control_->count_rows(52, &vote);
  EXPECT_EQ(vote.counts_size, 2u) << "the first with it";
  const RowCounts counts = {.touched = 40, .union_rows = 30, .pulled = 20};
  for (uint32_t step = 0; step < kAfterSteps; ++step) {
    ASSERT_FALSE(decision.settled && step > 0);
    Vote votes;
    votes.counts_size = 2;
    votes.counts[1] = counts;
    decision = {};
    control_->decide(votes, &decision);
  }
  ASSERT_TRUE(decision.settled);
  ASSERT_EQ(decision.entry_count, 2u);
  ASSERT_TRUE(control_->take(decision, 55).ok());
  EXPECT_TRUE(control_->settled());
  EXPECT_FALSE(runtime(0).facts.measured);
  EXPECT_EQ(runtime(1).facts.union_rows, 30);
}

// Given others that wait from the beginning, expect as many steps as kChancesMax says, and not one
// less.
TEST_F(PlanControlTest, WhatIsMeasuredHasItsChancesFirst) {
  build({managed("frozen", 1000, 50)});
  const std::vector<Variable> late = {managed("late", 1000, 50)};
  decide({});
  ASSERT_TRUE(group().add(pointers_to(late), 1).ok());
  control_->add_variables(1);
  for (uint32_t step = 2; step < 4 * kAfterSteps; ++step) {
    Vote votes;
    votes.counts_size = 1;
    Decision decision;
    control_->decide(votes, &decision);
    ASSERT_FALSE(decision.settled) << step;
  }
  Vote votes;
  votes.counts_size = 1;
  Decision decision;
  control_->decide(votes, &decision);
  EXPECT_TRUE(decision.settled);
}

// Given a commit while the first variables are measured, the new ones wait for their turn.
TEST_F(PlanControlTest, WhatIsMeasuredIsPlannedBeforeWhatCameLater) {
  build({managed("rows", 1000, 50)});
  const RowCounts counts = {.touched = 40, .union_rows = 30, .pulled = 20};
  decide(counts);
  const std::vector<Variable> late = {managed("late", 1000, 50)};
  ASSERT_TRUE(group().add(pointers_to(late), 1).ok());
  control_->add_variables(1);
  Vote votes;
  votes.counts_size = 1;
  votes.counts[0] = counts;
  Decision decision;
  for (uint32_t step = 1; step < kAfterSteps; ++step) {
    EXPECT_FALSE(decision.settled);
    decision = {};
    control_->decide(votes, &decision);
  }
  EXPECT_TRUE(decision.settled);
  ASSERT_EQ(decision.entry_count, 1u);
  EXPECT_EQ(decision.entries[0].variable, 0u);
  ASSERT_TRUE(control_->take(decision, kAfterSteps).ok());
  EXPECT_FALSE(control_->settled()) << "the turn of the others";
  for (uint32_t step = 0; step < kAfterSteps; ++step) {
    decision = {};
    control_->decide(votes, &decision);
  }
  EXPECT_TRUE(decision.settled);
  ASSERT_EQ(decision.entry_count, 1u);
  EXPECT_EQ(decision.entries[0].variable, 1u);
}

TEST_F(PlanControlTest, AChangeIsInForceTwoStepsAfterItsDecision) {
  build({managed("rows", 1000, 50)});
  Decision decision;
  decision.settled = true;
  decision.entry_count = 1;
  decision.entries[0] = {0, kMirroredPlan, 40, 30, 20};
  ASSERT_TRUE(control_->fits(decision));
  ASSERT_TRUE(control_->take(decision, 8).ok());
  EXPECT_EQ(runtime(0).change.step, 10u);
  EXPECT_EQ(runtime(0).change.plan, kMirroredPlan);
  EXPECT_TRUE(runtime(0).facts.measured);
  EXPECT_EQ(runtime(0).facts.union_rows, 30);
  EXPECT_FALSE(control_->fits(decision)) << "it is moving";
}

TEST_F(PlanControlTest, TheSamePlanChangesNothing) {
  build({managed("rows", 1000, 50)});
  Decision decision;
  decision.entry_count = 1;
  decision.entries[0] = {0, kShardedPlan, 0, 0, 0};
  ASSERT_TRUE(control_->take(decision, 8).ok());
  EXPECT_EQ(runtime(0).change.step, 0u);
  EXPECT_FALSE(runtime(0).facts.measured) << "no rows were counted";
}

TEST_F(PlanControlTest, AVariableThatGotADenseSliceBecomesDense) {
  build({managed("dense", 4), managed("rows", 20, 20)});
  EXPECT_EQ(decide({}, 0).dense_variable, kNoVariable) << "it has no row ids";
  EXPECT_EQ(decide({}, 77).dense_variable, kNoVariable) << "there is none";
  const Decision decision = decide({}, 1);
  EXPECT_EQ(decision.dense_variable, 1u);
  ASSERT_TRUE(control_->fits(decision));
  ASSERT_TRUE(control_->take(decision, 4).ok());
  EXPECT_TRUE(runtime(1).facts.given_dense);
  EXPECT_EQ(runtime(1).change.step, 6u);
  EXPECT_EQ(runtime(1).change.plan.placement, Placement::kMirrored);
  EXPECT_EQ(decide({}, 1).dense_variable, kNoVariable) << "it is dense already";
  EXPECT_FALSE(control_->fits(decision)) << "it is moving";
}

// Its settled plan may come with any decision from now on: it is asked again after that.
TEST_F(PlanControlTest, NothingBecomesDenseWhileAPlanIsAnnounced) {
  build({managed("rows", 20, 20)});
  const RowCounts counts = {.touched = 4, .union_rows = 3, .pulled = 2};
  for (uint32_t step = 1; step < kAfterSteps; ++step) decide(counts);
  const Decision announced = decide(counts, 0);
  EXPECT_EQ(announced.entry_count, 1u);
  EXPECT_EQ(announced.dense_variable, kNoVariable);
  ASSERT_TRUE(control_->take(announced, 3).ok());
  ASSERT_EQ(runtime(0).change.step, 0u) << "it stays where it is";
  EXPECT_EQ(decide({}, 0).dense_variable, 0u);
}

TEST_F(PlanControlTest, RefusesDecisionsThatDoNotFit) {
  build({managed("dense", 4), managed("rows", 1000, 50)});
  const PlanEntry good = {1, kMirroredPlan, 40, 30, 20};
  const auto fits = [this](const PlanEntry& entry) {
    Decision decision;
    decision.entry_count = 1;
    decision.entries[0] = entry;
    return control_->fits(decision);
  };
  EXPECT_TRUE(fits(good));
  PlanEntry entry = good;
  entry.variable = 2;
  EXPECT_FALSE(fits(entry)) << "there is none";
  entry.variable = 0;
  EXPECT_FALSE(fits(entry)) << "it has no row ids";
  entry = good;
  entry.plan = {Placement::kFramework, Method::kAllgatherv};
  EXPECT_FALSE(fits(entry)) << "it is managed";
  entry.plan = {Placement::kSharded, Method::kAllgatherv};
  EXPECT_FALSE(fits(entry)) << "no method of that placement";
  for (float PlanEntry::*number : {&PlanEntry::touched_rows_per_host, &PlanEntry::union_rows,
                                   &PlanEntry::pulled_rows_per_host}) {
    entry = good;
    entry.*number = -1;
    EXPECT_FALSE(fits(entry));
  }
  Decision decision;
  decision.dense_variable = 1;
  EXPECT_TRUE(control_->fits(decision));
  decision.entry_count = 1;
  decision.entries[0] = good;
  EXPECT_FALSE(control_->fits(decision)) << "one variable changes at a time";
  decision = {};
  decision.dense_variable = 0;
  EXPECT_FALSE(control_->fits(decision)) << "it has no row ids";
}

TEST_F(PlanControlTest, RefusesDecisionsThatMoveWhatIsPinned) {
  Variable method = managed("method", 1000, 50), place = managed("place", 1000, 50);
  method.pin.method = PARALLAX_METHOD_PUSH_PULL;
  place.pin.placement = PARALLAX_PLACEMENT_MIRRORED;
  build({method, place});
  const auto fits = [this](uint32_t variable, VariablePlan plan) {
    Decision decision;
    decision.entry_count = 1;
    decision.entries[0] = {variable, plan, 40, 30, 20};
    return control_->fits(decision);
  };
  const VariablePlan sharded = {Placement::kSharded, Method::kPushPull};
  EXPECT_TRUE(fits(0, sharded));
  EXPECT_FALSE(fits(0, {Placement::kMirrored, Method::kMadeDense}));
  EXPECT_TRUE(fits(1, {Placement::kMirrored, Method::kReduceRows})) << "its method is planned";
  EXPECT_FALSE(fits(1, sharded));
}

}  // namespace
}  // namespace parallax::testkit
