// SPDX-License-Identifier: Apache-2.0
// Rows that come from hosts. See row_intake.h.
#include "collectives/row_intake.h"

#include <algorithm>

#include "aggregate/pulled_keys.h"
#include "collectives/listed_rows.h"

namespace parallax {

namespace {

// Of rows widened at a time: they are added up while they are in the innermost cache.
constexpr size_t kWidenedBytes = 16 * 1024;

}  // namespace

RowIntake::RowIntake(const Columns& columns, const Partition& partition, const HostRows& host_rows,
                     const ExchangeOptions& options, ReduceTo to)
    : columns_(columns),
      partition_(partition),
      host_rows_(host_rows),
      options_(options),
      to_(to),
      dtype_(options.wire == ExchangeOptions::kSumsOwn ? dtype_of(options.sum) : options.wire) {}

uint64_t RowIntake::rows_summed() const {
  return to_ == ReduceTo::kOwner ? partition_.rows_owned(columns_.rank())
                                 : host_rows_.column_rows();
}

std::vector<uint64_t> RowIntake::rows_max_of_hosts() const {
  std::vector<uint64_t> most;
  for (const auto& ranks : columns_.map().ranks_of) {
    most.push_back(std::min(rows_summed(), options_.rows_max * ranks.size()));
  }
  return most;
}

void RowIntake::lay_out(Arena& arena) {
  if (widens()) {
    const size_t row_bytes = bytes_of_sum(options_.sum) * partition_.row_elements();
    widened_ = arena.take<std::byte>(std::max<size_t>(kWidenedBytes / row_bytes, 1) * row_bytes);
  }
  if (options_.pulled != nullptr) {
    const std::vector<uint64_t> most = rows_max_of_hosts();
    listed_ = arena.take<uint32_t>(*std::max_element(most.begin(), most.end()));
  }
}

bool RowIntake::are_mine(const Section& section) const {
  return to_ == ReduceTo::kOwner
             ? row_keys_fit(partition_, section, RowOwners{partition_}, columns_.rank())
             : row_keys_fit(partition_, section, host_rows_.row_columns(), columns_.my_column());
}

// Those that are listed were checked when they were asked for.
bool RowIntake::find_row_keys(uint32_t source, const Section& section,
                              std::span<const std::byte>* row_keys,
                              std::span<const std::byte>* rows) {
  const uint32_t count = section.header.count;
  if (section.header.encoding == Encoding::kRows) {
    if (!are_mine(section)) return false;
    *row_keys = section.payload.first(sizeof(uint32_t) * count);
    *rows = section.payload.subspan(row_keys->size());
    return true;
  }
  if (section.header.encoding != Encoding::kListedRows || options_.pulled == nullptr) return false;
  const PulledKeys* const pulled = options_.pulled->listed(options_.variable);
  const size_t row_bytes = bytes_of_dtype(dtype_) * partition_.row_elements();
  if (pulled == nullptr ||
      !read_listed(section, row_bytes, pulled->of(section.header.step, source), listed_, rows)) {
    return false;
  }
  *row_keys = std::as_bytes(listed_.first(count));
  return true;
}

bool RowIntake::add(uint32_t source, const Section& section, RowAccumulator* total) {
  const uint32_t count = section.header.count;
  std::span<const std::byte> row_keys, rows;
  if (!find_row_keys(source, section, &row_keys, &rows)) return false;
  if (!widens()) return total->add(source, count, row_keys, rows);
  const auto elements = static_cast<uint32_t>(partition_.row_elements());
  const size_t wire_row_bytes = size_t{bytes_of_dtype(dtype_)} * elements;
  if (rows.size() != count * wire_row_bytes) return false;
  const Convert widen = converter(dtype_, dtype_of(options_.sum));
  const size_t row_bytes = size_t{bytes_of_sum(options_.sum)} * elements;
  const auto most = static_cast<uint32_t>(widened_.size() / row_bytes);
  for (uint32_t first = 0, some = 0; first < count; first += some) {
    some = std::min(most, count - first);
    widen(rows.data() + first * wire_row_bytes, widened_.data(), size_t{some} * elements);
    if (!total->add(source, some,
                    row_keys.subspan(sizeof(uint32_t) * first, sizeof(uint32_t) * some),
                    widened_.first(some * row_bytes))) {
      return false;
    }
  }
  return true;
}

}  // namespace parallax
