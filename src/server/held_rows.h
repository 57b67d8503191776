// SPDX-License-Identifier: Apache-2.0
// HeldRows: the rows that a leader has asked owners for in a step, with their values once they are
// here. They do not change within the step, so whoever of the host wants one later is given it from
// here, and one that is still on its way is waited for and not asked for again.
//
// A row has a slot from when it is taken until it is forgotten. There are as many slots as rows can
// be wanted at once; when none is free, all that nobody waits for any more are forgotten together,
// and those that somebody wants again are asked for again. All of it is laid out at commit.
// Engine's owner only; allocates nothing.
#ifndef PARALLAX_SERVER_HELD_ROWS_H_
#define PARALLAX_SERVER_HELD_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "aggregate/row_index.h"
#include "base/arena.h"

namespace parallax {

class HeldRows {
 public:
  // `row_bytes`: of the widest type that the values may have.
  void lay_out(Arena& memory, uint64_t rows_max, size_t row_bytes);

  // Forgets everything.
  void clear();
  bool empty() const { return used_ == 0; }
  // Of nothing that is held: distinct rows, which go to slots 0 and on. They are put in the index
  // once somebody looks for a row.
  void take_all(std::span<const uint32_t> row_keys);
  // The slot of a row; `*taken`: it was not there, and must be asked for. kNoSlot: none is free.
  uint32_t find_or_take(uint32_t row_key, bool* taken);
  // It soon will be called for that row.
  void prefetch(uint32_t row_key) const { index_.prefetch(row_key); }

  // Forgets all rows but those that are kept in between.
  void begin_forgetting();
  void keep(uint32_t slot);
  void end_forgetting();

  uint32_t row_key(uint32_t slot) const { return row_keys_[slot]; }
  // A row that was taken just now goes to another such slot; each slot has one row when all moved.
  void move(uint32_t row_key, uint32_t slot);
  bool here(uint32_t slot) const { return (marks_[slot] & kHere) != 0; }
  // Of so many, in slots that follow each other.
  void put(uint32_t slot, const std::byte* values, size_t bytes, uint32_t count) {
    std::memcpy(&values_[slot * bytes], values, count * bytes);
    put_there(slot, count);
  }
  // Somebody else has put their values.
  void put_there(uint32_t slot, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) marks_[slot + i] |= kHere;
  }
  // By slot, each of as many bytes as it was put with: the same for all of a step.
  const std::byte* values() const { return values_.data(); }
  size_t value_bytes() const { return values_.size(); }
  size_t slot_count() const { return row_keys_.size(); }

  // Rows on their way from one owner, in the order in which they come.
  struct Queue {
    uint32_t head = kNoSlot, tail = kNoSlot;
  };
  void push(Queue& queue, uint32_t slot) {
    next_[slot] = kNoSlot;
    (queue.head == kNoSlot ? queue.head : next_[queue.tail]) = slot;
    queue.tail = slot;
  }
  // Of those behind the first `skipped` the ones with a bit come first; the order stays else.
  void bring_forward(Queue& queue, uint64_t skipped, std::span<const std::byte> bits);
  uint32_t pop(Queue& queue) {
    const uint32_t slot = queue.head;
    queue.head = next_[slot];
    return slot;
  }
  // The same of those whose slots follow each other, `most` of them: the first, and how many.
  uint32_t pop_run(Queue& queue, uint32_t most, uint32_t* count) {
    const uint32_t slot = pop(queue);
    for (*count = 1; *count < most && queue.head == slot + *count; ++*count) pop(queue);
    return slot;
  }

 private:
  static constexpr uint8_t kHere = 1, kKept = 2;

  void index_all();
  void grow_index();
  uint64_t room_for(uint64_t rows) const;

  RowIndex index_;
  std::span<uint32_t> slots_;     // by number in the index
  std::span<uint32_t> row_keys_;  // by slot
  std::span<uint32_t> next_;      // by slot: in the queue, or among the free
  std::span<uint8_t> marks_;      // by slot
  std::span<std::byte> values_;
  uint32_t used_ = 0;  // slots from here on were never taken
  uint32_t free_ = kNoSlot;
  bool unindexed_ = false;  // those that take_all() took
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_HELD_ROWS_H_
