// SPDX-License-Identifier: Apache-2.0
// The choice itself: which ways fit a variable, which of them the pin allows, which takes least
// time or receives fewest bytes. Pure; any thread; nothing blocks. The reasons are put into words
// in alternatives.cc.
#include "planner/plan.h"

#include "base/check.h"
#include "planner/choice.h"
#include "planner/cost.h"
#include "planner/row_time.h"

namespace parallax {

bool carries_rows(const VariableFacts& facts) {
  if (facts.tag == PARALLAX_DENSE) return false;
  return facts.tag == PARALLAX_SPARSE || facts.ids_declared;
}

const Chunks& chunks_of(Method method, const VariableFacts& facts) {
  if (method == Method::kMadeDense) return facts.ceiling.made_dense;
  return method == Method::kReduceRows ? facts.ceiling.reduced : facts.ceiling.gathered;
}

namespace {

constexpr uint32_t pin_of(Method method) {
  switch (method) {
    case Method::kAllreduce:
      return PARALLAX_METHOD_ALLREDUCE;
    case Method::kAllgatherv:
      return PARALLAX_METHOD_ALLGATHERV;
    case Method::kReduceRows:
      return PARALLAX_METHOD_REDUCE_ROWS;
    case Method::kMadeDense:
      return PARALLAX_METHOD_MADE_DENSE;
    case Method::kPushPull:
      return PARALLAX_METHOD_PUSH_PULL;
  }
  return PARALLAX_METHOD_AUTO;
}

}  // namespace

std::vector<VariablePlan> fitting_plans(const VariableFacts& facts) {
  const Placement replicated = facts.managed ? Placement::kMirrored : Placement::kFramework;
  std::vector<VariablePlan> plans;
  if (carries_rows(facts)) {
    for (const Method method : {Method::kAllgatherv, Method::kReduceRows, Method::kMadeDense}) {
      if (method == Method::kMadeDense && facts.integer) continue;
      if (chunks_of(method, facts).count == 0) continue;
      plans.push_back({replicated, method});
    }
  } else {
    plans.push_back({replicated, Method::kAllreduce});
  }
  if (facts.managed) plans.push_back({Placement::kSharded, Method::kPushPull});
  return plans;
}

bool pin_allows(const VariablePlan& plan, const VariableFacts& facts, parallax_plan_mode_t mode) {
  const bool sharded = plan.placement == Placement::kSharded;
  if (facts.method_pin != PARALLAX_METHOD_AUTO && pin_of(plan.method) != facts.method_pin) {
    return false;
  }
  if (facts.placement_pin != PARALLAX_PLACEMENT_AUTO) {
    return sharded == (facts.placement_pin == PARALLAX_PLACEMENT_SHARDED);
  }
  if (facts.method_pin != PARALLAX_METHOD_AUTO) return true;
  if (plan.placement == Placement::kFramework) return true;
  switch (mode) {
    case PARALLAX_PLAN_AUTO:
      return true;
    case PARALLAX_PLAN_HYBRID:
      return sharded == (carries_rows(facts) && !facts.given_dense);
    case PARALLAX_PLAN_PS:
      return sharded;
    case PARALLAX_PLAN_AR:
      return !sharded;
  }
  PARALLAX_CHECK(!"a plan mode that the C ABI should have refused");
  return false;
}

bool is_unused(const VariableFacts& facts) {
  return facts.measured && carries_rows(facts) && facts.touched_rows_per_host == 0 &&
         facts.union_rows == 0 && facts.pulled_rows_per_host == 0;
}

bool goes_by_time(const VariableFacts& facts) { return carries_rows(facts) && !facts.managed; }

double compared(Method method, const VariableFacts& facts, const TopologyFacts& topology) {
  return goes_by_time(facts) ? cost::row_time(method, facts, topology).microseconds()
                             : cost::received_bytes(method, facts, topology);
}

double near_tie(const VariableFacts& facts) {
  return goes_by_time(facts) ? kNearTieOfTime : kNearTie;
}

VariablePlan initial_choice(const VariableFacts& facts, parallax_plan_mode_t mode) {
  if (facts.method_pin != PARALLAX_METHOD_AUTO) {
    for (const VariablePlan& plan : fitting_plans(facts)) {
      if (pin_allows(plan, facts, mode)) return plan;
    }
    PARALLAX_CHECK(!"a pin that the variable's registration should have refused");
  }
  const bool rows = carries_rows(facts);
  const VariablePlan sharded = {Placement::kSharded, Method::kPushPull};
  const VariablePlan replicated = {facts.managed ? Placement::kMirrored : Placement::kFramework,
                                   rows ? Method::kAllgatherv : Method::kAllreduce};
  if (!facts.managed) return replicated;
  if (!pin_allows(sharded, facts, mode)) return replicated;
  if (!pin_allows(replicated, facts, mode)) return sharded;
  return rows ? sharded : replicated;
}

namespace {

// A table in the memory of devices stays where it is.
bool may_move(const VariablePlan& plan, const VariablePlan& initial, const VariableFacts& facts) {
  return !facts.on_device || plan.placement == initial.placement;
}

}  // namespace

VariablePlan settled_choice(const VariableFacts& facts, const TopologyFacts& topology,
                            parallax_plan_mode_t mode) {
  PARALLAX_CHECK(cost::counted_parties(topology) >= 1);
  const VariablePlan initial = initial_choice(facts, mode);
  if (facts.given_dense && !facts.integer && facts.ceiling.made_dense.count == 1) {
    const VariablePlan dense = {
        initial.placement == Placement::kFramework ? initial.placement : Placement::kMirrored,
        Method::kMadeDense};
    return pin_allows(dense, facts, mode) && may_move(dense, initial, facts) ? dense : initial;
  }
  if (carries_rows(facts) && !facts.measured) return initial;
  if (carries_rows(facts)) {
    // Written so that NaN fails too.
    PARALLAX_CHECK(facts.touched_rows_per_host >= 0 && facts.union_rows >= 0 &&
                   facts.pulled_rows_per_host >= 0);
  }
  if (is_unused(facts)) return initial;
  VariablePlan best = initial;
  double least = compared(initial.method, facts, topology);
  const double of_initial = least;
  for (const VariablePlan& plan : fitting_plans(facts)) {
    if (!pin_allows(plan, facts, mode) || !may_move(plan, initial, facts)) continue;
    const double each = compared(plan.method, facts, topology);
    if (each < least) {
      best = plan;
      least = each;
    }
  }
  return of_initial <= least * (1 + near_tie(facts)) ? initial : best;
}

Plan initial_plan(std::span<const VariableFacts> variables, const TopologyFacts& topology,
                  parallax_plan_mode_t mode) {
  PARALLAX_CHECK(cost::counted_parties(topology) >= 1);
  Plan plan;
  plan.reserve(variables.size());
  for (const VariableFacts& facts : variables) plan.push_back(initial_choice(facts, mode));
  return plan;
}

Plan settled_plan(std::span<const VariableFacts> variables, const TopologyFacts& topology,
                  parallax_plan_mode_t mode) {
  Plan plan;
  plan.reserve(variables.size());
  for (const VariableFacts& facts : variables) {
    plan.push_back(settled_choice(facts, topology, mode));
  }
  return plan;
}

std::string pin_text(const VariableFacts& facts) {
  std::string text;
  if (facts.placement_pin != PARALLAX_PLACEMENT_AUTO) {
    text = "placement " + placement_name(facts.placement_pin == PARALLAX_PLACEMENT_SHARDED
                                             ? Placement::kSharded
                                             : Placement::kMirrored);
  }
  for (const Method method : {Method::kAllreduce, Method::kAllgatherv, Method::kReduceRows,
                              Method::kMadeDense, Method::kPushPull}) {
    if (pin_of(method) != facts.method_pin) continue;
    text += (text.empty() ? "" : ", ") + ("method " + method_name(method));
  }
  return text;
}

std::string method_name(Method method) {
  switch (method) {
    case Method::kAllreduce:
      return "allreduce";
    case Method::kAllgatherv:
      return "allgatherv";
    case Method::kReduceRows:
      return "reduce_rows";
    case Method::kMadeDense:
      return "made_dense";
    case Method::kPushPull:
      return "push_pull";
  }
  return "unknown";
}

std::string placement_name(Placement placement) {
  switch (placement) {
    case Placement::kFramework:
      return "framework";
    case Placement::kMirrored:
      return "mirrored";
    case Placement::kSharded:
      return "sharded";
  }
  return "unknown";
}

std::string mode_name(parallax_plan_mode_t mode) {
  switch (mode) {
    case PARALLAX_PLAN_AUTO:
      return "auto";
    case PARALLAX_PLAN_HYBRID:
      return "hybrid";
    case PARALLAX_PLAN_PS:
      return "ps";
    case PARALLAX_PLAN_AR:
      return "ar";
  }
  return "unknown";
}

std::string tag_name(uint32_t tag) {
  switch (tag) {
    case PARALLAX_AUTO:
      return "auto";
    case PARALLAX_DENSE:
      return "dense";
    case PARALLAX_SPARSE:
      return "sparse";
    default:
      return "unknown";
  }
}

}  // namespace parallax
