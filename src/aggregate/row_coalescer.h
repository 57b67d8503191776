// SPDX-License-Identifier: Apache-2.0
// RowCoalescer: a slice's rows, duplicates coalesced, permuted to row keys and grouped by where
// they go: the first thing that happens to sparse rows, in a rank, before anything is sent. What
// comes of it is one block of memory that the caller gives: sums in their type, each begun from +0,
// of which others may go on without touching the rank's slice again. coalesce() may run as a job on
// the compute pool: nothing else touches the object until it has returned.
#ifndef PARALLAX_AGGREGATE_ROW_COALESCER_H_
#define PARALLAX_AGGREGATE_ROW_COALESCER_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "aggregate/coalesced_ids.h"
#include "aggregate/row_groups.h"
#include "aggregate/row_index.h"
#include "aggregate/row_kernels.h"
#include "aggregate/row_scratch.h"
#include "aggregate/row_slice.h"
#include "aggregate/rows_in_place.h"
#include "base/arena.h"
#include "base/check.h"
#include "base/half_numbers.h"
#include "base/vector_code.h"
#include "variable/partition.h"

namespace parallax {

struct RowCoalescerOptions {
  uint64_t rows_max = 0;
  uint32_t groups = 1;
  // Of the rows that come of it:
  uint32_t row_elements = 1;  // of the caller's rows
  SumType sum = SumType::kF32;
  bool counted = false;  // they end in one element more, a 1
  bool pieces = false;   // start() and add() are called, too
  // An index that others use, too, where nothing runs beside them; outlives the coalescer.
  RowScratch* scratch = nullptr;
};

class RowCoalescer final : public RowGroups {
 public:
  // Distinct rows that a slice of so many can have.
  static uint64_t distinct_max(uint64_t rows_max, const Partition& partition) {
    return std::min(rows_max, partition.rows());
  }
  // Of a block of `rows` distinct rows of so many bytes: the rows in the order in which they first
  // came, the row keys of the items, and the place of each item's row.
  static constexpr uint64_t block_bytes(uint64_t rows, uint64_t row_bytes) {
    return block_bytes(rows, row_bytes, rows);
  }
  // Of items of which so many have their rows in the block.
  static constexpr uint64_t block_bytes(uint64_t rows, uint64_t row_bytes, uint64_t items) {
    return rows * row_bytes + items * 2 * sizeof(uint32_t);
  }

  void lay_out(Arena& arena, const RowCoalescerOptions& options) {
    options_ = options;
    sum_elements_ = options.row_elements + (options.counted ? 1 : 0);
    RowGroups::lay_out(arena, options.rows_max, options.groups, options.scratch);
    if (options.pieces) slots_ = arena.take<uint32_t>(options.rows_max);
  }

  // Writes a block of block_bytes() of what there is, aligned to a cache line. Checked before: ids
  // are in 0..rows-1 or padding, and count <= rows_max. `more`: rows to be added to those of
  // `first`, which then has every row, in the same dtype.
  template <typename GroupOf>
  void coalesce(const Partition& partition, const RowSlice& first, const RowSlice& more,
                GroupOf group_of_row_key, std::byte* block) {
    begin_rows(first.count + uint64_t{more.count});
    rows_ = block;
    insert(partition, first);
    if (more.count > 0) insert(partition, more);
    place_items(block, count_, group_of_row_key, NumberOfUnique());
  }

