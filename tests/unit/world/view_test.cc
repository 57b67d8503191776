// SPDX-License-Identifier: Apache-2.0
#include "world/view.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/slot_maps.h"

namespace parallax::testkit {
namespace {

const std::vector<std::string> kNames = {"a", "b", "a"};

TEST(View, OfTheStartLetsEveryRankOwnAlike) {
  const View view = first_view(map_hosts(kNames));
  EXPECT_EQ(view.epoch, 1u);
  EXPECT_EQ(view.world(), 3u);
  EXPECT_EQ(view.slots, even_slots(3));
}

TEST(View, TakesTheSlotsThatItIsGiven) {
  const SlotMap slots(std::vector<uint32_t>{1, 1, 0});
  const View view = first_view(map_hosts(kNames), 4, slots);
  EXPECT_EQ(view.epoch, 4u);
  EXPECT_EQ(view.slots, slots);
}

TEST(View, IsAValue) {
  const View view = first_view(map_hosts(kNames));
  View other = view;
  EXPECT_EQ(other, view);
  other.epoch = 2;
  EXPECT_FALSE(other == view);
  other = view;
  other.slots = view.slots.with_owner(0, 2);
  EXPECT_FALSE(other == view);
  EXPECT_EQ(view.slots, even_slots(3)) << "a copy's change is its own";
}

}  // namespace
}  // namespace parallax::testkit
