// SPDX-License-Identifier: Apache-2.0
// Owners and slots counted out. See slot_map.h.
#include "world/slot_map.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"

namespace parallax {

namespace {

std::vector<uint32_t> dealt(std::span<const uint32_t> owners, uint32_t slots) {
  PARALLAX_CHECK(!owners.empty() && slots >= owners.size());
  std::vector<uint32_t> owner_of_slot(slots);
  for (uint32_t slot = 0; slot < slots; ++slot) owner_of_slot[slot] = owners[slot % owners.size()];
  return owner_of_slot;
}

}  // namespace

Status check_slots(uint32_t slots, uint32_t owners) {
  PARALLAX_CHECK(owners != 0 && owners <= kSlotsMax);
  if (slots % owners == 0) return {};
  const uint64_t above = (uint64_t{slots} / owners + 1) * owners;
  const uint64_t next = above <= kSlotsMax ? above : kSlotsMax / owners * owners;
  return invalid("open: slots is " + std::to_string(slots) + "; it must be a multiple of the " +
                 std::to_string(owners) + " ranks of the job, which share them evenly: set it to " +
                 std::to_string(next) + " on every rank, or to 0 for " +
                 std::to_string(kSlotsPerOwner) + " for each rank");
}

SlotMap::SlotMap(std::span<const uint32_t> owners, uint32_t slots)
    : SlotMap(dealt(owners, slots)) {}

SlotMap SlotMap::of_ranks(uint32_t world, uint32_t slots_each) {
  std::vector<uint32_t> ranks(world);
  std::iota(ranks.begin(), ranks.end(), 0U);
  return {ranks, world * slots_each};
}

SlotMap::SlotMap(std::vector<uint32_t> owner_of_slot) {
  PARALLAX_CHECK(!owner_of_slot.empty() && owner_of_slot.size() <= kSlotsMax);
  std::vector<uint32_t> owners = owner_of_slot;
  std::sort(owners.begin(), owners.end());
  owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
  std::vector<uint32_t> index_of_owner(owners.back() + 1, kNoOwner);
  for (uint32_t i = 0; i < owners.size(); ++i) index_of_owner[owners[i]] = i;

  std::vector<Slot> slots(owner_of_slot.size());
  std::vector<uint32_t> first(owners.size() + 1);
  for (uint32_t slot = 0; slot < slots.size(); ++slot) {
    const uint32_t owner = owner_of_slot[slot];
    slots[slot] = {.owner = owner, .place = first[index_of_owner[owner] + 1]++};
  }
  for (Slot& slot : slots) slot.owner_slots = first[index_of_owner[slot.owner] + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<uint32_t> by_owner(slots.size());
  for (uint32_t slot = 0; slot < slots.size(); ++slot) {
    by_owner[first[index_of_owner[slots[slot].owner]] + slots[slot].place] = slot;
  }
  arrays_ = std::make_shared<const Arrays>(Arrays{std::move(slots), std::move(owners),
                                                  std::move(index_of_owner), std::move(first),
                                                  std::move(by_owner)});
}

std::shared_ptr<const SlotMap::Arrays> SlotMap::none() {
  static const auto kNone = std::make_shared<const Arrays>();
  return kNone;
}

std::span<const uint32_t> SlotMap::slots_of(uint32_t owner) const {
  const uint32_t index = index_of(owner);
  if (index == kNoOwner) return {};
  const uint32_t first = arrays_->first_slot[index];
  return std::span(arrays_->by_owner).subspan(first, arrays_->first_slot[index + 1] - first);
}

SlotMap SlotMap::with_owner(uint32_t slot, uint32_t owner) const {
  PARALLAX_CHECK(slot < slots());
  std::vector<uint32_t> owner_of_slot(slots());
  for (uint32_t each = 0; each < slots(); ++each) owner_of_slot[each] = this->owner_of_slot(each);
  owner_of_slot[slot] = owner;
  return SlotMap(std::move(owner_of_slot));
}

SlotMap SlotMap::spread_over(uint32_t spread, uint32_t variable) const {
  PARALLAX_CHECK(!empty());
  const auto count = static_cast<uint32_t>(owners().size());
  if (spread == 0 || spread >= count) return *this;
  std::vector<uint32_t> owner_of_slot(slots());
  for (uint32_t slot = 0; slot < slots(); ++slot) {
    const uint32_t folded = index_of(this->owner_of_slot(slot)) % spread;
    owner_of_slot[slot] = owners()[(uint64_t{variable} * spread + folded) % count];
  }
  return SlotMap(std::move(owner_of_slot));
}

}  // namespace parallax
