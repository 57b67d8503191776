// SPDX-License-Identifier: Apache-2.0
// HostRows: a variable's rows inside one host. Each rank coalesces its slice into a block of
// memory, its rows grouped by column; the leader of a column sums the rows of its host that belong
// there (column_sum.h). The first leg of every exchange of rows, whatever follows. Where ranks lie
// in several NUMA nodes, and sums need no order, those of a node are summed in it before they go to
// leaders in others (world/domain_columns.h).
//
// Who sums rows and has the block mapped (host_staging.h) is told where it lies, in a note; any
// other is sent its rows out of the block; this rank itself is given them without a message. Where
// `rows_stay` of the options, a row that one rank alone gave is not even copied: the leader's sum
// names the place where it lies in that rank's block, as it does of all rows where the rank is
// alone on its host. What is summed for a node is copied: it is sent, and who has given it may be
// gone by then.
//
// Values that are still on their way (Contribution::arriving) are coalesced as they come. Where
// this rank is alone on its host, and there are others, its sum has each row once nothing is to be
// added to it any more (host_rows_arriving.cc).
//
// Two steps at a time, as in exchange.h, whose calls of the same names these are. Owned by the
// engine's owner; the only work that runs elsewhere is coalescing a slice, as a compute job.
#ifndef PARALLAX_COLLECTIVES_HOST_ROWS_H_
#define PARALLAX_COLLECTIVES_HOST_ROWS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "aggregate/accumulator.h"
#include "aggregate/row_coalescer.h"
#include "base/arena.h"
#include "base/compute.h"
#include "collectives/column_sum.h"
#include "collectives/exchange.h"
#include "collectives/host_staging.h"
#include "collectives/row_columns.h"
#include "collectives/staged_notes.h"
#include "message/outbox.h"
#include "variable/partition.h"
#include "world/domain_columns.h"
#include "world/patterns.h"

namespace parallax {

class HostRows final : private LentReader {
 public:
  class User {
   public:
    // A sum is complete: read in turns, or as it came, or within contribute().
    virtual void on_host_sum(uint64_t step) = 0;
    // One that is not has more rows, and those that it has are as they will be.
    virtual void on_host_rows(uint64_t step) { static_cast<void>(step); }

   protected:
    ~User() = default;
  };
  using Owners = RowColumns::Owners;

  // All references outlive it.
  HostRows(const Columns& columns, const Partition& partition, Outbox& outbox, Compute& compute,
           const ExchangeOptions& options, Owners owners, User& user);
  ~HostRows();
  HostRows(const HostRows&) = delete;
  HostRows& operator=(const HostRows&) = delete;

  // Of the block of a variable's slice.
  static uint64_t block_bytes(const Partition& partition, uint64_t rows_max, SumType sum);

  void lay_out(Arena& arena);
  void open(uint64_t step);
  void contribute(uint64_t step, const Contribution& slice, uint32_t* pending);
  // As Exchange has them.
  void prefetch(uint64_t step) const;
  std::span<const std::byte> block(uint64_t step) const { return step_buffer(step).block; }
  bool holds(uint64_t step) const { return step_buffer(step).held; }
  bool settle(uint64_t step, bool stay);
  void end(uint32_t from, uint64_t step);
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);

  // This rank sums its host's rows of its column.
  bool leads() const { return leads_; }
  // The slice is coalesced and may be sent.
  bool sendable(uint64_t step) const {
    return !step_buffer(step).coalescing && !step_buffer(step).held;
  }
  // Somebody of this host gave a slice, if only one without rows; as far as this rank was told.
  bool contributed(uint64_t step) const { return step_buffer(step).own.contributed(); }
  // Only where leads(). Complete: every rank of the host has sent all or ended the step.
  const RowAccumulator& sum(uint64_t step) const { return step_buffer(step).own.rows(); }
  // What is summed here for leaders in other domains is all here, and on its way to them.
  bool summed(uint64_t step) const;
  // Distinct rows of each rank that gives this one its own, added up: over the host, of each rank.
  uint64_t given_rows(uint64_t step) const;
  // Ranks of the host that have not given all; else those that sum a domain and have not sent it.
  MissingRanks missing(uint64_t step) const;
  // The most that any of the sums here has.
  uint64_t sum_rows_max() const;

