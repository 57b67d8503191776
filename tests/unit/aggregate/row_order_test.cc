// SPDX-License-Identifier: Apache-2.0
// Rows by row key, beside std::sort.
#include "aggregate/row_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

TEST(RowOrder, AsStdSortHasIt) {
  RowScratch scratch;
  ASSERT_TRUE(scratch.reserve(3000).ok());
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SeededRandom random(seed);
    // Of ranges that have one byte, or three that are alike, too.
    const uint64_t range = seed % 4 == 0 ? 4000 : seed % 4 == 1 ? 1ull << 32 : 70000 + seed;
    std::set<uint32_t> drawn;
    const uint64_t count = std::min<uint64_t>(random.below(seed < 100 ? 80 : 3000), range);
    while (drawn.size() < count) drawn.insert(static_cast<uint32_t>(random.below(range)));
    std::vector<uint32_t> row_keys(drawn.begin(), drawn.end()), items(count);
    for (size_t i = count; i > 1; --i) std::swap(row_keys[i - 1], row_keys[random.below(i)]);
    for (size_t i = 0; i < count; ++i) items[i] = ~row_keys[i];
    sort_by_row_key(row_keys, items, scratch);
    ASSERT_TRUE(std::equal(row_keys.begin(), row_keys.end(), drawn.begin())) << seed;
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(items[i], ~row_keys[i]) << seed;
  }
}

TEST(RowOrder, MoreThanThereIsRoomForStay) {
  RowScratch scratch;
  ASSERT_TRUE(scratch.reserve(40).ok());
  std::vector<uint32_t> row_keys(41), items(41);
  for (uint32_t i = 0; i < 41; ++i) row_keys[i] = 41 - i;
  const std::vector<uint32_t> before = row_keys;
  sort_by_row_key(row_keys, items, scratch);
  EXPECT_EQ(row_keys, before);
}

}  // namespace
}  // namespace parallax
