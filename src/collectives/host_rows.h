// SPDX-License-Identifier: Apache-2.0
// HostRows: a variable's rows inside one host. Each rank coalesces its slice into a block of
// memory, its rows grouped by column; the leader of a column sums the rows of its host that belong
// there. The first leg of every exchange of rows, whatever follows.
//
// A leader that has the block mapped (host_staging.h) is told where it lies, in a note; any other
// is sent its rows out of the block; this rank itself is given them without a message. What a note
// tells of is read once every rank of the host has given or ended the step, in the order of the
// ranks: at once, or, where it is much, in turns as Lending has them. Nothing of a block is
// believed: each row key and place is copied, checked and then used. Where `rows_stay` of the
// options, a row that one rank alone gave is not even copied: the sum names the place where it lies
// in that rank's block, as it does of all rows where the rank is alone on its host.
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
#include <cstring>
#include <vector>

#include "aggregate/accumulator.h"
#include "aggregate/row_coalescer.h"
#include "base/arena.h"
#include "base/compute.h"
#include "collectives/exchange.h"
#include "collectives/host_staging.h"
#include "collectives/staged_notes.h"
#include "message/outbox.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

// True if a section holds `count` rows, or row keys, that all exist and belong there.
template <typename Belongs>
bool row_keys_fit(const Partition& partition, const Section& section, Belongs belongs) {
  if (section.payload.size() < sizeof(uint32_t) * section.header.count) return false;
  for (uint32_t i = 0; i < section.header.count; ++i) {
    uint32_t row_key;
    // By memcpy: messages promise no alignment.
    std::memcpy(&row_key, section.payload.data() + i * sizeof row_key, sizeof row_key);
    if (row_key >= partition.rows() || !belongs(row_key)) return false;
  }
  return true;
}

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
  // Who owns a row: by hash, or by ranges of row keys, where rows are made dense.
  enum class Owners : uint8_t { kHashed, kRanges };

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
  bool contributed(uint64_t step) const { return step_buffer(step).contributed; }
  // Only where leads(). Complete: every rank of the host has sent all or ended the step.
  const RowAccumulator& sum(uint64_t step) const { return step_buffer(step).sum; }
  // Distinct rows of each rank of the host, added up.
  uint64_t given_rows(uint64_t step) const { return step_buffer(step).given_rows; }
  std::vector<uint32_t> missing(uint64_t step) const;

  bool active(uint32_t owner) const;  // it owns something
  // Those with an active owner, ascending.
  const std::vector<uint32_t>& active_columns() const { return active_columns_; }
  // Active owners of a column on this host, but for the column's leader: where hosts have different
  // numbers of ranks.
  std::vector<uint32_t> owners_beside_leader(uint32_t column) const;
  uint32_t column_of_row_key(uint32_t row_key) const {
    return columns_.column_of(owners_ == Owners::kRanges ? partition_.range_owner_of(row_key)
                                                         : partition_.owner_of(row_key));
  }
  struct GroupByColumn {
    const HostRows& rows;
    void find(const uint32_t* row_keys, uint32_t count, uint32_t* columns) const;
  };
  // The most rows that a host, or the ranks of one, can send of those of this rank's column.
  uint64_t column_rows() const;

 private:
  // How far a rank of this host is.
  enum class Came : uint8_t { kNothing, kNote, kAll };
  struct Source {
    Came came = Came::kNothing;
    StagedNote note;  // where it has come
  };
  // A slice whose values come front to back: so many of its rows are here, and so many of these the
  // coalescer has, or a job is giving it.
  struct Arrival {
    ArrivingElements* from = nullptr;  // null: no more come
    uint32_t here = 0, added = 0;
    uint32_t until = 0;  // of the job
    uint32_t ready = 0;  // distinct rows that are whole
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
    DistinctRows distinct;                // in place of these
    const CoalescedIds* found = nullptr;  // has the ids of `first`, and is read by a job at once
    Arrival arrival;
    uint32_t* pending = nullptr;
    bool coalescing = false;
    bool in_place = false;  // rows that come once are read in the slice
    bool held = false;      // and it is not said yet that they stay there
    bool contributed = false;
    uint32_t rows_in_slice() const { return in_place ? first.count : 0; }
    void came(uint32_t source, Came how) {
      sources[source].came = how;
      --missing;
    }
    // False: more rows than the rank may give.
    [[nodiscard]] bool take_note(uint32_t source, const StagedNote& note) {
      if (!sum.spend(source, note.count)) return false;
      given_rows += note.count;
      sources[source].note = note;
      came(source, Came::kNote);
      return true;
    }
    // Of a leader:
    RowAccumulator sum;
    uint64_t given_rows = 0;
    std::span<Source> sources;  // by rank of the host
    uint32_t missing = 0;       // of them
    uint32_t joining = 0;       // the source whose rows are read next, and which of them
    uint32_t joined = 0;
  };
  enum class Turn : uint8_t { kDone, kMore, kGone };
  // Read in a turn: some 50 us; and up to so many at once, as many as a message may bring.
  static constexpr uint64_t kTurnBytes = 512 * 1024;
  static constexpr uint64_t kAtOnceBytes = 64 * 1024;

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
  void send_rows(StepBuffer& buffer, uint32_t column);
  void give_to_own_sum(StepBuffer& buffer);
  [[nodiscard]] bool on_note(uint32_t from, StepBuffer& buffer, const Section& section);
  [[nodiscard]] bool on_rows(uint32_t from, StepBuffer& buffer, const Section& section);
  void join_if_all_came(StepBuffer& buffer);
  bool read_lent() override;
  Turn join(StepBuffer& buffer, uint64_t* left_bytes);
  Turn join_source(StepBuffer& buffer, uint64_t* left_bytes);
  [[nodiscard]] bool join_items(StepBuffer& buffer, const StagedRows& there, uint32_t count);

  const Columns& columns_;
  const Partition& partition_;
  Outbox& outbox_;
  Compute& compute_;
  const ExchangeOptions options_;
  const Owners owners_;
  User& user_;
  const size_t row_bytes_;
  const StagedNotes notes_;
  const uint64_t item_bytes_;  // of a block: the row, its row key and its place
  std::vector<uint32_t> active_columns_;
  bool leads_ = false;
  // Each row is given once: they leave the rank's block as they are whole.
  bool is_alone_ = false;
  // Of both steps: a slice is coalesced and given before the next step may start.
  RowCoalescer coalescer_;
  std::array<StepBuffer, 2> step_buffers_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_HOST_ROWS_H_
