// SPDX-License-Identifier: Apache-2.0
// Items by group, beside a stable sort.
#include "aggregate/group_items.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

// Given groups by chance, few or many, some of them empty, or no items at all: expect the order of
// a stable sort, and each group where the offsets say.
TEST(GroupItems, AreSortedByGroupAndKeepTheirOrder) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SeededRandom random(seed);
    const auto count = static_cast<uint32_t>(random.below(seed % 2 == 0 ? 50 : 500));
    const auto groups = static_cast<uint32_t>(1 + random.below(seed % 3 == 0 ? 60 : 9));
    std::vector<uint32_t> group_of(count);
    for (uint32_t& group : group_of) group = static_cast<uint32_t>(random.below(groups));
    std::vector<uint32_t> offsets(groups + 1, 77), order(count, 77), sorted(count);
    group_items(group_of, groups, offsets, order);
    std::iota(sorted.begin(), sorted.end(), 0u);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](uint32_t a, uint32_t b) { return group_of[a] < group_of[b]; });
    ASSERT_EQ(order, sorted) << "seed " << seed;
    ASSERT_EQ(offsets.front(), 0u);
    ASSERT_EQ(offsets.back(), count);
    for (uint32_t group = 0; group < groups; ++group) {
      for (uint32_t at = offsets[group]; at < offsets[group + 1]; ++at) {
        ASSERT_EQ(group_of[order[at]], group) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace parallax
