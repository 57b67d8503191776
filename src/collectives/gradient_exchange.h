// SPDX-License-Identifier: Apache-2.0
// GradientExchange: one variable's gradient on its way, by one method: coalesced in the rank,
// summed over the ranks of a host at the column's leader, summed over the hosts at the reducer (the
// owner, or the leader where every host coalesces for itself), and, for replicated methods, back to
// every rank.
//
// Design notes. An exchange has two step buffers, for the steps of odd and even number. A rank is
// at most one step ahead of another: step t + 1 cannot be decided before all have applied step t,
// so step t + 2 finds its step buffer free everywhere. State is sized at lay-out; nothing allocates
// afterwards. on_section() returns false when the section is not what this rank may be sent; the
// engine then fails the job and names the sender. Owned by the engine's owner; the only part that
// runs elsewhere is the coalescer of a slice, as a job.
#ifndef PARALLAX_COLLECTIVES_GRADIENT_EXCHANGE_H_
#define PARALLAX_COLLECTIVES_GRADIENT_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "aggregate/accumulator.h"
#include "aggregate/row_coalescer.h"
#include "base/arena.h"
#include "base/compute.h"
#include "base/exact_sum.h"
#include "collectives/algorithms.h"
#include "message/outbox.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

struct GradientExchangeOptions {
  uint32_t variable = 0;
  Method method = Method::kAllreduce;
  uint64_t rows_max = 0;        // rows in one slice; 0 for dense
  bool ordered = false;         // deterministic accumulators
  SumType sum = SumType::kF32;  // what the exchange carries; slices are converted where they enter
  // With ids: every row ends in one element more, which counts the ranks that gave the row. The
  // partition's row_elements has it.
  bool counted = false;
};

// The reduced gradient of a step buffer as this rank sees it, for applying or handing out.
struct ReducedGradient {
  bool contributed = false;  // some rank gave a slice, if only one without rows
  bool has_values = false;   // false: no rank gave values, and nothing is to be applied
  bool rows = false;
  bool counted = false;  // rows end in the count of ranks that gave them
  // rows: row_count row keys and their values. dense: elements [first, first + count).
  uint32_t row_count = 0;
  const uint32_t* row_keys = nullptr;
  const std::byte* values = nullptr;  // of the sum type
  uint64_t first = 0;
  uint64_t count = 0;
};

// What the planner wants to know, of this rank's part, per step.
struct ExchangeCounts {
  uint64_t touched_rows = 0;  // coalesced rows this leader sent on
  uint64_t union_rows = 0;    // distinct rows of all hosts, counted once
};

class GradientExchange {
 public:
  // All references outlive the exchange.
  GradientExchange(const Columns& columns, const Partition& partition, Outbox& outbox,
                   Compute& compute, const GradientExchangeOptions& options);
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // Reserves the step buffers' memory. LIMIT.
  Status reserve();
  const Arena& arena() const { return arena_; }
  size_t needed_bytes();  // what reserve() would reserve
  // Gives a step buffer to a step; its last step must be over everywhere.
  void open(uint64_t step);

  // This rank's slice. Buffers are borrowed until *pending is back where it was before the call.
  void contribute_dense(uint64_t step, const RowValues& values, uint32_t* pending);
  // `more`: rows beside a `first` that has every row (see RowCoalescer).
  void contribute_rows(uint64_t step, const RowSlice& first, const RowSlice& more,
                       uint32_t* pending);

  // Sections. `from` is any rank of the world; `section.header.step` belongs to an open step
  // buffer.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);
  // A local rank ended the step: what it did not contribute is absent.
  void end_local(uint32_t from, uint64_t step);

  // A slice of this rank is still being coalesced by a job.
  bool coalescing(uint64_t step) const { return step_buffer(step).coalescing; }
  // This rank's part of the reduction is complete (true where it has none).
  bool reduced(uint64_t step) const;
  // Everything this rank gets back is here.
  bool delivered(uint64_t step) const;
  // Hosts or ranks not yet heard of in a step buffer that is not complete, for the error of a
  // timeout.
  std::vector<uint32_t> missing_ranks(uint64_t step) const;

  // Once reduced: adds the squared norm of this rank's part.
  void add_squared_norm(uint64_t step, ExactSum* sum) const;
  ExchangeCounts counts(uint64_t step) const;

  // Once reduced, at an owner of a sharded variable: what it owns.
  ReducedGradient owned(uint64_t step) const;
  // Once delivered: the whole.
  ReducedGradient whole(uint64_t step) const;

  const Algorithm& algorithm() const { return algorithm_; }

