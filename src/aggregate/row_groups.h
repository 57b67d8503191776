// SPDX-License-Identifier: Apache-2.0
// RowGroups: what coalescing makes of row ids: distinct rows, numbered in the order in which they
// first come, their row keys, and items, which are these rows grouped by where they go. The base of
// who coalesces rows (row_coalescer.h), and ids alone (coalesced_ids.h).
#ifndef PARALLAX_AGGREGATE_ROW_GROUPS_H_
#define PARALLAX_AGGREGATE_ROW_GROUPS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "aggregate/group_items.h"
#include "aggregate/row_index.h"
#include "aggregate/row_scratch.h"
#include "aggregate/row_slice.h"
#include "aggregate/sorted_ids.h"
#include "base/arena.h"
#include "variable/partition.h"

namespace parallax {

class RowGroups {
 public:
  RowGroups(const RowGroups&) = delete;
  RowGroups& operator=(const RowGroups&) = delete;

  // Items: distinct rows, grouped.
  uint32_t item_count() const { return count_; }
  uint32_t group_first(uint32_t group) const { return offsets_[group]; }
  uint32_t group_count(uint32_t group) const { return offsets_[group + 1] - offsets_[group]; }
  const uint32_t* row_keys() const { return row_keys_; }
  // Where an item's row lies.
  const uint32_t* order() const { return order_; }

 protected:
  RowGroups() = default;
  ~RowGroups() = default;

  // `scratch`, of an index that others use, too, outlives this object; null: none.
  void lay_out(Arena& arena, uint64_t rows_max, uint32_t groups, RowScratch* scratch) {
    rows_max_ = rows_max;
    scratch_ = scratch;
    index_.lay_out(arena, rows_max);
    own_row_keys_ = arena.take<uint32_t>(rows_max);
    own_groups_ = arena.take<uint32_t>(rows_max);
    offsets_ = arena.take<uint32_t>(groups + 1);
  }
  void clear() {
    index_.clear();
    index_in_use_ = &index_;
    unique_row_keys_ = own_row_keys_.data();
    groups_ = own_groups_.data();
    count_ = 0;
  }
  // The rows are those of `found`, which others keep.
  void use_row_keys_of(const RowGroups& found) { unique_row_keys_ = found.unique_row_keys_; }
  // And with an index for so many ids.
  void begin(uint64_t tokens) {
    clear();
    tokens_ = tokens;
    if (scratch_ == nullptr) return;
    RowIndex* const shared = scratch_->begin(this, std::min(tokens, rows_max_));
    if (shared != nullptr) index_in_use_ = shared;
  }

  // All ids of what was begun, where they are so many that a sort finds their rows sooner than the
  // index: uniques[i] of ids[i], and note(unique, i) for the first of each (sorted_ids.h). False:
  // they are not, or there is no room for it.
  template <typename Ids, typename Note>
  [[nodiscard]] bool find_all_by_sort(const Partition& partition, const Ids& ids, uint32_t count,
                                      uint32_t* uniques, Note note) {
    if (std::min<uint64_t>(count, partition.rows()) < kSortedIdsMin || count != tokens_)
      return false;
    const std::span<uint64_t> room = index_in_use_->lend(count);
    if (room.empty()) return false;
    count_ = find_by_sort(ids, count, room, uniques, note);
    return true;
  }

  // The row keys of the distinct rows from `first` on, whose ids stand where their groups will.
  void find_row_keys(const Partition& partition, uint32_t first) {
    partition.row_keys_of(groups_ + first, count_ - first, unique_row_keys_ + first);
  }

  // Groups all distinct rows, by a function of a row key or, faster, one that has find() as
  // GroupByOwner has it; row_of(number) is where a row lies. Stable.
  template <typename GroupOf, typename RowOf>
  void group_each(GroupOf group_of_row_key, RowOf row_of) {
    const uint32_t count = count_;
    const auto last = static_cast<uint32_t>(offsets_.size()) - 1;
    if (last == 1) {
      offsets_[0] = 0;
      offsets_[1] = count;
      std::copy_n(unique_row_keys_, count, row_keys_);
      for (uint32_t unique = 0; unique < count; ++unique) order_[unique] = row_of(unique);
      return;
    }
    if constexpr (requires { group_of_row_key.find(unique_row_keys_, count, groups_); }) {
      group_of_row_key.find(unique_row_keys_, count, groups_);
    } else {
      for (uint32_t unique = 0; unique < count; ++unique) {
        groups_[unique] = group_of_row_key(unique_row_keys_[unique]);
      }
    }
    place_grouped({groups_, count}, last, offsets_,
                  [unique_row_keys = unique_row_keys_, row_keys = row_keys_, order = order_,
                   row_of](uint32_t item, uint32_t unique) {
                    row_keys[item] = unique_row_keys[unique];
                    order[item] = row_of(unique);
                  });
  }

  // Calls visit(ids) for what has an id at each place.
  template <typename Visit>
  static void with_ids(const RowIds& ids, const Visit& visit) {
    if (ids.wide == nullptr && ids.narrow == nullptr) {
      visit(EveryRow{ids.first});
    } else if (ids.first != 0) {
      ids.wide != nullptr ? visit(Shifted<int64_t>{ids.wide, ids.first})
                          : visit(Shifted<int32_t>{ids.narrow, ids.first});
    } else if (ids.wide != nullptr) {
      visit(ids.wide);
    } else {
      visit(ids.narrow);
    }
  }

  uint64_t rows_max_ = 0;
  uint64_t tokens_ = 0;  // begun
  RowScratch* scratch_ = nullptr;
  RowIndex index_;                    // of ids
  RowIndex* index_in_use_ = &index_;  // while ids are inserted: or that of the scratch
  uint32_t count_ = 0;                // of uniques
  // Of its own, or of others: unique -> row key; unique -> group, or whatever else it is used for.
  uint32_t* unique_row_keys_ = nullptr;
  uint32_t* groups_ = nullptr;
  uint32_t* row_keys_ = nullptr;
  uint32_t* order_ = nullptr;

 private:
  struct EveryRow {
    int64_t first;
    int64_t operator[](uint32_t i) const { return first + i; }
  };
  template <typename Id>
  struct Shifted {
    const Id* ids;
    int64_t first;
    int64_t operator[](uint32_t i) const {
      const int64_t id = ids[i];
      return id == kPaddingId ? id : id + first;
    }
  };

  std::span<uint32_t> own_row_keys_, own_groups_;
  std::span<uint32_t> offsets_;
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_ROW_GROUPS_H_
