// SPDX-License-Identifier: Apache-2.0
// Slots taken and given back. See held_rows.h.
#include "server/held_rows.h"

#include <algorithm>

#include "base/bits.h"

namespace parallax {

void HeldRows::lay_out(Arena& memory, uint64_t rows_max, size_t row_bytes) {
  index_.lay_out(memory, rows_max);
  slots_ = memory.take<uint32_t>(rows_max);
  row_keys_ = memory.take<uint32_t>(rows_max);
  next_ = memory.take<uint32_t>(rows_max);
  marks_ = memory.take<uint8_t>(rows_max);
  values_ = memory.take<std::byte>(rows_max * row_bytes);
}

void HeldRows::clear() {
  index_.clear_for(room_for(used_));
  used_ = 0;
  free_ = kNoSlot;
  unindexed_ = false;
}

void HeldRows::take_all(std::span<const uint32_t> row_keys) {
  used_ = static_cast<uint32_t>(row_keys.size());
  std::copy(row_keys.begin(), row_keys.end(), row_keys_.begin());
  std::fill_n(marks_.begin(), used_, uint8_t{0});
  unindexed_ = true;
}

void HeldRows::index_all() {
  unindexed_ = false;
  index_.clear_for(std::max(index_.slots_max(), room_for(used_)));
  bool inserted;
  for (uint32_t slot = 0; slot < used_; ++slot) {
    slots_[index_.find_or_insert(row_keys_[slot], &inserted)] = slot;
  }
}

// Of an index: steps are much alike, and what they use of it is to stay in the cache.
uint64_t HeldRows::room_for(uint64_t rows) const {
  constexpr uint64_t kRowsMin = 64;
  return std::min<uint64_t>(slot_count(), kRowsMin + rows + rows / 4);
}

// Numbers stay as they are.
void HeldRows::grow_index() {
  const uint32_t count = index_.size();
  index_.clear_for(room_for(uint64_t{2} * count));
  bool inserted;
  for (uint32_t number = 0; number < count; ++number) {
    index_.find_or_insert(row_keys_[slots_[number]], &inserted);
  }
}

uint32_t HeldRows::find_or_take(uint32_t row_key, bool* taken) {
  if (unindexed_) index_all();
  if (index_.size() == index_.slots_max() && index_.size() < slot_count()) grow_index();
  const uint32_t number = index_.find_or_insert(row_key, taken);
  // The index has a number for each slot that is taken: it is full when they all are.
  if (number == kNoSlot) return kNoSlot;
  if (!*taken) return slots_[number];
  uint32_t slot = free_;
  if (slot == kNoSlot) {
    slot = used_++;
  } else {
    free_ = next_[slot];
  }
  slots_[number] = slot;
  row_keys_[slot] = row_key;
  marks_[slot] = 0;
  return slot;
}

void HeldRows::move(uint32_t row_key, uint32_t slot) {
  row_keys_[slot] = row_key;
  if (unindexed_) return;
  bool inserted;
  slots_[index_.find_or_insert(row_key, &inserted)] = slot;
}

void HeldRows::bring_forward(Queue& queue, uint64_t skipped, std::span<const std::byte> bits) {
  uint32_t before = kNoSlot;  // the last that stays where it is
  uint32_t at = queue.head;
  for (; skipped > 0 && at != kNoSlot; --skipped) {
    before = at;
    at = next_[at];
  }
  Queue first, others;
  for (size_t i = 0; i < bits.size() * 8 && at != kNoSlot; ++i) {
    const uint32_t next = next_[at];
    push(bit_at(bits, i) ? first : others, at);
    at = next;
  }
  uint32_t* link = before == kNoSlot ? &queue.head : &next_[before];
  for (const Queue& each : {first, others}) {
    if (each.head == kNoSlot) continue;
    *link = each.head;
    link = &next_[each.tail];
    before = each.tail;
  }
  *link = at;
  if (at == kNoSlot) queue.tail = before;
}

void HeldRows::begin_forgetting() {
  index_.clear();
  unindexed_ = false;
  for (uint32_t slot = 0; slot < used_; ++slot) marks_[slot] &= static_cast<uint8_t>(~kKept);
}

void HeldRows::keep(uint32_t slot) {
  if ((marks_[slot] & kKept) != 0) return;
  marks_[slot] |= kKept;
  bool inserted;
  slots_[index_.find_or_insert(row_keys_[slot], &inserted)] = slot;
}

void HeldRows::end_forgetting() {
  free_ = kNoSlot;
  for (uint32_t slot = used_; slot > 0; --slot) {
    if ((marks_[slot - 1] & kKept) != 0) continue;
    next_[slot - 1] = free_;
    free_ = slot - 1;
  }
}

}  // namespace parallax
