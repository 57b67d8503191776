// SPDX-License-Identifier: Apache-2.0
// How pieces move through a schedule. See dense_exchange.h.
#include "collectives/dense_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

#include "aggregate/accumulator.h"
#include "base/check.h"
#include "collectives/allreduce.h"

namespace parallax {

namespace {

bool adds(const Op& op) { return op.kind == OpKind::kReceiveSum || op.kind == OpKind::kAdd; }
bool receives(const Op& op) {
  return op.kind == OpKind::kReceiveSum || op.kind == OpKind::kReceiveCopy;
}

uint8_t target_of(const Op& op) { return adds(op) ? op.to : kResult; }

SectionKind kind_of(uint8_t stage) {
  return stage == kReduceStage ? SectionKind::kDenseReduce : SectionKind::kDenseGather;
}

}  // namespace

DenseExchange::DenseExchange(const Columns& columns, const Partition& partition, Outbox& outbox,
                             const ExchangeOptions& options, const DenseAlgorithm& algorithm,
                             bool of_hosts)
    : columns_(columns),
      partition_(partition),
      outbox_(outbox),
      options_(options),
      made_dense_(of_hosts),
      element_bytes_(bytes_of_sum(options.sum)),
      schedule_(algorithm.build({.columns = columns,
                                 .partition = partition,
                                 .variable = options.variable,
                                 .ordered = options.ordered,
                                 .returned = options.method != Method::kPushPull,
                                 .of_hosts = of_hosts})) {
  wire_up();
}

// ---- the schedule's places

void DenseExchange::wire_up() {
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
    if (receives(op)) {
      receives_.push_back(i);
    } else if (op.from == kInput) {
      inputs_.push_back(i);
      cells.input = made_dense_ ? input : op.range.first;
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
}

// The ranges of each sum and of the result, sums first, each front to back.
void DenseExchange::make_cells(std::span<const uint32_t> in_order) {
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
uint32_t DenseExchange::find_cell(uint8_t place, uint64_t first) const {
  const auto found = std::lower_bound(cells_.begin(), cells_.end(), std::tie(place, first),
                                      [](const Cell& cell, const auto& key) {
                                        return std::tie(cell.place, cell.range.first) < key;
                                      });
  const bool there = found != cells_.end() && found->place == place && found->range.first == first;
  return there ? static_cast<uint32_t>(found - cells_.begin()) : kNone;
}

// The operation that takes this element from this rank; kNone: there is none.
uint32_t DenseExchange::find_receive(uint32_t from, uint8_t stage, uint64_t element) const {
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

// ---- memory

size_t DenseExchange::needed_bytes() {
  Arena measure;
  lay_out(measure);
  return measure.used_bytes();
}

Status DenseExchange::reserve() {
  PARALLAX_RETURN_IF_ERROR(arena_.reserve(needed_bytes()));
  lay_out(arena_);
  return {};
}

void DenseExchange::lay_out(Arena& arena) {
  for (StepBuffer& buffer : step_buffers_) {
    buffer.ops = arena.take<OpState>(schedule_.ops.size());
    buffer.done = arena.take<uint64_t>(cells_.size());
    buffer.sums.resize(sum_cells_);
    for (uint32_t i = 0; i < sum_cells_; ++i) {
      buffer.sums[i].lay_out(arena, cells_[i].range.count,
                             {.addends = cells_[i].addends,
                              .ordered = options_.ordered,
                              .made_dense = made_dense_,
                              .sum = options_.sum});
    }
    if (sum_cells_ == cells_.size()) continue;
    buffer.own_result = arena.take<std::byte>(partition_.elements() * element_bytes_);
  }
}

void DenseExchange::open(uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  buffer.step = step;
  buffer.input = {};
  buffer.pending = nullptr;
  buffer.result = buffer.own_result.data();
  buffer.placed = buffer.ended = buffer.contributed = buffer.has_values = false;
  buffer.results_left = static_cast<uint32_t>(cells_.size()) - sum_cells_;
  for (DenseAccumulator& sum : buffer.sums) sum.clear();
  std::fill(buffer.done.begin(), buffer.done.end(), uint64_t{0});
  std::fill(buffer.ops.begin(), buffer.ops.end(), OpState());
}

// ---- this rank's slice

void DenseExchange::contribute(uint64_t step, const Contribution& slice, uint32_t* pending) {
  StepBuffer& buffer = step_buffer(step);
  buffer.ended = buffer.contributed = true;
  buffer.input = slice.elements;
  buffer.pending = pending;
  const Destination& to = slice.result;
  if (to.values != nullptr && to.dtype == dtype_of(options_.sum)) {
    buffer.result = to.values;
    buffer.placed = true;
  }
  // Sends first: they only queue up, and what is added may be much.
  for (const uint32_t i : inputs_) {
    if (schedule_.ops[i].kind == OpKind::kSend) {
      read(buffer, i, 0, schedule_.ops[i].range.count);
    }
  }
  const size_t bytes = bytes_of_dtype(slice.elements.dtype);
  for (const uint32_t i : inputs_) {
    const Op& op = schedule_.ops[i];
    if (op.kind != OpKind::kAdd) continue;
    DenseAccumulator& sum = buffer.sums[op_cells_[i].to];
    const RowValues values = {slice.elements.rows + op_cells_[i].input * bytes,
                              slice.elements.dtype};
    if (slice.lasting) {
      sum.lend(op.turn, values);
    } else {
      PARALLAX_CHECK(sum.add(op.turn, op.range.count, values));
    }
    sum_moved(buffer, op_cells_[i].to);
  }
}

void DenseExchange::contribute_nothing(uint64_t step, bool contributed) {
  StepBuffer& buffer = step_buffer(step);
  if (buffer.ended) return;
  buffer.ended = true;
  buffer.contributed |= contributed;
  for (const uint32_t i : inputs_) leave_out(buffer, i);
}

void DenseExchange::end(uint32_t from, uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  if (from == columns_.rank()) {
    // Of hosts, the leader's input is not that of its rank.
    if (!made_dense_) contribute_nothing(step, false);
    return;
  }
  const auto first = std::lower_bound(
      receives_.begin(), receives_.end(), from,
      [this](uint32_t each, uint32_t rank) { return schedule_.ops[each].peer < rank; });
  for (auto each = first; each != receives_.end(); ++each) {
    const Op& op = schedule_.ops[*each];
    if (op.peer != from) break;
    const OpState& state = buffer.ops[*each];
    if (op.ends_with_step && state.done == 0 && !state.nothing) leave_out(buffer, *each);
  }
}

// ---- what comes

bool DenseExchange::on_section(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  const bool reduce = header.kind == SectionKind::kDenseReduce;
  if (!reduce && header.kind != SectionKind::kDenseGather) return false;
  const uint32_t op = find_receive(from, reduce ? kReduceStage : kGatherStage, header.first);
  if (op == kNone || header.encoding != Encoding::kDense) return false;
  StepBuffer& buffer = step_buffer(header.step);
  if (!fits(buffer, op, section)) return false;
  // First: what follows from the section tells it on.
  buffer.contributed |= header.count > 0 || (header.flags & kSectionContributed) != 0;
  take(buffer, op, section);
  return true;
}

bool DenseExchange::fits(const StepBuffer& buffer, uint32_t i, const Section& section) const {
  const SectionHeader& header = section.header;
  const Op& op = schedule_.ops[i];
  const OpState& state = buffer.ops[i];
  // The next of it, and no more than there is.
  if (state.nothing || header.first != op.range.first + state.done) return false;
  if (header.count > op.range.count - state.done) return false;
  if (section.payload.size() != header.count * element_bytes_) return false;
  const bool last = (header.flags & kSectionLast) != 0;
  if ((header.count == 0) != last || (last && state.done > 0)) return false;
  const uint32_t given_by = cells_[op_cells_[i].to].given_by;
  if (op.kind == OpKind::kReceiveSum || given_by == kNone) return true;
  const OpState& given = buffer.ops[given_by];
  if (given.nothing) return true;
  // As far as this rank's share has left; a sum to which it gave some is not nothing.
  const uint64_t waiting = given.queued == nullptr ? 0 : given.queued->count - given.queued->packed;
  return header.count > 0 && state.done + header.count <= given.done - waiting;
}

void DenseExchange::take(StepBuffer& buffer, uint32_t i, const Section& section) {
  const uint64_t count = section.header.count;
  if (count == 0) {
    leave_out(buffer, i);
    return;
  }
  const Op& op = schedule_.ops[i];
  const uint32_t to = op_cells_[i].to;
  buffer.ops[i].done += count;
  if (op.kind == OpKind::kReceiveCopy) {
    write_result(buffer, to, count, section.payload.data());
    return;
  }
  // It has as many left: fits() counts the same elements.
  PARALLAX_CHECK(
      buffer.sums[to].add(op.turn, count, {section.payload.data(), dtype_of(options_.sum)}));
  sum_moved(buffer, to);
}

// The operation brings nothing.
void DenseExchange::leave_out(StepBuffer& buffer, uint32_t i) {
  const Op& op = schedule_.ops[i];
  buffer.ops[i].nothing = true;
  switch (op.kind) {
    case OpKind::kReceiveSum:
    case OpKind::kAdd:
      buffer.sums[op_cells_[i].to].leave_out(op.turn);
      sum_moved(buffer, op_cells_[i].to);
      return;
    case OpKind::kReceiveCopy:
    case OpKind::kCopy: {
      const uint32_t cell = op_cells_[i].to;
      const Range& range = cells_[cell].range;
      // Of rows made dense one range may have got none while others did.
      if (made_dense_) {
        fill_no_row(options_.sum, buffer.result + range.first * element_bytes_, range.count);
      }
      buffer.done[cell] = range.count;
      --buffer.results_left;
      for (const uint32_t reader : cells_[cell].readers) leave_out(buffer, reader);
      return;
    }
    case OpKind::kSend:
      break;
  }
  if (op.ends_with_step) return;
  Send marker;
  marker.header = {.kind = kind_of(op.stage),
                   .encoding = Encoding::kDense,
                   .flags = kSectionLast,
                   .tag = options_.variable,
                   .step = buffer.step,
                   .first = op.range.first};
  if (buffer.contributed) marker.header.flags |= kSectionContributed;
  outbox_.add(op.peer, marker);
}

// ---- what follows from it

const std::byte* DenseExchange::values_of(const StepBuffer& buffer, uint32_t cell) const {
  if (is_sum(cell)) return buffer.sums[cell].values();
  return buffer.result + cells_[cell].range.first * element_bytes_;
}

// Hands on what is complete of a sum and was not before.
void DenseExchange::sum_moved(StepBuffer& buffer, uint32_t cell) {
  const DenseAccumulator& sum = buffer.sums[cell];
  const uint64_t from = buffer.done[cell];
  const uint64_t until = sum.complete();
  if (until == from) return;
  buffer.done[cell] = until;
  for (const uint32_t reader : cells_[cell].readers) {
    if (sum.empty()) {
      leave_out(buffer, reader);
    } else {
      read(buffer, reader, from, until - from);
    }
  }
}

// Runs an operation of this rank on `count` elements, from `at` of its range on.
void DenseExchange::read(StepBuffer& buffer, uint32_t i, uint64_t at, uint64_t count) {
  const Op& op = schedule_.ops[i];
  const OpCells& cells = op_cells_[i];
  if (op.from == kInput) {
    PARALLAX_CHECK(op.kind == OpKind::kSend);
    const size_t bytes = bytes_of_dtype(buffer.input.dtype);
    send(buffer, i, at, count, buffer.input.rows + (cells.input + at) * bytes);
    return;
  }
  const std::byte* values = values_of(buffer, cells.from) + at * element_bytes_;
  switch (op.kind) {
    case OpKind::kSend:
      send(buffer, i, at, count, values);
      return;
    case OpKind::kAdd:
      PARALLAX_CHECK(buffer.sums[cells.to].add(op.turn, count, {values, dtype_of(options_.sum)}));
      sum_moved(buffer, cells.to);
      return;
    case OpKind::kCopy:
      write_result(buffer, cells.to, count, values);
      return;
    case OpKind::kReceiveSum:
    case OpKind::kReceiveCopy:
      break;
  }
  PARALLAX_CHECK(!"an operation of a peer");
}

void DenseExchange::write_result(StepBuffer& buffer, uint32_t cell, uint64_t count,
                                 const std::byte* values) {
  const uint64_t at = buffer.done[cell];
  const Range& range = cells_[cell].range;
  std::memcpy(buffer.result + (range.first + at) * element_bytes_, values, count * element_bytes_);
  buffer.done[cell] = at + count;
  buffer.has_values = true;
  if (buffer.done[cell] == range.count) --buffer.results_left;
  for (const uint32_t reader : cells_[cell].readers) read(buffer, reader, at, count);
}

void DenseExchange::send(StepBuffer& buffer, uint32_t i, uint64_t at, uint64_t count,
                         const std::byte* values) {
  const Op& op = schedule_.ops[i];
  OpState& state = buffer.ops[i];
  state.done += count;
  if (state.queued != nullptr) {
    // Behind what waits already: so much the fewer messages.
    Outbox::extend(state.queued, count);
    return;
  }
  Send send;
  send.header = {.kind = kind_of(op.stage),
                 .encoding = Encoding::kDense,
                 .tag = options_.variable,
                 .step = buffer.step,
                 .first = op.range.first + at};
  send.format = {.element_bytes = static_cast<uint32_t>(element_bytes_),
                 .source_bytes = static_cast<uint32_t>(element_bytes_)};
  if (op.from == kInput) {
    send.format.source_bytes = bytes_of_dtype(buffer.input.dtype);
    send.format.convert = converter(buffer.input.dtype, dtype_of(options_.sum));
  }
  send.dense = values;
  send.count = count;
  send.handle = &state.queued;
  if (op.from == kInput || (op.from == kResult && buffer.placed)) {
    send.pending = buffer.pending;  // it reads the caller's memory
    if (send.pending != nullptr) ++*send.pending;
  }
  outbox_.add(op.peer, send);
}

// ---- results

bool DenseExchange::reduced(const StepBuffer& buffer) const {
  return owned_cell_ == kNone || buffer.sums[owned_cell_].whole();
}

ExchangeState DenseExchange::state(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  return {.contributed = true, .reduced = reduced(buffer), .delivered = buffer.results_left == 0};
}

MissingRanks DenseExchange::missing(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  MissingRanks missing;
  // Receives are in the order of their senders.
  const auto note = [](std::vector<uint32_t>& ranks, uint32_t rank) {
    if (ranks.empty() || ranks.back() != rank) ranks.push_back(rank);
  };
  for (const uint32_t i : receives_) {
    const Op& op = schedule_.ops[i];
    if (buffer.ops[i].nothing || buffer.ops[i].done == op.range.count) continue;
    note(op.stage == kReduceStage ? missing.to_give : missing.to_return, op.peer);
  }
  // The way back waits for the way there: who is late with that is not to blame for this.
  if (!missing.to_give.empty()) missing.to_return.clear();
  return missing;
}

// What every result of this exchange has in common.
ReducedGradient DenseExchange::of_elements() const {
  ReducedGradient result;
  result.counted = options_.counted;
  result.sum = options_.sum;
  result.by_rows = made_dense_;
  result.row_elements = partition_.row_elements();
  return result;
}

ReducedGradient DenseExchange::owned(uint64_t step) const {
  if (owned_cell_ == kNone) return {};
  const StepBuffer& buffer = step_buffer(step);
  ReducedGradient part = of_elements();
  part.contributed = buffer.contributed;
  part.counts_once = true;
  part.has_values = !buffer.sums[owned_cell_].empty();
  part.first = schedule_.owned.first;
  part.count = schedule_.owned.count;
  part.values = buffer.sums[owned_cell_].values();
  return part;
}

ReducedGradient DenseExchange::whole(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  ReducedGradient all = of_elements();
  all.contributed = buffer.contributed;
  all.has_values = buffer.has_values;
  all.values = buffer.result;
  all.count = partition_.elements();
  return all;
}

ExchangeCounts DenseExchange::counts(uint64_t step) const {
  ExchangeCounts counts;
  if (made_dense_) counts.union_rows = union_rows(owned(step));
  return counts;
}

}  // namespace parallax
