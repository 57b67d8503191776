// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter to the owners, then allgather. See allreduce.h.
#include "collectives/allreduce.h"

namespace parallax {

namespace {

// Sums of this rank, as a leader and as an owner.
constexpr uint8_t kHostSum = 0;
constexpr uint8_t kTotal = 1;

class DirectBuilder {
 public:
  explicit DirectBuilder(const AllreduceShape& shape) : shape_(shape), columns_(shape.columns) {}

  Schedule build() {
    schedule_.sum_count = 2;
    // Destinations start at the next rank, so that not all of them send to the same one first.
    for (uint32_t i = 0; i < columns_.world(); ++i) {
      const uint32_t owner = (columns_.rank() + 1 + i) % columns_.world();
      const Range range = shape_.partition.range_of(owner);
      if (range.count > 0) add_range(owner, range);
    }
    return std::move(schedule_);
  }

 private:
  void add_range(uint32_t owner, const Range& range) {
    const uint32_t column = columns_.column_of(owner);
    const uint32_t leader = columns_.leader(columns_.host(), column);
    const bool owns = columns_.rank() == owner;
    if (columns_.rank() == leader) {
      lead(owner, range);
    } else if (!shape_.of_hosts) {
      add({.kind = OpKind::kSend, .peer = leader, .ends_with_step = true, .range = range});
    }
    if (owns) sum_hosts(range, column, columns_.rank() == leader);
    if (shape_.returned) give_back(owner, range, column);
  }

  // What this host adds to an owner's range, and on its way to the owner.
  void lead(uint32_t owner, const Range& range) {
    const bool owns = columns_.rank() == owner;
    // A host of one has nothing to sum, nor one whose sum is the input.
    const bool alone = columns_.locals().size() == 1 || shape_.of_hosts;
    if (owns) {
      // Without an order the owner adds its own host's ranks to the total at once.
      if (!alone) sum_host(range, two_sums() ? kHostSum : kTotal);
      return;
    }
    if (!alone) sum_host(range, kHostSum);
    add({.kind = OpKind::kSend, .from = alone ? kInput : kHostSum, .peer = owner, .range = range});
  }

  // Ordered sums add a host's ranks among themselves before the hosts.
  bool two_sums() const { return shape_.ordered && columns_.host_count() > 1; }

  void sum_host(const Range& range, uint8_t to) {
    for (const uint32_t local : columns_.locals()) {
      Op op = {.kind = OpKind::kAdd, .to = to, .turn = columns_.local_of(local), .range = range};
      if (local != columns_.rank()) {
        op.kind = OpKind::kReceiveSum;
        op.peer = local;
        op.ends_with_step = true;
      }
      add(op);
    }
  }

  void sum_hosts(const Range& range, uint32_t column, bool leads) {
    schedule_.owned = range;
    schedule_.owned_sum = kTotal;
    const bool alone = columns_.locals().size() == 1 || shape_.of_hosts;
    // Where its own host's ranks are in the total already, the other hosts come behind them.
    const bool behind = leads && !alone && !two_sums();
    uint32_t turn = behind ? static_cast<uint32_t>(columns_.locals().size()) : 0;
    for (uint32_t host = 0; host < columns_.host_count(); ++host) {
      const uint32_t from = columns_.leader(host, column);
      if (from != columns_.rank()) {
        add({.kind = OpKind::kReceiveSum,
             .to = kTotal,
             .peer = from,
             .turn = turn++,
             .range = range});
      } else if (!behind) {
        add({.kind = OpKind::kAdd,
             .from = alone ? kInput : kHostSum,
             .to = kTotal,
             .turn = turn++,
             .range = range});
      }
    }
  }

  void give_to_one(uint32_t owner, const Range& range) {
    const bool root = columns_.rank() == shape_.only_to;
    if (root && columns_.rank() == owner) {
      add({.kind = OpKind::kCopy, .from = kTotal, .range = range});
    } else if (root) {
      take(owner, range);
    } else if (columns_.rank() == owner) {
      give(kTotal, shape_.only_to, range);
    }
  }

  void give_back(uint32_t owner, const Range& range, uint32_t column) {
    if (shape_.only_to != kNoRank) return give_to_one(owner, range);
    const uint32_t leader = columns_.leader(columns_.host(), column);
    if (columns_.rank() == owner) {
      add({.kind = OpKind::kCopy, .from = kTotal, .range = range});
      for (uint32_t i = 0; i < columns_.host_count(); ++i) {
        const uint32_t host = (columns_.host() + 1 + i) % columns_.host_count();
        const uint32_t to = columns_.leader(host, column);
        if (to != owner) give(kTotal, to, range);
      }
    } else if (columns_.rank() == leader) {
      take(owner, range);
    } else {
      take(leader, range);
    }
    if (columns_.rank() != leader) return;
    // Not out of the result, which nothing reads then: the caller may want that in another dtype.
    const uint8_t from = columns_.rank() == owner ? kTotal : kResult;
    for (const uint32_t local : columns_.locals()) {
      if (local != leader && local != owner) give(from, local, range);
    }
  }

  void give(uint8_t from, uint32_t to, const Range& range) {
    add({.kind = OpKind::kSend, .from = from, .stage = kGatherStage, .peer = to, .range = range});
  }
  void take(uint32_t from, const Range& range) {
    add({.kind = OpKind::kReceiveCopy, .stage = kGatherStage, .peer = from, .range = range});
  }
  void add(const Op& op) { schedule_.ops.push_back(op); }

  const AllreduceShape& shape_;
  const Columns& columns_;
  Schedule schedule_;
};

}  // namespace

Schedule allreduce_direct(const AllreduceShape& shape) { return DirectBuilder(shape).build(); }

}  // namespace parallax
