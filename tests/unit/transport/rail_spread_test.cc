// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/rail_spread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace parallax {
namespace {

constexpr uint32_t kTwo = 0b11;

TEST(RailSpread, ThoseThatTieTakeTurns) {
  RailSpread spread;
  std::vector<size_t> chosen;
  for (int i = 0; i < 6; ++i) chosen.push_back(spread.choose(0b111));
  EXPECT_EQ(chosen, (std::vector<size_t>{0, 1, 2, 0, 1, 2}));
}

TEST(RailSpread, TheLeastLadenIsNext) {
  RailSpread spread;
  spread.begin(0, 1000);
  EXPECT_EQ(spread.choose(kTwo), 1u);
  spread.begin(1, 999);
  EXPECT_EQ(spread.choose(kTwo), 1u);
  spread.begin(1, 2);
  EXPECT_EQ(spread.choose(kTwo), 0u);
  spread.end(0, 1000);
  spread.begin(1, 1 << 20);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(spread.choose(kTwo), 0u) << "however often it was";
}

TEST(RailSpread, OnlyWhatIsUsable) {
  RailSpread spread;
  spread.begin(2, 1 << 20);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(spread.choose(0b100), 2u);
  EXPECT_EQ(spread.choose(0b10000100), 7u);
}

// Given two rails of which one is four times as fast, expect it to carry four times as much, and
// nothing to be counted as under way that has ended.
TEST(RailSpread, AFasterRailCarriesMore) {
  RailSpread spread;
  const std::array<size_t, 2> ticks = {4, 1};  // a piece takes
  std::array<size_t, 2> free_at = {}, carried = {};
  std::array<std::vector<size_t>, 2> ends;
  std::array<size_t, 2> ended = {};
  for (size_t now = 0; now < 4000; ++now) {
    for (size_t rail = 0; rail < 2; ++rail) {
      while (ended[rail] < ends[rail].size() && ends[rail][ended[rail]] <= now) {
        spread.end(rail, 100);
        ++ended[rail];
      }
    }
    while (spread.bytes_under_way(0) + spread.bytes_under_way(1) < 1600) {
      const size_t rail = spread.choose(kTwo);
      spread.begin(rail, 100);
      free_at[rail] = std::max(free_at[rail], now) + ticks[rail];
      ends[rail].push_back(free_at[rail]);
      ++carried[rail];
    }
  }
  EXPECT_NEAR(static_cast<double>(carried[1]) / static_cast<double>(carried[0]), 4, 0.1);
  for (size_t rail = 0; rail < 2; ++rail) {
    EXPECT_EQ(spread.bytes_under_way(rail), 100 * (ends[rail].size() - ended[rail]));
  }
}

}  // namespace
}  // namespace parallax