 private:
  struct StepBuffer {
    uint64_t step = 0;
    // source
    RowCoalescer coalescer;
    ComputeJob job;
    GradientExchange* exchange = nullptr;
    RowSlice first, more;
    uint32_t* pending = nullptr;
    bool coalescing = false;
    // leader
    RowAccumulator local_rows;
    DenseAccumulator local_dense;
    std::span<uint32_t> items, row_keys, offsets;  // rows of the local accumulator by owner
    std::span<std::byte> scattered;                // made dense
    bool forwarded = false;
    // reducer
    RowAccumulator host_rows;
    DenseAccumulator host_dense;
    bool returned = false;
    // result
    std::span<std::byte> gathered;  // dense: all elements; rows: row_count rows
    std::span<uint32_t> gathered_row_keys;
    uint32_t gathered_rows = 0;
    uint32_t pieces = 0;
    bool gathered_any = false;
    bool contributed = false;  // as far as this rank was told
  };

  StepBuffer& step_buffer(uint64_t step) { return step_buffers_[step & 1]; }
  const StepBuffer& step_buffer(uint64_t step) const { return step_buffers_[step & 1]; }
  uint32_t wire_owner(uint32_t row_key) const {
    return algorithm_.dense_wire ? partition_.range_owner_of(row_key)
                                 : partition_.owner_of(row_key);
  }
  uint32_t column_of_row_key(uint32_t row_key) const {
    return columns_.column_of(wire_owner(row_key));
  }
  // Of the rows that the caller gives.
  uint32_t slice_elements() const {
    return static_cast<uint32_t>(partition_.row_elements()) - (options_.counted ? 1 : 0);
  }
  uint8_t last_flags(const StepBuffer& step_buffer) const {
    return static_cast<uint8_t>(kSectionLast | (step_buffer.contributed ? kSectionContributed : 0));
  }
  Range range_of(uint32_t owner) const;
  bool active(uint32_t owner) const;
  bool counts_once() const;
  void set_sources();

  [[nodiscard]] bool on_local_reduce(uint32_t from, const Section& section);
  [[nodiscard]] bool on_host_reduce(uint32_t from, const Section& section);
  [[nodiscard]] bool on_host_gather(uint32_t from, const Section& section);
  [[nodiscard]] bool on_local_broadcast(uint32_t from, const Section& section);
  void lay_out(Arena& arena);
  void lay_out_leader(Arena& arena, StepBuffer& step_buffer);
  void lay_out_reducer(Arena& arena, StepBuffer& step_buffer);
  void send_rows(StepBuffer& step_buffer);
  void forward_if_complete(StepBuffer& step_buffer);
  void forward_elements(StepBuffer& step_buffer);
  void forward_rows_to_owners(StepBuffer& step_buffer);
  void forward_rows_to_hosts(StepBuffer& step_buffer);
  void scatter(StepBuffer& step_buffer);
  void return_if_complete(StepBuffer& step_buffer);
  [[nodiscard]] bool gather(const Section& section, bool forward);
  [[nodiscard]] bool gather_rows(StepBuffer& step_buffer, const Section& section);
  [[nodiscard]] bool gather_dense(StepBuffer& step_buffer, const Section& section);
  void forward_piece(StepBuffer& step_buffer, const SectionHeader& header, uint32_t first_row);
  template <typename Belongs>
  bool check_row_keys(const Section& section, Belongs belongs) const;
  Send new_send(SectionKind kind, Encoding encoding, const StepBuffer& step_buffer) const;
  WireFormat entry_format(uint32_t dtype) const;

  const Columns& columns_;
  const Partition& partition_;
  Outbox& outbox_;
  Compute& compute_;
  const GradientExchangeOptions options_;
  const Algorithm& algorithm_;
  const bool rows_form_;   // slices carry ids
  const bool dense_wire_;  // elements cross the wire
  const SumType sum_;
  const size_t element_bytes_;  // of the sum type
  const size_t row_bytes_;
  alignas(8) std::array<std::byte, 8> one_ = {};  // a 1 of the sum type
  Arena arena_;
  std::vector<std::vector<uint32_t>> active_owners_;  // by column, ascending
  std::vector<uint32_t> active_columns_;
  bool leads_ = false;             // this rank is the leader of an active column
  bool reduces_ = false;           // this rank sums over hosts
  std::vector<uint32_t> sources_;  // of the sum over hosts, by their place in its order
  uint32_t tree_root_ = 0;
  uint32_t tree_parent_ = kNoRank;
  uint32_t pieces_expected_ = 0;
  std::array<StepBuffer, 2> step_buffers_;
};

// True if a section holds `count` row keys that all exist and belong here.
template <typename Belongs>
bool GradientExchange::check_row_keys(const Section& section, Belongs belongs) const {
  if (section.payload.size() < sizeof(uint32_t) * section.header.count) return false;
  for (uint32_t i = 0; i < section.header.count; ++i) {
    uint32_t row_key;
    std::memcpy(&row_key, section.payload.data() + i * sizeof row_key, sizeof row_key);
    if (row_key >= partition_.rows() || !belongs(row_key)) return false;
  }
  return true;
}

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_GRADIENT_EXCHANGE_H_
