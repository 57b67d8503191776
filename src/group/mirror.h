// SPDX-License-Identifier: Apache-2.0
// Mirror: reading a variable that lies whole at this rank, into a caller's buffer. What a pull of a
// sharded variable brings by messages is a copy here. Engine's owner only.
#ifndef PARALLAX_GROUP_MIRROR_H_
#define PARALLAX_GROUP_MIRROR_H_

#include "group/variable_runtime.h"
#include "server/pull_exchange.h"

namespace parallax {

// The rows of the slice, or all elements of a variable without row ids, as of the last step applied
// here. Padding becomes zeros.
void read_mirror(const VariableRuntime& runtime, const PullSlice& slice);

}  // namespace parallax

#endif  // PARALLAX_GROUP_MIRROR_H_
