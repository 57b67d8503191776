// SPDX-License-Identifier: Apache-2.0
// From every rank to every other, summed by each. See allreduce.h.
#include "base/check.h"
#include "collectives/allreduce.h"

namespace parallax {

namespace {

// Who hears of the ends of its host's steps.
bool ends_with_step(const Columns& columns, uint32_t from, uint32_t to) {
  return columns.host_of(from) == columns.host_of(to) && columns.is_leader(to);
}

}  // namespace

Schedule allreduce_oneshot(const AllreduceShape& shape) {
  PARALLAX_CHECK(shape.returned && !shape.of_hosts && shape.only_to == kNoRank);
  const Columns& columns = shape.columns;
  const uint32_t rank = columns.rank();
  const uint32_t world = columns.world();
  const Range all = {0, shape.partition.elements()};
  // Ordered sums add a host's ranks among themselves before the hosts.
  const bool by_host = shape.ordered && columns.host_count() > 1 && columns.host_count() < world;
  const auto total = static_cast<uint8_t>(by_host ? columns.host_count() : 0);
  PARALLAX_CHECK(total < kResult);
  Schedule schedule;
  schedule.in_turn = true;
  schedule.sum_count = static_cast<uint8_t>(total + 1);
  const auto add = [&schedule](const Op& op) { schedule.ops.push_back(op); };
  // Destinations start at the next rank, so that not all of them send to the same one first.
  for (uint32_t i = 1; i < world; ++i) {
    const uint32_t to = (rank + i) % world;
    add({.kind = OpKind::kSend,
         .peer = to,
         .ends_with_step = ends_with_step(columns, rank, to),
         .range = all});
  }
  uint32_t turn = 0;
  for (uint32_t host = 0; host < columns.host_count(); ++host) {
    const auto sum = static_cast<uint8_t>(by_host ? host : total);
    if (by_host) turn = 0;
    for (const uint32_t from : columns.map().ranks_of[host]) {
      Op op = {.kind = OpKind::kAdd, .to = sum, .turn = turn++, .range = all};
      if (from != rank) {
        op.kind = OpKind::kReceiveSum;
        op.peer = from;
        op.ends_with_step = ends_with_step(columns, from, rank);
      }
      add(op);
    }
    if (by_host) add({.kind = OpKind::kAdd, .from = sum, .to = total, .turn = host, .range = all});
  }
  add({.kind = OpKind::kCopy, .from = total, .range = all});
  if (rank == shape.variable % world) {
    schedule.owned = all;
    schedule.owned_sum = total;
  }
  return schedule;
}

}  // namespace parallax