  // The same of slices of several tables whose rows lie one behind the other, those of one
  // together: none has an id of another's. They may come in several calls: begin_parts(), then
  // add_parts() of those of some tables at a time, and end_parts().
  void begin_parts(std::byte* block) {
    clear();
    part_first_ = 0;
    rows_ = block;
  }
  void add_parts(const Partition& partition, std::span<const RowSlice> parts) {
    std::byte* const block = rows_;
    const size_t row_bytes = sum_elements_ * bytes_of_sum(options_.sum);
    for (size_t first = 0, end = 0; first < parts.size(); first = end) {
      uint64_t tokens = 0;
      for (; end < parts.size() && parts[end].ids.first == parts[first].ids.first; ++end) {
        tokens += parts[end].count;
      }
      // By an index for them alone, which is near, and whatever else the scratch is used for
      // between two calls.
      begin_rows(tokens, true);
      // Rows that come more often take no more room than they need, and no more than there is.
      PARALLAX_CHECK(part_first_ <= rows_max_);
      const uint64_t room = rows_max_ - part_first_;
      if (tokens > room) index_in_use_->clear_for(room);
      unique_row_keys_ += part_first_;
      rows_ = block + part_first_ * row_bytes;
      for (size_t part = first; part < end; ++part) insert(partition, parts[part]);
      part_first_ += count_;
    }
    rows_ = block;
  }
  template <typename GroupOf>
  void end_parts(GroupOf group_of_row_key) {
    std::byte* const block = rows_;
    clear();
    count_ = part_first_;
    place_items(block, count_, group_of_row_key, NumberOfUnique());
  }

  // The same of slices whose ids `found` has.
  template <typename GroupOf>
  void coalesce_found(const CoalescedIds& found, std::span<const RowSlice> slices,
                      GroupOf group_of_row_key, std::byte* block) {
    clear();
    rows_ = block;
    use_row_keys_of(found);
    uint32_t before = 0;
    for (const RowSlice& slice : slices) {
      with_addend_types(slice.values.dtype, options_.sum, [&](auto in, auto sum) {
        using In = typename decltype(in)::type;
        using Sum = typename decltype(sum)::type;
        add_found<In, Sum>(found.uniques() + before, found.padded(), slice);
      });
      before += slice.count;
    }
    place_items(block, count_, group_of_row_key, NumberOfUnique());
  }

  // The same of a slice of numbers as sums are, which others read where it lies: a row that comes
  // once is not copied (RowsInPlace). The block has the rows of the others alone, block_rows() of
  // them. `found` may be null.
  template <typename GroupOf>
  void coalesce_in_place(const Partition& partition, const RowSlice& slice,
                         const CoalescedIds* found, GroupOf group_of_row_key, std::byte* block) {
    rows_ = block;
    const uint32_t* numbers = nullptr;
    uint32_t distinct_max = 0;
    if (found != nullptr) {
      clear();
      use_row_keys_of(*found);
      groups_ = options_.scratch->second_numbers();
      numbers = found->uniques();
      distinct_max = found->item_count();
    } else {
      begin_rows(slice.count);
      uint32_t* const to = options_.scratch->third_numbers();
      std::fill_n(to, slice.count, kNoSlot);
      insert_ids(partition, slice, [to](const Found& rows) {
        for (uint32_t i = 0; i < rows.count; ++i) to[rows.places[i]] = rows.uniques[i];
      });
      numbers = to;
      distinct_max = count_;
    }
    const RowsInPlace rows(numbers, slice.count, distinct_max, options_.scratch->fourth_numbers(),
                           groups_);
    count_ = rows.distinct();
    with_sum_type(options_.sum, [&](auto sum) {
      using Sum = typename decltype(sum)::type;
      uint32_t begun = 0;
      rows.each_repeated(slice.values.rows, options_.row_elements * sizeof(Sum),
                         [&](const uint32_t* places, const uint32_t* of_slice, uint32_t count) {
                           begun = add_rows<Sum, Sum>(places, of_slice, count, begun,
                                                      slice.values.rows);
                         });
    });
    place_items(block, rows.repeated(), group_of_row_key,
                [&rows](uint32_t unique) { return rows.place(unique); });
  }
  // Whether there is room for what that takes.
  bool may_stay(uint32_t tokens) const {
    return options_.scratch != nullptr && !options_.counted && tokens <= RowsInPlace::kInSlice &&
           tokens <= options_.scratch->slots_max();
  }

