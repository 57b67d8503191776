// SPDX-License-Identifier: Apache-2.0
// Rows in the order of their row keys, as these are coded (message/row_key_coding.h). Engine's
// owner only; allocates nothing.
#ifndef PARALLAX_AGGREGATE_ROW_ORDER_H_
#define PARALLAX_AGGREGATE_ROW_ORDER_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "aggregate/row_scratch.h"

namespace parallax {

// Row keys that differ, and an item of each, by row key: by their bytes, the lowest first (radix
// sort), some 8 ns a row; few by insertion. Where the scratch, whose numbers it takes, has no room
// for so many, they stay as they are.
inline void sort_by_row_key(std::span<uint32_t> row_keys, std::span<uint32_t> items,
                            RowScratch& scratch) {
  constexpr size_t kFew = 32;
  const size_t count = row_keys.size();
  if (count <= kFew) {
    for (size_t i = 1; i < count; ++i) {
      const uint32_t row_key = row_keys[i], item = items[i];
      size_t at = i;
      for (; at > 0 && row_keys[at - 1] > row_key; --at) {
        row_keys[at] = row_keys[at - 1];
        items[at] = items[at - 1];
      }
      row_keys[at] = row_key;
      items[at] = item;
    }
    return;
  }
  if (count > scratch.slots_max()) return;
  std::array<std::array<uint32_t, 256>, 4> places = {};
  for (const uint32_t row_key : row_keys) {
    for (size_t digit = 0; digit < 4; ++digit) ++places[digit][row_key >> 8 * digit & 0xff];
  }
  uint32_t* from_keys = row_keys.data();
  uint32_t* from_items = items.data();
  uint32_t* to_keys = scratch.first_numbers();
  uint32_t* to_items = scratch.second_numbers();
  for (size_t digit = 0; digit < 4; ++digit) {
    std::array<uint32_t, 256>& next = places[digit];
    // All have the same byte there.
    if (next[from_keys[0] >> 8 * digit & 0xff] == count) continue;
    uint32_t before = 0;
    for (uint32_t& place : next) before += std::exchange(place, before);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t place = next[from_keys[i] >> 8 * digit & 0xff]++;
      to_keys[place] = from_keys[i];
      to_items[place] = from_items[i];
    }
    std::swap(from_keys, to_keys);
    std::swap(from_items, to_items);
  }
  if (from_keys == row_keys.data()) return;
  std::copy_n(from_keys, count, row_keys.data());
  std::copy_n(from_items, count, items.data());
}

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_ROW_ORDER_H_
