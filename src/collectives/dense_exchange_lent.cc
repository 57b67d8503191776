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

}  // namespace

// ---- lent to this rank

// False: not what that rank may lend.
bool DenseExchange::note(StepBuffer& buffer, uint32_t i, const Section& section) {
  const SectionHeader& header = section.header;
  LentNote note = {.op = i, .part = {}, .count = header.count};
  std::memcpy(&note.part, section.payload.data(), sizeof note.part);
  OpState& state = buffer.ops[i];
  // So that notes are few, whatever a peer sends.
  const bool ends = state.done + state.noted + header.count == wiring_.ops()[i].range.count;
  const uint64_t bytes = header.count * element_bytes_;
  Lending& lending = outbox_.lending();
  if (header.count == 0 || note.part.bytes != bytes) return false;
  if (bytes < lending.bytes_min() && !ends) return false;
  const uint32_t peer = wiring_.ops()[i].peer;
  if (lending.find(peer, note.part.place, bytes) == nullptr) {
    // It is gone, and this is the last of it; or else it lies.
    taken_back_ = !lending.was_meant(peer);
    return taken_back_;
  }
  state.noted += header.count;
  buffer.notes.add(note);
  lending.wake(this);
  return true;
}

// A turn: blocks of each loan that may be read now.
bool DenseExchange::read_lent() {
  const uint64_t block = kBlockBytes / element_bytes_;
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
  const uint64_t bytes = count * element_bytes_;
  const std::byte* const values = lending.find(peer, note.part.place, bytes);
  if (values == nullptr) {  // unmapped: its owner is gone
    taken_back_ = true;
    return false;
  }
  buffer.ops[note.op].noted -= count;
  note.count -= count;
  note.part.place.offset += bytes;
  bring(buffer, note.op, count, values, true);
  lending.count_read(bytes);
  if (note.count == 0 && !taken_back_) {
    outbox_.send_bytes(peer, {.kind = SectionKind::kLoanRead, .first = note.part.loan}, {});
  }
  return !taken_back_;
}

// ---- lent by this rank

// Where the elements of a send lie for who gets them: in a buffer that it reads, as they travel,
// and where a request is pending that keeps them as they are.
BufferPlace DenseExchange::lent_place(const StepBuffer& buffer, uint32_t i,
                                      const Send& send) const {
  const Op& op = wiring_.ops()[i];
  if (send.pending == nullptr || send.format.convert != nullptr ||
      send.count * element_bytes_ < outbox_.lending().bytes_min() || op.peer == columns_.rank()) {
    return {};
  }
  // Of all of the operation: what follows is added to the send while it is queued.
  const uint64_t before = (buffer.ops[i].done - send.count) * element_bytes_;
  BufferPlace place =
      outbox_.lending().place_for(op.peer, send.dense - before, op.range.count * element_bytes_);
  place.offset += before;
  return place;
}

// Sums that are copied into the caller's result are made there, where that is possible.
void DenseExchange::place_sums(StepBuffer& buffer, const Contribution& slice) {
  if (!buffer.placed || made_dense_) return;
  const ByteRange result = ByteRange::at(buffer.result, elements_ * element_bytes_);
  const ByteRange input =
      ByteRange::at(slice.elements.rows, elements_ * bytes_of_dtype(slice.elements.dtype));
  const bool in_place = buffer.result == slice.elements.rows;
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
    // Some of it may have come already: then it is copied.
    [[maybe_unused]] const bool placed =
        buffer.sums[cell].place(buffer.result + sum.range.first * element_bytes_);
  }
}

}  // namespace parallax