  // The same of rows that are distinct: nothing is looked for or added up, and a count that they
  // end in is theirs.
  template <typename GroupOf>
  void take(const DistinctRows& distinct, GroupOf group_of_row_key, std::byte* block) {
    clear();
    rows_ = block;
    PARALLAX_CHECK(distinct.count <= options_.rows_max);
    const size_t row_bytes = sum_elements_ * bytes_of_sum(options_.sum);
    for (uint32_t i = 0; i < distinct.count; ++i) {
      unique_row_keys_[i] = distinct.row_keys[i];
      std::memcpy(block + i * row_bytes, distinct.rows + distinct.order[i] * row_bytes, row_bytes);
    }
    count_ = distinct.count;
    place_items(block, count_, group_of_row_key, NumberOfUnique());
  }

  // The same of a slice whose ids are there, and whose values come front to back: start(), by which
  // the block has all but the rows, and then add() of what has come of them, until all have. The
  // block in the end, and its bits, are those of coalesce().
  template <typename GroupOf>
  void start(const Partition& partition, const RowSlice& slice, GroupOf group_of_row_key,
             std::byte* block) {
    begin(slice.count);
    rows_ = block;
    std::fill_n(slots_.begin(), slice.count, kNoSlot);
    insert_ids(partition, slice, [this](const Found& found) {
      for (uint32_t i = 0; i < found.count; ++i) slots_[found.places[i]] = found.uniques[i];
    });
    place_items(block, count_, group_of_row_key, NumberOfUnique());
    // Behind group() these are free: they have where each row is added to last.
    for (uint32_t i = 0; i < slice.count; ++i) {
      if (slots_[i] != kNoSlot) groups_[slots_[i]] = i;
    }
    begun_ = ready_ = 0;
  }
  // Rows `first` to `end` of the slice, which follow those that were added before.
  void add(const RowSlice& slice, uint32_t first, uint32_t end) {
    with_addend_types(slice.values.dtype, options_.sum, [&](auto in, auto sum) {
      using In = typename decltype(in)::type;
      using Sum = typename decltype(sum)::type;
      for (uint32_t i = first; i < end; ++i) {
        const uint32_t unique = slots_[i];
        if (unique == kNoSlot) continue;
        // They are numbered in the order in which they first come.
        add_row<In, Sum>(unique, slice.values.rows, i, unique == begun_);
        if (unique == begun_) ++begun_;
        // No more of these than places that were read.
        if (groups_[unique] == i) slots_[ready_++] = unique;
      }
    });
  }
  // Distinct rows to which nothing is added any more, in the order in which they came to be: so
  // many, and the at-th of them. What add() goes on to do does not touch them.
  uint32_t ready_count() const { return ready_; }
  uint32_t ready_row_key(uint32_t at) const { return unique_row_keys_[slots_[at]]; }
  const std::byte* ready_row(uint32_t at) const {
    return rows_ + slots_[at] * sum_elements_ * bytes_of_sum(options_.sum);
  }

  // Rows in the block.
  uint32_t block_rows() const { return block_rows_; }

 private:
  struct NumberOfUnique {
    uint32_t operator()(uint32_t unique) const { return unique; }
  };

  // Tokens that are looked at together: their ids, and which they are of the slice; and then the
  // distinct rows that they are of. Those from `begun` on are new, in their order.
  struct Found {
    uint32_t count = 0, begun = 0;
    std::array<uint32_t, kRowsTogether> ids, places, uniques;
  };

  // Finds the two types once per slice: what it holds, and what that is summed in. Integers are
  // never converted.
  void insert(const Partition& partition, const RowSlice& slice) {
    with_addend_types(slice.values.dtype, options_.sum, [&](auto in, auto sum) {
      using In = typename decltype(in)::type;
      using Sum = typename decltype(sum)::type;
      insert_ids(partition, slice, [this, values = slice.values.rows](const Found& found) {
        add_rows<In, Sum>(found.uniques.data(), found.places.data(), found.count, found.begun,
                          values);
      });
    });
  }

