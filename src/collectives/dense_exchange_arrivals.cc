// SPDX-License-Identifier: Apache-2.0
// What comes from other ranks: whether it is the next of its operation, and what it brings; and
// what comes of this rank's own from a device. See dense_exchange.h.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "collectives/dense_exchange.h"

namespace parallax {

bool DenseExchange::on_section(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (header.kind == SectionKind::kDensePlace || header.kind == SectionKind::kCollectivePlace) {
    return on_offer(from, section);
  }
  const bool reduce = header.kind == reduce_kind_;
  if (!reduce && header.kind != gather_kind_) return false;
  const uint32_t op =
      wiring_.find_receive(from, reduce ? kReduceStage : kGatherStage, header.first);
  const bool placed = header.encoding == Encoding::kPlaced || section.in_place;
  // Nobody lends rows made dense: they lie in memory of exchanges.
  const bool lent = header.encoding == Encoding::kLent && !made_dense_;
  if (op == ScheduleWiring::kNone || !(placed || lent || header.encoding == Encoding::kDense)) {
    return false;
  }
  // Of a collective every rank gives all of its own.
  if (beside_ && header.count == 0) return false;
  if (taken_back_) return true;
  StepBuffer& buffer = step_buffer(header.step);
  if (buffer.held || !fits(buffer, op, section)) return false;
  // First: what follows from the section tells it on.
  buffer.contributed |= header.count > 0 || (header.flags & kSectionContributed) != 0;
  if (lent) return note(buffer, op, section);
  // What was lent of it goes first.
  while (buffer.ops[op].noted > 0 && !taken_back_) {
    buffer.notes.round(UINT64_MAX, [&](LentNote& note, uint64_t all) {
      return note.op == op && read_note(buffer, note, all);
    });
  }
  if (taken_back_) return true;  // by now
  const uint64_t count = header.count;
  if (count == 0) {
    leave_out(buffer, op);
    return true;
  }
  RowValues values = {section.payload.data(), numbers_.of_bytes(count, section.payload.size())};
  if (placed) {
    const uint32_t to = wiring_.cells_of(op).to;
    values = {buffer.result.of(wiring_.cells()[to].range.first + buffer.done[to]),
              buffer.result.dtype};
  }
  bring(buffer, op, count, values, false);
  return true;
}

// A contribution may still say where the result is to come.
std::byte* DenseExchange::place_of(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  const StepBuffer& buffer = step_buffer(header.step);
  if (header.encoding != Encoding::kDense || header.count == 0 || taken_back_) return nullptr;
  if (buffer.held || !(beside_ || buffer.ended) || buffer.result.values == nullptr) return nullptr;
  if (numbers_.of_bytes(header.count, header.payload_bytes) != buffer.result.dtype) return nullptr;
  const uint32_t op = wiring_.find_receive(from, kGatherStage, header.first);
  if (op == ScheduleWiring::kNone || wiring_.ops()[op].kind != OpKind::kReceiveCopy ||
      buffer.ops[op].noted > 0 || !fits(buffer, op, section)) {
    return nullptr;
  }
  const uint32_t to = wiring_.cells_of(op).to;
  return buffer.result.of(wiring_.cells()[to].range.first + buffer.done[to]);
}

bool DenseExchange::fits(const StepBuffer& buffer, uint32_t i, const Section& section) const {
  const SectionHeader& header = section.header;
  const Op& op = wiring_.ops()[i];
  const OpState& state = buffer.ops[i];
  // The next of it, and no more than there is.
  const uint64_t came = state.done + state.noted;
  if (state.nothing || header.first != wiring_.on_wire(op) + came) return false;
  if (header.count > op.range.count - came) return false;
  // Elements that are not in the message: only where they were asked for.
  const bool placed = header.encoding == Encoding::kPlaced || section.in_place;
  const bool asked = state.area != 0 || state.open || section.in_place;
  if (placed && (!asked || header.count == 0 || !section.payload.empty())) return false;
  const size_t bytes = section.payload.size();
  if (header.encoding == Encoding::kLent) {
    if (bytes != sizeof(LentPart)) return false;
  } else if (placed) {
    if (header.payload_bytes != uint64_t{header.count} * buffer.result.element_bytes) return false;
  } else if (numbers_.of_bytes(header.count, bytes) == NarrowNumbers::kNoDtype) {
    return false;
  }
  const bool last = (header.flags & kSectionLast) != 0;
  if ((header.count == 0) != last || (last && came > 0)) return false;
  const uint32_t given_by = wiring_.cells()[wiring_.cells_of(i).to].given_by;
  if (op.kind == OpKind::kReceiveSum || given_by == ScheduleWiring::kNone) return true;
  const OpState& given = buffer.ops[given_by];
  if (given.nothing) return true;
  // As far as this rank's share has left; a sum to which it gave some is not nothing.
  const uint64_t waiting = given.queued == nullptr ? 0 : given.queued->count - given.queued->packed;
  return header.count > 0 && came + header.count <= given.done - waiting;
}

// The next elements of a receive, which fit. `lent`: the peer may have taken them back.
void DenseExchange::bring(StepBuffer& buffer, uint32_t i, uint64_t count, const RowValues& values,
                          bool lent) {
  const Op& op = wiring_.ops()[i];
  const uint32_t to = wiring_.cells_of(i).to;
  const bool copies = op.kind == OpKind::kReceiveCopy;
  if (copies) {
    buffer.result.put(wiring_.cells()[to].range.first + buffer.done[to], count, values);
  } else {
    const uint32_t back = wiring_.returned_by(i);
    if (values.dtype != dtype_ && back != ScheduleWiring::kNone) buffer.ops[back].narrow = true;
    // It has as many left: fits() counts the same elements.
    PARALLAX_CHECK(buffer.sums[to].add(op.turn, count, values));
  }
  if (lent && !outbox_.lending().was_meant(op.peer)) {
    taken_back_ = true;
    return;
  }
  buffer.ops[i].done += count;
  buffer.left -= count;
  if (!copies) return sum_moved(buffer, to);
  if (buffer.ops[i].done == op.range.count) end_offer(buffer, i);
  result_moved(buffer, to, count);
}

// More of this rank's elements are there, or no more come. Sends first here, too.
void DenseExchange::arrive(uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  const uint64_t until = buffer.arrival.from->count;
  for (const bool sends : {true, false}) {
    for (const uint32_t i : wiring_.inputs()) {
      const Op& op = wiring_.ops()[i];
      const ScheduleWiring::OpCells& cells = wiring_.cells_of(i);
      if ((op.kind == OpKind::kSend) != sends) continue;
      const auto of_range = [&](uint64_t elements) {
        return elements < cells.input ? 0 : std::min(elements - cells.input, op.range.count);
      };
      const uint64_t at = of_range(buffer.arrival.read), count = of_range(until) - at;
      if (count == 0) continue;
      const uint32_t dtype = buffer.input.dtype;
      const std::byte* values = buffer.input.rows + (cells.input + at) * bytes_of_dtype(dtype);
      if (sends) {
        read(buffer, i, at, count);
      } else if (op.kind == OpKind::kCopy) {
        write_result(buffer, cells.to, count, {values, dtype});
      } else {
        PARALLAX_CHECK(buffer.sums[cells.to].add(op.turn, count, {values, dtype}));
        sum_moved(buffer, cells.to);
      }
    }
  }
  buffer.arrival.read = until;
  if (!buffer.notes.empty()) outbox_.lending().wake(this, options_.priority);
  if (until < elements_ && !buffer.arrival.from->given_up) return;
  buffer.arrival.from->over = true;
  buffer.arrival.from = nullptr;
  --*buffer.pending;
}

}  // namespace parallax
