// SPDX-License-Identifier: Apache-2.0
// RowCoalescer: a slice's rows, duplicates coalesced, permuted to row keys and grouped by where
// they go: the first thing that happens to sparse rows, in a rank, before anything is sent. What
// comes of it is one block of memory that the caller gives: sums in their type, each begun from +0,
// of which others may go on without touching the rank's slice again. coalesce() may run as a job on
// the compute pool: nothing else touches the object until it has returned.
//
// Ids alone, of a pull, are kept with what was found of them: which distinct row each of them is. A
// push of the same ids is then coalesced without looking for any of them again.
#ifndef PARALLAX_AGGREGATE_ROW_COALESCER_H_
#define PARALLAX_AGGREGATE_ROW_COALESCER_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "aggregate/row_index.h"
#include "aggregate/row_kernels.h"
#include "aggregate/row_scratch.h"
#include "aggregate/row_slice.h"
#include "base/arena.h"
#include "base/check.h"
#include "base/vector_code.h"
#include "variable/partition.h"

namespace parallax {

struct RowCoalescerOptions {
  uint64_t rows_max = 0;
  uint32_t groups = 1;
  bool ids_alone = false;  // no values: items keep the row of the slice that they were first in
  // Else, of the rows that come of it:
  uint32_t row_elements = 1;  // of the caller's rows
  SumType sum = SumType::kF32;
  bool counted = false;  // they end in one element more, a 1
  bool pieces = false;   // start() and add() are called, too
  // An index that others use, too, where nothing runs beside them; outlives the coalescer.
  RowScratch* scratch = nullptr;
};

class RowCoalescer {
 public:
  RowCoalescer() = default;
  RowCoalescer(const RowCoalescer&) = delete;
  RowCoalescer& operator=(const RowCoalescer&) = delete;

  // Distinct rows that a slice of so many can have.
  static uint64_t distinct_max(uint64_t rows_max, const Partition& partition) {
    return std::min(rows_max, partition.rows());
  }
  // Of a block of `rows` distinct rows of so many bytes: the rows in the order in which they first
  // came, the row keys of the items, and the place of each item's row.
  static constexpr uint64_t block_bytes(uint64_t rows, uint64_t row_bytes) {
    return rows * (row_bytes + 2 * sizeof(uint32_t));
  }

  void lay_out(Arena& arena, const RowCoalescerOptions& options) {
    options_ = options;
    const uint64_t rows_max = options.rows_max;
    sum_elements_ = options.row_elements + (options.counted ? 1 : 0);
    index_.lay_out(arena, rows_max);
    own_row_keys_ = arena.take<uint32_t>(rows_max);
    own_groups_ = arena.take<uint32_t>(rows_max);
    offsets_ = arena.take<uint32_t>(options.groups + 1);
    if (options.ids_alone || options.pieces) slots_ = arena.take<uint32_t>(rows_max);
    if (!options.ids_alone) return;
    row_keys_ = arena.take<uint32_t>(rows_max).data();
    order_ = arena.take<uint32_t>(rows_max).data();
    ids_ = arena.take<uint32_t>(rows_max);
    uniques_ = arena.take<uint32_t>(rows_max);
  }

  // Writes a block of block_bytes() of what there is, aligned to a cache line. Checked before: ids
  // are in 0..rows-1 or padding, and count <= rows_max. `more`: rows to be added to those of
  // `first`, which then has every row, in the same dtype.
  template <typename GroupOf>
  void coalesce(const Partition& partition, const RowSlice& first, const RowSlice& more,
                GroupOf group_of_row_key, std::byte* block) {
    begin(first.count + uint64_t{more.count});
    rows_ = block;
    if (index_in_use_ != &index_) {
      unique_row_keys_ = options_.scratch->first_numbers();
      groups_ = options_.scratch->second_numbers();
    }
    insert(partition, first);
    if (more.count > 0) insert(partition, more);
    place_items(block, group_of_row_key);
  }

