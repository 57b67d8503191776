// SPDX-License-Identifier: Apache-2.0
// Items by the group that each is of, as a step's rows by where they go. Pure; any thread.
#ifndef PARALLAX_AGGREGATE_GROUP_ITEMS_H_
#define PARALLAX_AGGREGATE_GROUP_ITEMS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

namespace parallax {

namespace grouping {

// Of few groups each count is written and read again within some instructions, and it is the wait
// for that which takes the time: so many parts of the items have counts of their own.
inline constexpr uint32_t kParts = 4, kFewGroups = 32;

template <typename Place>
void place_in_parts(std::span<const uint32_t> group_of, uint32_t groups,
                    std::span<uint32_t> offsets, const Place& place) {
  const auto count = static_cast<uint32_t>(group_of.size());
  const uint32_t part = count / kParts;
  std::array<std::array<uint32_t, kFewGroups>, kParts> next = {};
  const auto each = [&](const auto& visit) {
    for (uint32_t i = 0; i < part; ++i) {
      for (uint32_t p = 0; p < kParts; ++p) visit(p, p * part + i);
    }
    for (uint32_t i = kParts * part; i < count; ++i) visit(kParts - 1, i);
  };
  each([&](uint32_t p, uint32_t i) { ++next[p][group_of[i]]; });
  uint32_t before = 0;
  for (uint32_t g = 0; g < groups; ++g) {
    offsets[g] = before;
    for (uint32_t p = 0; p < kParts; ++p) {
      const uint32_t here = next[p][g];
      next[p][g] = before;
      before += here;
    }
  }
  offsets[groups] = before;
  each([&](uint32_t p, uint32_t i) { place(next[p][group_of[i]]++, i); });
}

}  // namespace grouping

// Stable counting sort: items 0, 1, ... grouped by group_of[item], each below `groups`. `offsets`
// gets groups + 1 entries. Calls place(at, item) once for each item, in no order that is told. No
// allocation.
template <typename Place>
void place_grouped(std::span<const uint32_t> group_of, uint32_t groups, std::span<uint32_t> offsets,
                   const Place& place) {
  const auto count = static_cast<uint32_t>(group_of.size());
  constexpr uint32_t kManyItems = 64;
  if (count >= kManyItems && groups <= grouping::kFewGroups) {
    return grouping::place_in_parts(group_of, groups, offsets, place);
  }
  std::fill_n(offsets.begin(), groups + size_t{1}, 0);
  for (const uint32_t group : group_of) ++offsets[group + 1];
  for (uint32_t g = 0; g < groups; ++g) offsets[g + 1] += offsets[g];
  // Moves each offset on to where the next group begins; the last loop moves them back.
  for (uint32_t i = 0; i < count; ++i) place(offsets[group_of[i]]++, i);
  for (uint32_t g = groups; g > 0; --g) offsets[g] = offsets[g - 1];
  offsets[0] = 0;
}

// `order` gets the items.
inline void group_items(std::span<const uint32_t> group_of, uint32_t groups,
                        std::span<uint32_t> offsets, std::span<uint32_t> order) {
  place_grouped(group_of, groups, offsets,
                [to = order.data()](uint32_t at, uint32_t item) { to[at] = item; });
}

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_GROUP_ITEMS_H_
