// SPDX-License-Identifier: Apache-2.0
// A schedule for each kind, and where its result is written. See collective_run.h.
#include "collectives/collective_run.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "aggregate/scaled_numbers.h"
#include "collectives/copy_schedules.h"
#include "world/slot_map.h"

namespace parallax {

namespace {

// Who sums which elements: of an even split each its own, else all ranks alike, where the ranges of
// one collective do not begin at the rank where those of the last did.
Partition partition_of(const Collective& what) {
  const SlotMap ranks = SlotMap::of_ranks(what.world, 1);
  if (what.terms.kind == PARALLAX_REDUCE_SCATTER) {
    return {what.world, what.terms.count, true, ranks, 0};
  }
  const auto turn = static_cast<uint32_t>(what.key.number % what.world);
  return {what.terms.count, 1, false, ranks, turn};
}

Schedule combining_schedule(const Columns& columns, const Collective& what,
                            AlgorithmChoice& algorithms, bool ordered) {
  const Partition partition = partition_of(what);
  AllreduceShape shape = {.columns = columns, .partition = partition, .ordered = ordered};
  shape.variable = static_cast<uint32_t>(what.key.number % what.world);
  if (what.terms.kind == PARALLAX_REDUCE) {
    shape.only_to = what.terms.root;
    return allreduce_direct(shape);
  }
  shape.returned = what.terms.kind == PARALLAX_ALLREDUCE;
  return algorithms
      .of({.elements = partition.elements(), .ordered = ordered, .returned = shape.returned},
          what.terms.sum())
      .build(shape);
}

// The result comes together in the caller's buffer: of copies, and of what is rounded as it is put
// there, wherever that lies; of what is combined as numbers that are read there again.
bool is_placed(const Collective& what) {
  if (what.recv == nullptr) return false;
  if (!combines(what.terms.kind)) return true;
  return what.got().count > 0 && what.terms.kind != PARALLAX_REDUCE_SCATTER &&
         (dtype_of(what.terms.sum()) != what.terms.dtype ||
          reinterpret_cast<uintptr_t>(what.recv) % what.terms.element_bytes() == 0);
}

uint64_t result_elements(const Collective& what) {
  if (what.terms.kind != PARALLAX_ALLTOALLV) return what.terms.elements(what.world);
  return std::accumulate(what.recv_counts.begin(), what.recv_counts.end(), uint64_t{0});
}

}  // namespace

Schedule CollectiveRun::schedule_of(const Columns& columns, const Collective& what,
                                    AlgorithmChoice& algorithms, bool ordered) {
  const CollectiveTerms& terms = what.terms;
  switch (terms.kind) {
    case PARALLAX_ALLTOALLV:
      return alltoallv_direct(columns, what.send_counts, what.recv_counts);
    case PARALLAX_BROADCAST:
      return broadcast_tree(columns, terms.root, terms.count, what.recv != nullptr);
    case PARALLAX_ALLGATHER:
    case PARALLAX_ALLGATHERV:
    case PARALLAX_GATHER:
      break;
    default:
      return combining_schedule(columns, what, algorithms, ordered);
  }
  std::vector<Range> given;
  uint64_t first = 0;
  for (uint32_t rank = 0; rank < what.world; ++rank) {
    const bool own = terms.kind == PARALLAX_ALLGATHERV;
    given.push_back({first, own ? what.recv_counts[rank] : terms.count});
    first = given.back().end();
  }
  return terms.kind == PARALLAX_GATHER ? gather_direct(columns, terms.root, given)
                                       : allgather_direct(columns, given);
}

CollectiveRun::CollectiveRun(const Columns& columns, Outbox& outbox, const Collective& what,
                             AlgorithmChoice& algorithms, bool ordered)
    : what_(what),
      exchange_(columns, result_elements(what), outbox,
                {.variable = what.key.tagged ? 1u : 0u,
                 .ordered = ordered && combines(what.terms.kind),
                 .sum = what.terms.sum(),
                 .dtype = what.terms.dtype,
                 .factor = what.factor()},
                schedule_of(columns, what, algorithms, ordered),
                {.copies = !combines(what.terms.kind),
                 .dtype = what.terms.dtype,
                 .combine = combine_of(what.terms.op),
                 .placed = is_placed(what)}) {}

Status CollectiveRun::reserve(uint32_t* pending) {
  PARALLAX_RETURN_IF_ERROR(exchange_.reserve());
  exchange_.open(what_.key.number);
  pending_ = pending;
  exchange_.place(what_.key.number, is_placed(what_) ? what_.recv : nullptr, pending);
  return {};
}

void CollectiveRun::start() {
  started_ = true;
  exchange_.offer_places(what_.key.number);
  if (what_.terms.kind == PARALLAX_BROADCAST && what_.rank != what_.terms.root) return;
  Contribution own;
  own.elements = {what_.send, what_.terms.dtype};
  own.lasting = true;
  exchange_.contribute(what_.key.number, own, pending_);
  if (what_.terms.kind != PARALLAX_ALLTOALLV) return;
  const uint64_t count = what_.send_counts[what_.rank];
  if (count == 0) return;
  const size_t bytes = what_.terms.element_bytes();
  const auto before = [this](const std::vector<uint64_t>& counts) {
    return std::accumulate(counts.begin(), counts.begin() + what_.rank, uint64_t{0});
  };
  std::memcpy(what_.recv + before(what_.recv_counts) * bytes,
              what_.send + before(what_.send_counts) * bytes, count * bytes);
}

bool CollectiveRun::on_section(uint32_t from, const Section& section) {
  if (!exchange_.on_section(from, section)) return false;
  took_ = true;
  return true;
}

bool CollectiveRun::give() {
  const Range got = what_.got();
  if (!combines(what_.terms.kind) || given_ == got.count) return true;
  const ReducedGradient sums = what_.terms.kind == PARALLAX_REDUCE_SCATTER
                                   ? exchange_.owned(what_.key.number)
                                   : exchange_.whole(what_.key.number);
  if (sums.placed) return true;
  const uint64_t count = std::min(kGiveNumbers, got.count - given_);
  give_numbers(sums.values + given_ * bytes_of_sum(what_.terms.sum()), count, 1,
               {.values = what_.recv + given_ * bytes_of_dtype(what_.terms.dtype),
                .dtype = what_.terms.dtype,
                .sum = what_.terms.sum()});
  given_ += count;
  return given_ == got.count;
}

}  // namespace parallax
