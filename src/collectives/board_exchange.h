// SPDX-License-Identifier: Apache-2.0
// BoardExchange: the gradient of a small variable among ranks of one host, each of which writes its
// slice on its board (entries.h) and sums all of them for itself: `oneshot` without messages. A
// rank that gives nothing says so there. Of framework-held variables without row ids.
//
// Sums are made in the order of ranks once the last entry is there, straight into the caller's
// result: as bits, those of any other schedule in order. The caller's slice is read when it is
// given, and never again.
#ifndef PARALLAX_COLLECTIVES_BOARD_EXCHANGE_H_
#define PARALLAX_COLLECTIVES_BOARD_EXCHANGE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/arena.h"
#include "collectives/entries.h"
#include "collectives/exchange.h"

namespace parallax {

class BoardExchange final : public Exchange, private EntryReader {
 public:
  // The entries outlive the exchange; `place` holds `elements` of the sum's type.
  BoardExchange(const Columns& columns, const Partition& partition, Entries& entries,
                const EntryPlace& place, const ExchangeOptions& options);
  BoardExchange(const BoardExchange&) = delete;
  BoardExchange& operator=(const BoardExchange&) = delete;
  ~BoardExchange() override { entries_.forget(this); }

  Status reserve() override;
  size_t needed_bytes() override;
  const Arena& arena() const override { return arena_; }
  void open(uint64_t step) override;
  void contribute(uint64_t step, const Contribution& slice, uint32_t* pending) override;
  void end(uint32_t from, uint64_t step) override;
  [[nodiscard]] bool on_section(uint32_t, const Section&) override { return false; }
  ExchangeState state(uint64_t step) const override {
    const StepBuffer& buffer = step_buffer(step);
    // Of the sum this rank owns nothing, so nobody waits for it with a vote.
    return {.contributed = true, .reduced = buffer.ended, .delivered = buffer.delivered};
  }
  MissingRanks missing(uint64_t step) const override;
  ReducedGradient owned(uint64_t) const override { return {}; }
  ReducedGradient whole(uint64_t step) const override;
  ExchangeCounts counts(uint64_t) const override { return {}; }

 private:
  struct StepBuffer {
    uint64_t step = 0;
    bool ended = false;  // this rank has said what it gives
    bool contributed = false;
    bool delivered = false;
    uint32_t next = 0;     // the first rank, in their order, of which nothing is known
    uint32_t addends = 0;  // of those before it
    std::array<const std::byte*, kEntryRanksMax> from = {};
    std::byte* result = nullptr;  // own_result, or the caller's
    std::span<std::byte> own_result;
  };

  StepBuffer& step_buffer(uint64_t step) { return step_buffers_[step & 1]; }
  const StepBuffer& step_buffer(uint64_t step) const { return step_buffers_[step & 1]; }
  News read_entries() override;
  bool read(StepBuffer& buffer);
  void lay_out(Arena& arena);

  const uint32_t rank_, world_;
  const uint64_t elements_, row_elements_;
  const uint32_t dtype_;  // the sum's
  const size_t element_bytes_;
  const SumType sum_;
  Entries& entries_;
  const EntryPlace place_;
  Arena arena_;
  std::array<StepBuffer, 2> step_buffers_;
  bool awaits_ = false;  // it is known to the entries as a reader
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_BOARD_EXCHANGE_H_
