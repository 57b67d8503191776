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
#include "collectives/place_rules.h"
#include "collectives/round_names.h"

namespace parallax {

namespace {

// What every result of this exchange has in common.
ReducedGradient of_elements(const ExchangeOptions& options, bool made_dense,
                            uint64_t row_elements) {
  ReducedGradient result;
  result.counted = options.counted;
  result.sum = options.sum;
  result.scaled = options.factor != 1;
  result.by_rows = made_dense;
  result.row_elements = row_elements;
  return result;
}

// What comes of it is what the caller wants: nothing else is made of sums than totals.
bool gives_all(const ExchangeOptions& options, bool made_dense, const BesideSteps* beside) {
  return !made_dense && !options.counts_contributors && (beside != nullptr || options.held);
}

// The same on all ranks, whatever the schedule of each.
bool has_narrow(const ExchangeOptions& options, bool made_dense, const BesideSteps* beside) {
  return gives_all(options, made_dense, beside) && options.dtype != ExchangeOptions::kSumsOwn &&
         (beside == nullptr || !beside->copies);
}

}  // namespace

DenseExchange::DenseExchange(const Columns& columns, const Elements& elements, Outbox& outbox,
                             const ExchangeOptions& options, ScheduleWiring wiring,
                             const BesideSteps* beside)
    : columns_(columns),
      elements_(elements.count),
      row_elements_(elements.in_row),
      outbox_(outbox),
      options_(options),
      made_dense_(elements.made_dense),
      beside_(beside != nullptr),
      reduce_kind_(beside_ ? SectionKind::kCollectiveReduce : SectionKind::kDenseReduce),
      gather_kind_(beside_ ? SectionKind::kCollectiveGather : SectionKind::kDenseGather),
      defers_(options.method != Method::kPushPull),
      combine_(beside_ ? beside->combine : Combine::kSum),
      dtype_(beside_ && beside->copies ? beside->dtype : dtype_of(options.sum)),
      element_bytes_(bytes_of_dtype(dtype_)),
      wiring_(std::move(wiring)),
      ordered_(options.ordered || wiring_.schedule().in_turn),
      finishes_(gives_all(options, made_dense_, beside) && wiring_.result_is_last()),
      numbers_{dtype_, has_narrow(options, made_dense_, beside) ? options.dtype : dtype_},
      placed_(beside_ && beside->placed && (beside->dtype == dtype_ || finishes_)) {}

DenseExchange::DenseExchange(const Columns& columns, const Partition& partition, Outbox& outbox,
                             const ExchangeOptions& options, const DenseAlgorithm& algorithm,
                             bool of_hosts)
    : DenseExchange(columns, {partition.elements(), partition.row_elements(), of_hosts}, outbox,
                    options,
                    {algorithm.build({.columns = columns,
                                      .partition = partition,
                                      .variable = options.variable,
                                      .ordered = options.ordered,
                                      .returned = options.method != Method::kPushPull,
                                      .of_hosts = of_hosts}),
                     of_hosts},
                    nullptr) {}

DenseExchange::DenseExchange(const Columns& columns, uint64_t elements, Outbox& outbox,
                             const ExchangeOptions& options, Schedule schedule,
                             const BesideSteps& beside)
    : DenseExchange(columns, {elements}, outbox, options, {std::move(schedule)}, &beside) {}

DenseExchange::DenseExchange(const Columns& columns, uint64_t elements, Outbox& outbox,
                             const ExchangeOptions& options, Schedule schedule)
    : DenseExchange(columns, {elements}, outbox, options, {std::move(schedule)}, nullptr) {}

DenseExchange::~DenseExchange() {
  outbox_.lending().forget(this);
  for (StepBuffer& buffer : step_buffers_) {
    end_offers(buffer);
    if (buffer.is_known && outbox_.remote_writes() != nullptr) {
      outbox_.remote_writes()->forget_area(buffer.own_bytes());
    }
  }
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
  RemoteWrites* const writes = outbox_.remote_writes();
  if (writes == nullptr || beside_) return {};  // a collective's memory goes with it
  for (StepBuffer& buffer : step_buffers_) {
    const ByteRange own = buffer.own_bytes();
    buffer.is_known = own.bytes >= kPlacedBytesMin && writes->know(own);
  }
  return {};
}

void DenseExchange::lay_out(Arena& arena) {
  // Where a contribution's buffer takes the result's place, that costs no more than addresses.
  const bool has_result = wiring_.sum_cells() < wiring_.cells().size() && !placed_;
  for (StepBuffer& buffer : step_buffers_) {
    buffer.ops = arena.take<OpState>(wiring_.ops().size());
    buffer.done = arena.take<uint64_t>(wiring_.cells().size());
    buffer.sums.resize(wiring_.sum_cells());
    for (uint32_t i = 0; i < wiring_.sum_cells(); ++i) {
      buffer.sums[i].lay_out(arena, wiring_.cells()[i].range.count,
                             {.addends = wiring_.cells()[i].addends,
                              .ordered = ordered_,
                              .made_dense = made_dense_,
                              .sum = options_.sum,
                              .combine = combine_});
    }
    if (has_result) buffer.own_result = arena.take<std::byte>(elements_ * element_bytes_);
    if (beside_) return;
  }
}

void DenseExchange::open(uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  end_offers(buffer);
  buffer.step = step;
  buffer.notes.clear();
  buffer.input = {};
  buffer.arrival = {};
  buffer.leaving = nullptr;
  buffer.borrowed = {};
  buffer.pending = nullptr;
  buffer.result = ResultPlace::at(buffer.own_result.data(), dtype_, false);
  buffer.narrow = buffer.ended = buffer.contributed = buffer.has_values = false;
  buffer.held = buffer.part_summed = buffer.lent = false;
  buffer.results_left = static_cast<uint32_t>(wiring_.cells().size()) - wiring_.sum_cells();
  for (DenseAccumulator& sum : buffer.sums) sum.clear();
  std::fill(buffer.done.begin(), buffer.done.end(), uint64_t{0});
  std::fill(buffer.ops.begin(), buffer.ops.end(), OpState());
  buffer.left = 0;
  for (const Op& op : wiring_.ops()) {
    if (op.kind == OpKind::kSend || is_receive(op)) buffer.left += op.range.count;
  }
}

void DenseExchange::place(uint64_t step, std::byte* result, uint32_t* pending) {
  StepBuffer& buffer = step_buffer(step);
  buffer.pending = pending;
  if (result == nullptr || !placed_) return;
  buffer.result = ResultPlace::at(result, numbers_.narrow, true);
}

// ---- this rank's slice

void DenseExchange::contribute(uint64_t step, const Contribution& slice, uint32_t* pending) {
  StepBuffer& buffer = step_buffer(step);
  buffer.ended = buffer.contributed = true;
  buffer.input = slice.elements;
  buffer.pending = pending;
  const Destination& to = slice.result;
  const auto result = ByteRange::at(to.values, elements_ * bytes_of_dtype(to.dtype));
  const auto input =
      ByteRange::at(slice.elements.rows, elements_ * bytes_of_dtype(slice.elements.dtype));
  buffer.borrowed = slice.borrowed;
  // What has its place there may still be read by sends, when the sum is complete.
  const bool unsent = wiring_.adds_sent() && result.overlaps(input);
  const PlaceRules rules = {outbox_.remote_writes(), columns_.rank(), element_bytes_};
  const bool to_own =
      buffer.is_known && rules.comes_to_own(wiring_, elements_, buffer.own_bytes(), result);
  const bool takes = to.dtype == dtype_ || (finishes_ && convertible(dtype_, to.dtype));
  if (to.values != nullptr && takes && !unsent && !to_own) {
    buffer.result = ResultPlace::at(to.values, to.dtype, true);
    buffer.leaving = slice.leaving;
  }
  // Who gives no narrow numbers gets none: they would be rounded.
  buffer.narrow = numbers_.are_narrow(slice.elements.dtype) &&
                  (beside_ ? finishes_ : numbers_.are_narrow(buffer.result.dtype));
  place_sums(buffer, slice);
  offer_places(step);
  if (slice.arriving != nullptr) {
    buffer.arrival.from = slice.arriving;
    ++*pending;
    slice.arriving->more = [this, step] { arrive(step); };
    return arrive(step);
  }
  // Sends first: they only queue up, and what is added may be much.
  for (const uint32_t i : wiring_.inputs()) {
    const Op& op = wiring_.ops()[i];
    if (op.kind != OpKind::kSend) continue;
    if (buffer.lent) {
      buffer.ops[i].done = op.range.count;
      buffer.left -= op.range.count;
      buffer.ops[wiring_.returned_by(i)].open = true;
    } else {
      read(buffer, i, 0, op.range.count);
    }
  }
  const size_t bytes = bytes_of_dtype(slice.elements.dtype);
  for (const uint32_t i : wiring_.inputs()) {
    const Op& op = wiring_.ops()[i];
    const ScheduleWiring::OpCells& cells = wiring_.cells_of(i);
    const RowValues values = {slice.elements.rows + cells.input * bytes, slice.elements.dtype};
    if (op.kind == OpKind::kCopy) write_result(buffer, cells.to, op.range.count, values);
    if (op.kind != OpKind::kAdd) continue;
    if (slice.lasting) {
      buffer.sums[cells.to].lend(op.turn, values);
    } else {
      PARALLAX_CHECK(buffer.sums[cells.to].add(op.turn, op.range.count, values));
    }
    sum_moved(buffer, cells.to);
  }
  if (!buffer.notes.empty()) outbox_.lending().wake(this, options_.priority);
}

void DenseExchange::contribute_nothing(uint64_t step, bool contributed) {
  StepBuffer& buffer = step_buffer(step);
  if (buffer.ended) return;
  buffer.ended = true;
  buffer.contributed |= contributed;
  for (const uint32_t i : wiring_.inputs()) leave_out(buffer, i);
  if (!buffer.notes.empty()) outbox_.lending().wake(this, options_.priority);
}

void DenseExchange::end(uint32_t from, uint64_t step) {
  if (taken_back_) return;
  StepBuffer& buffer = step_buffer(step);
  if (from == columns_.rank()) {
    // Of hosts, the leader's input is not that of its rank.
    if (!made_dense_) contribute_nothing(step, false);
    return;
  }
  if (buffer.held) return;  // in a run of that rank too
  const auto first = std::lower_bound(
      wiring_.receives().begin(), wiring_.receives().end(), from,
      [this](uint32_t each, uint32_t rank) { return wiring_.ops()[each].peer < rank; });
  for (auto each = first; each != wiring_.receives().end(); ++each) {
    const Op& op = wiring_.ops()[*each];
    if (op.peer != from) break;
    const OpState& state = buffer.ops[*each];
    const bool none = state.done == 0 && state.noted == 0 && !state.nothing;
    if (op.ends_with_step && none) leave_out(buffer, *each);
  }
}

// ---- what follows

// The operation brings nothing.
void DenseExchange::leave_out(StepBuffer& buffer, uint32_t i) {
  const Op& op = wiring_.ops()[i];
  buffer.ops[i].nothing = true;
  end_offer(buffer, i);
  switch (op.kind) {
    case OpKind::kReceiveSum:
    case OpKind::kAdd:
      buffer.sums[wiring_.cells_of(i).to].leave_out(op.turn);
      sum_moved(buffer, wiring_.cells_of(i).to);
      return;
    case OpKind::kReceiveCopy:
    case OpKind::kCopy: {
      const uint32_t cell = wiring_.cells_of(i).to;
      const Range& range = wiring_.cells()[cell].range;
      // Of rows made dense one range may have got none while others did.
      if (made_dense_) {
        fill_no_row(options_.sum, buffer.result.of(range.first), range.count);
      }
      buffer.done[cell] = range.count;
      --buffer.results_left;
      for (const uint32_t reader : wiring_.cells()[cell].readers) leave_out(buffer, reader);
      return;
    }
    case OpKind::kSend:
      break;
  }
  if (op.ends_with_step) return;
  Send marker;
  marker.header = {.kind = op.stage == kReduceStage ? reduce_kind_ : gather_kind_,
                   .encoding = Encoding::kDense,
                   .flags = kSectionLast,
                   .tag = options_.variable,
                   .step = buffer.step,
                   .first = op.range.first};
  if (buffer.contributed) marker.header.flags |= kSectionContributed;
  name_round(options_.rounds, &marker.header);
  marker.priority = options_.priority;
  marker.ahead = op.stage == kGatherStage;  // as what it stands for
  outbox_.add(op.peer, marker);
}

// Hands on what is complete of a sum and was not before.
void DenseExchange::sum_moved(StepBuffer& buffer, uint32_t cell) {
  if (taken_back_) return;
  DenseAccumulator& sum = buffer.sums[cell];
  const uint64_t from = buffer.done[cell];
  const uint64_t until = sum.complete();
  if (until == from) return;
  buffer.done[cell] = until;
  const bool scales = options_.factor != 1 && !sum.empty() && wiring_.is_total(cell);
  if (scales) sum.scale(from, until - from, options_.factor);
  for (const uint32_t reader : wiring_.cells()[cell].readers) {
    if (sum.empty()) {
      leave_out(buffer, reader);
    } else {
      read(buffer, reader, from, until - from);
    }
  }
}

// Runs an operation of this rank on `count` elements, from `at` of its range on.
void DenseExchange::read(StepBuffer& buffer, uint32_t i, uint64_t at, uint64_t count) {
  const Op& op = wiring_.ops()[i];
  const ScheduleWiring::OpCells& cells = wiring_.cells_of(i);
  if (op.from == kInput) {
    PARALLAX_CHECK(op.kind == OpKind::kSend);
    const size_t bytes = bytes_of_dtype(buffer.input.dtype);
    send(buffer, i, at, count, buffer.input.rows + (cells.input + at) * bytes);
    return;
  }
  const std::byte* values = wiring_.is_sum(cells.from)
                                ? buffer.sums[cells.from].values()
                                : buffer.result.of(wiring_.cells()[cells.from].range.first);
  values += at * element_bytes_;
  switch (op.kind) {
    case OpKind::kSend:
      send(buffer, i, at, count, values);
      return;
    case OpKind::kAdd:
      PARALLAX_CHECK(buffer.sums[cells.to].add(op.turn, count, {values, dtype_of(options_.sum)}));
      sum_moved(buffer, cells.to);
      return;
    case OpKind::kCopy:
      write_result(buffer, cells.to, count, {values, dtype_});
      return;
    case OpKind::kReceiveSum:
    case OpKind::kReceiveCopy:
      break;
  }
  PARALLAX_CHECK(!"an operation of a peer");
}

void DenseExchange::write_result(StepBuffer& buffer, uint32_t cell, uint64_t count,
                                 const RowValues& values) {
  buffer.result.put(wiring_.cells()[cell].range.first + buffer.done[cell], count, values);
  result_moved(buffer, cell, count);
}

// So many more elements of it are in place.
void DenseExchange::result_moved(StepBuffer& buffer, uint32_t cell, uint64_t count) {
  const uint64_t at = buffer.done[cell];
  const Range& range = wiring_.cells()[cell].range;
  buffer.done[cell] = at + count;
  buffer.has_values = true;
  if (buffer.done[cell] == range.count) --buffer.results_left;
  tell_there(buffer.leaving, range.first + at, count);
  for (const uint32_t reader : wiring_.cells()[cell].readers) read(buffer, reader, at, count);
}

void DenseExchange::send(StepBuffer& buffer, uint32_t i, uint64_t at, uint64_t count,
                         const std::byte* values) {
  const Op& op = wiring_.ops()[i];
  OpState& state = buffer.ops[i];
  state.done += count;
  buffer.left -= count;
  if (state.over.buffer != 0) return send_over(buffer, i, at, count, values);
  if (state.queued != nullptr) {
    // Behind what waits already: so much the fewer messages.
    Outbox::extend(state.queued, count);
    return;
  }
  Send send = new_send(buffer, i, at, count);
  send.dense = values;
  send.handle = &state.queued;
  const uint32_t from = wiring_.cells_of(i).from;
  const bool of_result = op.from == kResult && buffer.result.callers;
  const bool of_sum =
      from != ScheduleWiring::kNone && wiring_.is_sum(from) && buffer.sums[from].placed();
  if (beside_ || op.from == kInput || of_result || of_sum) {
    send.pending = buffer.pending;  // it reads the caller's memory
    if (send.pending != nullptr) ++*send.pending;
  }
  lend(buffer, i, send);
  if (send.lent.buffer == 0) buffer.place_send(state, element_bytes_, &send);
  outbox_.add(op.peer, send);
}

// Elements of a send as they travel, but for where they are read.
Send DenseExchange::new_send(const StepBuffer& buffer, uint32_t i, uint64_t at,
                             uint64_t count) const {
  const Op& op = wiring_.ops()[i];
  Send send;
  send.header = {.kind = op.stage == kReduceStage ? reduce_kind_ : gather_kind_,
                 .encoding = Encoding::kDense,
                 .tag = options_.variable,
                 .step = buffer.step,
                 .first = wiring_.on_wire(op) + at};
  name_round(options_.rounds, &send.header);
  send.priority = options_.priority;
  send.ahead = op.stage == kGatherStage;
  send.format = op.from == kInput ? numbers_.format(buffer.input.dtype, buffer.narrow)
                                  : numbers_.format(dtype_, buffer.ops[i].narrow);
  send.count = count;
  return send;
}

// ---- results

ExchangeState DenseExchange::state(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  if (taken_back_) return {.contributed = true, .reduced = false, .delivered = false};
  const uint32_t owned = wiring_.owned_cell();
  return {
      .contributed = true,
      .reduced = buffer.part_summed || owned == ScheduleWiring::kNone || buffer.sums[owned].whole(),
      .delivered = buffer.results_left == 0};
}

MissingRanks DenseExchange::missing(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  MissingRanks missing;
  // Receives are in the order of their senders.
  const auto note = [](std::vector<uint32_t>& ranks, uint32_t rank) {
    if (ranks.empty() || ranks.back() != rank) ranks.push_back(rank);
  };
  for (const uint32_t i : wiring_.receives()) {
    const Op& op = wiring_.ops()[i];
    const OpState& state = buffer.ops[i];
    if (state.nothing || state.done + state.noted == op.range.count) continue;
    note(op.stage == kReduceStage ? missing.to_give : missing.to_return, op.peer);
  }
  // The way back waits for the way there: who is late with that is not to blame for this.
  if (!missing.to_give.empty()) missing.to_return.clear();
  return missing;
}

ReducedGradient DenseExchange::owned(uint64_t step) const {
  if (wiring_.owned_cell() == ScheduleWiring::kNone) return {};
  const StepBuffer& buffer = step_buffer(step);
  ReducedGradient part = of_elements(options_, made_dense_, row_elements_);
  part.contributed = buffer.contributed;
  part.counts_once = true;
  part.has_values = !buffer.sums[wiring_.owned_cell()].empty();
  part.first = wiring_.schedule().owned.first;
  part.count = wiring_.schedule().owned.count;
  part.values = buffer.sums[wiring_.owned_cell()].values();
  return part;
}

ReducedGradient DenseExchange::whole(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  ReducedGradient all = of_elements(options_, made_dense_, row_elements_);
  all.contributed = buffer.contributed;
  all.has_values = buffer.has_values;
  all.values = buffer.result.values;
  all.placed = buffer.result.callers && finishes_;
  all.count = elements_;
  return all;
}

ExchangeCounts DenseExchange::counts(uint64_t step) const {
  ExchangeCounts counts;
  if (made_dense_) counts.union_rows = union_rows(owned(step));
  return counts;
}

}  // namespace parallax
