// SPDX-License-Identifier: Apache-2.0
// CountingExchange: an exchange that also counts the ranks that gave a slice, for means over
// contributors that ranks get back before the step is decided. The count has nothing to do with how
// the gradient travels: it goes up the tree of rank 0 once a rank, and all below it, have given or
// ended the step, and comes down again; a word each way beside whatever else is sent.
#ifndef PARALLAX_COLLECTIVES_COUNTING_EXCHANGE_H_
#define PARALLAX_COLLECTIVES_COUNTING_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/exchange.h"
#include "message/outbox.h"
#include "world/patterns.h"

namespace parallax {

class CountingExchange final : public Exchange {
 public:
  // The references outlive it.
  CountingExchange(const Columns& columns, Outbox& outbox, uint32_t variable,
                   std::unique_ptr<Exchange> carrier);

  Status reserve() override { return carrier_->reserve(); }
  size_t needed_bytes() override { return carrier_->needed_bytes(); }
  const Arena& arena() const override { return carrier_->arena(); }
  void open(uint64_t step) override;
  void contribute(uint64_t step, const Contribution& slice, uint32_t* pending) override;
  void prefetch(uint64_t step) const override { carrier_->prefetch(step); }
  void prefetch_given(uint64_t step) const override { carrier_->prefetch_given(step); }
  void end(uint32_t from, uint64_t step) override;
  [[nodiscard]] bool on_section(uint32_t from, const Section& section) override;
  std::byte* place_of(uint32_t from, const Section& section) override {
    return carrier_->place_of(from, section);
  }
  ExchangeState state(uint64_t step) const override;
  MissingRanks missing(uint64_t step) const override;
  ReducedGradient owned(uint64_t step) const override { return carrier_->owned(step); }
  const RowIndex* owned_index(uint64_t step) override { return carrier_->owned_index(step); }
  ReducedGradient whole(uint64_t step) const override;
  ExchangeCounts counts(uint64_t step) const override { return carrier_->counts(step); }

 private:
  // Of one step.
  struct Round {
    uint32_t count = 0;     // of contributors, as far as this rank was told
    uint32_t reported = 0;  // children
    bool joined = false;    // this rank gave, or ended
    bool passed_on = false;
    bool answered = false;         // count is of all ranks
    std::vector<uint8_t> arrived;  // by child
  };

  Round& round(uint64_t step) { return rounds_[step & 1]; }
  const Round& round(uint64_t step) const { return rounds_[step & 1]; }
  void join(uint64_t step, bool gave);
  [[nodiscard]] bool on_report(uint32_t from, const SectionHeader& header);
  [[nodiscard]] bool on_answer(uint32_t from, const SectionHeader& header);
  void pass_on_if_complete(uint64_t step);
  void answer(uint64_t step, uint32_t count);
  void tell(uint32_t to, SectionKind kind, uint64_t step, uint32_t count);

  const Columns& columns_;
  Outbox& outbox_;
  const uint32_t variable_;
  const std::unique_ptr<Exchange> carrier_;
  const uint32_t parent_;
  const std::vector<uint32_t> children_;
  std::array<Round, 2> rounds_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_COUNTING_EXCHANGE_H_
