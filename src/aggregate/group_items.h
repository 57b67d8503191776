// SPDX-License-Identifier: Apache-2.0
// Items by the group that each is of, as a step's rows by where they go. Pure; any thread.
#ifndef PARALLAX_AGGREGATE_GROUP_ITEMS_H_
#define PARALLAX_AGGREGATE_GROUP_ITEMS_H_

#include <cstdint>
#include <span>

namespace parallax {

// Stable counting sort: items grouped by group_of(item) in 0..groups-1. `offsets` gets groups + 1
// entries; `order` the items. No allocation.
template <typename GroupOf>
void group_items(uint32_t count, uint32_t groups, GroupOf group_of, std::span<uint32_t> offsets,
                 std::span<uint32_t> order) {
  for (uint32_t g = 0; g <= groups; ++g) offsets[g] = 0;
  for (uint32_t i = 0; i < count; ++i) ++offsets[group_of(i) + 1];
  for (uint32_t g = 0; g < groups; ++g) offsets[g + 1] += offsets[g];
  // Moves each offset on to where the next group begins; the last loop moves them back.
  for (uint32_t i = 0; i < count; ++i) order[offsets[group_of(i)]++] = i;
  for (uint32_t g = groups; g > 0; --g) offsets[g] = offsets[g - 1];
  offsets[0] = 0;
}

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_GROUP_ITEMS_H_
