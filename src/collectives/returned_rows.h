// SPDX-License-Identifier: Apache-2.0
// ReturnedRows: the rows of a step's sum on their way back to every rank, and there: the union of
// what the owners have, or, where every host sums for itself, of what the leaders of the host's
// columns have. The last legs of an exchange of rows.
//
// Design notes. The way back is made of pieces, one of each owner or column. Sections of a piece
// come in order, each saying how many rows of it came before, so that one that comes twice, or of
// rows that are not its owner's, is refused. Whose piece has no rows says so in an empty section;
// or, where a census tells who sends at all (census.h), nothing.
//
// Two steps at a time, as in exchange.h, whose calls of the same names these are. Owned by the
// engine's owner.
#ifndef PARALLAX_COLLECTIVES_RETURNED_ROWS_H_
#define PARALLAX_COLLECTIVES_RETURNED_ROWS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aggregate/accumulator.h"
#include "base/arena.h"
#include "collectives/algorithms.h"
#include "collectives/census.h"
#include "collectives/exchange.h"
#include "collectives/host_rows.h"
#include "message/outbox.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

class ReturnedRows {
 public:
  // All references outlive it.
  ReturnedRows(const Columns& columns, const Partition& partition, const HostRows& host_rows,
               Outbox& outbox, const ExchangeOptions& options, ReturnTo to, bool by_census);
  ReturnedRows(const ReturnedRows&) = delete;
  ReturnedRows& operator=(const ReturnedRows&) = delete;

  void lay_out(Arena& arena);
  void open(uint64_t step);
  // What this rank has of the sum, complete; once in a step, and borrowed until it is over.
  void send(uint64_t step, const RowAccumulator& sum, bool contributed);
  // This rank sums nothing: its host's leaders still count with the others.
  void send_nothing(uint64_t step, bool contributed) { join(step, Census::kNoMark, contributed); }
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);

  bool delivered(uint64_t step) const {
    const StepBuffer& buffer = step_buffer(step);
    return buffer.pieces_left == 0 && buffer.answers_left == 0;
  }
  // Who keeps it from being delivered. Not sorted.
  MissingRanks missing(uint64_t step) const;

  // Once delivered.
  bool contributed(uint64_t step) const { return step_buffer(step).contributed; }
  uint32_t row_count(uint64_t step) const { return step_buffer(step).row_count; }
  const uint32_t* row_keys(uint64_t step) const { return step_buffer(step).row_keys.data(); }
  const std::byte* values(uint64_t step) const { return step_buffer(step).values.data(); }

 private:
  struct Piece {
    uint32_t rows = 0;  // that came
    bool whole = false;
  };
  struct StepBuffer {
    std::span<std::byte> values;
    std::span<uint32_t> row_keys;
    uint32_t row_count = 0;
    std::vector<Piece> pieces;
    uint32_t pieces_left = 0;
    uint32_t answers_left = 0;  // columns whose census has not said who sends a piece
    bool contributed = false;   // as far as this rank was told
  };

  StepBuffer& step_buffer(uint64_t step) { return step_buffers_[step & 1]; }
  const StepBuffer& step_buffer(uint64_t step) const { return step_buffers_[step & 1]; }
  void found_censuses();
  uint32_t piece_count() const;
  bool are_of_piece(uint32_t piece, const Section& section) const;
  uint32_t piece_sender(uint32_t piece, SectionKind kind) const;
  Send new_send(SectionKind kind, uint64_t step, uint8_t flags) const;
  void send_to_hosts(uint64_t step, Send send);
  void send_to_locals(const Send& send);
  void take_own(uint64_t step, const Send& send);
  void take_piece(StepBuffer& buffer, const SectionHeader& header, const std::byte* row_keys,
                  const std::byte* values);
  void join(uint64_t step, uint32_t mark, bool contributed);
  [[nodiscard]] bool on_census(uint32_t from, const Section& section);
  void take_answer(uint64_t step, const Census& census);
  [[nodiscard]] bool on_piece(uint32_t from, const Section& section);
  void pass_on(const StepBuffer& buffer, const SectionHeader& header, uint32_t first_row);

  const Columns& columns_;
  const Partition& partition_;
  const HostRows& host_rows_;
  Outbox& outbox_;
  const ExchangeOptions options_;
  const ReturnTo to_;
  const size_t row_bytes_;
  std::vector<uint32_t> pieces_due_;
  std::vector<Census> censuses_;  // by active column; empty: none are held
  std::array<StepBuffer, 2> step_buffers_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_RETURNED_ROWS_H_
