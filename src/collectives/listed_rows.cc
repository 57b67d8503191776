// SPDX-License-Identifier: Apache-2.0
// Rows that are named by their place among those that were pulled. See listed_rows.h.
#include "collectives/listed_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace parallax {

namespace {

// Where rows of both part the next that are alike are looked for among so many; and so many times
// more often in vain than rows are alike before all others are taken for rows of another order.
constexpr uint32_t kLooksAhead = 16, kFailuresMax = 64;

// Along both. Those that are found go to the front.
uint32_t walk(std::span<const uint32_t> pulled, std::span<uint32_t> row_keys,
              std::span<uint32_t> items) {
  const auto count = static_cast<uint32_t>(row_keys.size());
  uint32_t found = 0, failures = 0;
  for (uint32_t at = 0, place = 0; at < count && place < pulled.size();) {
    if (row_keys[at] != pulled[place]) {
      const auto some = pulled.subspan(place, std::min<size_t>(kLooksAhead, pulled.size() - place));
      const auto here = std::find(some.begin(), some.end(), row_keys[at]);
      const auto* const rows = &row_keys[at];
      const auto* const end = rows + std::min(kLooksAhead, count - at);
      const auto* const there = std::find(rows, end, pulled[place]);
      if (here != some.end()) {
        place += static_cast<uint32_t>(here - some.begin());
      } else if (there != end) {
        at += static_cast<uint32_t>(there - rows);
      } else {
        if (++failures == kFailuresMax) break;
        ++at;
        ++place;
      }
      continue;
    }
    std::swap(row_keys[found], row_keys[at]);
    std::swap(items[found], items[at]);
    row_keys[found++] = place++;
    ++at;
    failures -= std::min(failures, 1u);
  }
  return found;
}

void take_back(std::span<const uint32_t> pulled, std::span<uint32_t> places) {
  for (uint32_t& each : places) each = pulled[each];
}

// False: a row was pulled twice, in two types, so that slots of the index are no places.
bool insert_pulled(RowIndex& index, std::span<const uint32_t> pulled) {
  std::array<uint32_t, kRowsTogether> slots;
  for (uint32_t first = 0; first < pulled.size(); first += kRowsTogether) {
    const auto together = std::min(static_cast<uint32_t>(pulled.size()) - first, kRowsTogether);
    if (!index.find_or_insert_each(&pulled[first], together, slots.data())) return false;
  }
  return index.size() == pulled.size();
}

// Those from `first` on, by the index; how many of all were found then.
uint32_t look_up(std::span<const uint32_t> pulled, std::span<uint32_t> row_keys,
                 std::span<uint32_t> items, RowScratch& scratch) {
  RowIndex* const index = scratch.begin(&scratch, std::max(pulled.size(), items.size()));
  if (index == nullptr || !insert_pulled(*index, pulled)) return 0;
  const auto count = static_cast<uint32_t>(row_keys.size());
  uint32_t* const item_at = scratch.first_numbers();    // by place
  uint32_t* const place_of = scratch.second_numbers();  // by row
  std::fill_n(item_at, pulled.size(), kNoSlot);
  for (uint32_t i = 0; i < count; ++i) {
    place_of[i] = index->find(row_keys[i]);
    if (place_of[i] != kNoSlot) item_at[place_of[i]] = items[i];
  }
  uint32_t end = count;
  for (uint32_t i = count; i-- > 0;) {
    if (place_of[i] != kNoSlot) continue;
    row_keys[--end] = row_keys[i];
    items[end] = items[i];
  }
  uint32_t found = 0;
  for (uint32_t place = 0; place < pulled.size(); ++place) {
    if (item_at[place] == kNoSlot) continue;
    row_keys[found] = place;
    items[found++] = item_at[place];
  }
  return found;
}

}  // namespace

uint32_t list_rows(std::span<const uint32_t> pulled, std::span<uint32_t> row_keys,
                   std::span<uint32_t> items, RowScratch* scratch) {
  // So that a walk costs little for each row that is pushed.
  if (pulled.size() / 4 > row_keys.size()) return 0;
  uint32_t found = walk(pulled, row_keys, items);
  const size_t others = row_keys.size() - found;
  if (scratch != nullptr && others > 0 && pulled.size() <= 2 * others) {
    take_back(pulled, row_keys.first(found));
    found = look_up(pulled, row_keys, items, *scratch);
  }
  if (found > 0 && row_keys[found - 1] - row_keys[0] < found * 8 * sizeof(uint32_t)) return found;
  take_back(pulled, row_keys.first(found));
  return 0;
}

bool read_listed(const Section& section, size_t row_bytes, std::span<const uint32_t> pulled,
                 std::span<uint32_t> row_keys, std::span<const std::byte>* rows) {
  const uint64_t first = section.header.first;
  const uint32_t count = section.header.count;
  const size_t rows_bytes = count * row_bytes;
  if (count == 0 || first >= pulled.size() || count > pulled.size() - first ||
      count > row_keys.size() || section.payload.size() < rows_bytes) {
    return false;
  }
  const std::span<const uint32_t> here = pulled.subspan(first);
  const std::span<const std::byte> bits =
      section.payload.first(section.payload.size() - rows_bytes);
  *rows = section.payload.subspan(bits.size());
  if (bits.empty()) {
    std::copy_n(here.begin(), count, row_keys.begin());
    return true;
  }
  // More than there are places say nothing.
  if (bits.size() > (here.size() + 7) / 8) return false;
  uint32_t found = 0;
  for (size_t at = 0; at < bits.size(); ++at) {
    for (auto byte = static_cast<uint8_t>(bits[at]); byte != 0; byte &= byte - 1) {
      const size_t place = 8 * at + static_cast<size_t>(std::countr_zero(byte));
      if (found == count || place >= here.size()) return false;
      row_keys[found++] = here[place];
    }
  }
  return found == count;
}

}  // namespace parallax
