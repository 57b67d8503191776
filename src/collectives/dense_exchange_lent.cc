// SPDX-License-Identifier: Apache-2.0
// What others lend this rank, in turns; and what it lends them. See dense_exchange.h.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "collectives/dense_exchange.h"

namespace parallax {

namespace {

// Read at a time of one loan, and in one turn of each: a block of all addends and the sum fits a
// core's cache; a turn is about 100 us.
constexpr uint64_t kBlockBytes = 64 * 1024;
constexpr int kBlocksInTurn = 8;

// Of what is borrowed, which may be nothing that is known, what lies beside these bytes of it.
Lending::Beside beside(const ByteRange& borrowed, const std::byte* data, uint64_t bytes) {
  if (borrowed.bytes == 0) return {};
  const auto first = reinterpret_cast<uintptr_t>(data);
  return {.before = first - borrowed.first,
          .behind = borrowed.first + borrowed.bytes - first - bytes};
}

}  // namespace

// ---- lent to this rank

// False: not what that rank may lend.
bool DenseExchange::note(StepBuffer& buffer, uint32_t i, const Section& section) {
  const SectionHeader& header = section.header;
  LentNote note = {.op = i, .part = {}, .count = header.count, .dtype = dtype_};
  std::memcpy(&note.part, section.payload.data(), sizeof note.part);
  OpState& state = buffer.ops[i];
  // So that notes are few, whatever a peer sends.
  const bool ends = state.done + state.noted + header.count == wiring_.ops()[i].range.count;
  const uint64_t bytes = note.part.bytes;
  note.dtype = numbers_.of_bytes(header.count, bytes);
  Lending& lending = outbox_.lending();
  if (header.count == 0 || note.dtype == NarrowNumbers::kNoDtype) return false;
  if (bytes < lending.bytes_min(note.part.returns.any()) && !ends) return false;
  const uint32_t peer = wiring_.ops()[i].peer;
  if (lending.find(peer, note.part.place, bytes) == nullptr) {
    // It is gone, and this is the last of it; or else it lies.
    taken_back_ = !lending.was_meant(peer);
    return taken_back_;
  }
  const WholePages& returns = note.part.returns;
  if (returns.first > returns.end || returns.end > bytes) return false;
  if (returns.any()) {
    // The peer lets this rank write there: of all of it, and where that is possible.
    const uint32_t back = wiring_.returned_by(i);
    if (back == ScheduleWiring::kNone || header.count != wiring_.ops()[i].range.count ||
        buffer.ops[back].done > 0 || buffer.ops[back].nothing ||
        lending.find_writable(peer, note.part.place, bytes) == nullptr) {
      return false;
    }
    buffer.ops[back].narrow = note.dtype != dtype_;
    buffer.ops[back].over = note.part.place;
    buffer.ops[back].loan = note.part.loan;
    buffer.ops[back].returns = returns;
  }
  state.noted += header.count;
  buffer.notes.add(note);
  lending.wake(this, options_.priority);
  return true;
}

// A turn: blocks of each loan that may be read now.
bool DenseExchange::read_lent() {
  const uint64_t block = kBlockBytes / element_bytes_;  // narrow ones are sums then
  bool more = false;
  for (StepBuffer& buffer : step_buffers_) {
    bool any = !buffer.notes.empty();
    for (int i = 0; i < kBlocksInTurn && any; ++i) {
      any = buffer.notes.round(block, [&](LentNote& note, uint64_t count) {
        const bool addend = wiring_.ops()[note.op].kind == OpKind::kReceiveSum;
        return (!addend || !defers_ || buffer.ended) && read_note(buffer, note, count);
      });
    }
    more |= any && !buffer.notes.empty();
  }
  return more;
}

// The next elements of a loan. False: none may be read any more.
bool DenseExchange::read_note(StepBuffer& buffer, LentNote& note, uint64_t count) {
  if (taken_back_) return false;
  Lending& lending = outbox_.lending();
  const uint32_t peer = wiring_.ops()[note.op].peer;
  const uint64_t bytes = count * bytes_of_dtype(note.dtype);
  const std::byte* const values = lending.find(peer, note.part.place, bytes);
  if (values == nullptr) {  // unmapped: its owner is gone
    taken_back_ = true;
    return false;
  }
  buffer.ops[note.op].noted -= count;
  note.count -= count;
  note.part.place.offset += bytes;
  bring(buffer, note.op, count, {values, note.dtype}, true);
  lending.count_read(bytes);
  // Where its total is written, that ends it.
  if (note.count == 0 && !note.part.returns.any() && !taken_back_) {
    outbox_.send_bytes(peer, {.kind = SectionKind::kLoanRead, .first = note.part.loan}, {});
  }
  return !taken_back_;
}

// ---- totals that go back to where their addends lay

// The next elements of a total, which are in the cache. What shares a page with others goes in
// messages.
void DenseExchange::send_over(StepBuffer& buffer, uint32_t i, uint64_t at, uint64_t count,
                              const std::byte* values) {
  const Op& op = wiring_.ops()[i];
  const OpState& state = buffer.ops[i];
  Lending& lending = outbox_.lending();
  const uint32_t dtype = state.narrow ? numbers_.narrow : dtype_;
  const size_t there_bytes = bytes_of_dtype(dtype);
  // Elements that lie in these pages alone: they need not be aligned to their own size.
  const uint64_t first = (state.returns.first + there_bytes - 1) / there_bytes;
  const uint64_t end = state.returns.end / there_bytes;
  for (uint64_t now = 0; count > 0; at += now, count -= now, values += now * element_bytes_) {
    const bool written = at >= first && at < end;
    now = std::min(count, (at < first ? first : written ? end : op.range.count) - at);
    if (!written) {
      Send send = new_send(buffer, i, at, now);
      send.dense = values;
      // They stay: the sum's until the step after the next, or the caller's as long as it waits.
      send.pending = buffer.pending;
      if (send.pending != nullptr) ++*send.pending;
      outbox_.add(op.peer, send);
      continue;
    }
    BufferPlace place = state.over;
    place.offset += at * there_bytes;
    const uint64_t bytes = now * there_bytes;
    std::byte* const there = lending.find_writable(op.peer, place, bytes);
    if (there == nullptr || !lending.was_meant(op.peer)) {  // it must not any more
      taken_back_ = true;
      return;
    }
    convert_or_copy(converter(dtype_, dtype), values, there, now, there_bytes);
    lending.count_written(bytes);
    if (at + now < end) continue;
    Send send = new_send(buffer, i, first, end - first);
    send.written = true;
    outbox_.add(op.peer, send);
  }
  if (state.done < op.range.count) return;
  outbox_.send_bytes(op.peer, {.kind = SectionKind::kLoanRead, .first = state.loan}, {});
}

// ---- lent by this rank

// Has elements read where they lie for who gets them, and the total written over them, where that
// is possible.
void DenseExchange::lend(StepBuffer& buffer, uint32_t i, Send& send) {
  const Op& op = wiring_.ops()[i];
  const Lending& lending = outbox_.lending();
  const uint64_t element_bytes = send.format.element_bytes;
  const uint64_t bytes = send.count * element_bytes;
  // As they travel, in a buffer that it reads, with a request pending that keeps them as they are.
  if (send.pending == nullptr || send.format.convert != nullptr || op.peer == columns_.rank() ||
      bytes < lending.bytes_min(true)) {
    return;
  }
  // Of all of the operation: what follows is added to the send while it is queued.
  const uint64_t before = (buffer.ops[i].done - send.count) * element_bytes;
  BufferPlace place =
      lending.place_for(op.peer, send.dense - before, op.range.count * element_bytes);
  if (place.buffer == 0) return;
  place.offset += before;
  // Where its place is the total's too, and nothing else reads it there.
  const uint32_t back = wiring_.returned_by(i);
  if (op.from == kInput && back != ScheduleWiring::kNone && buffer.result.callers && !made_dense_ &&
      send.count == op.range.count && send.count <= UINT32_MAX &&
      buffer.result.element_bytes == element_bytes &&
      send.dense == buffer.result.of(op.range.first)) {
    send.returns = lending.whole_pages(place, bytes, beside(buffer.borrowed, send.dense, bytes));
  }
  if (!send.returns.any() && bytes < lending.bytes_min(false)) return;
  send.lent = place;
  if (send.returns.any()) buffer.ops[back].open = true;
}

// Sums that are copied into the caller's result are made there, where that is possible.
void DenseExchange::place_sums(StepBuffer& buffer, const Contribution& slice) {
  if (!buffer.result.callers || made_dense_ || buffer.result.dtype != dtype_) return;
  const ByteRange result = ByteRange::at(buffer.result.values, elements_ * element_bytes_);
  const ByteRange input =
      ByteRange::at(slice.elements.rows, elements_ * bytes_of_dtype(slice.elements.dtype));
  const bool in_place = buffer.result.values == slice.elements.rows;
  if (!in_place && result.overlaps(input)) return;
  // In place the sum is made over one of its addends.
  if (in_place &&
      (ordered_ || combine_ != Combine::kSum || !slice.lasting || slice.elements.dtype != dtype_)) {
    return;
  }
  for (uint32_t cell = 0; cell < wiring_.sum_cells(); ++cell) {
    const ScheduleWiring::Cell& sum = wiring_.cells()[cell];
    const bool copied = std::any_of(
        sum.readers.begin(), sum.readers.end(),
        [this](uint32_t reader) { return wiring_.ops()[reader].kind == OpKind::kCopy; });
    if (!copied || (in_place && !wiring_.alone_reads_input(cell))) continue;
    std::byte* const there = buffer.result.of(sum.range.first);
    if (in_place) {
      buffer.sums[cell].place_over_lent(there);
    } else {
      buffer.sums[cell].place(there);
    }
  }
}

}  // namespace parallax
