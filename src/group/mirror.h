// SPDX-License-Identifier: Apache-2.0
// Mirror: reading a variable that lies whole at this rank, into a caller's buffer. What a pull of a
// sharded variable brings by messages is a copy here, of a mirror on a device one that ends later.
// Engine's owner only.
#ifndef PARALLAX_GROUP_MIRROR_H_
#define PARALLAX_GROUP_MIRROR_H_

#include "group/variable_runtime.h"
#include "server/pull_exchange.h"

namespace parallax {

// The rows of the slice, or all elements of a variable without row ids, as of the last step applied
// here. Padding becomes zeros.
//
// A mirror on a device is asked for them: *left is raised by one, and lessened once all are there;
// until then the slice is borrowed.
void read_mirror(const VariableRuntime& runtime, const PullSlice& slice, uint32_t* left);

}  // namespace parallax

#endif  // PARALLAX_GROUP_MIRROR_H_