  const RowColumns& row_columns() const { return row_columns_; }
  // The most rows that a host, or the ranks of one, can send of those of this rank's column.
  uint64_t column_rows() const { return row_columns_.rows_of(columns_.my_column()); }
  // Those with an active owner, ascending.
  const std::vector<uint32_t>& active_columns() const { return active_columns_; }
  // Active owners of a column on this host, but for the column's leader: where hosts have different
  // numbers of ranks.
  std::vector<uint32_t> owners_beside_leader(uint32_t column) const;

 private:
  // A slice whose values come front to back: so many of its rows are here, and so many of these the
  // coalescer has, or a job is giving it.
  struct Arrival {
    ArrivingElements* from = nullptr;  // null: no more come
    uint32_t here = 0, added = 0;
    uint32_t until = 0;   // of the job
    uint32_t ready = 0;   // distinct rows that are whole
    uint32_t joined = 0;  // of them those that the sum has
    bool started = false;
    bool adding = false;    // a job is
    bool given_up = false;  // some do not come
  };
  struct StepBuffer {
    uint64_t step = 0;
    HostRows* host_rows = nullptr;
    std::span<std::byte> block;
    std::span<StagedNote> notes;  // by column: to its leader, of another rank
    ComputeJob job;
    RowSlice first, more;
    std::span<const RowSlice> parts;  // in place of these
    Contribution::Parts which_parts = Contribution::Parts::kAll;
    bool in_parts = false;                // some have come
    DistinctRows distinct;                // likewise
    const CoalescedIds* found = nullptr;  // has the ids of the slice, and is read by a job at once
    Arrival arrival;
    uint32_t* pending = nullptr;
    bool coalescing = false;
    bool in_place = false;  // rows that come once are read in the slice
    bool held = false;      // and it is not said yet that they stay there
    uint32_t rows_in_slice() const { return in_place ? first.count : 0; }
    uint64_t row_count() const {
      uint64_t rows = more.count + distinct.count;
      for (const RowSlice& each : all()) rows += each.count;
      return rows;
    }
    std::span<const RowSlice> all() const { return parts.empty() ? std::span(&first, 1) : parts; }
    ColumnSum own;                     // of a leader
    std::vector<ColumnSum> of_domain;  // of columns that others lead
  };
  using Turn = ColumnSum::Turn;
  // Read in a turn: some 50 us.
  static constexpr uint64_t kTurnBytes = 512 * 1024;

  StepBuffer& step_buffer(uint64_t step) { return step_buffers_[step & 1]; }
  const StepBuffer& step_buffer(uint64_t step) const { return step_buffers_[step & 1]; }
  void start_arriving(StepBuffer& buffer, ArrivingElements& arriving);
  void arrive(StepBuffer& buffer);
  void add_arrived(StepBuffer& buffer);
  void end_arrived(StepBuffer& buffer);
  Turn join_ready(StepBuffer& buffer, uint64_t* left_bytes);
  void coalesce(StepBuffer& buffer);
  void give_rows(StepBuffer& buffer);
  void end_alone(StepBuffer& buffer);
  uint32_t taker(uint32_t column) const {
    return domains_ == nullptr ? columns_.leader(columns_.host(), column) : domains_->taker(column);
  }
  void send_rows(StepBuffer& buffer, uint32_t column, uint32_t to);
  void give_to(ColumnSum& sum, const StepBuffer& buffer);
  ColumnSum* sum_of(StepBuffer& buffer, uint64_t column);
  void go_on(ColumnSum& sum);
  void send_sum(const ColumnSum& sum);
  bool read_lent() override;
  // Calls visit(sum) for each that is made here.
  template <typename Visit>
  void each_sum(StepBuffer& buffer, Visit visit) {
    if (leads_) visit(buffer.own);
    for (ColumnSum& sum : buffer.of_domain) visit(sum);
  }

  const Columns& columns_;
  const Partition& partition_;
  Outbox& outbox_;
  Compute& compute_;
  const ExchangeOptions options_;
  User& user_;
  const size_t row_bytes_;
  const RowColumns row_columns_;
  const StagedNotes notes_;
  const ColumnSum::Variable variable_;
  const DomainColumns* const domains_;  // null: rows go to leaders at once
  std::vector<uint32_t> active_columns_;
  std::vector<uint32_t> readers_;  // other ranks that take rows of this one
  bool leads_ = false;
  // Each row is given once: they leave the rank's block as they are whole.
  bool is_alone_ = false;
  // Of both steps: a slice is coalesced and given before the next step may start.
  RowCoalescer coalescer_;
  std::array<StepBuffer, 2> step_buffers_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_HOST_ROWS_H_
