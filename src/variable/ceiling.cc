// SPDX-License-Identifier: Apache-2.0
// What a ceiling is refused for. See ceiling.h.
#include "variable/ceiling.h"

namespace parallax {

// Only what all ranks get back can be cut: an owner's rows stay where its table is.
Status check_ceiling(const parallax_variable_t& in, const std::string& name) {
  if (in.exchange_bytes_max == 0) return {};
  const std::string lead =
      name + ": exchange_bytes_max is " + std::to_string(in.exchange_bytes_max) + ", but ";
  if (in.rule != PARALLAX_RULE_NONE) {
    return invalid(lead +
                   "it has an update rule, and bounds are for framework-held variables alone; "
                   "leave it 0, and lower its rows_max")
        .about_field("exchange_bytes_max");
  }
  if (in.rows_max == 0) {
    return invalid(lead +
                   "its slices carry every row (rows_max is 0), and bounds are for rows with ids; "
                   "leave it 0")
        .about_field("exchange_bytes_max");
  }
  return {};
}

}  // namespace parallax
