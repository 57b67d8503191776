// SPDX-License-Identifier: Apache-2.0
// Laying out anew what goes another way. See algorithm_costs.h.
#include "group/algorithm_costs.h"

#include <algorithm>
#include <string>
#include <vector>

#include "planner/choice.h"
#include "planner/row_coding.h"

namespace parallax {

namespace {

std::span<const std::unique_ptr<VariableRuntime>> newest_of(
    const Group& group, std::span<const Variable* const> newest) {
  return std::span(group.runtimes()).last(newest.size());
}

// Of rows that the framework holds the method is chosen by them, once rows are measured.
bool may_go_by_time(const VariableRuntime& runtime, const Group& group) {
  return goes_by_time(runtime.facts) && group.columns().world() > 1 &&
         runtime.facts.method_pin == PARALLAX_METHOD_AUTO;
}

// Whether rows are coded between hosts goes by what their link takes.
bool coding_is_open(const Group& group) {
  return group.columns().host_count() > 1 && group.topology().row_coding == RowCodingMode::kAuto;
}

}  // namespace

DenseShape dense_shape_of(const Group& group, const VariableRuntime& runtime, Method method) {
  return dense_shape(runtime.gradient_partition(method), {.method = method,
                                                          .ordered = group.sums_in_order(method),
                                                          .sum = runtime.variable->sum_type(),
                                                          .held = !runtime.variable->managed()});
}

void choose_codings(const Group& group) {
  if (group.columns().host_count() == 1) return;
  for (const uint32_t number : group.with_ids()) {
    VariableRuntime& runtime = group.runtime(number);
    const RowCodingChoice choice = choose_row_coding(runtime.facts, group.topology());
    runtime.codings = {.asked = {.row_keys = choice.row_keys},
                       .answered = {.numbers = choice.pulled},
                       .pushed = {.row_keys = choice.row_keys, .numbers = choice.pushed}};
  }
}

bool choices_open(const Group& group, std::span<const Variable* const> newest) {
  const auto added = newest_of(group, newest);
  return std::any_of(added.begin(), added.end(), [&group](const auto& runtime) {
    if (runtime->variable->ids_declared()) {
      return may_go_by_time(*runtime, group) || coding_is_open(group);
    }
    return group.algorithms().is_open(dense_shape_of(group, *runtime, runtime->plan.method));
  });
}

Status use_costs(Group& group, const CostConstants& constants,
                 std::span<const Variable* const> newest, uint64_t finished, bool* changed) {
  const auto added = newest_of(group, newest);
  const auto algorithm_of = [&group](const VariableRuntime& runtime) {
    return &group.algorithms().of(dense_shape_of(group, runtime, runtime.plan.method),
                                  runtime.variable->sum_type());
  };
  std::vector<const DenseAlgorithm*> before;
  for (const auto& runtime : added) before.push_back(algorithm_of(*runtime));
  group.algorithms().use(constants);
  choose_codings(group);
  *changed = false;
  for (size_t i = 0; i < added.size(); ++i) {
    VariableRuntime& runtime = *added[i];
    if (runtime.variable->ids_declared() || algorithm_of(runtime) == before[i]) continue;
    *changed = true;
    PARALLAX_RETURN_IF_ERROR(
        group.set_exchange(runtime.id, group.new_exchange(runtime, runtime.plan.method), finished));
  }
  if (*changed && group.memory_max_bytes() > 0 &&
      group.reserved_bytes() > group.memory_max_bytes()) {
    return limit(
        "buffers of the algorithms that measured costs favour take more than "
        "memory_max_bytes of " +
        std::to_string(group.memory_max_bytes()) + " allows; raise it");
  }
  return {};
}

}  // namespace parallax
