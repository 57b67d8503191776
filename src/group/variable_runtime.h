// SPDX-License-Identifier: Apache-2.0
// VariableRuntime: a variable at work in a group: who owns what of it, the exchange of its
// gradients, its table, and a change of plan under way. A plain value that the group owns and the
// parts of a step fill in; it stays where it is. Engine's owner only, but for what a job of the
// compute pool has.
#ifndef PARALLAX_GROUP_VARIABLE_RUNTIME_H_
#define PARALLAX_GROUP_VARIABLE_RUNTIME_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "aggregate/step_sum.h"
#include "base/compute.h"
#include "collectives/exchange.h"
#include "planner/plan.h"
#include "server/table.h"
#include "variable/partition.h"
#include "variable/variable.h"

namespace parallax {

// Updates of a step under way, and the first variable whose own rule failed.
struct Applies {
  uint32_t left = 0;
  uint32_t failed = UINT32_MAX;
};

struct VariableRuntime {
  // A change of plan under way: from `step` on, what is here is in force.
  struct Change {
    uint64_t step = 0;  // 0: none
    VariablePlan plan;
    std::unique_ptr<Exchange> exchange;
    std::unique_ptr<Table> table;     // null: the placement stays
    uint64_t elements_to_come = 0;    // and each owner's counts of updates
    uint32_t sends_to_be_packed = 0;  // that read the table it comes from
  };

  // The registered variable outlives this. `slots` are the view's, `ranks` has one for each rank.
  // Of values and of gradients: a row of a gradient may end in a count of ranks, a row of the value
  // never. Of gradients at owners and at ranks: what all get back is nobody's to own, and summed by
  // all.
  VariableRuntime(uint32_t number, const Variable& registered, const SlotMap& slots,
                  const SlotMap& ranks)
      : id(number),
        variable(&registered),
        partition(registered.rows, registered.row_elements, registered.ids_declared(), slots,
                  number, 0, block_of(registered)),
        owned_gradient(registered.rows, registered.gradient_elements(), registered.ids_declared(),
                       slots, number, 0, block_of(registered)),
        shared_gradient(registered.rows, registered.gradient_elements(), registered.ids_declared(),
                        ranks, number) {}

  // Of what owners hold of one without row ids: a rule of the caller's own is given whole rows.
  static uint64_t block_of(const Variable& variable) {
    return variable.traits().calls_back ? block_of_rows(variable.row_elements) : kBlockElements;
  }

  // Where a gradient is summed that goes by this method.
  const Partition& gradient_partition(Method method) const {
    return method == Method::kPushPull ? owned_gradient : shared_gradient;
  }

  // In force in a step.
  bool changed_at(uint64_t step) const { return change.step != 0 && step >= change.step; }
  Exchange& exchange_at(uint64_t step) const {
    return changed_at(step) ? *change.exchange : *exchange;
  }
  const VariablePlan& plan_at(uint64_t step) const { return changed_at(step) ? change.plan : plan; }
  bool sharded_at(uint64_t step) const { return plan_at(step).placement == Placement::kSharded; }

  const uint32_t id;
  const Variable* const variable;
  const Partition partition;  // of its values, while they are sharded
  const Partition owned_gradient, shared_gradient;
  VariablePlan plan;
  VariableFacts facts;
  RowCodings codings;  // of this rank's own sends
  std::unique_ptr<Exchange> exchange;
  std::unique_ptr<Table> table;  // managed only
  Change change;
  std::unique_ptr<Exchange> old_exchange;  // may still be sending: kept one more step
  // Step sums of a variable that takes micro-batches (accumulate), by StepWindow::calls_slot; else
  // null.
  std::vector<std::unique_ptr<StepSum>> sums;
  // Applying a step, as a compute job.
  ComputeJob apply_job;
  ReducedGradient gradient;
  UpdateArguments arguments;
  int rule_answer = 0;         // of a rule of the caller's own: not 0 fails the job
  Applies* applies = nullptr;  // of that step
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_VARIABLE_RUNTIME_H_