  // Rows places[i] of `values` to the distinct rows uniques[i], of which those from `begun` on are
  // new, in their order: begun, and so many more.
  template <typename In, typename Sum>
  uint32_t add_rows(const uint32_t* uniques, const uint32_t* places, uint32_t count, uint32_t begun,
                    const std::byte* values) {
    uint32_t next = begun;
    if constexpr (std::is_same_v<In, Half>) {
      if (options_.row_elements < kVectorCountMin && has_half_instructions() &&
          !is_mostly_padding(places, count)) {
        return add_half_rows<Sum>(uniques, places, count, begun, values);
      }
    }
    if constexpr (std::is_same_v<In, float> && std::is_same_v<Sum, float>) {
      const bool narrow =
          !options_.counted && with_narrow_width(options_.row_elements, [&](auto width) {
            next = add_narrow_rows<width>(reinterpret_cast<float*>(rows_), values, uniques, places,
                                          count, begun);
          });
      if (narrow) return next;
    }
    for (uint32_t i = 0; i < count; ++i) {
      const bool inserted = uniques[i] == next;
      add_row<In, Sum>(uniques[i], values, places[i], inserted);
      next += inserted ? 1 : 0;
    }
    return next;
  }

  // Of the rows between these ones.
  static bool is_mostly_padding(const uint32_t* places, uint32_t count) {
    return count == 0 || places[count - 1] - places[0] >= 2 * count;
  }

  // The same of rows of f16, each too short for the instructions that widen it, without which that
  // takes longer than the sum: those from the first to the last, kRowsTogether at most, are widened
  // together. bf16 is widened by a shift, for which this does not pay.
  template <typename Sum>
  uint32_t add_half_rows(const uint32_t* uniques, const uint32_t* places, uint32_t count,
                         uint32_t begun, const std::byte* values) {
    const uint32_t first = places[0], together = places[count - 1] + 1 - first;
    PARALLAX_CHECK(together <= kRowsTogether);
    const size_t elements = options_.row_elements;
    alignas(kPrefetchBytes) std::array<std::byte, kRowsTogether * kVectorCountMin * sizeof(float)>
        floats;
    widen_halves(values + first * elements * sizeof(Half), floats.data(), together * elements);
    std::array<uint32_t, kRowsTogether> rows;
    for (uint32_t i = 0; i < count; ++i) rows[i] = places[i] - first;
    return add_rows<float, Sum>(uniques, rows.data(), count, begun, floats.data());
  }

  // Rows that were found, in the order of the slice: their distinct ones are numbered in the order
  // in which they first come.
  template <typename In, typename Sum>
  void add_found(const uint32_t* found, bool padded, const RowSlice& slice) {
    const std::byte* values = slice.values.rows;
    for (uint32_t first = 0; first < slice.count; first += kRowsTogether) {
      const uint32_t together = std::min(slice.count - first, kRowsTogether);
      const uint32_t* const uniques = found + first;
      if (!padded) {
        count_ = add_rows<In, Sum>(uniques, kEach.data(), together, count_, values);
      } else {
        Found rows;
        for (uint32_t i = 0; i < together; ++i) {
          rows.uniques[rows.count] = uniques[i];
          rows.places[rows.count] = i;
          rows.count += uniques[i] != kNoSlot ? 1 : 0;
        }
        count_ =
            add_rows<In, Sum>(rows.uniques.data(), rows.places.data(), rows.count, count_, values);
      }
      values += size_t{together} * options_.row_elements * sizeof(In);
    }
  }

  static constexpr std::array<uint32_t, kRowsTogether> kEach = [] {
    std::array<uint32_t, kRowsTogether> each = {};
    for (uint32_t i = 0; i < kRowsTogether; ++i) each[i] = i;
    return each;
  }();

  template <typename Visit>
  void insert_ids(const Partition& partition, const RowSlice& slice, const Visit& visit) {
    with_ids(slice.ids, [&](auto ids) { insert_each(partition, ids, slice.count, visit); });
  }

  // begin() of a slice with its rows.
  void begin_rows(uint64_t tokens, bool keeps_row_keys = false) {
    begin(tokens);
    if (index_in_use_ == &index_) return;
    if (!keeps_row_keys) unique_row_keys_ = options_.scratch->first_numbers();
    groups_ = options_.scratch->second_numbers();
  }

