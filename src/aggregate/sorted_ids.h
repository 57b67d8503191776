// SPDX-License-Identifier: Apache-2.0
// Which distinct row each of many ids is of, by a sort: what a RowIndex says of the same ids. An
// index of so many misses the cache at nearly every id, and a sort at none; with fewer ids the
// index is faster (docs/adr/0125). Any thread; allocates nothing.
#ifndef PARALLAX_AGGREGATE_SORTED_IDS_H_
#define PARALLAX_AGGREGATE_SORTED_IDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "aggregate/row_index.h"
#include "aggregate/row_slice.h"
#include "base/check.h"

namespace parallax {

// From so many ids on. Where each comes often an index stays small, and is as fast up to four
// times as many.
inline constexpr uint32_t kSortedIdsMin = 1 << 19;

namespace sorted_ids {

constexpr size_t kDigitBits = 11;
constexpr size_t kDigits = 3;
constexpr size_t kDigitValues = size_t{1} << kDigitBits;
static_assert(kDigits * kDigitBits >= 32);

// Of an entry, whose upper half is an id.
inline size_t digit(uint64_t entry, size_t at) {
  return entry >> (32 + at * kDigitBits) & (kDigitValues - 1);
}

// By their ids, stable, the lowest digit first. What there is in the end lies in one of the two.
inline std::span<uint64_t> sort(std::span<uint64_t> entries, std::span<uint64_t> sorted) {
  std::array<std::array<uint32_t, kDigitValues>, kDigits> places = {};
  for (const uint64_t entry : entries) {
    for (size_t at = 0; at < kDigits; ++at) ++places[at][digit(entry, at)];
  }
  for (size_t at = 0; at < kDigits; ++at) {
    std::array<uint32_t, kDigitValues>& next = places[at];
    if (entries.empty() || next[digit(entries[0], at)] == entries.size()) continue;
    uint32_t before = 0;
    for (uint32_t& place : next) before += std::exchange(place, before);
    for (const uint64_t entry : entries) sorted[next[digit(entry, at)]++] = entry;
    std::swap(entries, sorted);
  }
  return entries;
}

}  // namespace sorted_ids

// uniques[i] is the number of ids[i], of the distinct ids in the order in which they first come, or
// kNoSlot: it is padding. Calls note(number, i) for the first i of each, in their order. Returns
// how many there are. `room`: for two entries an id, of which the lower halves are below count
// when it is given back.
template <typename Ids, typename Note>
uint32_t find_by_sort(const Ids& ids, uint32_t count, std::span<uint64_t> room, uint32_t* uniques,
                      Note note) {
  PARALLAX_CHECK(room.size() >= 2 * size_t{count});
  uint32_t entered = 0;
  for (uint32_t at = 0; at < count; ++at) {
    const auto id = static_cast<uint32_t>(ids[at]);
    uniques[at] = kNoSlot;
    room[entered] = uint64_t{id} << 32 | at;
    entered += id != static_cast<uint32_t>(kPaddingId) ? 1 : 0;
  }
  // Equal ones lie together then, the one that came first in front.
  const auto sorted = sorted_ids::sort(room.first(entered), room.subspan(count, entered));
  uint32_t first = 0;
  for (size_t at = 0; at < sorted.size(); ++at) {
    const auto place = static_cast<uint32_t>(sorted[at]);
    if (at == 0 || (sorted[at - 1] ^ sorted[at]) >> 32 != 0) first = place;
    uniques[place] = first;
  }
  uint32_t numbers = 0;
  for (uint32_t at = 0; at < count; ++at) {
    const uint32_t of = uniques[at];
    if (of == kNoSlot) continue;
    if (of != at) {
      uniques[at] = uniques[of];
      continue;
    }
    uniques[at] = numbers;
    note(numbers++, at);
  }
  return numbers;
}

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_SORTED_IDS_H_
