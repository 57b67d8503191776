// SPDX-License-Identifier: Apache-2.0
// The bound that a registration gives for what exchanging its gradient may reserve: of which
// variables it may. Pure; any thread.
#ifndef PARALLAX_VARIABLE_CEILING_H_
#define PARALLAX_VARIABLE_CEILING_H_

#include <string>

#include "base/status.h"
#include "parallax/parallax.h"

namespace parallax {

// INVALID of one whose sums an owner keeps, or that has no row ids: neither goes in chunks. `name`
// is "variable 'x'".
Status check_ceiling(const parallax_variable_t& in, const std::string& name);

}  // namespace parallax

#endif  // PARALLAX_VARIABLE_CEILING_H_