  // Of a block behind its rows, so many.
  template <typename GroupOf, typename RowOf>
  void place_items(std::byte* block, uint32_t rows, GroupOf group_of_row_key, RowOf row_of) {
    block_rows_ = rows;
    const size_t rows_bytes = rows * sum_elements_ * bytes_of_sum(options_.sum);
    row_keys_ = reinterpret_cast<uint32_t*>(block + rows_bytes);
    order_ = row_keys_ + count_;
    group_each(group_of_row_key, row_of);
  }

  // Visits the tokens that are no padding, some at a time.
  template <typename Ids, typename Visit>
  void insert_each(const Partition& partition, const Ids& ids, uint32_t count, const Visit& visit) {
    if (insert_sorted(partition, ids, count, visit)) return;
    const uint32_t begun = count_;
    std::array<Found, 2> both = {};  // the next ones are asked of the memory before these are found
    look_at(ids, 0, count, &both[0]);
    for (uint32_t first = 0; first < count; first += kRowsTogether) {
      const uint32_t turn = first / kRowsTogether;
      Found& found = both[turn % 2];
      if (count - first > kRowsTogether) {
        look_at(ids, first + kRowsTogether, count, &both[(turn + 1) % 2]);
      }
      found.begun = count_;
      PARALLAX_CHECK(index_in_use_->find_or_insert_each(
          found.ids.data(), found.count, found.uniques.data(),
          [id_of = groups_, ids = found.ids.data()](uint32_t unique, uint32_t i) {
            id_of[unique] = ids[i];
          }));
      count_ = index_in_use_->size();
      visit(found);
    }
    find_row_keys(partition, begun);
  }

  template <typename Ids, typename Visit>
  bool insert_sorted(const Partition& partition, const Ids& ids, uint32_t count,
                     const Visit& visit) {
    if (index_in_use_ == &index_) return false;
    uint32_t* const uniques = options_.scratch->third_numbers();
    const auto note = [&ids, id_of = groups_](uint32_t unique, uint32_t i) {
      id_of[unique] = static_cast<uint32_t>(ids[i]);
    };
    if (!find_all_by_sort(partition, ids, count, uniques, note)) return false;
    uint32_t next = 0;
    for (uint32_t first = 0; first < count; first += kRowsTogether) {
      Found found;
      found.begun = next;
      const uint32_t end = std::min(count - first, kRowsTogether) + first;
      for (uint32_t i = first; i < end; ++i) {
        found.uniques[found.count] = uniques[i];
        found.places[found.count] = i;
        next += uniques[i] == next ? 1 : 0;
        found.count += uniques[i] != kNoSlot ? 1 : 0;
      }
      visit(found);
    }
    find_row_keys(partition, 0);
    return true;
  }

  template <typename Ids>
  void look_at(const Ids& ids, uint32_t first, uint32_t count, Found* found) const {
    const uint32_t end = std::min(count - first, kRowsTogether) + first;
    const bool far = index_in_use_->is_far();
    found->count = 0;
    for (uint32_t i = first; i < end; ++i) {
      if (ids[i] == kPaddingId) continue;
      const auto id = static_cast<uint32_t>(ids[i]);
      found->ids[found->count] = id;
      found->places[found->count++] = i;
      if (far) index_in_use_->prefetch(id);
    }
  }

  template <typename In, typename Sum>
  void add_row(uint32_t unique, const std::byte* values, size_t i, bool inserted) {
    const size_t elements = options_.row_elements;
    Sum* const row = reinterpret_cast<Sum*>(rows_) + unique * sum_elements_;
    const std::byte* const from = values + i * elements * sizeof(In);
    if (!inserted) return add_to_sum<In, Sum>(row, from, elements);
    start_sum<In, Sum>(row, from, elements);
    // One rank, however many of its rows are summed.
    if (options_.counted) row[elements] = Sum{1};
  }

  RowCoalescerOptions options_;
  size_t sum_elements_ = 1;
  std::byte* rows_ = nullptr;
  uint32_t block_rows_ = 0;
  // In pieces: row of the slice -> unique; in front of those that are still to be added, the ready
  // ones; and uniques.
  std::span<uint32_t> slots_;
  uint32_t begun_ = 0, ready_ = 0;
  uint32_t part_first_ = 0;  // distinct rows of the parts before
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_ROW_COALESCER_H_
