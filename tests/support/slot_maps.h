// SPDX-License-Identifier: Apache-2.0
// Maps of slots, as a job starts and as they may become. Tests only.
#ifndef PARALLAX_TESTS_SUPPORT_SLOT_MAPS_H_
#define PARALLAX_TESTS_SUPPORT_SLOT_MAPS_H_

#include <cstdint>
#include <vector>

#include "base/seeded_random.h"
#include "world/slot_map.h"

namespace parallax::testkit {

// As a job starts.
inline SlotMap even_slots(uint32_t world) { return SlotMap::of_ranks(world, kSlotsPerOwner); }

// Every rank owns one slot.
inline SlotMap a_slot_each(uint32_t world) { return SlotMap::of_ranks(world, 1); }

// About half of the ranks own slots, one at least, and one of them more than others; where there
// are two ranks or more, one owns nothing.
inline SlotMap uneven_slots(uint32_t world, uint64_t seed) {
  SeededRandom random(seed * 64 + world);
  const auto nothing = static_cast<uint32_t>(random.below(world));
  std::vector<uint32_t> owners;
  for (uint32_t rank = 0; rank < world; ++rank) {
    if (world == 1 || (rank != nothing && random.chance(50))) owners.push_back(rank);
  }
  if (owners.empty()) owners.push_back((nothing + 1) % world);
  std::vector<uint32_t> owner_of_slot(1 + random.below(4 * world));
  for (uint32_t& owner : owner_of_slot) {
    owner = owners[random.chance(30) ? 0 : random.below(owners.size())];
  }
  return SlotMap(std::move(owner_of_slot));
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_SLOT_MAPS_H_
