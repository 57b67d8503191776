// SPDX-License-Identifier: Apache-2.0
// RowExchange: one variable's gradient as rows, by one of the algorithms of rows: summed inside
// each host (host_rows.h), then over the hosts at the reducer (the owner, or the leader where every
// host sums for itself), and, for replicated methods, back to every rank.
//
// Nobody waits for rows that do not come. Among few hosts who has none says so, in an empty last
// section. Among many a census tells (census.h): of what goes to owners, that all of it has arrived
// everywhere, since most hosts have rows for some owners alone; of what goes to every host, who
// sends at all. Then no section between hosts is empty.
#ifndef PARALLAX_COLLECTIVES_ROW_EXCHANGE_H_
#define PARALLAX_COLLECTIVES_ROW_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "aggregate/accumulator.h"
#include "base/arena.h"
#include "base/compute.h"
#include "collectives/algorithms.h"
#include "collectives/census.h"
#include "collectives/exchange.h"
#include "collectives/host_rows.h"
#include "collectives/returned_rows.h"
#include "collectives/row_intake.h"
#include "collectives/whole_rows.h"
#include "message/outbox.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

class RowExchange final : public WholeRows, private HostRows::User {
 public:
  // All references outlive the exchange.
  RowExchange(const Columns& columns, const Partition& partition, Outbox& outbox, Compute& compute,
              const ExchangeOptions& options, const RowAlgorithm& algorithm);
  RowExchange(const RowExchange&) = delete;
  RowExchange& operator=(const RowExchange&) = delete;

  void lay_out(Arena& arena) override;
  Status reserve_scratch() override;
  void open(uint64_t step) override;
  void contribute(uint64_t step, const Contribution& slice, uint32_t* pending) override;
  void prefetch(uint64_t step) const override;
  void prefetch_given(uint64_t step) const override;
  bool holds(uint64_t step) const override { return host_rows_.holds(step); }
  bool settle(uint64_t step, bool stay) override { return host_rows_.settle(step, stay); }
  void end(uint32_t from, uint64_t step) override;
  [[nodiscard]] bool on_section(uint32_t from, const Section& section) override;
  ExchangeState state(uint64_t step) const override;
  MissingRanks missing(uint64_t step) const override;
  ReducedGradient owned(uint64_t step) const override;
  const RowIndex* owned_index(uint64_t step) override {
    return reduces_ && !one_host_ ? &step_buffer(step).total.index() : nullptr;
  }
  ReducedGradient whole(uint64_t step) const override;
  ExchangeCounts counts(uint64_t step) const override;

 private:
  struct StepBuffer {
    uint64_t step = 0;
    // leader: its host's rows as they are sent, by owner or as they came
    std::span<uint32_t> items, row_keys, offsets;
    bool forwarded = false;
    uint32_t rows_forwarded = 0;   // of its host's sum
    std::span<uint8_t> unarrived;  // by owner of the column: it has not said that its rows are here
    uint32_t unarrived_count = 0;
    // reducer: the sum over hosts, if there are several
    RowAccumulator total;
    bool returned = false;
    bool contributed = false;  // as far as this rank was told
  };

  StepBuffer& step_buffer(uint64_t step) { return step_buffers_[step & 1]; }
  const StepBuffer& step_buffer(uint64_t step) const { return step_buffers_[step & 1]; }
  const RowAccumulator& total(const StepBuffer& buffer) const {
    return one_host_ ? host_rows_.sum(buffer.step) : buffer.total;
  }
  void found_census();
  [[nodiscard]] bool on_host_reduce(uint32_t from, const Section& section);
  [[nodiscard]] bool on_arrived(uint32_t from, const Section& section);
  [[nodiscard]] bool on_census(uint32_t from, const Section& section);
  void on_host_sum(uint64_t step) override { forward_if_complete(step_buffer(step)); }
  void on_host_rows(uint64_t step) override;
  void forward_if_complete(StepBuffer& buffer);
  void forward(StepBuffer& buffer);
  SectionCoding coding_to(uint32_t rank) const;
  void forward_to_owners(StepBuffer& buffer);
  void add_send(uint32_t owner, Send send);
  void send_to_owner(uint32_t owner, Send send, std::span<uint32_t> row_keys,
                     std::span<uint32_t> items);
  void forward_to_hosts(StepBuffer& buffer);
  void join(StepBuffer& buffer, uint32_t mark);
  void take_answer(StepBuffer& buffer);
  void return_if_complete(StepBuffer& buffer);
  Send new_send(const StepBuffer& buffer) const;
  void add_late_hosts(const StepBuffer& buffer, MissingRanks* missing) const;
  std::vector<uint32_t> missing_to_tell(const StepBuffer& buffer) const;

  const Columns& columns_;
  const Partition& partition_;
  Outbox& outbox_;
  const ExchangeOptions options_;
  const RowAlgorithm& algorithm_;
  const size_t row_bytes_;
  // Then the leaders' sums are the owners', who they are: nothing is left to be summed over hosts.
  const bool one_host_;
  HostRows host_rows_;
  const bool by_census_;
  // A step may be decided before owners have all rows.
  const bool hands_on_;
  RowIntake intake_;
  ReturnedRows returned_;
  bool reduces_ = false;  // this rank sums over hosts
  // Of that sum, what its own host gives stays in that one's, and is not sent to itself.
  bool takes_own_ = false;
  // And what another gives comes table by table, as of two hosts. Of more, all tables of one come
  // before those of the next: who came back to a table would have lost the scratch.
  bool table_by_table_ = false;
  std::vector<uint32_t> sources_;  // of that sum, in its order: a leader of each host
  std::optional<Census> census_;   // of its column, where this rank has a part in it
  std::array<StepBuffer, 2> step_buffers_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_ROW_EXCHANGE_H_
