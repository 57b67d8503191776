// SPDX-License-Identifier: Apache-2.0
// Whether rows are worth coding on their way between hosts (message/section_coding.h): it takes
// fewer bytes and some computing, so that it pays where links are slow. By the constants of the job
// (constants.h): what the spared bytes would take on the link, beside what coding takes at both
// ends. Each rank chooses for what it sends. Pure; any thread; nothing blocks.
#ifndef PARALLAX_PLANNER_ROW_CODING_H_
#define PARALLAX_PLANNER_ROW_CODING_H_

#include <cstdint>
#include <string>

#include "planner/plan.h"

namespace parallax {

struct RowCodingChoice {
  bool row_keys = false;
  bool pushed = false, pulled = false;  // their numbers
  std::string why;                      // a sentence with figures
};

// Of a variable with row ids, between hosts.
RowCodingChoice choose_row_coding(const VariableFacts& facts, const TopologyFacts& topology);

}  // namespace parallax

#endif  // PARALLAX_PLANNER_ROW_CODING_H_
