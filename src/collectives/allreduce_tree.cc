// SPDX-License-Identifier: Apache-2.0
// Up a tree of hosts and down again. See allreduce.h.
#include "collectives/allreduce.h"

namespace parallax {

Schedule allreduce_tree(const AllreduceShape& shape) {
  const Columns& columns = shape.columns;
  const Range all = {0, shape.partition.elements()};
  // Roots are spread over the ranks.
  const uint32_t spread = shape.variable % columns.world();
  const uint32_t column = columns.column_of(spread);
  const uint32_t root_host = columns.host_of(spread);
  const uint32_t root = columns.leader(root_host, column);
  const uint32_t leader = columns.leader(columns.host(), column);
  const uint32_t hosts = columns.host_count();
  Schedule schedule;
  schedule.sum_count = 1;
  const auto add = [&schedule](const Op& op) { schedule.ops.push_back(op); };
  const auto send = [&add, &all](uint8_t from, uint8_t stage, uint32_t to) {
    add({.kind = OpKind::kSend, .from = from, .stage = stage, .peer = to, .range = all});
  };
  const auto receive_result = [&](uint32_t from) {
    if (!shape.returned) return;
    add({.kind = OpKind::kReceiveCopy, .stage = kGatherStage, .peer = from, .range = all});
  };
  if (columns.rank() != leader) {
    add({.kind = OpKind::kSend, .peer = leader, .ends_with_step = true, .range = all});
    receive_result(leader);
    return schedule;
  }
  uint32_t next = 0;
  for (const uint32_t local : columns.locals()) {
    Op op = {.kind = OpKind::kAdd, .to = 0, .turn = next++, .range = all};
    if (local != leader) {
      op.kind = OpKind::kReceiveSum;
      op.peer = local;
      op.ends_with_step = true;
    }
    add(op);
  }
  std::vector<uint32_t> below;
  for (const uint32_t host : host_tree_children(hosts, root_host, columns.host())) {
    below.push_back(columns.leader(host, column));
    add({.kind = OpKind::kReceiveSum, .to = 0, .peer = below.back(), .turn = next++, .range = all});
  }
  if (leader == root) {
    schedule.owned = all;
    if (shape.returned) add({.kind = OpKind::kCopy, .from = 0, .range = all});
  } else {
    const uint32_t parent =
        columns.leader(host_tree_parent(hosts, root_host, columns.host()), column);
    send(0, kReduceStage, parent);
    receive_result(parent);
  }
  if (!shape.returned) return schedule;
  for (const uint32_t child : below) send(kResult, kGatherStage, child);
  for (const uint32_t local : columns.locals()) {
    if (local != leader) send(kResult, kGatherStage, local);
  }
  return schedule;
}

}  // namespace parallax
