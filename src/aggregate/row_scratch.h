// SPDX-License-Identifier: Apache-2.0
// RowScratch: one index of rows, and some numbers for each, for all who need such for a short time,
// one after the other, so that they are in the cache: with an index each, as large as its variable
// may ever need, every variable of a step begins with one that is not. Whoever begins takes it from
// who had it before, and who goes on later asks first. One thread alone: the engine's owner.
#ifndef PARALLAX_AGGREGATE_ROW_SCRATCH_H_
#define PARALLAX_AGGREGATE_ROW_SCRATCH_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "aggregate/row_index.h"
#include "base/arena.h"
#include "base/status.h"

namespace parallax {

class RowScratch {
 public:
  RowScratch() = default;
  RowScratch(const RowScratch&) = delete;
  RowScratch& operator=(const RowScratch&) = delete;

  // Room for so many rows. LIMIT, and what there is stays; whoever had it has lost it, if it grows.
  Status reserve(uint64_t slots_max) {
    if (slots_max <= slots_max_) return {};
    Arena measure;
    RowIndex index;
    index.lay_out(measure, slots_max);
    auto grown = std::make_unique<Arena>();
    PARALLAX_RETURN_IF_ERROR(
        grown->reserve(measure.used_bytes() + 4 * Arena::bytes_for<uint32_t>(slots_max + 1)));
    index.lay_out(*grown, slots_max);
    index_ = index;
    first_ = grown->take<uint32_t>(slots_max);
    second_ = grown->take<uint32_t>(slots_max);
    third_ = grown->take<uint32_t>(slots_max);
    fourth_ = grown->take<uint32_t>(slots_max + 1);
    arena_ = std::move(grown);
    slots_max_ = slots_max;
    user_ = nullptr;
    return {};
  }
  const Arena& arena() const { return *arena_; }

  // An empty index for `user`, of so many rows. Null: there is no room for as many.
  RowIndex* begin(const void* user, uint64_t slots) {
    if (slots > slots_max_) return nullptr;
    user_ = user;
    looked_up_ += slots;
    index_.clear_for(slots);
    return &index_;
  }
  // As the user left it; null: somebody else has begun since.
  RowIndex* of(const void* user) { return user_ == user ? &index_ : nullptr; }

  uint64_t slots_max() const { return slots_max_; }  // that there is room for
  // Rows that the index was begun for, so far: as many or more than were looked for.
  uint64_t looked_up() const { return looked_up_; }

  // By slot, of whoever has begun.
  uint32_t* first_numbers() { return first_.data(); }
  uint32_t* second_numbers() { return second_.data(); }
  // And one more of the last.
  uint32_t* third_numbers() { return third_.data(); }
  uint32_t* fourth_numbers() { return fourth_.data(); }

 private:
  std::unique_ptr<Arena> arena_ = std::make_unique<Arena>();
  std::span<uint32_t> first_, second_, third_, fourth_;
  RowIndex index_;
  uint64_t slots_max_ = 0;
  uint64_t looked_up_ = 0;
  const void* user_ = nullptr;
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_ROW_SCRATCH_H_
