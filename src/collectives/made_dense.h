// SPDX-License-Identifier: Apache-2.0
// MadeDense: rows in, elements over the wire, elements out. An adapter: the rows of a host are
// summed as everywhere (host_rows.h), a leader writes its host's into elements, and a dense
// exchange whose contributors are hosts does the rest. Rows that nobody contributed hold kNoRow.
#ifndef PARALLAX_COLLECTIVES_MADE_DENSE_H_
#define PARALLAX_COLLECTIVES_MADE_DENSE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/arena.h"
#include "base/compute.h"
#include "collectives/dense_exchange.h"
#include "collectives/exchange.h"
#include "collectives/host_rows.h"
#include "collectives/whole_rows.h"
#include "message/outbox.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

class MadeDense final : public WholeRows, private HostRows::User {
 public:
  // All references outlive the exchange.
  MadeDense(const Columns& columns, const Partition& partition, Outbox& outbox, Compute& compute,
            const ExchangeOptions& options);
  MadeDense(const MadeDense&) = delete;
  MadeDense& operator=(const MadeDense&) = delete;

  void lay_out(Arena& arena) override;
  void open(uint64_t step) override;
  void contribute(uint64_t step, const Contribution& slice, uint32_t* pending) override;
  void prefetch(uint64_t step) const override { host_rows_.prefetch(step); }
  void end(uint32_t from, uint64_t step) override;
  [[nodiscard]] bool on_section(uint32_t from, const Section& section) override;
  std::byte* place_of(uint32_t from, const Section& section) override {
    return dense_.place_of(from, section);
  }
  ExchangeState state(uint64_t step) const override;
  MissingRanks missing(uint64_t step) const override;
  ReducedGradient owned(uint64_t step) const override { return dense_.owned(step); }
  ReducedGradient whole(uint64_t step) const override { return dense_.whole(step); }
  ExchangeCounts counts(uint64_t step) const override;

 private:
  struct StepBuffer {
    std::span<std::byte> elements;  // of the leader's column
    bool forwarded = false;
  };

  StepBuffer& step_buffer(uint64_t step) { return step_buffers_[step & 1]; }
  static ExchangeOptions options_of_host(ExchangeOptions options) {
    options.rows_stay = false;
    return options;
  }
  void scatter(uint64_t step);
  void on_host_sum(uint64_t step) override { forward_if_complete(step); }
  void forward_if_complete(uint64_t step);

  const Partition& partition_;
  const SumType sum_;
  HostRows host_rows_;
  DenseExchange dense_;
  // Of the owners of this leader's column: the first row key of each, and where its rows begin
  // among the rows of the column. Ascending.
  struct ColumnRange {
    uint64_t first_row_key;
    uint64_t row;
  };
  std::vector<ColumnRange> ranges_;
  std::array<StepBuffer, 2> step_buffers_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_MADE_DENSE_H_
