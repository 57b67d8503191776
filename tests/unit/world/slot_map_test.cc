// SPDX-License-Identifier: Apache-2.0
#include "world/slot_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/check.h"
#include "support/slot_maps.h"
#include "support/words.h"

namespace parallax::testkit {
namespace {

// What every map promises of its slots and owners.
void expect_sound(const SlotMap& map) {
  uint32_t owned = 0;
  for (const uint32_t owner : map.owners()) {
    ASSERT_FALSE(map.slots_of(owner).empty());
    ASSERT_EQ(map.owners()[map.index_of(owner)], owner);
    for (uint32_t place = 0; place < map.slots_of(owner).size(); ++place, ++owned) {
      const uint32_t slot = map.slots_of(owner)[place];
      ASSERT_LT(slot, map.slots());
      ASSERT_EQ(map.owner_of_slot(slot), owner);
      ASSERT_EQ(map.place_of_slot(slot), place);
      ASSERT_EQ(map.data()[slot].owner_slots, map.slots_of(owner).size());
    }
    ASSERT_TRUE(std::is_sorted(map.slots_of(owner).begin(), map.slots_of(owner).end()));
  }
  ASSERT_EQ(owned, map.slots());
  ASSERT_TRUE(std::is_sorted(map.owners().begin(), map.owners().end()));
}

TEST(SlotMap, OfEveryKindIsSound) {
  for (uint32_t world = 1; world <= 64; ++world) {
    for (const uint32_t each : {1u, 2u, 7u, kSlotsPerOwner}) {
      const SlotMap map = SlotMap::of_ranks(world, each);
      ASSERT_NO_FATAL_FAILURE(expect_sound(map));
      ASSERT_EQ(map.slots(), world * each);
      for (uint32_t slot = 0; slot < map.slots(); ++slot) {
        ASSERT_EQ(map.owner_of_slot(slot), slot % world);
        ASSERT_EQ(map.place_of_slot(slot), slot / world);
      }
    }
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      const SlotMap map = uneven_slots(world, seed);
      ASSERT_NO_FATAL_FAILURE(expect_sound(map));
      ASSERT_LT(map.owners().size(), std::max(world, 2u)) << "some rank owns nothing";
    }
  }
}

TEST(SlotMap, DealsSlotsToItsOwnersInTurn) {
  const std::vector<uint32_t> owners = {5, 2, 9};
  const SlotMap map(owners, 6);
  EXPECT_EQ(map.owners(), (std::vector<uint32_t>{2, 5, 9}));
  for (uint32_t slot = 0; slot < 6; ++slot) EXPECT_EQ(map.owner_of_slot(slot), owners[slot % 3]);
  EXPECT_EQ(map.index_of(9), 2u);
  for (const uint32_t stranger : {0u, 3u, 10u, kNoOwner}) {
    EXPECT_EQ(map.index_of(stranger), kNoOwner);
    EXPECT_TRUE(map.slots_of(stranger).empty());
  }
}

TEST(SlotMap, WithoutSlotsHasNoOwners) {
  const SlotMap none;
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(none.owners().empty());
  EXPECT_TRUE(none.slots_of(0).empty());
  EXPECT_THROW(SlotMap(std::vector<uint32_t>{}), InternalError);
  EXPECT_THROW(none.spread_over(0, 0), InternalError) << "a partition would divide by them";
  EXPECT_THROW(SlotMap(std::vector<uint32_t>{0, 1}, 1), InternalError);
}

TEST(SlotMap, ASlotMovesAlone) {
  const SlotMap before = even_slots(5);
  const SlotMap after = before.with_owner(13, 7);
  ASSERT_NO_FATAL_FAILURE(expect_sound(after));
  for (uint32_t slot = 0; slot < before.slots(); ++slot) {
    EXPECT_EQ(after.owner_of_slot(slot), slot == 13 ? 7 : before.owner_of_slot(slot));
  }
  EXPECT_EQ(after.owners().size(), 6u);
  EXPECT_EQ(after.with_owner(13, 3), before) << "slot 13 was of rank 13 % 5";
  EXPECT_FALSE(after == before);
}

// ---- spread

TEST(SlotMap, SpreadOverAllOwnersChangesNothing) {
  const SlotMap map = uneven_slots(9, 3);
  const auto owners = static_cast<uint32_t>(map.owners().size());
  for (const uint32_t spread : {0u, owners, owners + 1, 99u}) {
    for (uint32_t variable = 0; variable < 5; ++variable) {
      EXPECT_EQ(map.spread_over(spread, variable), map);
    }
  }
}

// Given a spread that divides the owners, expect as many owners, as many slots at each, and the
// variables to take turns at all owners.
TEST(SlotMap, SpreadVariablesShareTheOwnersEvenly) {
  for (const uint32_t world : {2u, 6u, 8u, 12u}) {
    for (uint32_t spread = 1; spread < world; ++spread) {
      if (world % spread != 0) continue;
      std::map<uint32_t, uint32_t> slots_of_owner;
      for (uint32_t variable = 0; variable < world; ++variable) {
        const SlotMap map = even_slots(world).spread_over(spread, variable);
        ASSERT_NO_FATAL_FAILURE(expect_sound(map));
        ASSERT_EQ(map.owners().size(), spread);
        ASSERT_EQ(map.slots(), even_slots(world).slots());
        for (const uint32_t owner : map.owners()) {
          ASSERT_EQ(map.slots_of(owner).size(), map.slots() / spread);
          slots_of_owner[owner] += static_cast<uint32_t>(map.slots_of(owner).size());
        }
      }
      ASSERT_EQ(slots_of_owner.size(), world);
      for (const auto& [owner, slots] : slots_of_owner) {
        ASSERT_EQ(slots, slots_of_owner[0]) << "owner " << owner << " of " << world;
      }
    }
  }
}

// Given a spread that does not divide the owners, expect the fullest to have the slots of one owner
// more than the emptiest.
TEST(SlotMap, AnySpreadIsEvenToOneOwnersSlots) {
  for (uint32_t world = 1; world <= 20; ++world) {
    for (uint32_t spread = 1; spread <= world; ++spread) {
      const SlotMap map = even_slots(world).spread_over(spread, 3);
      ASSERT_EQ(map.owners().size(), spread);
      size_t least = map.slots(), most = 0;
      for (const uint32_t owner : map.owners()) {
        least = std::min(least, map.slots_of(owner).size());
        most = std::max(most, map.slots_of(owner).size());
      }
      ASSERT_LE(most, least + kSlotsPerOwner) << world << " owners, spread " << spread;
    }
  }
}

// Given a slot that moves between owners, expect it to move in every spread, if anywhere, alone.
TEST(SlotMap, ASlotMovesAloneInEverySpread) {
  const SlotMap before = even_slots(6);
  for (uint32_t to = 0; to < 6; ++to) {
    const SlotMap after = before.with_owner(17, to);
    for (uint32_t spread = 1; spread <= 6; ++spread) {
      const SlotMap spread_before = before.spread_over(spread, 4);
      const SlotMap spread_after = after.spread_over(spread, 4);
      for (uint32_t slot = 0; slot < before.slots(); ++slot) {
        if (slot == 17) continue;
        ASSERT_EQ(spread_after.owner_of_slot(slot), spread_before.owner_of_slot(slot));
      }
    }
  }
}

// Given a slot that has moved, expect it in every spread where its new owner's other slots are.
TEST(SlotMap, SpreadKeepsTheSlotsOfAnOwnerTogether) {
  const SlotMap map = even_slots(6).with_owner(17, 2);
  for (uint32_t spread = 1; spread <= 6; ++spread) {
    const SlotMap narrow = map.spread_over(spread, 4);
    for (const uint32_t owner : map.owners()) {
      const uint32_t first = map.slots_of(owner)[0];
      for (const uint32_t slot : map.slots_of(owner)) {
        ASSERT_EQ(narrow.owner_of_slot(slot), narrow.owner_of_slot(first)) << "spread " << spread;
      }
    }
  }
}

// ---- the setting

TEST(CheckSlots, TakesMultiplesOfTheOwners) {
  for (const uint32_t slots : {0u, 6u, 12u, 6000u}) EXPECT_TRUE(check_slots(slots, 6).ok());
  EXPECT_TRUE(check_slots(1, 1).ok());
}

TEST(CheckSlots, NamesTheSettingAndWhatToSetItTo) {
  const Status fewer = check_slots(5, 6);
  EXPECT_EQ(fewer.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(fewer, "slots is 5")) << fewer.message();
  EXPECT_TRUE(has(fewer, "a multiple of the 6 ranks")) << fewer.message();
  EXPECT_TRUE(has(fewer, "set it to 6 on every rank, or to 0")) << fewer.message();
  EXPECT_TRUE(has(check_slots(13, 6), "set it to 18 on every rank"));
  EXPECT_TRUE(has(check_slots(kSlotsMax, 3), "set it to 16777215 on every rank"))
      << "the next multiple would be refused as too many";
}

}  // namespace
}  // namespace parallax::testkit
