// SPDX-License-Identifier: Apache-2.0
// Rows and elements as units of a store. See device_table.h.
#include "server/device_table.h"

#include <algorithm>
#include <utility>

namespace parallax {

DeviceTable::DeviceTable(const Variable& variable, const Partition& partition, uint32_t rank,
                         bool sharded)
    : partition_(partition), rank_(rank), sharded_(sharded) {
  const bool ids = partition.ids_declared();
  if (ids) {
    shape_.units = sharded ? partition.rows_owned(rank) : partition.rows();
  } else {
    const Range here = sharded ? partition.range_of(rank) : Range{0, partition.elements()};
    shape_.units = here.count;
    first_element_ = here.first;
  }
  shape_.widths[0] = ids ? static_cast<uint32_t>(variable.row_elements) : 1;
  for (uint32_t state = 0; state < kStatesMax && variable.state_width(state) > 0; ++state) {
    shape_.widths[1 + state] = ids ? static_cast<uint32_t>(variable.state_width(state)) : 1;
  }
}

Status DeviceTable::reserve(const DeviceShare& share, uint32_t place) {
  std::unique_ptr<TableQueue> queue;
  PARALLAX_RETURN_IF_ERROR(share.devices->form_table(place, &queue));
  store_ = std::make_unique<DeviceStore>(share, std::move(queue), shape_);
  return store_->allocate();
}

void DeviceTable::write(uint32_t array, uint64_t first, std::vector<std::byte> numbers) {
  const uint64_t width = shape_.widths[array];
  const uint64_t count = numbers.size() / sizeof(float);
  store_->write({.array = array, .first = first / width, .count = count / width},
                std::move(numbers));
}

// A piece may end in mid-row; then the row goes on with the next one, and is written when its end
// has come.
void DeviceTable::take_values(uint64_t first, std::span<const std::byte> values) {
  const uint64_t end = first + values.size() / sizeof(float);
  if (!partition_.ids_declared()) {
    const uint64_t begin = std::max(first, first_element_);
    const uint64_t stop = std::min(end, first_element_ + shape_.units);
    if (begin >= stop) return;
    const auto ours =
        values.subspan((begin - first) * sizeof(float), (stop - begin) * sizeof(float));
    return write(0, begin - first_element_, {ours.begin(), ours.end()});
  }
  const uint64_t width = partition_.row_elements();
  std::vector<uint32_t> rows;
  std::vector<std::byte> taken;
  for (uint64_t at = first; at < end;) {
    const uint64_t count = std::min(end - at, width - at % width);
    const uint32_t row_key = partition_.row_key_of(at / width);
    const auto part = values.subspan((at - first) * sizeof(float), count * sizeof(float));
    at += count;
    if (sharded_ && partition_.owner_of(row_key) != rank_) continue;
    begun_row_.insert(begun_row_.end(), part.begin(), part.end());
    if (begun_row_.size() < width * sizeof(float)) continue;
    taken.insert(taken.end(), begun_row_.begin(), begun_row_.end());
    rows.push_back(sharded_ ? static_cast<uint32_t>(partition_.local_row(row_key)) : row_key);
    begun_row_.clear();
  }
  if (rows.empty()) return;
  store_->write({.count = rows.size(), .list = rows.data()}, std::move(taken));
}

void DeviceTable::apply(const ReducedGradient& gradient, const UpdateArguments& arguments,
                        uint32_t* left) {
  ++*left;
  store_->update({.gradient = gradient,
                  .arguments = arguments,
                  .partition = &partition_,
                  .sharded = sharded_,
                  .first_element = first_element_,
                  .left = left});
}

}  // namespace parallax
