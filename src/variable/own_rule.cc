// SPDX-License-Identifier: Apache-2.0
// Checks of a caller's own rule. See own_rule.h.
#include "variable/own_rule.h"

#include <algorithm>
#include <utility>

#include "base/number.h"

namespace parallax {

namespace {

constexpr uint64_t kStateElementsMax = 1ull << 20;
constexpr uint64_t kStateBytesMax = 1ull << 48;

}  // namespace

Status check_own_rule(const parallax_variable_t& in, const std::string& name) {
  const RuleTraits& rule = kRules[in.rule];
  if (!rule.calls_back) {
    const std::pair<const char*, bool> given[] = {
        {"rule_fn", in.rule_fn != nullptr},
        {"rule_context", in.rule_context != nullptr},
        {"state_elements", in.state_elements[0] != 0 || in.state_elements[1] != 0}};
    for (const auto& [field, is_given] : given) {
      if (!is_given) continue;
      return invalid(name + ": " + field + " is given, but rule " + rule.name +
                     " is the library's own; use PARALLAX_RULE_CALLBACK, or leave it 0")
          .about_field(field);
    }
    return {};
  }
  if (in.rule_fn == nullptr) {
    return invalid(name + ": rule_fn is null, and rule CALLBACK is what it does; give it")
        .about_field("rule_fn");
  }
  const uint64_t elements[] = {in.state_elements[0], in.state_elements[1]};
  const std::string widths = name + ": state_elements is {" + std::to_string(elements[0]) + ", " +
                             std::to_string(elements[1]) + "}";
  if (std::max(elements[0], elements[1]) > kStateElementsMax) {
    return invalid(widths + "; each must be 0..2^20").about_field("state_elements");
  }
  if (elements[0] == 0 && elements[1] != 0) {
    return invalid(widths + "; keep the only state as the first").about_field("state_elements");
  }
  // Below 2^32 * 2^20 * 2^3, so nothing overflows.
  if (in.rows * std::max(elements[0], elements[1]) * bytes_of_sum(sum_type_of(in.dtype)) >=
      kStateBytesMax) {
    return invalid(widths + ", and rows x that x " +
                   std::to_string(bytes_of_sum(sum_type_of(in.dtype))) +
                   " bytes is 2^48 or more; split the variable")
        .about_field("state_elements");
  }
  if (in.initial_accumulator_value != 0 && elements[0] == 0) {
    return invalid(widths +
                   ", but initial_accumulator_value, which state[0] begins with, is not "
                   "0; give it a state, or leave it 0")
        .about_field("initial_accumulator_value");
  }
  return {};
}

}  // namespace parallax
