// SPDX-License-Identifier: Apache-2.0
// Items by the group that each is of, as a step's rows by where they go. Pure; any thread.
#ifndef PARALLAX_AGGREGATE_GROUP_ITEMS_H_
#define PARALLAX_AGGREGATE_GROUP_ITEMS_H_

#include <cstdint>
#include <span>

namespace parallax {

// Stable counting sort: items 0, 1, ... grouped by group_of[item], each below `groups`. `offsets`
// gets groups + 1 entries; `order` the items. No allocation.
inline void group_items(std::span<const uint32_t> group_of, uint32_t groups,
                        std::span<uint32_t> offsets, std::span<uint32_t> order) {
  for (uint32_t g = 0; g <= groups; ++g) offsets[g] = 0;
  for (const uint32_t group : group_of) ++offsets[group + 1];
  for (uint32_t g = 0; g < groups; ++g) offsets[g + 1] += offsets[g];
  // Moves each offset on to where the next group begins; the last loop moves them back.
  for (uint32_t i = 0; i < group_of.size(); ++i) order[offsets[group_of[i]]++] = i;
  for (uint32_t g = groups; g > 0; --g) offsets[g] = offsets[g - 1];
  offsets[0] = 0;
}

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_GROUP_ITEMS_H_
