// SPDX-License-Identifier: Apache-2.0
// RowExchange: one variable's gradient as rows, by one of the algorithms of rows: summed inside
// each host (host_rows.h), then over the hosts at the reducer (the owner, or the leader where every
// host sums for itself), and, for replicated methods, back to every rank.
//
// Design notes. The way back is made of pieces: what one owner has of the sum, or, where every host
// sums for itself, one column's leader. Sections of a piece come in order, each saying how many
// rows of it came before, so that one that comes twice, or of rows that are not its owner's, is
// refused.
#ifndef PARALLAX_COLLECTIVES_ROW_EXCHANGE_H_
#define PARALLAX_COLLECTIVES_ROW_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "aggregate/accumulator.h"
#include "base/arena.h"
#include "base/compute.h"
#include "collectives/algorithms.h"
#include "collectives/exchange.h"
#include "collectives/host_rows.h"
#include "message/outbox.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

class RowExchange final : public Exchange {
 public:
  // All references outlive the exchange.
  RowExchange(const Columns& columns, const Partition& partition, Outbox& outbox, Compute& compute,
              const ExchangeOptions& options, const RowAlgorithm& algorithm);
  RowExchange(const RowExchange&) = delete;
  RowExchange& operator=(const RowExchange&) = delete;

  Status reserve() override;
  size_t needed_bytes() override;
  const Arena& arena() const override { return arena_; }
  void open(uint64_t step) override;
  void contribute(uint64_t step, const Contribution& slice, uint32_t* pending) override;
  void end(uint32_t from, uint64_t step) override;
  [[nodiscard]] bool on_section(uint32_t from, const Section& section) override;
  ExchangeState state(uint64_t step) const override;
  MissingRanks missing(uint64_t step) const override;
  ReducedGradient owned(uint64_t step) const override;
  ReducedGradient whole(uint64_t step) const override;
  ExchangeCounts counts(uint64_t step) const override;

 private:
  struct Piece {
    uint32_t rows = 0;  // that came
    bool whole = false;
  };
  struct StepBuffer {
    uint64_t step = 0;
    // leader: its host's rows by owner
    std::span<uint32_t> items, row_keys, offsets;
    bool forwarded = false;
    // reducer: the sum over hosts
    RowAccumulator total;
    bool returned = false;
    // result
    std::span<std::byte> values;
    std::span<uint32_t> value_row_keys;
    uint32_t row_count = 0;
    std::vector<Piece> pieces;
    uint32_t pieces_left = 0;
    bool contributed = false;  // as far as this rank was told
  };

  StepBuffer& step_buffer(uint64_t step) { return step_buffers_[step & 1]; }
  const StepBuffer& step_buffer(uint64_t step) const { return step_buffers_[step & 1]; }
  void lay_out(Arena& arena);
  void lay_out_total(Arena& arena, StepBuffer& buffer);
  uint32_t piece_count() const;
  bool in_piece(uint32_t piece, uint32_t row_key) const;
  uint32_t piece_sender(uint32_t piece, SectionKind kind) const;
  [[nodiscard]] bool on_host_reduce(uint32_t from, const Section& section);
  [[nodiscard]] bool on_piece(uint32_t from, const Section& section);
  void forward_if_complete(StepBuffer& buffer);
  void forward_to_owners(StepBuffer& buffer);
  void forward_to_hosts(StepBuffer& buffer);
  void return_if_complete(StepBuffer& buffer);
  void pass_on(StepBuffer& buffer, const SectionHeader& header, uint32_t first_row);
  Send new_send(SectionKind kind, const StepBuffer& buffer, bool last) const;
  ReducedGradient of_rows(const StepBuffer& buffer) const;

  const Columns& columns_;
  const Partition& partition_;
  Outbox& outbox_;
  const ExchangeOptions options_;
  const RowAlgorithm& algorithm_;
  const size_t row_bytes_;
  HostRows host_rows_;
  bool reduces_ = false;           // this rank sums over hosts
  std::vector<uint32_t> sources_;  // of that sum, in its order: a leader of each host
  std::vector<uint32_t> pieces_due_;
  Arena arena_;
  std::array<StepBuffer, 2> step_buffers_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_ROW_EXCHANGE_H_
