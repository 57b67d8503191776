// SPDX-License-Identifier: Apache-2.0
// The constants of a job at work in a group: which of its variables they matter to, and what
// changes with them. Engine's owner only; nothing blocks.
#ifndef PARALLAX_GROUP_ALGORITHM_COSTS_H_
#define PARALLAX_GROUP_ALGORITHM_COSTS_H_

#include <cstdint>
#include <span>

#include "base/status.h"
#include "collectives/algorithms.h"
#include "group/group.h"
#include "planner/constants.h"

namespace parallax {

// What the choice among algorithms knows of a variable.
DenseShape dense_shape_of(const Group& group, const VariableRuntime& runtime, Method method);

// Some of the newest variables may go by one algorithm or another, or by one method of rows or
// another.
bool choices_open(const Group& group, std::span<const Variable* const> newest);

// What of its rows this rank codes on their way to other hosts, by what is known now.
void choose_codings(const Group& group);

// What all ranks have agreed on, before any step has these variables. *changed: some go another way
// than they were laid out for, at every rank alike. LIMIT.
Status use_costs(Group& group, const CostConstants& constants,
                 std::span<const Variable* const> newest, uint64_t finished, bool* changed);

}  // namespace parallax

#endif  // PARALLAX_GROUP_ALGORITHM_COSTS_H_
