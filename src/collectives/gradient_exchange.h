// SPDX-License-Identifier: Apache-2.0
// GradientExchange: one variable's gradient on its way, by one method: coalesced in the rank,
// summed over the ranks of a host at the column's leader, summed over the hosts at the reducer (the
// owner, or the leader where every host sums for itself), and, for replicated methods, back to
// every rank.
//
// Design notes. An exchange has two step buffers, for the steps of odd and even number. A rank is
// at most one step ahead of another: step t + 1 cannot be decided before all have applied step t,
// so step t + 2 finds its step buffer free everywhere. State is sized at lay-out; nothing allocates
// afterwards. on_section() returns false when the section is not what this rank may be sent; the
// engine then fails the job and names the sender. Owned by the engine's owner; the only work that
// runs elsewhere is coalescing a slice, as a compute job.
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
#include "collectives/algorithms.h"
#include "collectives/exchange.h"
#include "message/outbox.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

class GradientExchange final : public Exchange {
 public:
  // All references outlive the exchange.
  GradientExchange(const Columns& columns, const Partition& partition, Outbox& outbox,
                   Compute& compute, const ExchangeOptions& options);
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  Status reserve() override;
  size_t needed_bytes() override;
  const Arena& arena() const override { return arena_; }
  void open(uint64_t step) override;
  void contribute(uint64_t step, const Contribution& slice, uint32_t* pending) override;
  void end(uint32_t from, uint64_t step) override;
  [[nodiscard]] bool on_section(uint32_t from, const Section& section) override;
  ExchangeState state(uint64_t step) const override;
  std::vector<uint32_t> missing(uint64_t step) const override;
  ReducedGradient owned(uint64_t step) const override;
  ReducedGradient whole(uint64_t step) const override;
  ExchangeCounts counts(uint64_t step) const override;

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
  // Of the caller's rows, which carry no count.
  uint32_t slice_elements() const {
    return static_cast<uint32_t>(partition_.row_elements()) - (options_.counted ? 1 : 0);
  }
  uint8_t last_flags(const StepBuffer& step_buffer) const {
    return static_cast<uint8_t>(kSectionLast | (step_buffer.contributed ? kSectionContributed : 0));
  }
  Range range_of(uint32_t owner) const;
  bool active(uint32_t owner) const;
  bool counts_once() const;
  bool reduced(const StepBuffer& step_buffer) const;
  ReducedGradient result() const;
  void contribute_elements(StepBuffer& step_buffer, const RowValues& values, uint32_t* pending);
  void contribute_rows(StepBuffer& step_buffer, const Contribution& slice, uint32_t* pending);
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
  const ExchangeOptions options_;
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
  std::vector<uint32_t> sources_;  // of the sum over hosts, in its order
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
