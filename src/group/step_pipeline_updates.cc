// SPDX-License-Identifier: Apache-2.0
// The updates of a step that was decided. See step_pipeline.h.
#include <algorithm>

#include "base/prefetch.h"
#include "group/step_pipeline.h"
#include "group/variables_ahead.h"

namespace parallax {

namespace {

// What is to be applied; where it lies is asked of the memory.
void take_gradient(VariableRuntime& runtime, uint64_t step) {
  if (!runtime.variable->managed()) return;
  const Exchange& exchange = runtime.exchange_at(step);
  runtime.gradient = runtime.table->sharded() ? exchange.owned(step) : exchange.whole(step);
  if (!runtime.gradient.rows) return;
  prefetch_bytes(runtime.gradient.row_keys, kRowsAhead * sizeof(uint32_t));
  if (runtime.gradient.places != nullptr)
    prefetch_bytes(runtime.gradient.places, kRowsAhead * sizeof(std::byte*));
}

// The first rows of a table that are going to be updated, and what by, are asked of the memory.
void prefetch_update(const VariableRuntime& runtime) {
  const ReducedGradient& gradient = runtime.gradient;
  if (!runtime.variable->managed() || !gradient.rows || runtime.table->store() != nullptr) return;
  const Table& table = *runtime.table;
  const uint64_t row_bytes = table.row_elements() * bytes_of_dtype(table.dtype(0));
  for (uint32_t i = 0; i < std::min(gradient.row_count, kRowsAhead); ++i) {
    prefetch_row_to_write(table.row(gradient.row_keys[i]), row_bytes);
    prefetch_row(gradient.row(i), row_bytes);
  }
}

}  // namespace

void StepPipeline::apply(StepState& step) {
  step.applying = true;
  // A discarded step goes on all the same: its plan entries hold, its buffers are handed on.
  if (step.decision.outcome != Outcome::kCommit) return;
  // Updates may run at once, in here. Others begin theirs by the decision, which may still be here.
  parts_.outbox.pump(false);
  parts_.group.entries().flush();
  const double contributors = std::max(1u, step.decision.contributors);
  const double factors[kReductionKinds] = {1.0, 1.0 / parts_.group.columns().world(),
                                           1.0 / contributors};
  const auto& runtimes = parts_.group.runtimes();
  const size_t count = runtimes.size();
  for (size_t i = 0; i < std::min<size_t>(count, 2); ++i) take_gradient(*runtimes[i], step.step);
  for (size_t i = 0; i < count; ++i) {
    prefetch_variables(i, count, step.step,
                       [&](size_t at) -> const VariableRuntime& { return *runtimes[at]; });
    if (i + 2 < count) take_gradient(*runtimes[i + 2], step.step);
    if (i + 1 < count) prefetch_update(*runtimes[i + 1]);
    const auto& runtime = runtimes[i];
    const Variable& variable = *runtime->variable;
    if (!variable.managed()) continue;
    if (!runtime->gradient.has_values && !runtime->gradient.contributed) continue;
    // Rows that count their ranks are divided one by one, in the table.
    submit_apply(step, *runtime, variable.counts_ranks() ? 1.0 : factors[variable.reduction]);
  }
}

void StepPipeline::submit_apply(StepState& step, VariableRuntime& runtime, double mean) {
  const Variable& variable = *runtime.variable;
  const Rates rates = step.end.of_group(variable.rates);
  const double group_scale = step.decision.group_scales[variable.rates];
  runtime.arguments = {.rule = variable.rule,
                       .variable = variable.id,
                       .step = step.step,
                       .learning_rate = rates.learning_rate,
                       .weight_decay = rates.weight_decay,
                       .decoupled = rates.decoupled != 0,
                       .maximize = rates.maximize != 0,
                       .clip_norm = rates.clip_norm,
                       .scale = mean * group_scale * step.decision.clip_scale,
                       .epsilon = variable.epsilon,
                       .beta1 = variable.beta1,
                       .beta2 = variable.beta2,
                       .momentum = variable.momentum,
                       .nesterov = variable.nesterov,
                       .l1 = variable.penalties.l1,
                       .l2 = variable.penalties.l2,
                       .l2_shrinkage = variable.penalties.l2_shrinkage,
                       .beta = variable.penalties.beta,
                       .left_out = &step.decision.left_out};
  const ReducedGradient& gradient = runtime.gradient;
  if (runtime.table->store() != nullptr) {
    return runtime.table->start_apply(gradient, runtime.arguments, &step.applies.left);
  }
  runtime.applies = &step.applies;
  runtime.apply_job.context = &runtime;
  runtime.apply_job.cost_bytes =
      bytes_of_sum(variable.sum_type()) *
      (gradient.rows ? gradient.row_count * variable.row_elements : gradient.count);
  runtime.apply_job.run = [](ComputeJob& job) {
    VariableRuntime& applying = *static_cast<VariableRuntime*>(job.context);
    applying.rule_answer = applying.table->apply(applying.gradient, applying.arguments);
  };
  runtime.apply_job.done = [](ComputeJob& job) {
    const VariableRuntime& applied = *static_cast<VariableRuntime*>(job.context);
    Applies& applies = *applied.applies;
    if (applied.rule_answer != 0) applies.failed = std::min(applies.failed, applied.id);
    --applies.left;
  };
  ++step.applies.left;
  parts_.compute.submit(runtime.apply_job);
}

}  // namespace parallax
