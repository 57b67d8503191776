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
  uint32_t element_states = 0;  // arrays of the value's shape
  uint32_t row_states = 0;      // arrays of one number a row
  double epsilon = 0;           // where the caller gives 0; 0: the rule has none
  bool keeps_squares = false;   // its first state begins at initial_accumulator_value
  float first_square = 0;       // where the caller gives 0 for that
  bool has_betas = false;
  bool has_momentum = false;
  bool has_penalties = false;  // l1, l2 and what FTRL has beside them
  bool integers = false;       // applies to integer dtypes
  bool on_devices = false;     // tables in a device's memory have it too
  bool calls_back = false;     // rule_fn is the rule, and says what states there are
};

// By parallax_rule_t.
inline constexpr RuleTraits kRules[] = {
    {.rule = PARALLAX_RULE_NONE, .name = "NONE", .integers = true},
    {.rule = PARALLAX_RULE_SGD, .name = "SGD", .on_devices = true},
    {.rule = PARALLAX_RULE_ADAGRAD,
     .name = "ADAGRAD",
     .element_states = 1,
     .epsilon = 1e-10,
     .keeps_squares = true,
     .on_devices = true},
    {.rule = PARALLAX_RULE_ADAM,
     .name = "ADAM",
     .element_states = 2,
     .epsilon = 1e-8,
     .has_betas = true,
     .on_devices = true},
    {.rule = PARALLAX_RULE_MOMENTUM,
     .name = "MOMENTUM",
     .element_states = 1,
     .has_momentum = true,
     .on_devices = true},
    {.rule = PARALLAX_RULE_ROWWISE_ADAGRAD,
     .name = "ROWWISE_ADAGRAD",
     .row_states = 1,
     .epsilon = 1e-8,
     .keeps_squares = true,
     .on_devices = true},
    {.rule = PARALLAX_RULE_SUM, .name = "SUM", .integers = true},
    {.rule = PARALLAX_RULE_FTRL,
     .name = "FTRL",
     .element_states = 2,
     .keeps_squares = true,
     .first_square = 0.1f,
     .has_penalties = true},
    {.rule = PARALLAX_RULE_CALLBACK, .name = "CALLBACK", .keeps_squares = true, .calls_back = true},
};
inline constexpr uint32_t kRuleCount = sizeof kRules / sizeof kRules[0];
inline constexpr uint32_t kStatesMax = 2;

}  // namespace parallax

#endif  // PARALLAX_VARIABLE_RULE_TABLE_H_
