// SPDX-License-Identifier: Apache-2.0
// Choice: the steps of planning one variable, shared by the plan and its explanation so that they
// cannot disagree. Inside the planner only. Pure; any thread; nothing blocks.
#ifndef PARALLAX_PLANNER_CHOICE_H_
#define PARALLAX_PLANNER_CHOICE_H_

#include <vector>

#include "planner/plan.h"

namespace parallax {

// Every way that fits the variable's form, type and holder, in the order of Method.
std::vector<VariablePlan> fitting_plans(const VariableFacts& facts);

// The pins of the variable bind it alone and go before the job's plan mode, which binds managed
// variables only.
bool pin_allows(const VariablePlan& plan, const VariableFacts& facts, parallax_plan_mode_t mode);

// Measured, and no row was touched or pulled: every method that sends rows would send none.
bool is_unused(const VariableFacts& facts);

// By what its methods are compared, once it is measured: microseconds of a step where its rows are
// the framework's (row_time.h), else bytes; and how much less of it moves a variable.
bool goes_by_time(const VariableFacts& facts);
double compared(Method method, const VariableFacts& facts, const TopologyFacts& topology);
double near_tie(const VariableFacts& facts);

VariablePlan initial_choice(const VariableFacts& facts, parallax_plan_mode_t mode);
VariablePlan settled_choice(const VariableFacts& facts, const TopologyFacts& topology,
                            parallax_plan_mode_t mode);

}  // namespace parallax

#endif  // PARALLAX_PLANNER_CHOICE_H_
