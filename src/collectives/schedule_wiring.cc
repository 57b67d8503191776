// SPDX-License-Identifier: Apache-2.0
// Places of operations, and who reads what they write. See schedule_wiring.h.
#include "collectives/schedule_wiring.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace parallax {

namespace {

bool adds(const Op& op) { return op.kind == OpKind::kReceiveSum || op.kind == OpKind::kAdd; }
uint8_t target_of(const Op& op) { return adds(op) ? op.to : kResult; }

}  // namespace

ScheduleWiring::ScheduleWiring(Schedule schedule, bool packed)
    : schedule_(std::move(schedule)), packed_(packed) {
  const std::vector<Op>& ops = schedule_.ops;
  op_cells_.resize(ops.size());
  std::vector<uint32_t> in_order(ops.size());  // by element
  std::iota(in_order.begin(), in_order.end(), 0U);
  std::stable_sort(in_order.begin(), in_order.end(), [&ops](uint32_t a, uint32_t b) {
    return ops[a].range.first < ops[b].range.first;
  });
  make_cells(in_order);
  uint64_t input = 0;
  for (const uint32_t i : in_order) {
    const Op& op = ops[i];
    OpCells& cells = op_cells_[i];
    if (op.kind != OpKind::kSend) cells.to = find_cell(target_of(op), op.range.first);
    if (is_receive(op)) {
      receives_.push_back(i);
    } else if (op.from == kInput) {
      inputs_.push_back(i);
      cells.input = packed_ ? input : op.range.first - schedule_.input_first;
      input += op.range.count;
    } else {
      cells.from = find_cell(op.from, op.range.first);
      PARALLAX_CHECK(cells.from != kNone && cells_[cells.from].range == op.range);
      cells_[cells.from].readers.push_back(i);
    }
    PARALLAX_CHECK(cells.to == kNone || cells_[cells.to].range == op.range);
  }
  for (uint32_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != OpKind::kSend || ops[i].stage != kReduceStage) continue;
    const uint32_t result = find_cell(kResult, ops[i].range.first);
    if (result != kNone) cells_[result].given_by = i;
  }
  std::sort(receives_.begin(), receives_.end(), [&ops](uint32_t a, uint32_t b) {
    return std::tie(ops[a].peer, ops[a].stage, ops[a].range.first) <
           std::tie(ops[b].peer, ops[b].stage, ops[b].range.first);
  });
  if (schedule_.owned.count > 0) {
    owned_cell_ = find_cell(schedule_.owned_sum, schedule_.owned.first);
    PARALLAX_CHECK(owned_cell_ != kNone && cells_[owned_cell_].range == schedule_.owned);
  }
  adds_sent_ = finds_sent_addends();
  for (uint32_t i = 0; i < ops.size(); ++i) returned_by_.push_back(find_return(i));
}

uint32_t ScheduleWiring::find_return(uint32_t i) const {
  const Op& there = schedule_.ops[i];
  const bool sends = there.kind == OpKind::kSend && there.from == kInput;
  if (schedule_.pairwise || (!sends && there.kind != OpKind::kReceiveSum)) return kNone;
  const bool read_elsewhere =
      sends && std::any_of(inputs_.begin(), inputs_.end(), [&](uint32_t other) {
        const Range& range = schedule_.ops[other].range;
        return other != i && range.first < there.range.end() && there.range.first < range.end();
      });
  if (read_elsewhere) return kNone;
  for (uint32_t back = 0; back < schedule_.ops.size(); ++back) {
    const Op& op = schedule_.ops[back];
    if (op.kind == (sends ? OpKind::kReceiveCopy : OpKind::kSend) && op.stage == kGatherStage &&
        op.peer == there.peer && op.range == there.range) {
      return back;
    }
  }
  return kNone;
}

