// SPDX-License-Identifier: Apache-2.0
// RowIndex: row key -> slot, open addressing over a fixed table of at least twice the bound, so a
// probe is short and nothing is ever allocated. Slots are kept as numbers that go on from one
// clearing to the next, so that what lies below the first of them is free. So rows may come in
// parts, of which none has a row of another: what lies below the part's first is free then, too.
// The table is sized at commit; find_or_insert of a new key past the bound says so instead of
// growing. Who knows that fewer rows come uses as much of it as these need, which stays in the
// cache. Of a few rows the keys are a list, searched front to back: with thousands of small
// variables it is the cache lines that cost, and a list has one where a table is hit in half a
// dozen.
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
  // Tests begin near kFirstMax.
  explicit RowIndex(uint32_t first_number = 1) : first_(first_number), from_(first_number) {}

  void lay_out(Arena& arena, uint64_t slots_max) {
    laid_out_max_ = slots_max;
    if (slots_max <= kListMax) {
      slots_max_ = slots_max;
      list_ = arena.take<uint32_t>(kListMax);
      return;
    }
    entries_ = arena.take<Entry>(uint64_t{1} << use(slots_max));
  }

  void clear() { clear_for(laid_out_max_); }
  // Of so many slots, no more than were laid out, until it is cleared again.
  void clear_for(uint64_t slots_max) {
    const uint64_t first = uint64_t{first_} + size_;
    if (size_ > 0) mask_most_ = std::max(mask_most_, mask_);
    first_ = from_ = static_cast<uint32_t>(first);
    size_ = 0;
    if (is_list()) {
      slots_max_ = slots_max;
      return;
    }
    use(slots_max);
    if (first + slots_max_ > kFirstMax && first > 1) {
      // Once in 2^31 rows. Behind those that were used nothing was written.
      std::fill_n(entries_.begin(), size_t{mask_most_} + 1, Entry{0});
      first_ = from_ = 1;
      mask_most_ = 0;
    }
  }
  // Another part begins, of so many slots behind those that there are. With these they are no more
  // than it was cleared for.
  void begin_part(uint64_t slots_max) {
    if (size_ > 0) mask_most_ = std::max(mask_most_, mask_);
    from_ = first_ + size_;
    if (!is_list()) use(slots_max);
    slots_max_ = size_ + slots_max;
  }

  // Where nothing is in it: its memory, for two entries of each of so many ids, whose lower halves
  // are below count when they are left there. Empty: it has not as much.
  std::span<uint64_t> lend(uint32_t count) {
    const uint64_t entries = 2 * uint64_t{count};
    if (size_ > 0 || entries > entries_.size() || count > kFirstMax) return {};
    // Then what is left is free.
    first_ = from_ = std::max(first_, count);
    mask_most_ = std::max(mask_most_, static_cast<uint32_t>(std::bit_ceil(entries) - 1));
    return entries_.first(entries);
  }

  uint32_t size() const { return size_; }
  // Until it is cleared again.
  uint64_t slots_max() const { return slots_max_; }

  // Asks the memory for where a row key is looked for first.
  void prefetch(uint32_t row_key) const {
    if (!is_list()) __builtin_prefetch(&entries_[hash(row_key, shift_) & mask_]);
  }
  // Whether that gains anything: what is used of the table is more than stays in the cache.
  bool is_far() const { return mask_ >= kNearEntries; }

  uint32_t find(uint32_t row_key) const {
    if (is_list()) return find_in_list(row_key);
    for (uint32_t at = hash(row_key, shift_);; ++at) {
      const Entry entry = entries_[at & mask_];
      if (is_free(entry)) return kNoSlot;
      if (row_key_of(entry) == row_key) return slot_of(entry);
    }
  }

  // The slot of a row key; a new one gets slot size(). kNoSlot when the bound is reached.
  uint32_t find_or_insert(uint32_t row_key, bool* inserted) {
    if (is_list()) return find_or_list(row_key, inserted);
    for (uint32_t at = hash(row_key, shift_);; ++at) {
      Entry& entry = entries_[at & mask_];
      *inserted = is_free(entry);
      if (*inserted) {
        if (size_ == slots_max_) return kNoSlot;
        entry = new_entry(row_key, size_, first_);
        return size_++;
      }
      if (row_key_of(entry) == row_key) return slot_of(entry);
    }
  }

  // The same of some row keys, one after the other: the new ones are those whose slots count up
  // from what size() was. Calls note(slot, i) for row_keys[i], of the slot that it gets if it is
  // new: of each slot the last call is of the one that has it. False: the bound is reached.
  template <typename Note>
  [[nodiscard]] bool find_or_insert_each(const uint32_t* row_keys, uint32_t count, uint32_t* slots,
                                         Note note) {
    if (is_list() || count > slots_max_ - size_) {
      return find_or_insert_one_by_one(row_keys, count, slots, note);
    }
    // In registers, since slots that are written might else be these.
    Entry* const entries = entries_.data();
    const uint32_t mask = mask_, first = first_, from = from_;
    const int shift = shift_;
    uint32_t size = size_;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t row_key = row_keys[i];
      uint32_t at = hash(row_key, shift) & mask;
      Entry entry = entries[at];
      // Another row key, and not free.
      while (((entry >> 32 ^ row_key) & taken_mask(entry, from)) != 0) {
        at = (at + 1) & mask;
        entry = entries[at];
      }
      // Whether a row of a step came before cannot be foreseen: nothing branches on it.
      const uint32_t taken = taken_mask(entry, from);
      const uint32_t slot = size ^ ((size ^ (static_cast<uint32_t>(entry) - first)) & taken);
      entries[at] = new_entry(row_key, slot, first);
      slots[i] = slot;
      note(size, i);
      size += 1 + taken;
    }
    size_ = size;
    return true;
  }
  [[nodiscard]] bool find_or_insert_each(const uint32_t* row_keys, uint32_t count,
                                         uint32_t* slots) {
    return find_or_insert_each(row_keys, count, slots, [](uint32_t, uint32_t) {});
  }

  // Numbers of slots are no more than that, where slots are not, which are never more: from a
  // part's first the others lie less than half a turn ahead, and those of before no more than that
  // behind.
  static constexpr uint32_t kFirstMax = uint32_t{1} << 31;

 private:
  static constexpr uint64_t kListMax = 16;  // one cache line of keys
  static constexpr uint32_t kNearEntries = 8 * 1024;

  // The row key, and below it the slot's number.
  using Entry = uint64_t;

  static uint32_t row_key_of(Entry entry) { return static_cast<uint32_t>(entry >> 32); }
  uint32_t slot_of(Entry entry) const { return static_cast<uint32_t>(entry) - first_; }
  // All bits of one that has a slot, none of a free one: that is a number below from_, of which
  // the difference has its top bit, as no slot has.
  static uint32_t taken_mask(Entry entry, uint32_t from) {
    return ((static_cast<uint32_t>(entry) - from) >> 31) - 1;
  }
  bool is_free(Entry entry) const { return taken_mask(entry, from_) == 0; }
  static Entry new_entry(uint32_t row_key, uint32_t slot, uint32_t first) {
    return uint64_t{row_key} << 32 | (first + slot);
  }

  // So is one that was not laid out, of no rows.
  bool is_list() const { return entries_.empty(); }

  // So many bits of a hash.
  int use(uint64_t slots_max) {
    slots_max_ = std::min<uint64_t>(slots_max, kFirstMax);
    const int bits = std::bit_width(std::max<uint64_t>(slots_max, 8) * 2 - 1);
    mask_ = static_cast<uint32_t>((uint64_t{1} << bits) - 1);
    shift_ = 32 - std::min(bits, 32);
    return bits;
  }

  uint32_t find_in_list(uint32_t row_key) const {
    for (uint32_t slot = from_ - first_; slot < size_; ++slot) {
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

  template <typename Note>
  bool find_or_insert_one_by_one(const uint32_t* row_keys, uint32_t count, uint32_t* slots,
                                 Note note) {
    for (uint32_t i = 0; i < count; ++i) {
      bool inserted;
      slots[i] = find_or_insert(row_keys[i], &inserted);
      if (slots[i] == kNoSlot) return false;
      if (inserted) note(slots[i], i);
    }
    return true;
  }

  // Fibonacci hashing (Knuth 6.4): the top bits of a product.
  static uint32_t hash(uint32_t row_key, int shift) { return row_key * 2654435769u >> shift; }

  std::span<uint32_t> list_;  // up to kListMax slots: their keys; else empty
  std::span<Entry> entries_;
  uint32_t mask_ = 0, mask_most_ = 0;  // in use; the most in use since entries were written over
  int shift_ = 0;
  uint32_t first_;  // the number of slot 0
  uint32_t from_;   // and of the first of the part
  uint32_t size_ = 0;
  uint64_t slots_max_ = 0;  // until the next clearing
  uint64_t laid_out_max_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_ROW_INDEX_H_
