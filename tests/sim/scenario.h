// SPDX-License-Identifier: Apache-2.0
// Scenario: one random training job, a pure function of its seed: ranks and hosts, variables, what
// each rank contributes and pulls in each step. The ranks play it and the oracle adds it up, each
// asking the same functions. Plain value; any thread may read it.
#ifndef PARALLAX_TESTS_SIM_SCENARIO_H_
#define PARALLAX_TESTS_SIM_SCENARIO_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/seeded_random.h"
#include "parallax/parallax.h"
#include "support/collective_case.h"
#include "transport/sim/sim_options.h"
#include "world/host_map.h"
#include "world/slot_map.h"

namespace parallax::simtest {

inline constexpr int64_t kMicrosecond = 1000;
inline constexpr int64_t kMillisecond = 1000 * kMicrosecond;

// How gradients are drawn, and so how exactly a result can be told.
enum class Numbers : uint8_t {
  kExact,     // small multiples of 2^-6: every order of summing gives the same bits
  kAny,       // any float; only deterministic runs fix the bits
  kPositive,  // sums without cancellation, to be met within the float bound
};

struct Contribution {
  bool contributed = false;
  std::vector<int64_t> ids;   // variables with ids
  std::vector<float> values;  // by id, or dense
};

struct PullChoice {
  uint32_t variable = 0;
  std::vector<int64_t> ids;
};

struct StepChoice {
  float learning_rate = 0;
  float clip_norm = 0;
  uint32_t found_inf_rank = UINT32_MAX;
  uint32_t other_rate_rank = UINT32_MAX;  // says another learning rate (of the last group):
                                          // the step is discarded
  std::vector<bool> absent;
  std::vector<parallax_rates_t> rates;  // none: learning_rate for all
};

struct Scenario {
  uint64_t seed = 0;
  uint32_t world = 1;
  HostMap hosts;
  SlotMap slots = {};                          // none: every rank owns alike
  std::vector<parallax_variable_t> variables;  // names are in names_
  std::vector<std::string> names;
  uint32_t steps = 0;  // of training; one more reads everything back
  parallax_plan_mode_t plan_mode = PARALLAX_PLAN_AUTO;
  uint32_t plan_after_steps = 2;
  bool deterministic = false;
  Numbers numbers = Numbers::kExact;
  bool pipelined = false;       // a step begins while the last one still ends
  bool waits_in_step = false;   // reduces are waited for before step_end
  bool early = true;            // pulls are asked for and answered early, however few rows
  uint32_t staleness = 0;       // as StepWindow has it
  bool exits_at_once = false;   // a rank's process ends with the first call that fails
  uint32_t rates_groups = 0;    // that variables name, and steps may have rates of
  std::vector<bool> own_rules;  // by variable: its rule is a function of the caller's
  bool late_jobs = false;       // merges and updates take a while, and run at its end
  int64_t lease_ns = 0;
  int64_t think_ns_max = 0;  // between calls
  uint32_t abort_rank = UINT32_MAX;
  uint32_t cancel_rank = UINT32_MAX;
  uint64_t end_step = 0;                // of the abort or cancel
  uint32_t mismatch_rank = UINT32_MAX;  // registers a variable in another shape, or not at all
  uint32_t mismatch_variable = 0;
  bool mismatch_left_out = false;
  // By variable: the step before which it is committed, and that it takes part in first. None: 1.
  std::vector<uint64_t> first_steps;
  uint32_t empty_commit_percent = 0;  // of steps, before which ranks commit with nothing new
  bool own_orders = false;            // every rank registers in an order of its own
  SimOptions sim;

  uint64_t first_step(uint32_t variable) const {
    return first_steps.empty() ? 1 : first_steps[variable];
  }
  // What a rank registers before the commit that comes ahead of a step, in its order.
  std::vector<uint32_t> registered_before(uint64_t step, uint32_t rank) const;
  bool commit_before(uint64_t step) const;

  bool ids(uint32_t variable) const { return variables[variable].rows_max > 0; }
  bool managed(uint32_t variable) const { return variables[variable].rule != PARALLAX_RULE_NONE; }
  bool own_rule(uint32_t variable) const {
    return variable < own_rules.size() && own_rules[variable];
  }
  uint64_t elements(uint32_t variable) const {
    return variables[variable].rows * variables[variable].row_elements;
  }
  // What a pull of the step may see first, of commits: it may see those up to the step before.
  uint64_t oldest_seen(uint64_t step) const {
    return step - 1 - std::min<uint64_t>(step - 1, staleness);
  }
  bool bitwise() const { return deterministic || numbers == Numbers::kExact; }

  SeededRandom random(uint64_t a, uint64_t b, uint64_t c) const {
    return SeededRandom(seed).fork(a).fork(b + 1000).fork(c + 2000000);
  }

  StepChoice step(uint64_t step) const;
  Contribution contribution(uint64_t step, uint32_t rank, uint32_t variable) const;
  // Into how many slices of one call it is cut (tied use).
  uint32_t slices_of(uint64_t step, uint32_t rank, uint32_t variable) const {
    SeededRandom tied = random(9, step, uint64_t{rank} * 1000 + variable);
    return tied.chance(20) ? static_cast<uint32_t>(tied.between(2, 4)) : 1;
  }
  // The pull calls of a rank in a step. The step after the last reads everything.
  std::vector<std::vector<PullChoice>> pulls(uint64_t step, uint32_t rank) const;
  bool barrier_before(uint64_t step) const { return random(5, step, 0).chance(30); }
  // Bytes of a broadcast before the step; UINT64_MAX: none.
  uint64_t broadcast_bytes(uint64_t step) const;
  uint32_t broadcast_root(uint64_t step) const;
  std::byte broadcast_byte(uint64_t step, uint64_t index) const;
  // Beside the step, in the order of those without a tag.
  std::vector<testkit::CollectiveCase> collectives(uint64_t step) const;
  std::string describe() const;
};

struct ScenarioLimits {
  uint32_t world_max = 12;
  uint32_t large_world_max = 48;  // now and then
  uint64_t elements_max = 6000;   // of a variable
};

Scenario make_scenario(uint64_t seed, const ScenarioLimits& limits);

}  // namespace parallax::simtest

#endif  // PARALLAX_TESTS_SIM_SCENARIO_H_
