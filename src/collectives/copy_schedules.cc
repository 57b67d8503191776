// SPDX-License-Identifier: Apache-2.0
// Who sends what to whom, where nothing is combined. See copy_schedules.h.
#include "collectives/copy_schedules.h"

namespace parallax {

namespace {

Op send_of(uint8_t from, uint32_t to, const Range& range) {
  return {.kind = OpKind::kSend, .from = from, .stage = kGatherStage, .peer = to, .range = range};
}
Op receive_of(uint32_t from, const Range& range) {
  return {.kind = OpKind::kReceiveCopy, .stage = kGatherStage, .peer = from, .range = range};
}

}  // namespace

Schedule allgather_direct(const Columns& columns, std::span<const Range> given) {
  Schedule schedule;
  std::vector<Op>& ops = schedule.ops;
  const uint32_t rank = columns.rank();
  schedule.input_first = given[rank].first;
  // From the next rank on, so that not all of them send to the same one first.
  for (uint32_t i = 0; i < columns.world(); ++i) {
    const uint32_t giver = (rank + i) % columns.world();
    const Range range = given[giver];
    if (range.count == 0) continue;
    const uint32_t column = columns.column_of(giver);
    const uint32_t leader = columns.leader(columns.host(), column);
    if (giver == rank) {
      ops.push_back({.kind = OpKind::kCopy, .range = range});
      for (uint32_t j = 0; j < columns.host_count(); ++j) {
        const uint32_t host = (columns.host() + 1 + j) % columns.host_count();
        const uint32_t to = columns.leader(host, column);
        if (to != rank) ops.push_back(send_of(kInput, to, range));
      }
    } else {
      ops.push_back(receive_of(rank == leader ? giver : leader, range));
    }
    if (rank != leader) continue;
    for (const uint32_t local : columns.locals()) {
      if (local != leader && local != giver) ops.push_back(send_of(kResult, local, range));
    }
  }
  return schedule;
}

Schedule broadcast_tree(const Columns& columns, uint32_t root, uint64_t elements, bool root_too) {
  Schedule schedule;
  if (elements == 0) return schedule;
  const Range all = {0, elements};
  const uint32_t rank = columns.rank();
  if (rank == root) {
    if (root_too) schedule.ops.push_back({.kind = OpKind::kCopy, .range = all});
  } else {
    schedule.ops.push_back(receive_of(tree_parent(columns.map(), root, rank), all));
  }
  for (const uint32_t child : tree_children(columns.map(), root, rank)) {
    schedule.ops.push_back(send_of(rank == root ? kInput : kResult, child, all));
  }
  return schedule;
}

Schedule gather_direct(const Columns& columns, uint32_t root, std::span<const Range> given) {
  Schedule schedule;
  const uint32_t rank = columns.rank();
  const Range own = given[rank];
  schedule.input_first = own.first;
  if (rank != root) {
    if (own.count > 0) schedule.ops.push_back(send_of(kInput, root, own));
    return schedule;
  }
  for (uint32_t giver = 0; giver < columns.world(); ++giver) {
    const Range range = given[giver];
    if (range.count == 0) continue;
    schedule.ops.push_back(giver == root ? Op{.kind = OpKind::kCopy, .range = range}
                                         : receive_of(giver, range));
  }
  return schedule;
}

Schedule alltoallv_direct(const Columns& columns, std::span<const uint64_t> send_counts,
                          std::span<const uint64_t> recv_counts) {
  Schedule schedule;
  schedule.pairwise = true;
  const uint32_t rank = columns.rank();
  uint64_t received = 0;
  std::vector<uint64_t> sent(columns.world() + 1, 0);  // before the numbers for each rank
  for (uint32_t peer = 0; peer < columns.world(); ++peer) {
    sent[peer + 1] = sent[peer] + send_counts[peer];
    if (peer != rank && recv_counts[peer] > 0) {
      schedule.ops.push_back(receive_of(peer, {received, recv_counts[peer]}));
    }
    received += recv_counts[peer];
  }
  for (uint32_t i = 1; i < columns.world(); ++i) {
    const uint32_t peer = (rank + i) % columns.world();
    if (send_counts[peer] == 0) continue;
    schedule.ops.push_back(send_of(kInput, peer, {sent[peer], send_counts[peer]}));
  }
  return schedule;
}

}  // namespace parallax
