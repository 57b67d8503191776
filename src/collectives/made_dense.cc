// SPDX-License-Identifier: Apache-2.0
// Rows made elements. See made_dense.h.
#include "collectives/made_dense.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace parallax {

MadeDense::MadeDense(const Columns& columns, const Partition& partition, Outbox& outbox,
                     Compute& compute, const ExchangeOptions& options)
    : partition_(partition),
      sum_(options.sum),
      host_rows_(columns, partition, outbox, compute, options_of_host(options),
                 HostRows::Owners::kRanges, *this),
      dense_(columns, partition, outbox, options, direct_algorithm(), true) {
  if (!host_rows_.leads()) return;
  uint64_t row = 0;
  for (const uint32_t owner : columns.owners(columns.my_column())) {
    const Range range = partition.range_of(owner);
    if (range.count == 0) continue;
    ranges_.push_back({range.first / partition.row_elements(), row});
    row += range.count / partition.row_elements();
  }
}

// Its own elements and what its parts take, so that one arena tells of all.
void MadeDense::lay_out(Arena& arena) {
  host_rows_.lay_out(arena);
  dense_.lay_out(arena);
  if (!host_rows_.leads()) return;
  const uint64_t elements = host_rows_.column_rows() * partition_.row_elements();
  for (StepBuffer& buffer : step_buffers_) {
    buffer.elements = arena.take<std::byte>(elements * bytes_of_sum(sum_));
  }
}

void MadeDense::open(uint64_t step) {
  host_rows_.open(step);
  dense_.open(step);
  step_buffer(step).forwarded = false;
}

void MadeDense::contribute(uint64_t step, const Contribution& slice, uint32_t* pending) {
  host_rows_.contribute(step, slice, pending);
}

void MadeDense::end(uint32_t from, uint64_t step) {
  host_rows_.end(from, step);
  forward_if_complete(step);
}

bool MadeDense::on_section(uint32_t from, const Section& section) {
  if (section.header.kind != SectionKind::kLocalReduce) return dense_.on_section(from, section);
  if (!host_rows_.on_section(from, section)) return false;
  forward_if_complete(section.header.step);
  return true;
}

void MadeDense::forward_if_complete(uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  if (!host_rows_.leads() || buffer.forwarded || !host_rows_.sum(step).complete()) return;
  buffer.forwarded = true;
  if (host_rows_.sum(step).contributed()) {
    scatter(step);
    dense_.contribute(step, {.elements = {buffer.elements.data(), dtype_of(sum_)}, .lasting = true},
                      nullptr);
  } else {
    dense_.contribute_nothing(step, host_rows_.contributed(step));
  }
  // Where all others have given theirs, that was the last of it.
  tell_runner();
}

// The host's rows as elements, the column's ranges one after the other.
void MadeDense::scatter(uint64_t step) {
  const std::span<std::byte> elements = step_buffer(step).elements;
  const RowAccumulator& rows = host_rows_.sum(step);
  fill_no_row(sum_, elements.data(), elements.size() / bytes_of_sum(sum_));
  const size_t row_bytes = partition_.row_elements() * bytes_of_sum(sum_);
  for (uint32_t i = 0; i < rows.row_count(); ++i) {
    const uint64_t row_key = rows.row_keys()[i];
    const auto after = std::upper_bound(
        ranges_.begin(), ranges_.end(), row_key,
        [](uint64_t key, const ColumnRange& range) { return key < range.first_row_key; });
    const ColumnRange& range = *(after - 1);
    std::memcpy(&elements[(range.row + row_key - range.first_row_key) * row_bytes], rows.row(i),
                row_bytes);
  }
}

ExchangeState MadeDense::state(uint64_t step) const {
  ExchangeState state = dense_.state(step);
  state.contributed = host_rows_.sendable(step);
  state.reduced = state.reduced && host_rows_.summed(step);
  return state;
}

MissingRanks MadeDense::missing(uint64_t step) const {
  MissingRanks of_host = host_rows_.missing(step);
  return of_host.empty() ? dense_.missing(step) : of_host;
}

ExchangeCounts MadeDense::counts(uint64_t step) const {
  ExchangeCounts counts = dense_.counts(step);
  if (host_rows_.leads()) counts.touched_rows = host_rows_.sum(step).row_count();
  counts.given_rows = host_rows_.given_rows(step);
  return counts;
}

}  // namespace parallax
