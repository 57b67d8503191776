// SPDX-License-Identifier: Apache-2.0
// Once round the ring to be summed, once round to be handed out. See allreduce.h.
#include "base/check.h"
#include "collectives/allreduce.h"

namespace parallax {

namespace {

// The ranks in the order of the ring: hosts after one another, so that of each host one link leads
// out and one in.
std::vector<uint32_t> ring_order(const Columns& columns) {
  std::vector<uint32_t> order;
  for (const std::vector<uint32_t>& ranks : columns.map().ranks_of) {
    order.insert(order.end(), ranks.begin(), ranks.end());
  }
  return order;
}

}  // namespace

Schedule allreduce_ring(const AllreduceShape& shape) {
  PARALLAX_CHECK(!shape.ordered);
  const std::vector<uint32_t> order = ring_order(shape.columns);
  const auto world = static_cast<uint32_t>(order.size());
  uint32_t mine = 0;  // this rank's place in the ring
  while (order[mine] != shape.columns.rank()) ++mine;
  const uint32_t before = order[(mine + world - 1) % world];
  const uint32_t after = order[(mine + 1) % world];
  Schedule schedule;
  schedule.sum_count = 1;
  const auto add = [&schedule](const Op& op) { schedule.ops.push_back(op); };
  // A range starts behind its owner and comes to it last. This rank sends first what starts with
  // it, and then, one after the other, what comes from before.
  for (uint32_t i = 0; i < world; ++i) {
    const uint32_t distance = world - 1 - i;  // from this rank to the owner, along the ring
    const uint32_t owner = order[(mine + distance) % world];
    const Range range = shape.partition.range_of(owner);
    if (range.count == 0) continue;
    uint8_t summed = kInput;
    if (i > 0 || world == 1) {
      summed = 0;
      add({.kind = OpKind::kAdd, .to = 0, .turn = 0, .range = range});
    }
    if (i > 0) {
      add({.kind = OpKind::kReceiveSum, .to = 0, .peer = before, .turn = 1, .range = range});
    }
    if (distance > 0) {
      add({.kind = OpKind::kSend, .from = summed, .peer = after, .range = range});
    } else {
      schedule.owned = range;
    }
  }
  if (!shape.returned) return schedule;
  for (uint32_t i = 0; i < world; ++i) {
    const uint32_t owner = order[(mine + world - i) % world];  // i places before this rank
    const Range range = shape.partition.range_of(owner);
    if (range.count == 0) continue;
    if (i == 0) {
      add({.kind = OpKind::kCopy, .from = 0, .range = range});
    } else {
      add({.kind = OpKind::kReceiveCopy, .stage = kGatherStage, .peer = before, .range = range});
    }
    if (i + 1 < world) {
      add({.kind = OpKind::kSend,
           .from = kResult,
           .stage = kGatherStage,
           .peer = after,
           .range = range});
    }
  }
  return schedule;
}

}  // namespace parallax
