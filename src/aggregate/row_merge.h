// SPDX-License-Identifier: Apache-2.0
// RowMerge: a slice's rows, duplicates merged, permuted to positions and grouped by where they go:
// the first thing that happens to sparse rows, in a rank, before anything is sent. Rows without a
// duplicate are not copied; they are sent out of the caller's buffer. merge() may run as a job on
// the compute pool: nothing else touches the object until it has returned.
#ifndef PARALLAX_AGGREGATE_ROW_MERGE_H_
#define PARALLAX_AGGREGATE_ROW_MERGE_H_

#include <cstdint>
#include <span>

#include "aggregate/row_index.h"
#include "aggregate/row_kernels.h"
#include "base/arena.h"
#include "transport/outbox.h"
#include "variable/partition.h"

namespace parallax {

// Stable counting sort: items grouped by group_of(item) in 0..groups-1. `offsets` gets groups + 1
// entries; `order` the items. No allocation.
template <typename GroupOf>
void group_items(uint32_t count, uint32_t groups, GroupOf group_of, std::span<uint32_t> offsets,
                 std::span<uint32_t> order) {
  for (uint32_t g = 0; g <= groups; ++g) offsets[g] = 0;
  for (uint32_t i = 0; i < count; ++i) ++offsets[group_of(i) + 1];
  for (uint32_t g = 0; g < groups; ++g) offsets[g + 1] += offsets[g];
  for (uint32_t i = 0; i < count; ++i) order[offsets[group_of(i)]++] = i;
  for (uint32_t g = groups; g > 0; --g) offsets[g] = offsets[g - 1];
  offsets[0] = 0;
}

class RowMerge {
 public:
  // `merge_values`: rows have values (gradients) whose duplicates are summed; else only ids.
  void lay_out(Arena& arena, uint64_t rows_max, uint32_t row_elements, uint32_t groups,
               bool merge_values) {
    row_elements_ = row_elements;
    groups_ = groups;
    index_.lay_out(arena, rows_max);
    slots_ = arena.take<uint32_t>(rows_max);
    unique_positions_ = arena.take<uint32_t>(rows_max);
    items_ = arena.take<uint32_t>(rows_max);
    positions_ = arena.take<uint32_t>(rows_max);
    order_ = arena.take<uint32_t>(rows_max);
    offsets_ = arena.take<uint32_t>(groups + 1);
    merged_ = arena.take<float>(merge_values ? rows_max / 2 * row_elements : 0);
  }

  // `ids` in 0..rows-1 and count <= rows_max, checked before. `values` may be null (ids alone).
  template <typename GroupOf>
  void merge(const Partition& partition, const int64_t* ids, uint32_t count, const float* values,
             GroupOf group_of_position) {
    index_.clear();
    uint32_t merged_count = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t position = partition.position_of(static_cast<uint64_t>(ids[i]));
      bool inserted;
      const uint32_t unique = index_.find_or_insert(position, &inserted);
      if (inserted) {
        unique_positions_[unique] = position;
        slots_[unique] = i;
      } else if (values != nullptr) {
        add_duplicate(unique, values, i, &merged_count);
      }
    }
    group_items(
        index_.size(), groups_,
        [&](uint32_t unique) { return group_of_position(unique_positions_[unique]); }, offsets_,
        items_);
    for (uint32_t item = 0; item < index_.size(); ++item) {
      positions_[item] = unique_positions_[items_[item]];
      order_[item] = slots_[items_[item]];
    }
  }

  // The first row of the slice that has this id; for ids alone.
  uint32_t first_item_of(const Partition& partition, int64_t id) const {
    return slots_[index_.find(partition.position_of(static_cast<uint64_t>(id)))];
  }

  // Items: distinct rows, grouped.
  uint32_t item_count() const { return index_.size(); }
  uint32_t group_first(uint32_t group) const { return offsets_[group]; }
  uint32_t group_count(uint32_t group) const { return offsets_[group + 1] - offsets_[group]; }
  const uint32_t* positions() const { return positions_.data(); }
  // Where an item's values lie: a row of the caller's buffer, or one of merged().
  const uint32_t* order() const { return order_.data(); }
  const float* merged() const { return merged_.data(); }

 private:
  void add_duplicate(uint32_t unique, const float* values, uint32_t i, uint32_t* merged_count) {
    const size_t elements = row_elements_;
    uint32_t& slot = slots_[unique];
    if ((slot & kMergedSlot) == 0) {
      start_sum(&merged_[*merged_count * elements], values + slot * elements, elements);
      slot = kMergedSlot | (*merged_count)++;
    }
    add_to_sum(&merged_[(slot & ~kMergedSlot) * elements], values + i * elements, elements);
  }

  uint32_t row_elements_ = 0;
  uint32_t groups_ = 0;
  RowIndex index_;
  std::span<uint32_t> slots_;             // unique -> slot
  std::span<uint32_t> unique_positions_;  // unique -> position
  std::span<uint32_t> items_;             // item -> unique
  std::span<uint32_t> positions_, order_, offsets_;
  std::span<float> merged_;
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_ROW_MERGE_H_
