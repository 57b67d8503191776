// SPDX-License-Identifier: Apache-2.0
// Schedule: one rank's part of a dense algorithm as data: what it sends, receives and sums, of
// which elements. Built by a pure function (allreduce.h) from the shape of the job alone, so that a
// test can prove for every world that all ranks together end with each contribution exactly once,
// and a plan can price the very schedule that would run.
//
// Order follows from the data. An element of a sum is complete when each operation that adds to it
// has brought that element; an element of the result is there when its copy or receive has. An
// operation may run, element by element, as soon as what it reads is complete. So a range can leave
// while the next one still arrives, and no operation names another.
//
// Each sum, and the result, is cut into ranges: two operations that read or write one place cover
// the same range of it, or ranges without an element in common. Between two ranks an element is
// sent at most once in a stage: sender, stage and element tell a receiver which operation a message
// belongs to.
#ifndef PARALLAX_COLLECTIVES_SCHEDULE_H_
#define PARALLAX_COLLECTIVES_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

enum class OpKind : uint8_t {
  kSend,         // `from` to `peer`
  kReceiveSum,   // from `peer`, added to sum `to`
  kReceiveCopy,  // from `peer` into the result
  kAdd,          // `from`, of this rank, added to sum `to`
  kCopy,         // `from` into the result
};

// Where numbers lie: this rank's contribution, one of the schedule's sums by its number, the
// result.
inline constexpr uint8_t kInput = 255;
inline constexpr uint8_t kResult = 254;

// Stages: partial sums on their way to where they are reduced, and the reduced ones on their way
// back.
inline constexpr uint8_t kReduceStage = 0;
inline constexpr uint8_t kGatherStage = 1;

struct Op {
  OpKind kind = OpKind::kSend;
  uint8_t from = kInput;  // kSend, kAdd, kCopy
  uint8_t to = kResult;   // kReceiveSum, kAdd: a sum
  uint8_t stage = kReduceStage;
  uint32_t peer = kNoRank;  // kSend, kReceiveSum, kReceiveCopy
  // kReceiveSum, kAdd: the place of these addends in the sum's order, counted from 0 in each range.
  // Ordered sums add in this order; others as it comes.
  uint32_t turn = 0;
  // kSend of kInput, and the kReceiveSum of it: between ranks of one host, to the leader of a
  // column. Where the sender contributes nothing, no message says so: the end of its step does,
  // which every leader of its host hears of.
  bool ends_with_step = false;
  Range range;
};

struct Schedule {
  std::vector<Op> ops;
  uint8_t sum_count = 0;
  // The first element of this rank's contribution, where it has part of them alone.
  uint64_t input_first = 0;
  // Elements mean another thing at the sender than at the receiver: between two ranks there is one
  // send a stage, and its messages count from its own beginning.
  bool pairwise = false;
  // Its sums add by turn whether or not that is asked for: several ranks make the same one, and all
  // must have the same bits.
  bool in_turn = false;
  // What this rank reduces: the elements whose total it is the one to have in `owned_sum`. The
  // owned ranges of all ranks are disjoint and cover the variable.
  Range owned;
  uint8_t owned_sum = 0;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_SCHEDULE_H_
