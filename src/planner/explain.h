// SPDX-License-Identifier: Apache-2.0
// Explain: a plan with its alternatives and the reasons, as JSON for programs and as a table for
// people. Pure, like the planner; any thread; nothing blocks. `plan` has one entry per variable, as
// has `fused` unless it is empty, and `settled` says which plan it is: by form (false) or from
// measured rows (true).
#ifndef PARALLAX_PLANNER_EXPLAIN_H_
#define PARALLAX_PLANNER_EXPLAIN_H_

#include <span>
#include <string>

#include "planner/plan.h"

namespace parallax {

// Of a table that is planned with others, as one variable (variable/fused_tables.h), in the report.
struct FusedFacts {
  std::string name, first;  // the latter's line tells of all
  uint32_t tables = 0;      // 0: it goes by itself
  uint64_t rows = 0;        // its own
  bool is_first = false;
};

// {"mode":"auto","settled":true,"hosts":4,"ranks":8,"variables":[{"name","rows","row_elements",
//   "tag","placement","method","why","measured":{"touched_rows_per_host","union_rows",
//   "pulled_rows_per_host","density"} or null,"alternatives":[{"placement","method",
//   "predicted_bytes_per_host" or null,"predicted_us" where time decides,"chosen","why"}],"pin"
//   where it has one, "fused":{"first","tables","rows"} of a table that goes with others: then
//   "rows" is its own, and what is measured and predicted of all stands with the first}]}
// density = touched_rows_per_host / rows. Names that are not UTF-8 are repaired, not refused.
std::string explain_json(std::span<const VariableFacts> variables, const TopologyFacts& topology,
                         parallax_plan_mode_t mode, std::span<const VariablePlan> plan,
                         bool settled, std::span<const FusedFacts> fused = {});

// One line per variable, and under it one per alternative that lost.
std::string explain_table(std::span<const VariableFacts> variables, const TopologyFacts& topology,
                          parallax_plan_mode_t mode, std::span<const VariablePlan> plan,
                          bool settled);

}  // namespace parallax

#endif  // PARALLAX_PLANNER_EXPLAIN_H_
