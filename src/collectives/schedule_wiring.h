// SPDX-License-Identifier: Apache-2.0
// ScheduleWiring: a schedule with what follows from it: the cells that its sums and its result are
// cut into, which operations write and read each, and which one a message is for. Fixed once made;
// pure.
#ifndef PARALLAX_COLLECTIVES_SCHEDULE_WIRING_H_
#define PARALLAX_COLLECTIVES_SCHEDULE_WIRING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/schedule.h"

namespace parallax {

inline bool is_receive(const Op& op) {
  return op.kind == OpKind::kReceiveSum || op.kind == OpKind::kReceiveCopy;
}

class ScheduleWiring {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // A range of a sum or of the result: what is written there, and who reads it.
  struct Cell {
    uint8_t place = kResult;
    Range range;
    uint32_t addends = 0;                // of a sum
    std::vector<uint32_t> readers = {};  // operations
    uint32_t given_by = kNone;           // of the result: the send without which no rank has this
                                         // sum
  };
  // Which cells an operation reads and writes.
  struct OpCells {
    uint32_t from = kNone;
    uint32_t to = kNone;
    uint64_t input = 0;  // of kInput: its first element in the slice
  };

  // `packed`: the slice has what the operations read of it and no more, range after range.
  ScheduleWiring(Schedule schedule, bool packed = false);

  const Schedule& schedule() const { return schedule_; }
  const std::vector<Op>& ops() const { return schedule_.ops; }
  const std::vector<Cell>& cells() const { return cells_; }  // sums first
  uint32_t sum_cells() const { return sum_cells_; }
  bool is_sum(uint32_t cell) const { return cell < sum_cells_; }
  const OpCells& cells_of(uint32_t op) const { return op_cells_[op]; }
  const std::vector<uint32_t>& inputs() const { return inputs_; }      // that read the slice
  const std::vector<uint32_t>& receives() const { return receives_; }  // by sender, stage, element
  uint32_t owned_cell() const { return owned_cell_; }

  // What messages call the first element of an operation.
  uint64_t on_wire(const Op& op) const { return schedule_.pairwise ? 0 : op.range.first; }
  // No operation reads the slice's elements of this sum's range, but to add them to it.
  bool alone_reads_input(uint32_t cell) const;
  // Of a sum: the total of all ranks, which is read on its way back alone.
  bool is_total(uint32_t cell) const;
  // No operation reads of the result: it need not be numbers of the sum's type.
  bool result_is_last() const;
  // Some of the slice is sent as it is, and added here besides: that a sum is complete does not say
  // that it has left.
  bool adds_sent() const { return adds_sent_; }
  // Of a send of the slice: the operation by which the total of its range comes back from the same
  // rank, if nothing else reads that range of the slice. Of a receive into a sum: the send by which
  // the total of its range goes back to the same rank. kNone: there is none.
  uint32_t returned_by(uint32_t op) const { return returned_by_[op]; }
  // The operation that takes this element from this rank; kNone: there is none.
  uint32_t find_receive(uint32_t from, uint8_t stage, uint64_t element) const;

 private:
  void make_cells(std::span<const uint32_t> in_order);
  uint32_t find_cell(uint8_t place, uint64_t first) const;
  bool finds_sent_addends() const;
  uint32_t find_return(uint32_t op) const;

  const Schedule schedule_;
  const bool packed_;
  std::vector<Cell> cells_;
  uint32_t sum_cells_ = 0;
  std::vector<OpCells> op_cells_;
  std::vector<uint32_t> inputs_;
  std::vector<uint32_t> receives_;
  std::vector<uint32_t> returned_by_;
  uint32_t owned_cell_ = kNone;
  bool adds_sent_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_SCHEDULE_WIRING_H_
