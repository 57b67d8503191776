// SPDX-License-Identifier: Apache-2.0
// The table of update rules: what each is called, keeps and asks for. The arithmetic is in
// src/server/update_rules.h. Plain constants; any thread.
#ifndef PARALLAX_VARIABLE_RULE_TABLE_H_
#define PARALLAX_VARIABLE_RULE_TABLE_H_

#include <cstdint>

#include "parallax/parallax.h"

namespace parallax {

struct RuleTraits {
  uint32_t rule;
  const char* name;
  uint32_t element_states;  // arrays of the value's shape
  uint32_t row_states;      // arrays of one number a row
  double epsilon;           // where the caller gives 0; 0: the rule has none
  bool integers;            // applies to integer dtypes
};

// By parallax_rule_t.
inline constexpr RuleTraits kRules[] = {
    {PARALLAX_RULE_NONE, "NONE", 0, 0, 0, true},
    {PARALLAX_RULE_SGD, "SGD", 0, 0, 0, false},
    {PARALLAX_RULE_ADAGRAD, "ADAGRAD", 1, 0, 1e-10, false},
    {PARALLAX_RULE_ADAM, "ADAM", 2, 0, 1e-8, false},
    {PARALLAX_RULE_MOMENTUM, "MOMENTUM", 1, 0, 0, false},
    {PARALLAX_RULE_ROWWISE_ADAGRAD, "ROWWISE_ADAGRAD", 0, 1, 1e-8, false},
    {PARALLAX_RULE_SUM, "SUM", 0, 0, 0, true},
};
inline constexpr uint32_t kRuleCount = sizeof kRules / sizeof kRules[0];
inline constexpr uint32_t kStatesMax = 2;

}  // namespace parallax

#endif  // PARALLAX_VARIABLE_RULE_TABLE_H_
