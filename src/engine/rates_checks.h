// SPDX-License-Identifier: Apache-2.0
// What step_end is given for the update rules: one learning rate, or the rates of groups. Pure.
#ifndef PARALLAX_ENGINE_RATES_CHECKS_H_
#define PARALLAX_ENGINE_RATES_CHECKS_H_

#include <vector>

#include "base/status.h"
#include "group/step_rates.h"
#include "variable/registry.h"

namespace parallax {

// Checks and copies them. `options.rates` has whole structs of this version, one after the other.
// INVALID names the field, and the variable whose rates are not given.
Status check_rates(const parallax_step_end_options_t& options, const Registry& registry,
                   StepRates* rates);

}  // namespace parallax

#endif  // PARALLAX_ENGINE_RATES_CHECKS_H_
