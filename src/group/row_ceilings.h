// SPDX-License-Identifier: Apache-2.0
// What follows from a variable's ceiling (exchange_bytes_max) and from the chunks by which its
// methods keep it: whether it may begin, and what the ranks of a host read of each other's rows.
// Engine's owner only.
#ifndef PARALLAX_GROUP_ROW_CEILINGS_H_
#define PARALLAX_GROUP_ROW_CEILINGS_H_

#include <cstdint>

#include "base/status.h"
#include "group/variable_runtime.h"
#include "planner/plan.h"

namespace parallax {

class Group;
class Outbox;

// Finds by which chunks each method keeps the ceiling of a variable that the group takes in, and
// checks it. The group and the outbox are where its exchanges would be made.
Status find_chunks(const Group& group, Outbox& outbox, uint32_t marker_hosts_max,
                   VariableRuntime* runtime);

// LIMIT where the method that the plan begins with has no chunk that is small enough, with the
// least ceiling that would do; `variable` is its caller's number. Alike on every rank.
Status check_chunks(const VariableFacts& facts, uint32_t variable);

// Of a block of the variable's rows in HostStaging: of one chunk, where it goes in chunks. 0: it
// has no row ids.
uint64_t staged_bytes(const VariableRuntime& runtime);
// What that method gives at a time fits into it; else it goes by messages.
bool has_staged_block(const VariableRuntime& runtime, Method method);

}  // namespace parallax

#endif  // PARALLAX_GROUP_ROW_CEILINGS_H_
