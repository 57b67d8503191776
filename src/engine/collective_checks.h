// SPDX-License-Identifier: Apache-2.0
// What may be wrong with one call of parallax_collective, seen from its rank alone. Pure.
#ifndef PARALLAX_ENGINE_COLLECTIVE_CHECKS_H_
#define PARALLAX_ENGINE_COLLECTIVE_CHECKS_H_

#include <cstdint>

#include "base/status.h"
#include "collectives/collective.h"
#include "parallax/parallax.h"

namespace parallax {

// The call as the engine carries it out, but for its key. INVALID and UNSUPPORTED name the field.
Status check_collective(const parallax_collective_t& call, uint32_t rank, uint32_t world,
                        Collective* out);

}  // namespace parallax

#endif  // PARALLAX_ENGINE_COLLECTIVE_CHECKS_H_
