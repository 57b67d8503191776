// SPDX-License-Identifier: Apache-2.0
// From a rank's slice to the sum of its host. See host_rows.h.
#include "collectives/host_rows.h"

#include <algorithm>
#include <cstring>

namespace parallax {

HostRows::HostRows(const Columns& columns, const Partition& partition, Outbox& outbox,
                   Compute& compute, const ExchangeOptions& options, Owners owners)
    : columns_(columns),
      partition_(partition),
      outbox_(outbox),
      compute_(compute),
      options_(options),
      owners_(owners),
      row_bytes_(size_t{bytes_of_sum(options.sum)} * partition.row_elements()) {
  with_sum_type(options.sum, [this](auto tag) {
    const typename decltype(tag)::type one{1};
    std::memcpy(one_.data(), &one, sizeof one);
  });
  for (uint32_t column = 0; column < columns.count(); ++column) {
    const std::vector<uint32_t>& owners_of_column = columns.owners(column);
    if (std::any_of(owners_of_column.begin(), owners_of_column.end(),
                    [this](uint32_t owner) { return active(owner); })) {
      active_columns_.push_back(column);
      leads_ |= columns.is_leader() && column == columns.my_column();
    }
  }
}

bool HostRows::active(uint32_t owner) const {
  return owners_ == Owners::kRanges ? partition_.range_of(owner).count > 0
                                    : partition_.rows_owned(owner) > 0;
}

std::vector<uint32_t> HostRows::owners_beside_leader(uint32_t column) const {
  std::vector<uint32_t> owners;
  for (const uint32_t local : columns_.locals()) {
    const bool leader = local == columns_.leader(columns_.host(), column);
    if (!leader && columns_.column_of(local) == column && active(local)) owners.push_back(local);
  }
  return owners;
}

uint64_t HostRows::column_rows() const {
  uint64_t rows = 0;
  for (const uint32_t owner : columns_.owners(columns_.my_column())) {
    rows += owners_ == Owners::kRanges
                ? partition_.range_of(owner).count / partition_.row_elements()
                : partition_.rows_owned(owner);
  }
  return rows;
}

void HostRows::lay_out(Arena& arena) {
  // Each coalesced row is the sum of two rows or more, so half of rows_max is room enough; where a
  // slice can have every row, rows can come beside it for each.
  const uint64_t rows_max = options_.rows_max;
  const uint64_t coalesced_max = rows_max >= partition_.rows() ? partition_.rows() : rows_max / 2;
  for (StepBuffer& buffer : step_buffers_) {
    buffer.host_rows = this;
    buffer.coalescer.lay_out(arena, {.rows_max = rows_max,
                                     .row_elements = slice_elements(),
                                     .groups = columns_.count(),
                                     .coalesced_max = coalesced_max,
                                     .sum = options_.sum,
                                     .counted = options_.counted});
    if (!leads_) continue;
    const auto locals = static_cast<uint32_t>(columns_.locals().size());
    buffer.sum.lay_out(arena, {.sources = locals,
                               .rows_max = std::min(column_rows(), rows_max * locals),
                               .source_rows_max = std::min(column_rows(), rows_max),
                               .row_elements = static_cast<uint32_t>(partition_.row_elements()),
                               .ordered = options_.ordered,
                               .sum = options_.sum});
  }
}

void HostRows::open(uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  buffer.step = step;
  buffer.contributed = false;
  if (leads_) buffer.sum.clear();
}

void HostRows::contribute(uint64_t step, const Contribution& slice, uint32_t* pending) {
  StepBuffer& buffer = step_buffer(step);
  buffer.first = slice.rows;
  buffer.more = slice.more;
  buffer.pending = pending;
  buffer.coalescing = true;
  ++*pending;  // of the compute job
  buffer.job.context = &buffer;
  buffer.job.cost_bytes = (slice.rows.count + slice.more.count) * row_bytes_;
  buffer.job.run = [](ComputeJob& job) {
    StepBuffer& coalescing = *static_cast<StepBuffer*>(job.context);
    const HostRows& host_rows = *coalescing.host_rows;
    coalescing.coalescer.coalesce(
        host_rows.partition_, coalescing.first, coalescing.more,
        [&host_rows](uint32_t row_key) { return host_rows.column_of_row_key(row_key); });
  };
  buffer.job.done = [](ComputeJob& job) {
    StepBuffer& coalesced = *static_cast<StepBuffer*>(job.context);
    coalesced.host_rows->send_rows(coalesced);
  };
  compute_.submit(buffer.job);
}

void HostRows::send_rows(StepBuffer& buffer) {
  const uint32_t dtype = buffer.first.values.dtype;
  for (const uint32_t column : active_columns_) {
    const uint32_t first = buffer.coalescer.group_first(column);
    Send send;
    send.header = {.kind = SectionKind::kLocalReduce,
                   .encoding = Encoding::kRows,
                   .flags = kSectionLast | kSectionContributed,
                   .tag = options_.variable,
                   .step = buffer.step};
    // Converted where it enters the exchange.
    send.format = {.element_bytes = bytes_of_sum(options_.sum),
                   .source_bytes = bytes_of_dtype(dtype),
                   .convert = converter(dtype, dtype_of(options_.sum))};
    send.rows = {.row_keys = buffer.coalescer.row_keys() + first,
                 .values = buffer.first.values.rows,
                 .coalesced = buffer.coalescer.coalesced(),
                 .order = buffer.coalescer.order() + first,
                 .row_elements = slice_elements(),
                 .suffix = options_.counted ? one_.data() : nullptr};
    send.count = buffer.coalescer.group_count(column);
    send.pending = buffer.pending;
    ++*buffer.pending;
    outbox_.add(columns_.leader(columns_.host(), column), send);
  }
  buffer.coalescing = false;
  --*buffer.pending;
}

bool HostRows::on_section(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (!leads_ || columns_.host_of(from) != columns_.host()) return false;
  if (header.encoding != Encoding::kRows) return false;
  const auto mine = [this](uint32_t row_key) {
    return column_of_row_key(row_key) == columns_.my_column();
  };
  if (!check_row_keys(section, mine)) return false;
  StepBuffer& buffer = step_buffer(header.step);
  const uint32_t source = columns_.local_of(from);
  if (!buffer.sum.add(source, header.count, section.payload)) return false;
  if ((header.flags & kSectionLast) != 0) {
    buffer.contributed |= (header.flags & kSectionContributed) != 0;
    buffer.sum.end(source);
  }
  return true;
}

void HostRows::end(uint32_t from, uint64_t step) {
  if (leads_) step_buffer(step).sum.end(columns_.local_of(from));
}

std::vector<uint32_t> HostRows::missing(uint64_t step) const {
  std::vector<uint32_t> missing;
  if (!leads_) return missing;
  for (const uint32_t local : columns_.locals()) {
    if (!sum(step).ended(columns_.local_of(local))) missing.push_back(local);
  }
  return missing;
}

}  // namespace parallax
