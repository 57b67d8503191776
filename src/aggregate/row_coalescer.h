// SPDX-License-Identifier: Apache-2.0
// RowCoalescer: a slice's rows, duplicates coalesced, permuted to row keys and grouped by where
// they go: the first thing that happens to sparse rows, in a rank, before anything is sent. Rows
// without a duplicate are not copied; they are sent out of the caller's buffer. coalesce() may run
// as a job on the compute pool: nothing else touches the object until it has returned.
#ifndef PARALLAX_AGGREGATE_ROW_COALESCER_H_
#define PARALLAX_AGGREGATE_ROW_COALESCER_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "aggregate/row_index.h"
#include "aggregate/row_kernels.h"
#include "base/arena.h"
#include "message/outbox.h"
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
  // Moves each offset on to where the next group begins; the last loop moves them back.
  for (uint32_t i = 0; i < count; ++i) order[offsets[group_of(i)]++] = i;
  for (uint32_t g = groups; g > 0; --g) offsets[g] = offsets[g - 1];
  offsets[0] = 0;
}

// The row ids of a slice, of either width; id -1 is padding. Both null: row i has id i, as in a
// dense slice.
struct RowIds {
  const int64_t* wide = nullptr;
  const int32_t* narrow = nullptr;
  int64_t at(uint64_t i) const {
    if (wide != nullptr) return wide[i];
    return narrow != nullptr ? narrow[i] : static_cast<int64_t>(i);
  }
};
inline constexpr int64_t kPaddingId = -1;

// A slice's rows as the caller has them.
struct RowValues {
  const std::byte* rows = nullptr;  // null: ids alone
  uint32_t dtype = PARALLAX_F32;
};
struct RowSlice {
  RowIds ids;
  uint32_t count = 0;
  RowValues values;
};

struct RowCoalescerOptions {
  uint64_t rows_max = 0;
  uint32_t row_elements = 1;  // of the caller's rows
  uint32_t groups = 1;
  // Rows that are the sum of several; 0: ids alone are coalesced, no values.
  uint64_t coalesced_max = 0;
  SumType sum = SumType::kF32;
  bool counted = false;  // coalesced rows end in one element more, a 1
};

class RowCoalescer {
 public:
  void lay_out(Arena& arena, const RowCoalescerOptions& options) {
    options_ = options;
    const uint64_t rows_max = options.rows_max;
    coalesced_elements_ = options.row_elements + (options.counted ? 1 : 0);
    index_.lay_out(arena, rows_max);
    slots_ = arena.take<uint32_t>(rows_max);
    unique_row_keys_ = arena.take<uint32_t>(rows_max);
    items_ = arena.take<uint32_t>(rows_max);
    row_keys_ = arena.take<uint32_t>(rows_max);
    order_ = arena.take<uint32_t>(rows_max);
    offsets_ = arena.take<uint32_t>(options.groups + 1);
    coalesced_ = arena.take<std::byte>(options.coalesced_max * coalesced_elements_ *
                                       bytes_of_sum(options.sum));
  }

  // Checked before: ids are in 0..rows-1 or padding, and count <= rows_max. `more`: rows to be
  // added to those of `first`, which then has every row, in the same dtype.
  template <typename GroupOf>
  void coalesce(const Partition& partition, const RowSlice& first, const RowSlice& more,
                GroupOf group_of_row_key) {
    clear();
    // Where there are two slices, `first` has every row: the first of any id lies in it.
    first_values_ = first.values.rows;
    insert(partition, first);
    if (more.count > 0) insert(partition, more);
    group(group_of_row_key);
  }

  // The same of ids alone, of any number of slices that have rows_max rows together: clear(), then
  // add_ids() of one slice after the other, of which those before it have so many rows, then
  // group(). An item's row is then counted over all of them.
  void clear() {
    index_.clear();
    coalesced_count_ = 0;
  }
  void add_ids(const Partition& partition, const RowIds& ids, uint32_t count, uint32_t before) {
    insert(partition, {ids, count, {}}, before);
  }
  template <typename GroupOf>
  void group(GroupOf group_of_row_key) {
    group_items(
        index_.size(), options_.groups,
        [&](uint32_t unique) { return group_of_row_key(unique_row_keys_[unique]); }, offsets_,
        items_);
    for (uint32_t item = 0; item < index_.size(); ++item) {
      row_keys_[item] = unique_row_keys_[items_[item]];
      // Last, since a slot changes when its row gets a duplicate.
      order_[item] = slots_[items_[item]];
    }
  }

