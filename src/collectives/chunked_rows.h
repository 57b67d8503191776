// SPDX-License-Identifier: Apache-2.0
// ChunkedRows: rows that the framework holds, summed a chunk at a time, so that what is staged for
// it is bounded by the chunk and not by rows_max (docs/adr/0110). A chunk is a range of row keys,
// all of them equally long; since row keys are scattered, chunks of a step have about as many rows
// each, and since they are disjoint, every row is summed as without chunks, bit for bit.
//
// Design notes. A rank coalesces its slice once, grouped by chunk. Then an exchange of the method,
// of a chunk's size, runs once for each chunk: a round, which is a step to that exchange. The rows
// that a round delivers are copied behind those of the rounds before it; of one that delivers
// elements (made_dense.h), the rows that somebody gave. So results are rows by whatever method.
//
// A rank takes part in a round, with rows or with a word that it has none, once all of the round
// before is over for it. So in a round that is over for anybody all ranks have taken part, for whom
// then the round before was over: nobody is more than one ahead of another, as it is of steps, and
// two rounds are open at a time. That takes a word from each rank in each round, so its end of the
// step is taken from that rank alone, which then says it round by round.
//
// Where nobody has given anything, which all know behind the first round, that is all of the step.
//
// Most rounds end with a section. One that this rank itself ends is taken in a turn (lending.h),
// lest a job of one rank go through all rounds in one call, each within the one before it.
//
// Engine's owner only, but for what a job of the compute pool has; nothing blocks.
#ifndef PARALLAX_COLLECTIVES_CHUNKED_ROWS_H_
#define PARALLAX_COLLECTIVES_CHUNKED_ROWS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "aggregate/row_coalescer.h"
#include "base/arena.h"
#include "base/compute.h"
#include "base/divisor.h"
#include "collectives/exchange.h"
#include "collectives/round_names.h"
#include "collectives/whole_rows.h"
#include "message/lending.h"
#include "message/outbox.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

class ChunkedRows final : public Exchange, private WholeRows::Runner, private LentReader {
 public:
  // By a method of rows that gives them back, in chunks of options.chunk_rows, fewer than there are
  // rows. All references outlive the exchange.
  ChunkedRows(const Columns& columns, const Partition& partition, Outbox& outbox, Compute& compute,
              const ExchangeOptions& options);
  ~ChunkedRows() override;
  ChunkedRows(const ChunkedRows&) = delete;
  ChunkedRows& operator=(const ChunkedRows&) = delete;

  // Of the exchange that runs for each chunk of so many rows.
  static ExchangeOptions options_of_chunk(ExchangeOptions options, uint64_t chunk_rows);

  Status reserve() override;
  size_t needed_bytes() override;
  const Arena& arena() const override { return arena_; }
  void open(uint64_t step) override;
  void contribute(uint64_t step, const Contribution& slice, uint32_t* pending) override;
  void end(uint32_t from, uint64_t step) override;
  [[nodiscard]] bool on_section(uint32_t from, const Section& section) override;
  std::byte* place_of(uint32_t from, const Section& section) override;
  ExchangeState state(uint64_t step) const override;
  MissingRanks missing(uint64_t step) const override;
  ReducedGradient owned(uint64_t step) const override;
  ReducedGradient whole(uint64_t step) const override;
  ExchangeCounts counts(uint64_t step) const override { return step_buffer(step).counts; }

 private:
  // What this rank does in a step.
  enum class Gives : uint8_t { kUnknown, kRows, kNothing };
  struct StepBuffer {
    uint64_t step = 0;
    ChunkedRows* exchange = nullptr;
    Gives gives = Gives::kUnknown;
    // This rank's slice: a block, and where in its items each chunk begins.
    std::span<std::byte> block;
    std::span<uint32_t> chunk_first;
    uint32_t block_rows = 0;
    ComputeJob job;
    RowSlice first, more;
    uint32_t* pending = nullptr;
    bool coalescing = false;
    uint32_t round_pending = 0;  // sends of rounds, which read memory of theirs
    // What has been delivered.
    std::span<std::byte> values;
    std::span<uint32_t> row_keys;
    uint32_t row_count = 0;
    bool contributed = false;
    bool over = false;
    ExchangeCounts counts;
  };

  StepBuffer& step_buffer(uint64_t step) { return step_buffers_[step & 1]; }
  const StepBuffer& step_buffer(uint64_t step) const { return step_buffers_[step & 1]; }
  // The chunk's first row key.
  uint32_t base_of(uint32_t chunk) const { return chunk * divisor_.value(); }
  void lay_out(Arena& arena);
  void coalesce(StepBuffer& buffer);
  void take_part();
  bool is_over(uint64_t round) const;
  [[nodiscard]] bool find_round(const SectionHeader& header, uint64_t* round,
                                uint32_t* chunk) const;
  bool fits_chunk(const Section& section, uint32_t chunk) const;
  void on_moved() override;
  bool read_lent() override;
  [[nodiscard]] bool take_round();
  [[nodiscard]] bool take_rows(const ReducedGradient& round, StepBuffer& buffer) const;
  [[nodiscard]] bool take_elements(const ReducedGradient& round, StepBuffer& buffer) const;
  void next_round();

  const Columns& columns_;
  const Partition& partition_;
  Lending& lending_;
  Compute& compute_;
  const ExchangeOptions options_;
  const size_t row_bytes_;
  const Divisor divisor_;  // by the rows of a chunk
  const uint32_t chunk_count_;
  const Partition chunk_partition_;
  RoundNames names_;
  const std::unique_ptr<WholeRows> rounds_;
  RowCoalescer coalescer_;
  Arena arena_;
  std::array<StepBuffer, 2> step_buffers_;
  // The round that is under way: its number, which of which step it is, and whether this rank has
  // its part in it.
  uint64_t round_ = 0;
  uint64_t step_ = 0;
  uint32_t chunk_ = 0;
  bool takes_part_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_CHUNKED_ROWS_H_
