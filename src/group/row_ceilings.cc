// SPDX-License-Identifier: Apache-2.0
// Chunks that are found at commit, and sentences of ceilings. See row_ceilings.h.
#include "group/row_ceilings.h"

#include <algorithm>
#include <string>

#include "collectives/host_rows.h"
#include "collectives/row_chunks.h"
#include "group/group.h"

namespace parallax {

namespace {

// By form, or by the pin (initial_plan()).
Method first_method(const VariableFacts& facts) {
  switch (facts.method_pin) {
    case PARALLAX_METHOD_REDUCE_ROWS:
      return Method::kReduceRows;
    case PARALLAX_METHOD_MADE_DENSE:
      return Method::kMadeDense;
    default:
      return Method::kAllgatherv;
  }
}

// Of what is given at a time.
uint64_t block_bytes(const VariableRuntime& runtime, Method method) {
  const Variable& variable = *runtime.variable;
  const uint64_t rows = chunks_of(method, runtime.facts).rows;
  const Partition& partition = runtime.shared_gradient;
  if (rows == 0) return HostRows::block_bytes(partition, variable.rows_max, variable.sum_type());
  return HostRows::block_bytes(partition.of_rows(rows), std::min(variable.rows_max, rows),
                               variable.sum_type());
}

}  // namespace

Status find_chunks(const Group& group, Outbox& outbox, uint32_t marker_hosts_max,
                   VariableRuntime* runtime) {
  const Variable& variable = *runtime->variable;
  if (variable.exchange_bytes_max == 0) return {};
  const auto chunks_by = [&](Method method) -> Chunks {
    const RowChunks found = find_row_chunks(group.columns(), runtime->gradient_partition(method),
                                            outbox, group.compute(),
                                            {.variable = runtime->id,
                                             .method = method,
                                             .rows_max = variable.rows_max,
                                             .ordered = group.sums_in_order(method),
                                             .sum = variable.sum_type(),
                                             .held = true,
                                             .counted = variable.counts_ranks(),
                                             .marker_hosts_max = marker_hosts_max},
                                            variable.exchange_bytes_max);
    return {.count = found.count, .rows = found.rows, .bytes = found.bytes};
  };
  Ceiling& ceiling = runtime->facts.ceiling;
  ceiling.gathered = chunks_by(Method::kAllgatherv);
  ceiling.reduced = chunks_by(Method::kReduceRows);
  if (!runtime->facts.integer) ceiling.made_dense = chunks_by(Method::kMadeDense);
  const Status kept = check_chunks(runtime->facts, variable.id);
  // The job ends, and its reports may still be asked for: a plan has the way that it begins with.
  if (!kept.ok()) ceiling = {.bytes_max = ceiling.bytes_max};
  return kept;
}

Status check_chunks(const VariableFacts& facts, uint32_t variable) {
  const Method method = first_method(facts);
  const Chunks& chunks = chunks_of(method, facts);
  if (facts.ceiling.bytes_max == 0 || chunks.count > 0) return {};
  return limit("commit: variable '" + facts.name + "': exchange_bytes_max is " +
               std::to_string(facts.ceiling.bytes_max) + ", and " + method_name(method) +
               " takes " + std::to_string(chunks.bytes) +
               " bytes in the smallest chunks that there are; raise it to that")
      .about_variable(variable)
      .about_field("exchange_bytes_max");
}

uint64_t staged_bytes(const VariableRuntime& runtime) {
  const VariableFacts& facts = runtime.facts;
  if (!runtime.variable->ids_declared()) return 0;
  const uint64_t first = block_bytes(runtime, first_method(facts));
  if (facts.method_pin != PARALLAX_METHOD_AUTO || facts.ceiling.reduced.count == 0) return first;
  return std::max(first, block_bytes(runtime, Method::kReduceRows));
}

bool has_staged_block(const VariableRuntime& runtime, Method method) {
  return block_bytes(runtime, method) <= staged_bytes(runtime);
}

}  // namespace parallax