bool ScheduleWiring::finds_sent_addends() const {
  return std::any_of(inputs_.begin(), inputs_.end(), [this](uint32_t added) {
    const Op& add = schedule_.ops[added];
    return add.kind == OpKind::kAdd &&
           std::any_of(inputs_.begin(), inputs_.end(), [&](uint32_t sent) {
             const Op& op = schedule_.ops[sent];
             return op.kind == OpKind::kSend && op.range.first < add.range.end() &&
                    add.range.first < op.range.end();
           });
  });
}

// The ranges of each sum and of the result, sums first, each front to back.
void ScheduleWiring::make_cells(std::span<const uint32_t> in_order) {
  std::vector<uint32_t> writers;
  for (const uint32_t i : in_order) {
    if (schedule_.ops[i].kind != OpKind::kSend) writers.push_back(i);
  }
  std::stable_sort(writers.begin(), writers.end(), [this](uint32_t a, uint32_t b) {
    return target_of(schedule_.ops[a]) < target_of(schedule_.ops[b]);
  });
  for (const uint32_t i : writers) {
    const Op& op = schedule_.ops[i];
    const bool same = !cells_.empty() && cells_.back().place == target_of(op) &&
                      cells_.back().range.first == op.range.first;
    if (!same) {
      Cell& cell = cells_.emplace_back();
      cell.place = target_of(op);
      cell.range = op.range;
      if (cell.place != kResult) ++sum_cells_;
    }
    if (adds(op)) ++cells_.back().addends;
  }
}

// kNone: none begins there.
uint32_t ScheduleWiring::find_cell(uint8_t place, uint64_t first) const {
  const auto found = std::lower_bound(cells_.begin(), cells_.end(), std::tie(place, first),
                                      [](const Cell& cell, const auto& key) {
                                        return std::tie(cell.place, cell.range.first) < key;
                                      });
  const bool there = found != cells_.end() && found->place == place && found->range.first == first;
  return there ? static_cast<uint32_t>(found - cells_.begin()) : kNone;
}

// The operation that takes this element from this rank; kNone: there is none.
uint32_t ScheduleWiring::find_receive(uint32_t from, uint8_t stage, uint64_t element) const {
  if (schedule_.pairwise) {  // the only one
    const auto found = std::lower_bound(
        receives_.begin(), receives_.end(), from,
        [this](uint32_t each, uint32_t rank) { return schedule_.ops[each].peer < rank; });
    const bool there = found != receives_.end() && schedule_.ops[*found].peer == from &&
                       schedule_.ops[*found].stage == stage;
    return there ? *found : kNone;
  }
  const auto after =
      std::upper_bound(receives_.begin(), receives_.end(), std::tie(from, stage, element),
                       [this](const auto& key, uint32_t each) {
                         const Op& op = schedule_.ops[each];
                         return key < std::tie(op.peer, op.stage, op.range.first);
                       });
  if (after == receives_.begin()) return kNone;
  const Op& op = schedule_.ops[*(after - 1)];
  const bool found =
      op.peer == from && op.stage == stage && element - op.range.first < op.range.count;
  return found ? *(after - 1) : kNone;
}

bool ScheduleWiring::is_total(uint32_t cell) const {
  const std::vector<uint32_t>& readers = cells_[cell].readers;
  return std::none_of(readers.begin(), readers.end(), [this](uint32_t reader) {
    const Op& op = schedule_.ops[reader];
    return op.kind == OpKind::kAdd || (op.kind == OpKind::kSend && op.stage == kReduceStage);
  });
}

bool ScheduleWiring::result_is_last() const {
  return std::all_of(cells_.begin() + sum_cells_, cells_.end(),
                     [](const Cell& cell) { return cell.readers.empty(); });
}

bool ScheduleWiring::alone_reads_input(uint32_t cell) const {
  const Range& range = cells_[cell].range;
  return std::all_of(inputs_.begin(), inputs_.end(), [&](uint32_t i) {
    const Op& op = schedule_.ops[i];
    const bool apart = op.range.first >= range.end() || range.first >= op.range.end();
    return apart || (op.kind == OpKind::kAdd && op_cells_[i].to == cell);
  });
}

}  // namespace parallax