  // The first row that has this id; for ids alone.
  uint32_t first_item_of(const Partition& partition, int64_t id) const {
    return slots_[index_.find(partition.row_key_of(static_cast<uint64_t>(id)))];
  }

  // Items: distinct rows, grouped.
  uint32_t item_count() const { return index_.size(); }
  uint32_t group_first(uint32_t group) const { return offsets_[group]; }
  uint32_t group_count(uint32_t group) const { return offsets_[group + 1] - offsets_[group]; }
  const uint32_t* row_keys() const { return row_keys_.data(); }
  // Where an item's values lie: a row of the caller's buffer, or one of coalesced().
  const uint32_t* order() const { return order_.data(); }
  const std::byte* coalesced() const { return coalesced_.data(); }

 private:
  struct EveryRow {
    int64_t operator[](uint32_t i) const { return i; }
  };

  void insert(const Partition& partition, const RowSlice& slice, uint32_t before = 0) {
    if (slice.ids.wide != nullptr) {
      insert(partition, slice.ids.wide, slice, before);
    } else if (slice.ids.narrow != nullptr) {
      insert(partition, slice.ids.narrow, slice, before);
    } else {
      insert(partition, EveryRow(), slice, before);
    }
  }

  // Finds the two types once per slice: what it holds, and what that is summed in. Integers are
  // never converted.
  template <typename Ids>
  void insert(const Partition& partition, const Ids& ids, const RowSlice& slice, uint32_t before) {
    with_dtype(slice.values.dtype, [&](auto in) {
      with_sum_type(options_.sum, [&](auto sum) {
        using In = typename decltype(in)::type;
        using Sum = typename decltype(sum)::type;
        constexpr bool kFloats = !std::is_integral_v<In> && !std::is_integral_v<Sum>;
        if constexpr (kFloats || std::is_same_v<In, Sum>) {
          insert_as<In, Sum>(partition, ids, slice, before);
        }
      });
    });
  }

  template <typename In, typename Sum, typename Ids>
  void insert_as(const Partition& partition, const Ids& ids, const RowSlice& slice,
                 uint32_t before) {
    const std::byte* const values = slice.values.rows;
    std::array<uint32_t, kRowsTogether> row_keys = {};
    for (uint32_t first = 0; first < slice.count; first += kRowsTogether) {
      const uint32_t end = std::min(slice.count - first, kRowsTogether) + first;
      for (uint32_t i = first; i < end; ++i) {
        if (ids[i] == kPaddingId) continue;
        row_keys[i - first] = partition.row_key_of(static_cast<uint64_t>(ids[i]));
        index_.prefetch(row_keys[i - first]);
      }
      for (uint32_t i = first; i < end; ++i) {
        if (ids[i] == kPaddingId) continue;
        bool inserted;
        const uint32_t unique = index_.find_or_insert(row_keys[i - first], &inserted);
        if (inserted) {
          unique_row_keys_[unique] = row_keys[i - first];
          slots_[unique] = before + i;
        } else if (values != nullptr) {
          add_duplicate<In, Sum>(unique, values, i);
        }
      }
    }
  }

  template <typename In, typename Sum>
  void add_duplicate(uint32_t unique, const std::byte* values, size_t i) {
    const size_t elements = options_.row_elements;
    const size_t row_bytes = elements * sizeof(In);
    auto* coalesced = reinterpret_cast<Sum*>(coalesced_.data());
    uint32_t& slot = slots_[unique];
    // The first duplicate: until here the row would have been sent out of the caller's buffer, from
    // now on its sum is, which begins with it.
    if ((slot & kCoalescedSlot) == 0) {
      Sum* row = coalesced + coalesced_count_ * coalesced_elements_;
      start_sum<In, Sum>(row, first_values_ + slot * row_bytes, elements);
      // One rank, however many of its rows are summed.
      if (options_.counted) row[elements] = Sum{1};
      slot = kCoalescedSlot | coalesced_count_++;
    }
    add_to_sum<In, Sum>(coalesced + (slot & ~kCoalescedSlot) * coalesced_elements_,
                        values + i * row_bytes, elements);
  }

  RowCoalescerOptions options_;
  size_t coalesced_elements_ = 1;
  uint32_t coalesced_count_ = 0;
  const std::byte* first_values_ = nullptr;
  RowIndex index_;
  std::span<uint32_t> slots_;            // unique -> row of the slice, or of coalesced_
  std::span<uint32_t> unique_row_keys_;  // unique -> row key
  std::span<uint32_t> items_;            // item -> unique
  std::span<uint32_t> row_keys_, order_, offsets_;
  std::span<std::byte> coalesced_;
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_ROW_COALESCER_H_
