// SPDX-License-Identifier: Apache-2.0
// RowUpdater: rows of a table by a rule, in whatever memory their values lie, and the loop over
// those of a gradient. Owned by the call that applies; one thread.
#ifndef PARALLAX_SERVER_ROW_UPDATER_H_
#define PARALLAX_SERVER_ROW_UPDATER_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "aggregate/row_index.h"
#include "server/update_rules.h"
#include "variable/variable.h"

namespace parallax {

// Finds each row and updates it: some are found, and asked of the memory, before those in front of
// them are updated.
template <typename Find, typename Update>
void each_row(uint32_t count, const Find& find, const Update& update) {
  std::array<std::array<uint64_t, kRowsTogether>, 2> both = {};
  const auto find_some = [&](uint32_t first) {
    auto& rows = both[first / kRowsTogether % 2];
    const uint32_t together = std::min(count - first, kRowsTogether);
    for (uint32_t i = 0; i < together; ++i) rows[i] = find(first + i);
  };
  if (count > 0) find_some(0);
  for (uint32_t first = 0; first < count; first += kRowsTogether) {
    if (count - first > kRowsTogether) find_some(first + kRowsTogether);
    const auto& rows = both[first / kRowsTogether % 2];
    const uint32_t together = std::min(count - first, kRowsTogether);
    for (uint32_t i = 0; i < together; ++i) update(first + i, rows[i]);
  }
}

// Values that lie as they are updated; of others see StoredValues.
template <typename T>
struct PlainValues {
  T* values;

  // In pieces, so that a value that decays is still in the cache when it is updated.
  uint64_t most() const { return 4096; }
  T* place(uint64_t at) const { return values + at; }
  T* open(uint64_t at, uint64_t /*count*/) const { return values + at; }
  template <typename First>
  void close(uint64_t /*at*/, uint64_t /*count*/, const First& /*first*/) const {}
};

// All that an update of rows takes but the rows: loops over rows work on a copy of it, of which the
// compiler knows that no row lies in it.
template <typename T, typename Values, typename Rule>
struct RowUpdater {
  Rule rule;
  Decay<T> decay;
  double scale;  // with the sign
  Values* values;
  std::array<T*, kStatesMax> states;
  uint64_t width, state_width;
  bool counted;  // gradients end in their number of ranks

  void prefetch(uint64_t row) const {
    __builtin_prefetch(values->place(row * width), 1);
    if (states[0] != nullptr) __builtin_prefetch(states[0] + row * state_width, 1);
  }
  // `first()`: the row's first element, of the variable.
  template <typename First>
  void update(uint64_t row, const T* gradient, const First& first) const {
    update_run(row * width, row * state_width, gradient, width, first);
  }
  // The same of any elements. Without ids all is one row.
  template <typename First>
  void update_run(uint64_t at, uint64_t state_at, const T* gradient, uint64_t count,
                  const First& first) const {
    const RowParts<T> row = {values->open(at, count), part_at(0, state_at), part_at(1, state_at),
                             gradient, count};
    // Rounded once to the type of the values, like every figure of a rule.
    const auto by = static_cast<T>(
        counted ? 1.0 / static_cast<double>(gradient[width]) * scale : scale);
    update_row(rule, decay, row, by);
    values->close(at, count, first);
  }

 private:
  // Null: there is no such state.
  T* part_at(size_t state, uint64_t at) const {
    return states[state] == nullptr ? nullptr : states[state] + at;
  }
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_ROW_UPDATER_H_
