// SPDX-License-Identifier: Apache-2.0
// SlotMap: who owns which slot. A slot is a fixed fraction of the keys of every sharded variable's
// rows: the row at key k is of slot k % slots, whose owner keeps it. Their number is fixed when the
// job first commits; what changes with the ranks of a job, or with their load, is who owns a slot,
// so that only the rows of that slot have to move. An owner is a rank of the view, whether it
// trains or not; a rank without a slot owns nothing.
//
// A pure value, whose copies share their arrays; any thread; nothing blocks.
#ifndef PARALLAX_WORLD_SLOT_MAP_H_
#define PARALLAX_WORLD_SLOT_MAP_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"

namespace parallax {

// Of each rank where the setting `slots` is 0. Eight: a rank that leaves a job of nine or more
// makes no other owner hold more than an eighth more, and the map of 64 ranks stays in the
// innermost cache, since every row is looked up in it.
inline constexpr uint32_t kSlotsPerOwner = 8;
inline constexpr uint32_t kSlotsMax = 1 << 24;
inline constexpr uint32_t kNoOwner = UINT32_MAX;

// What `slots` says for a job of `owners`; 0: kSlotsPerOwner for each. INVALID: no multiple of
// them, with which some would own more than others from the start.
Status check_slots(uint32_t slots, uint32_t owners);

class SlotMap {
 public:
  // What there is to know of a slot, in one place, since every row asks for it.
  struct Slot {
    uint32_t owner = 0;
    uint32_t place = 0;        // among its owner's slots, ascending
    uint32_t owner_slots = 0;  // how many these are
    bool operator==(const Slot&) const = default;
  };

  SlotMap() = default;  // no slots
  // The owner of each slot; at least one slot.
  explicit SlotMap(std::vector<uint32_t> owner_of_slot);
  // As a job starts: slot s is of owners[s % owners.size()].
  SlotMap(std::span<const uint32_t> owners, uint32_t slots);
  // Of every rank as many.
  static SlotMap of_ranks(uint32_t world, uint32_t slots_each);

  bool empty() const { return arrays_->slots.empty(); }
  uint32_t slots() const { return static_cast<uint32_t>(arrays_->slots.size()); }
  uint32_t owner_of_slot(uint32_t slot) const { return arrays_->slots[slot].owner; }
  uint32_t place_of_slot(uint32_t slot) const { return arrays_->slots[slot].place; }
  // By slot. Theirs as long as this map or a copy of it lives.
  const Slot* data() const { return arrays_->slots.data(); }

  // Those that own a slot, ascending, and an owner's index among them: kNoOwner for another rank.
  const std::vector<uint32_t>& owners() const { return arrays_->owners; }
  uint32_t index_of(uint32_t owner) const {
    return owner < arrays_->index_of_owner.size() ? arrays_->index_of_owner[owner] : kNoOwner;
  }
  // An owner's slots, ascending; none of another rank.
  std::span<const uint32_t> slots_of(uint32_t owner) const;

  // The same but for one slot, which has moved to `owner`.
  SlotMap with_owner(uint32_t slot, uint32_t owner) const;
  // The same slots at `spread` of the owners, the variable's own: the slots of this map's i-th
  // owner lie at the (variable * spread + i % spread)-th, counted round. So variables of one spread
  // take turns at all owners; a slot that moves here moves there, and no other does; and a spread
  // over all of them, or 0, is this map.
  SlotMap spread_over(uint32_t spread, uint32_t variable) const;

  bool operator==(const SlotMap& other) const { return arrays_->slots == other.arrays_->slots; }

 private:
  struct Arrays {
    std::vector<Slot> slots;
    std::vector<uint32_t> owners;
    std::vector<uint32_t> index_of_owner;  // by rank, up to the last owner
    std::vector<uint32_t> first_slot;      // by index of the owner, and the end: in by_owner
    std::vector<uint32_t> by_owner;        // the slots of the first owner, then of the next
  };
  static std::shared_ptr<const Arrays> none();

  // Shared as one: each variable has some maps.
  std::shared_ptr<const Arrays> arrays_ = none();
};

}  // namespace parallax

#endif  // PARALLAX_WORLD_SLOT_MAP_H_
