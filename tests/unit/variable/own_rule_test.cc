// SPDX-License-Identifier: Apache-2.0
// What may be wrong with a caller's own rule, and what a variable keeps of it.
#include "variable/own_rule.h"

#include <gtest/gtest.h>

#include <functional>

#include "variable/variable.h"

namespace parallax {
namespace {

struct BadOwnRule {
  const char* words;
  std::function<void(parallax_variable_t*)> spoil;
};

parallax_variable_t described() {
  parallax_variable_t variable = {};
  variable.size = sizeof variable;
  variable.name = "w";
  variable.rows = 10;
  variable.row_elements = 4;
  variable.rule = PARALLAX_RULE_ADAGRAD;
  return variable;
}

int add_nothing(void*, const parallax_rule_block_t*) { return 0; }

void make_own(parallax_variable_t* v) {
  v->rule = PARALLAX_RULE_CALLBACK;
  v->rule_fn = add_nothing;
  v->state_elements[0] = 3;
}

TEST(OwnRule, NamesWhatIsWrong) {
  const BadOwnRule cases[] = {
      {"rule_fn is null", [](auto* v) { make_own(v), v->rule_fn = nullptr; }},
      {"rule_fn is given, but rule ADAGRAD", [](auto* v) { v->rule_fn = add_nothing; }},
      {"rule_fn is given, but rule NONE", [](auto* v) { make_own(v), v->rule = 0; }},
      {"rule_context is given", [](auto* v) { v->rule_context = v; }},
      {"state_elements is given", [](auto* v) { v->state_elements[1] = 1; }},
      {"state_elements is {1048577, 0}",
       [](auto* v) { make_own(v), v->state_elements[0] = (1 << 20) + 1; }},
      {"state_elements is {3, 4294967295}",
       [](auto* v) { make_own(v), v->state_elements[1] = UINT32_MAX; }},
      {"as the first",
       [](auto* v) { make_own(v), v->state_elements[0] = 0, v->state_elements[1] = 1; }},
      {"2^48", [](auto* v) { make_own(v), v->rows = 1u << 30, v->state_elements[0] = 1 << 16; }},
      {"i32, and rule CALLBACK is for floating",
       [](auto* v) { make_own(v), v->dtype = PARALLAX_I32; }},
      {"CALLBACK has none", [](auto* v) { make_own(v), v->epsilon = 1; }},
      {"CALLBACK has none", [](auto* v) { make_own(v), v->momentum = 1; }},
      {"initial_accumulator_value",
       [](auto* v) { make_own(v), v->state_elements[0] = 0, v->initial_accumulator_value = 1; }},
  };
  for (const BadOwnRule& bad : cases) {
    parallax_variable_t description = described();
    bad.spoil(&description);
    Variable variable;
    const Status status = make_variable(description, &variable);
    EXPECT_EQ(status.code(), PARALLAX_INVALID) << bad.words << ": " << status.message();
    EXPECT_NE(status.message().find(bad.words), std::string::npos) << status.message();
    EXPECT_FALSE(status.facts().field.empty()) << status.message();
  }
}

TEST(OwnRule, SaysItsStates) {
  parallax_variable_t description = described();
  make_own(&description);
  description.state_elements[1] = 1 << 20;
  description.initial_accumulator_value = 2;
  description.rule_context = &description;
  Variable variable;
  const Status made = make_variable(description, &variable);
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_EQ(variable.own_rule.apply, add_nothing);
  EXPECT_EQ(variable.own_rule.context, &description);
  EXPECT_EQ(variable.state_width(0), 3u);
  EXPECT_EQ(variable.state_width(1), 1u << 20);
}

}  // namespace
}  // namespace parallax
