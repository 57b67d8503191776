// SPDX-License-Identifier: Apache-2.0
// Recursive halving of what is summed, recursive doubling of the sums. See allreduce.h.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "collectives/allreduce.h"

namespace parallax {

namespace {

constexpr uint8_t kSum = 0;

// Places are hosts below the largest power of two; place p of a column ends with its block p. A
// block on its way to place p leaves place q where the two differ first: for q ^ the highest bit of
// p ^ q, in round log2(places) - 1 - that bit.
class HalvingBuilder {
 public:
  explicit HalvingBuilder(const AllreduceShape& shape)
      : shape_(shape),
        columns_(shape.columns),
        places_(std::bit_floor(columns_.host_count())),
        place_(columns_.host() % places_),
        extra_(columns_.host() >= places_ || columns_.host() + places_ < columns_.host_count()) {}

  Schedule build() {
    schedule_.sum_count = 1;
    for (uint32_t column = 0; column < columns_.count(); ++column) {
      const bool leads = columns_.leader(columns_.host(), column) == columns_.rank();
      // Those that leave first, first.
      for (uint32_t away = places_; away-- > 0;) {
        const Range range = block(column, place_ ^ away);
        if (range.count > 0) leads ? lead(column, away, range) : follow(column, range);
      }
    }
    return std::move(schedule_);
  }

 private:
  // Cut at the wire's grain, and turned by the variable, so that small ones spread over the ranks.
  Range block(uint32_t column, uint32_t place) const {
    const uint64_t blocks = uint64_t{columns_.count()} * places_;
    const uint64_t at = (uint64_t{column} * places_ + place + shape_.variable) % blocks;
    const uint64_t elements = shape_.partition.elements();
    const uint64_t grains = (elements + kBlockElements - 1) / kBlockElements;
    const auto cut = [&](uint64_t index) {
      return std::min(elements, grains * index / blocks * kBlockElements);
    };
    return {cut(at), cut(at + 1) - cut(at)};
  }

  void follow(uint32_t column, const Range& range) {
    const uint32_t leader = columns_.leader(columns_.host(), column);
    add({.kind = OpKind::kSend, .peer = leader, .ends_with_step = true, .range = range});
    take(leader, range);
  }

  // `away`: of this leader's place and the block's.
  void lead(uint32_t column, uint32_t away, const Range& range) {
    const bool beyond = columns_.host() >= places_;
    const uint32_t leaves = beyond ? places_ : std::bit_floor(away);  // at the round of this bit
    uint32_t turn = 0;
    // What is only passed on needs no sum.
    const bool alone = columns_.locals().size() == 1 && (beyond || !extra_) &&
                       (leaves == places_ || leaves * 2 == places_) && leaves > 0;
    if (!alone) sum_host(range, &turn);
    const uint8_t from = alone ? kInput : kSum;
    if (beyond) {
      const uint32_t other = columns_.leader(place_, column);
      add({.kind = OpKind::kSend, .from = from, .peer = other, .range = range});
      take(other, range);
      return give_locals(range);
    }
    if (extra_) sum_from(columns_.leader(place_ + places_, column), &turn, range);
    for (uint32_t bit = places_ / 2; bit > leaves; bit /= 2) {
      sum_from(columns_.leader(place_ ^ bit, column), &turn, range);
    }
    if (leaves > 0) {
      const uint32_t other = columns_.leader(place_ ^ leaves, column);
      add({.kind = OpKind::kSend, .from = from, .peer = other, .range = range});
      take(other, range);
    } else {
      schedule_.owned = range;
      add({.kind = OpKind::kCopy, .from = kSum, .range = range});
    }
    // Back the way it came: the last round first.
    for (uint32_t bit = leaves == 0 ? 1 : 2 * leaves; bit < places_; bit *= 2) {
      give(columns_.leader(place_ ^ bit, column), range);
    }
    if (extra_) give(columns_.leader(place_ + places_, column), range);
    give_locals(range);
  }

  void sum_host(const Range& range, uint32_t* turn) {
    for (const uint32_t local : columns_.locals()) {
      Op op = {.kind = OpKind::kAdd, .to = kSum, .turn = (*turn)++, .range = range};
      if (local != columns_.rank()) {
        op.kind = OpKind::kReceiveSum;
        op.peer = local;
        op.ends_with_step = true;
      }
      add(op);
    }
  }
  void sum_from(uint32_t peer, uint32_t* turn, const Range& range) {
    add({.kind = OpKind::kReceiveSum, .to = kSum, .peer = peer, .turn = (*turn)++, .range = range});
  }
  void take(uint32_t from, const Range& range) {
    add({.kind = OpKind::kReceiveCopy, .stage = kGatherStage, .peer = from, .range = range});
  }
  void give(uint32_t to, const Range& range) {
    add({.kind = OpKind::kSend,
         .from = kResult,
         .stage = kGatherStage,
         .peer = to,
         .range = range});
  }
  void give_locals(const Range& range) {
    for (const uint32_t local : columns_.locals()) {
      if (local != columns_.rank()) give(local, range);
    }
  }
  void add(const Op& op) { schedule_.ops.push_back(op); }

  const AllreduceShape& shape_;
  const Columns& columns_;
  const uint32_t places_, place_;
  const bool extra_;  // a host beyond the places, or one that has such a host's sums to add
  Schedule schedule_;
};

}  // namespace

Schedule allreduce_halving(const AllreduceShape& shape) {
  PARALLAX_CHECK(!shape.ordered && shape.returned && !shape.of_hosts && shape.only_to == kNoRank);
  return HalvingBuilder(shape).build();
}

}  // namespace parallax
