// SPDX-License-Identifier: Apache-2.0
// HostRows: a variable's rows inside one host. Each rank coalesces its slice and sends each row to
// the leader of the column that the row belongs to; the leader sums what the ranks of its host
// send. The first leg of every exchange of rows, whatever follows.
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
#include "message/outbox.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

class HostRows {
 public:
  // Who owns a row: by hash, or by ranges of row keys, where rows are made dense.
  enum class Owners : uint8_t { kHashed, kRanges };

  // All references outlive it.
  HostRows(const Columns& columns, const Partition& partition, Outbox& outbox, Compute& compute,
           const ExchangeOptions& options, Owners owners);
  HostRows(const HostRows&) = delete;
  HostRows& operator=(const HostRows&) = delete;

  void lay_out(Arena& arena);
  void open(uint64_t step);
  void contribute(uint64_t step, const Contribution& slice, uint32_t* pending);
  void end(uint32_t from, uint64_t step);
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);

  // This rank sums its host's rows of its column.
  bool leads() const { return leads_; }
  // The slice is coalesced and may be sent.
  bool sendable(uint64_t step) const { return !step_buffer(step).coalescing; }
  // Somebody of this host gave a slice, if only one without rows; as far as this rank was told.
  bool contributed(uint64_t step) const { return step_buffer(step).contributed; }
  // Only where leads(). Complete: every rank of the host has sent all or ended the step.
  const RowAccumulator& sum(uint64_t step) const { return step_buffer(step).sum; }
  std::vector<uint32_t> missing(uint64_t step) const;

  uint32_t owner_of(uint32_t row_key) const {
    return owners_ == Owners::kRanges ? partition_.range_owner_of(row_key)
                                      : partition_.owner_of(row_key);
  }
  bool active(uint32_t owner) const;  // it owns something
  // Those with an active owner, ascending.
  const std::vector<uint32_t>& active_columns() const { return active_columns_; }
  // Active owners of a column on this host, but for the column's leader: where hosts have different
  // numbers of ranks.
  std::vector<uint32_t> owners_beside_leader(uint32_t column) const;
  uint32_t column_of_row_key(uint32_t row_key) const {
    return columns_.column_of(owner_of(row_key));
  }
  // The most rows that a host, or the ranks of one, can send of those of this rank's column.
  uint64_t column_rows() const;

  // True if a section holds `count` rows, or row keys, that all exist and belong here.
  template <typename Belongs>
  bool check_row_keys(const Section& section, Belongs belongs) const;

 private:
  struct StepBuffer {
    uint64_t step = 0;
    HostRows* host_rows = nullptr;
    RowCoalescer coalescer;
    ComputeJob job;
    RowSlice first, more;
    uint32_t* pending = nullptr;
    bool coalescing = false;
    bool contributed = false;
    RowAccumulator sum;
  };

  StepBuffer& step_buffer(uint64_t step) { return step_buffers_[step & 1]; }
  const StepBuffer& step_buffer(uint64_t step) const { return step_buffers_[step & 1]; }
  // Of the caller's rows, which carry no count.
  uint32_t slice_elements() const {
    return static_cast<uint32_t>(partition_.row_elements()) - (options_.counted ? 1 : 0);
  }
  void send_rows(StepBuffer& buffer);

  const Columns& columns_;
  const Partition& partition_;
  Outbox& outbox_;
  Compute& compute_;
  const ExchangeOptions options_;
  const Owners owners_;
  const size_t row_bytes_;
  alignas(8) std::array<std::byte, 8> one_ = {};  // a 1 of the sum type
  std::vector<uint32_t> active_columns_;
  bool leads_ = false;
  std::array<StepBuffer, 2> step_buffers_;
};

template <typename Belongs>
bool HostRows::check_row_keys(const Section& section, Belongs belongs) const {
  if (section.payload.size() < sizeof(uint32_t) * section.header.count) return false;
  for (uint32_t i = 0; i < section.header.count; ++i) {
    uint32_t row_key;
    // By memcpy: messages promise no alignment.
    std::memcpy(&row_key, section.payload.data() + i * sizeof row_key, sizeof row_key);
    if (row_key >= partition_.rows() || !belongs(row_key)) return false;
  }
  return true;
}

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_HOST_ROWS_H_
