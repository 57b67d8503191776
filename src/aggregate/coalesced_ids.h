// SPDX-License-Identifier: Apache-2.0
// CoalescedIds: the ids of slices without their rows, as a pull has them: which distinct row each
// of them is, and items for those that are asked for them. They are kept, so that a push of the
// same ids is coalesced without looking for any of them again (RowCoalescer).
#ifndef PARALLAX_AGGREGATE_COALESCED_IDS_H_
#define PARALLAX_AGGREGATE_COALESCED_IDS_H_

#include <algorithm>
#include <cstdint>
#include <span>

#include "aggregate/row_groups.h"
#include "aggregate/row_slice.h"
#include "base/arena.h"
#include "base/check.h"
#include "base/prefetch.h"
#include "base/vector_code.h"
#include "variable/partition.h"

namespace parallax {

class CoalescedIds final : public RowGroups {
 public:
  // Of so many rows in all, and groups. `scratch`: an index that others use, too, where nothing
  // runs beside them; outlives this object; null: its own.
  void lay_out(Arena& arena, uint64_t rows_max, uint32_t groups, RowScratch* scratch) {
    RowGroups::lay_out(arena, rows_max, groups, scratch);
    rows_ = arena.take<uint32_t>(rows_max);
    row_keys_ = arena.take<uint32_t>(rows_max).data();
    order_ = arena.take<uint32_t>(rows_max).data();
    ids_ = arena.take<uint32_t>(rows_max);
    uniques_ = arena.take<uint32_t>(rows_max);
  }

  // Of any number of slices that have so many rows together: begin(), then, before anybody else
  // takes the scratch, add_ids() of one slice after the other, of which those before it have so
  // many rows, end_ids(), and group(), where somebody asks for items. An item's row, the first that
  // has its id, is then counted over all of them. Checked before: ids are in 0..rows-1 or padding.
  // `first_rows`: it is asked which row that is, by items or first_row_of(). `apart`: no slice has
  // an id of another, so that each is looked for among its own alone.
  void begin(uint64_t tokens, bool first_rows = true, bool apart = false) {
    RowGroups::begin(tokens);
    apart_ = apart;
    if (index_in_use_ != &index_) groups_ = scratch_->second_numbers();
    first_rows_ = first_rows;
    kept_ = 0;
    padded_ = false;
  }
  void add_ids(const Partition& partition, const RowIds& ids, uint32_t count, uint32_t before) {
    keep(ids, count, before);
    if (find_sorted(partition, count)) return;
    if (apart_) index_in_use_->begin_part(count);
    ask_for(before, std::min(count, kRowsTogether));
    for (uint32_t first = 0; first < count; first += kRowsTogether) {
      const uint32_t together = std::min(count - first, kRowsTogether);
      const uint32_t behind = first + together;
      ask_for(before + behind, std::min(count - behind, kRowsTogether));
      find_kept(before + first, together);
    }
  }
  void end_ids(const Partition& partition) { find_row_keys(partition, 0); }
  // Those of the slices are the ones that were added, or the first of them, in their order. What
  // they are found by is then a matter of them alone.
  bool has(std::span<const RowSlice> slices) const {
    uint32_t before = 0;
    for (const RowSlice& slice : slices) {
      if (!has(slice, before)) return false;
      before += slice.count;
    }
    return true;
  }
  bool has(const RowSlice& slice, uint32_t before = 0) const {
    if (slice.count > kept_ - before) return false;
    bool differs = false;
    with_ids(slice.ids, [&](auto ids) {
      // Most often they are, or differ from the beginning.
      constexpr uint32_t kTogether = 256;
      for (uint32_t first = 0; first < slice.count && !differs; first += kTogether) {
        const uint32_t end = std::min(slice.count - first, kTogether) + first;
        in_vectors([&differs, ids, first, end, kept = ids_.data() + before] {
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
    PARALLAX_CHECK(first_rows_);
    group_each(group_of_row_key, [this](uint32_t unique) { return rows_[unique]; });
  }

  // What it has, or is going to have, of the first ids is asked of the memory.
  void prefetch() const {
    constexpr size_t kBytes = 4 * kPrefetchBytes;
    prefetch_bytes(ids_.data(), std::min(kBytes, ids_.size_bytes()));
    prefetch_bytes(uniques_.data(), std::min(kBytes, uniques_.size_bytes()));
    prefetch_bytes(unique_row_keys_, std::min(kBytes, ids_.size_bytes()));
  }

  // The first row that has the id of this one; kNoSlot: it is padding.
  uint32_t first_row_of(uint32_t row) const {
    const uint32_t unique = uniques_[row];
    return unique == kNoSlot ? kNoSlot : rows_[unique];
  }

  // Of each row which distinct row it is, kNoSlot: it is padding; whether some are; and their row
  // keys.
  const uint32_t* uniques() const { return uniques_.data(); }
  bool padded() const { return padded_; }
  const uint32_t* unique_row_keys() const { return unique_row_keys_; }

 private:
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

  bool find_sorted(const Partition& partition, uint32_t count) {
    const uint32_t* const ids = ids_.data();
    const auto note = [ids, id_of = groups_, first_rows = first_rows_, rows = rows_.data()](
                          uint32_t unique, uint32_t row) {
      id_of[unique] = ids[row];
      if (first_rows) rows[unique] = row;
    };
    if (!find_all_by_sort(partition, ids, count, uniques_.data(), note)) return false;
    padded_ = std::find(ids, ids + count, kPaddingKept) != ids + count;
    return true;
  }

  // Of the kept ids from `first` on so many are asked of the memory.
  void ask_for(uint32_t first, uint32_t count) const {
    if (!index_in_use_->is_far()) return;
    for (uint32_t i = 0; i < count; ++i) index_in_use_->prefetch(ids_[first + i]);
  }

  // And so many are found.
  void find_kept(uint32_t first, uint32_t count) {
    const uint32_t* const ids = ids_.data() + first;
    uint32_t padding = 0;
    for (uint32_t i = 0; i < count; ++i) padding += ids[i] == kPaddingKept ? 1 : 0;
    if (padding == 0) return insert(first, count);
    padded_ = true;
    for (uint32_t i = 0; i < count; ++i) {
      uniques_[first + i] = kNoSlot;
      if (ids[i] != kPaddingKept) insert(first + i, 1);
    }
  }
  void insert(uint32_t first, uint32_t count) {
    const uint32_t* const ids = ids_.data() + first;
    const auto find = [=, this](auto note_row) {
      PARALLAX_CHECK(index_in_use_->find_or_insert_each(
          ids, count, uniques_.data() + first, [=, id_of = groups_](uint32_t unique, uint32_t i) {
            id_of[unique] = ids[i];
            note_row(unique, first + i);
          }));
    };
    if (first_rows_) {
      find([rows = rows_.data()](uint32_t unique, uint32_t row) { rows[unique] = row; });
    } else {
      find([](uint32_t, uint32_t) {});
    }
    count_ = index_in_use_->size();
  }

  std::span<uint32_t> rows_;           // unique -> row of the slices, where first_rows_
  std::span<uint32_t> ids_, uniques_;  // row of the slices -> its id, and -> unique
  uint32_t kept_ = 0;
  bool padded_ = false, first_rows_ = true, apart_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_COALESCED_IDS_H_
