// SPDX-License-Identifier: Apache-2.0
// ScheduleTime: how long the schedules of a job take, from the constants of its machines: the
// operations of all ranks are played, piece by piece, on a virtual clock. It is what the choice
// among algorithms goes by.
//
// The model. A rank does one thing at a time: it takes in the messages that have come, adds and
// copies what they bring and what that completes, and sends what that lets go, packed by peer as
// the outbox does. A message costs each end its overhead; inside a host it costs the sender its
// bytes too, between hosts the port of each host, one message at a time; what crosses between
// domains of memory of a host takes its turn on the one bus that they share. A rank's own addend is
// read as the next comes, and takes no time. Long ranges move in a few pieces, so that hops
// overlap.
//
// Whole numbers (picoseconds): the same at every rank. Pure; values in, values out.
#ifndef PARALLAX_COLLECTIVES_SCHEDULE_TIME_H_
#define PARALLAX_COLLECTIVES_SCHEDULE_TIME_H_

#include <cstdint>
#include <vector>

#include "collectives/schedule.h"
#include "planner/constants.h"
#include "world/host_map.h"

namespace parallax {

// What is moved, and by what.
struct TimedElements {
  uint64_t elements = 0;  // of the job; schedules of others are scaled to so many
  uint32_t element_bytes = 4;
  SumType sum = SumType::kF32;
  CostConstants constants = {};
};

class ScheduleTime {
 public:
  // By rank, of so many elements.
  ScheduleTime(const std::vector<Schedule>& schedules, uint64_t elements, const HostMap& hosts);

  // Until the last rank has its result.
  uint64_t picoseconds(const TimedElements& what) const;

 private:
  class Run;  // one play

  struct Operation {
    OpKind kind = OpKind::kSend;
    bool own = false;       // it adds this rank's contribution
    uint32_t peer = 0;      // kSend
    uint32_t received = 0;  // kSend: by this operation
    uint32_t to = 0;        // cell
    uint64_t count = 0;     // elements
  };
  struct Cell {
    uint32_t addends = 0;
    std::vector<uint32_t> readers = {};  // operations
  };

  uint64_t elements_;
  uint64_t longest_ = 0;  // of the operations' ranges
  std::vector<uint32_t> host_of_, domain_of_;
  uint32_t hosts_;
  std::vector<Operation> operations_;
  std::vector<Cell> cells_;
  std::vector<std::vector<uint32_t>> inputs_;  // by rank: what reads the contribution
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_SCHEDULE_TIME_H_
