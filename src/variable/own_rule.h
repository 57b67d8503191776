// SPDX-License-Identifier: Apache-2.0
// OwnRule: a variable's rule where that is the caller's own (PARALLAX_RULE_CALLBACK), and what may
// be wrong with it. A plain value; any thread.
#ifndef PARALLAX_VARIABLE_OWN_RULE_H_
#define PARALLAX_VARIABLE_OWN_RULE_H_

#include <array>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "variable/rule_table.h"

namespace parallax {

struct OwnRule {
  parallax_rule_fn apply = nullptr;
  void* context = nullptr;
  // Numbers a row of each state; none after a state without any.
  std::array<uint32_t, kStatesMax> state_elements = {};
};

// Of a description whose rule and dtype are right: what a caller's own rule needs, and nothing of
// it where the rule is another. `name` is how sentences begin. INVALID.
Status check_own_rule(const parallax_variable_t& in, const std::string& name);

}  // namespace parallax

#endif  // PARALLAX_VARIABLE_OWN_RULE_H_