  // The same of a slice whose ids `found`, of ids alone, has.
  template <typename GroupOf>
  void coalesce_found(const RowCoalescer& found, const RowSlice& slice, GroupOf group_of_row_key,
                      std::byte* block) {
    clear();
    rows_ = block;
    unique_row_keys_ = found.unique_row_keys_;
    with_addend_types(slice.values.dtype, options_.sum, [&](auto in, auto sum) {
      using In = typename decltype(in)::type;
      using Sum = typename decltype(sum)::type;
      add_found<In, Sum>(found, slice);
    });
    place_items(block, group_of_row_key);
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
    place_items(block, group_of_row_key);
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
    place_items(block, group_of_row_key);
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

  // The same of ids alone, of any number of slices that have so many rows together: begin(), then,
  // before anybody else takes the scratch, add_ids() of one slice after the other, of which those
  // before it have so many rows, and group(), where somebody asks for items. An item's row is then
  // counted over all of them.
  void begin(uint64_t tokens) {
    clear();
    if (options_.scratch == nullptr) return;
    RowIndex* const shared = options_.scratch->begin(this, std::min(tokens, options_.rows_max));
    if (shared != nullptr) index_in_use_ = shared;
  }
  void add_ids(const Partition& partition, const RowIds& ids, uint32_t count, uint32_t before) {
    keep(ids, count, before);
    const uint32_t begun = count_;
    for (uint32_t i = 0; i < std::min(count, kRowsTogether); ++i) {
      index_in_use_->prefetch(ids_[before + i]);
    }
    for (uint32_t first = 0; first < count; first += kRowsTogether) {
      const uint32_t together = std::min(count - first, kRowsTogether);
      find_kept(before + first, together, std::min(count - first - together, kRowsTogether));
    }
    find_row_keys(partition, begun);
  }
  // Of ids alone: those of the slice are the ones that were added, or the first of them, in their
  // order. What they are found by is then a matter of them alone.
  bool has(const RowSlice& slice) const {
    if (slice.count > kept_) return false;
    bool differs = false;
    with_ids(slice.ids, [&](auto ids) {
      // Most often they are, or differ from the beginning.
      constexpr uint32_t kTogether = 256;
      for (uint32_t first = 0; first < slice.count && !differs; first += kTogether) {
        const uint32_t end = std::min(slice.count - first, kTogether) + first;
        in_vectors([&differs, ids, first, end, kept = ids_.data()] {
          uint32_t bits = 0;
          for (uint32_t i = first; i < end; ++i) bits |= static_cast<uint32_t>(ids[i]) ^ kept[i];
          differs = bits != 0;
        });
      }
    });
    return !differs;
  }
  // Stable.
  template <typename GroupOf>
  void group(GroupOf group_of_row_key) {
    const uint32_t count = count_;
    std::fill(offsets_.begin(), offsets_.end(), 0);
    for (uint32_t unique = 0; unique < count; ++unique) {
      groups_[unique] = group_of_row_key(unique_row_keys_[unique]);
      ++offsets_[groups_[unique] + 1];
    }
    for (uint32_t g = 0; g < options_.groups; ++g) offsets_[g + 1] += offsets_[g];
    if (options_.ids_alone) {
      // From the back, so that the first of each stays.
      for (uint32_t row = kept_; row-- > 0;) {
        if (uniques_[row] != kNoSlot) slots_[uniques_[row]] = row;
      }
      place_each([this](uint32_t unique) { return slots_[unique]; });
    } else {
      place_each([](uint32_t unique) { return unique; });
    }
  }

  // Of ids alone, grouped: the first row that has the id of this one; kNoSlot: it is padding.
  uint32_t first_row_of(uint32_t row) const {
    const uint32_t unique = uniques_[row];
    return unique == kNoSlot ? kNoSlot : slots_[unique];
  }

  // Of ids alone: of each row which distinct row it is, kNoSlot: it is padding; and their row keys.
  const uint32_t* uniques() const { return uniques_.data(); }
  const uint32_t* unique_row_keys() const { return unique_row_keys_; }

  // Items: distinct rows, grouped.
  uint32_t item_count() const { return count_; }
  uint32_t group_first(uint32_t group) const { return offsets_[group]; }
  uint32_t group_count(uint32_t group) const { return offsets_[group + 1] - offsets_[group]; }
  const uint32_t* row_keys() const { return row_keys_; }
  // Where an item's row lies: in the block; of ids alone, in the slice.
  const uint32_t* order() const { return order_; }

 private:
  struct EveryRow {
    int64_t operator[](uint32_t i) const { return i; }
  };

  // Tokens that are looked at together: their ids, and which they are of the slice; and then the
  // distinct rows that they are of. Those from `begun` on are new, in their order.
  struct Found {
    uint32_t count = 0, begun = 0;
    std::array<uint32_t, kRowsTogether> ids, places, uniques;
  };

  void clear() {
    index_.clear();
    index_in_use_ = &index_;
    unique_row_keys_ = own_row_keys_.data();
    groups_ = own_groups_.data();
    count_ = 0;
    kept_ = 0;
    padded_ = false;
  }

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

  // Rows that `found` has found, in the order of the slice: their distinct ones are numbered in the
  // order in which they first come.
  template <typename In, typename Sum>
  void add_found(const RowCoalescer& found, const RowSlice& slice) {
    const std::byte* values = slice.values.rows;
    for (uint32_t first = 0; first < slice.count; first += kRowsTogether) {
      const uint32_t together = std::min(slice.count - first, kRowsTogether);
      const uint32_t* const uniques = found.uniques_.data() + first;
      if (!found.padded_) {
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

  // Padding, kept: no row has that id (variable.cc bounds their number).
  static constexpr uint32_t kPaddingKept = UINT32_MAX;

  // Copied, since the caller may write there before they are asked for again.
  void keep(const RowIds& ids, uint32_t count, uint32_t before) {
    with_ids(ids, [&](auto from) {
      in_vectors([from, count, to = ids_.data() + before] {
        for (uint32_t i = 0; i < count; ++i) to[i] = static_cast<uint32_t>(from[i]);
      });
    });
    kept_ = before + count;
  }

  // Of the kept ids from `first` on so many, and which they are; `next` of those behind them are
  // asked of the memory.
  void find_kept(uint32_t first, uint32_t count, uint32_t next) {
    const uint32_t* const ids = ids_.data() + first;
    uint32_t* const uniques = uniques_.data() + first;
    uint32_t padding = 0;
    for (uint32_t i = 0; i < count; ++i) padding += ids[i] == kPaddingKept ? 1 : 0;
    for (uint32_t i = 0; i < next; ++i) index_in_use_->prefetch(ids[count + i]);
    if (padding == 0) {
      PARALLAX_CHECK(index_in_use_->find_or_insert_each(ids, count, uniques));
      for (uint32_t i = 0; i < count; ++i) groups_[uniques[i]] = ids[i];
    } else {
      padded_ = true;
      for (uint32_t i = 0; i < count; ++i) {
        uniques[i] = kNoSlot;
        if (ids[i] == kPaddingKept) continue;
        PARALLAX_CHECK(index_in_use_->find_or_insert_each(ids + i, 1, uniques + i));
        groups_[uniques[i]] = ids[i];
      }
    }
    count_ = index_in_use_->size();
  }

  // The row keys of the distinct rows from `first` on, whose ids stand where their groups will.
  void find_row_keys(const Partition& partition, uint32_t first) {
    std::array<uint32_t, kRowsTogether> some = {};
    for (; first < count_; first += kRowsTogether) {
      const uint32_t together = std::min(count_ - first, kRowsTogether);
      std::copy_n(groups_ + first, together, some.data());
      // Behind the last ones stand row keys, which are rows, too.
      partition.row_keys_of(&some);
      std::copy_n(some.data(), together, unique_row_keys_ + first);
    }
  }

  template <typename Visit>
  void insert_ids(const Partition& partition, const RowSlice& slice, Visit visit) {
    with_ids(slice.ids, [&](auto ids) { insert_each(partition, ids, slice.count, visit); });
  }

  // Calls visit(ids) for what has an id at each place.
  template <typename Visit>
  static void with_ids(const RowIds& ids, Visit visit) {
    if (ids.wide != nullptr) {
      visit(ids.wide);
    } else if (ids.narrow != nullptr) {
      visit(ids.narrow);
    } else {
      visit(EveryRow());
    }
  }

  // Moves each offset on to where the next group begins; the last loop moves them back.
  template <typename RowOf>
  void place_each(RowOf row_of) {
    for (uint32_t unique = 0; unique < count_; ++unique) {
      const uint32_t item = offsets_[groups_[unique]]++;
      row_keys_[item] = unique_row_keys_[unique];
      order_[item] = row_of(unique);
    }
    for (uint32_t g = options_.groups; g > 0; --g) offsets_[g] = offsets_[g - 1];
    offsets_[0] = 0;
  }

  // Of a block behind its rows.
  template <typename GroupOf>
  void place_items(std::byte* block, GroupOf group_of_row_key) {
    const size_t rows_bytes = count_ * sum_elements_ * bytes_of_sum(options_.sum);
    row_keys_ = reinterpret_cast<uint32_t*>(block + rows_bytes);
    order_ = row_keys_ + count_;
    group(group_of_row_key);
  }

  // Visits the tokens that are no padding, some at a time.
  template <typename Ids, typename Visit>
  void insert_each(const Partition& partition, const Ids& ids, uint32_t count, Visit visit) {
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
      PARALLAX_CHECK(
          index_in_use_->find_or_insert_each(found.ids.data(), found.count, found.uniques.data()));
      count_ = index_in_use_->size();
      for (uint32_t i = 0; i < found.count; ++i) groups_[found.uniques[i]] = found.ids[i];
      visit(found);
    }
    find_row_keys(partition, begun);
  }

  template <typename Ids>
  void look_at(const Ids& ids, uint32_t first, uint32_t count, Found* found) const {
    const uint32_t end = std::min(count - first, kRowsTogether) + first;
    found->count = 0;
    for (uint32_t i = first; i < end; ++i) {
      if (ids[i] == kPaddingId) continue;
      const auto id = static_cast<uint32_t>(ids[i]);
      found->ids[found->count] = id;
      found->places[found->count++] = i;
      index_in_use_->prefetch(id);
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
  RowIndex index_;                    // of ids
  RowIndex* index_in_use_ = &index_;  // while ids are inserted: or that of the scratch
  uint32_t count_ = 0;                // of uniques
  // Of ids alone: unique -> row of the slice. In pieces: row of the slice -> unique; in front of
  // those that are still to be added, the ready ones.
  std::span<uint32_t> slots_;
  // Of its own, or of the scratch: unique -> row key; unique -> group, in pieces then its last row.
  uint32_t* unique_row_keys_ = nullptr;
  uint32_t* groups_ = nullptr;
  std::span<uint32_t> own_row_keys_, own_groups_;
  std::span<uint32_t> offsets_;
  uint32_t* row_keys_ = nullptr;
  uint32_t* order_ = nullptr;
  // Of ids alone: row of the slices -> its id, and -> unique, where it is no padding.
  std::span<uint32_t> ids_, uniques_;
  uint32_t kept_ = 0;
  bool padded_ = false;             // some of these are padding
  uint32_t begun_ = 0, ready_ = 0;  // in pieces: uniques
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_ROW_COALESCER_H_
