// SPDX-License-Identifier: Apache-2.0
// RowIndex: row key -> slot, open addressing over a fixed table of at least twice the bound, so a
// probe is short and nothing is ever allocated. Cleared by counting up a stamp. The table is sized
// at commit; find_or_insert of a new key past the bound says so instead of growing. Of a few rows
// the keys are a list, searched front to back: with thousands of small variables it is the cache
// lines that cost, and a list has one where a table is hit in half a dozen.
#ifndef PARALLAX_AGGREGATE_ROW_INDEX_H_
#define PARALLAX_AGGREGATE_ROW_INDEX_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "base/arena.h"

namespace parallax {

inline constexpr uint32_t kNoSlot = UINT32_MAX;

// So many rows are looked at together: where each lies is found, and asked of the memory, before
// the first of them is used, so that their cache misses overlap.
inline constexpr uint32_t kRowsTogether = 32;

class RowIndex {
 public:
  void lay_out(Arena& arena, uint64_t slots_max) {
    slots_max_ = slots_max;
    if (slots_max <= kListMax) {
      list_ = arena.take<uint32_t>(kListMax);
      return;
    }
    const int bits = std::bit_width(std::max<uint64_t>(slots_max, 8) * 2 - 1);
    entries_ = arena.take<Entry>(uint64_t{1} << bits);
    mask_ = static_cast<uint32_t>((uint64_t{1} << bits) - 1);
    shift_ = 32 - std::min(bits, 32);
  }

  void clear() {
    size_ = 0;
    if (++stamp_ == 0) {  // after 2^32 steps the old stamps mean something again
      std::fill(entries_.begin(), entries_.end(), Entry{});
      stamp_ = 1;
    }
  }

  uint32_t size() const { return size_; }

  // Asks the memory for where a row key is looked for first.
  void prefetch(uint32_t row_key) const {
    if (slots_max_ > kListMax) __builtin_prefetch(&entries_[hash(row_key) & mask_]);
  }

  uint32_t find(uint32_t row_key) const {
    if (slots_max_ <= kListMax) return find_in_list(row_key);
    for (uint32_t at = hash(row_key);; ++at) {
      const Entry& entry = entries_[at & mask_];
      if (entry.stamp != stamp_) return kNoSlot;
      if (entry.row_key == row_key) return entry.slot;
    }
  }

  // The slot of a row key; a new one gets slot size(). kNoSlot when the bound is reached.
  uint32_t find_or_insert(uint32_t row_key, bool* inserted) {
    if (slots_max_ <= kListMax) return find_or_list(row_key, inserted);
    for (uint32_t at = hash(row_key);; ++at) {
      Entry& entry = entries_[at & mask_];
      if (entry.stamp == stamp_ && entry.row_key == row_key) {
        *inserted = false;
        return entry.slot;
      }
      if (entry.stamp != stamp_) {
        *inserted = true;
        if (size_ == slots_max_) return kNoSlot;
        entry = {stamp_, row_key, size_};
        return size_++;
      }
    }
  }

 private:
  static constexpr uint64_t kListMax = 16;  // one cache line of keys

  struct Entry {
    uint32_t stamp = 0;
    uint32_t row_key = 0;
    uint32_t slot = 0;
  };

  uint32_t find_in_list(uint32_t row_key) const {
    for (uint32_t slot = 0; slot < size_; ++slot) {
      if (list_[slot] == row_key) return slot;
    }
    return kNoSlot;
  }

  uint32_t find_or_list(uint32_t row_key, bool* inserted) {
    const uint32_t slot = find_in_list(row_key);
    *inserted = slot == kNoSlot;
    if (!*inserted) return slot;
    if (size_ == slots_max_) return kNoSlot;
    list_[size_] = row_key;
    return size_++;
  }

  // Fibonacci hashing (Knuth 6.4): the top bits of a product.
  uint32_t hash(uint32_t row_key) const { return row_key * 2654435769u >> shift_; }

  std::span<uint32_t> list_;  // up to kListMax slots: their keys; else empty
  std::span<Entry> entries_;
  uint32_t mask_ = 0;
  int shift_ = 0;
  uint32_t stamp_ = 1;
  uint32_t size_ = 0;
  uint64_t slots_max_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_ROW_INDEX_H_
