// SPDX-License-Identifier: Apache-2.0
// Checks of the numbers that a step ends with. See rates_checks.h.
#include "engine/rates_checks.h"

#include <cmath>
#include <string>

namespace parallax {

namespace {

// Sentences are made of what fails alone: a step allocates nothing.
constexpr uint32_t kNoGroup = UINT32_MAX;

Status refuse(uint32_t group, const char* field, const char* why) {
  return invalid("step_end: " + (group == kNoGroup ? "" : "rates[" + std::to_string(group) + "].") +
                 field + why)
      .about_field(field);
}

Status check_number(uint32_t group, const char* field, float number) {
  if (std::isfinite(number) && number >= 0) return {};
  return refuse(group, field, " must be finite and not negative");
}

Status check_clip(uint32_t group, float clip_norm) {
  if (std::isfinite(clip_norm) && clip_norm >= 0) return {};
  return refuse(group, "clip_norm", " must be finite and not negative; 0 means no clipping");
}

Status check_group(uint32_t group, const parallax_rates_t& in, Rates* rates) {
  PARALLAX_RETURN_IF_ERROR(check_number(group, "learning_rate", in.learning_rate));
  PARALLAX_RETURN_IF_ERROR(check_number(group, "weight_decay", in.weight_decay));
  PARALLAX_RETURN_IF_ERROR(check_clip(group, in.clip_norm));
  if (in.decoupled > 1) return refuse(group, "decoupled", " must be 0 or 1");
  if (in.maximize > 1) return refuse(group, "maximize", " must be 0 or 1");
  if (in.reserved != 0) return refuse(group, "reserved", " must be 0");
  *rates = {.learning_rate = in.learning_rate,
            .weight_decay = in.weight_decay,
            .decoupled = in.decoupled,
            .maximize = in.maximize,
            .clip_norm = in.clip_norm};
  return {};
}

}  // namespace

Status check_rates(const parallax_step_end_options_t& options, const Registry& registry,
                   StepRates* rates) {
  PARALLAX_RETURN_IF_ERROR(check_number(kNoGroup, "learning_rate", options.learning_rate));
  PARALLAX_RETURN_IF_ERROR(check_clip(kNoGroup, options.clip_norm));
  rates->count = 0;
  if (options.rates_count == 0) return {};
  const std::string count = std::to_string(options.rates_count);
  if (options.rates_count > kRatesMax) {
    return invalid("step_end: rates_count is " + count + "; at most " + std::to_string(kRatesMax) +
                   " groups");
  }
  if (options.rates == nullptr) {
    return invalid("step_end: rates is null, but rates_count is " + count).about_field("rates");
  }
  if (options.learning_rate != 0) {
    return invalid(
               "step_end: learning_rate is given beside rates, each of which has its own; leave it "
               "0")
        .about_field("learning_rate");
  }
  for (uint32_t id = 0; id < registry.size(); ++id) {
    const Variable& variable = registry[id];
    if (!registry.has_number(id) || !variable.managed() || variable.rates < options.rates_count)
      continue;
    return invalid("step_end: rates_count is " + count + ", but the rates of variable '" +
                   variable.name + "' are group " + std::to_string(variable.rates))
        .about_field("rates_count")
        .about_variable(id);
  }
  for (uint32_t group = 0; group < options.rates_count; ++group) {
    PARALLAX_RETURN_IF_ERROR(check_group(group, options.rates[group], &rates->groups[group]));
  }
  rates->count = options.rates_count;
  return {};
}

}  // namespace parallax
