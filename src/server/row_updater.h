// SPDX-License-Identifier: Apache-2.0
// RowUpdater: rows of a table by a rule, in whatever memory their values lie. Owned by the call
// that applies; one thread.
#ifndef PARALLAX_SERVER_ROW_UPDATER_H_
#define PARALLAX_SERVER_ROW_UPDATER_H_

#include <array>
#include <cstdint>

#include "base/prefetch.h"
#include "server/update_rules.h"
#include "variable/variable.h"

namespace parallax {

// Values that lie as they are updated; of others see StoredValues.
template <typename T>
struct PlainValues {
  T* values;

  // In pieces, so that a value that decays is still in the cache when it is updated.
  uint64_t most() const { return 4096; }
  T* place(uint64_t at) const { return values + at; }
  uint64_t number_bytes() const { return sizeof(T); }
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
    prefetch_row_to_write(reinterpret_cast<const std::byte*>(values->place(row * width)),
                          width * values->number_bytes());
    for (T* const state : states) {
      if (state == nullptr) return;
      prefetch_to_write(reinterpret_cast<const std::byte*>(state + row * state_width));
    }
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
    const auto by =
        static_cast<T>(counted ? 1.0 / static_cast<double>(gradient[width]) * scale : scale);
    if constexpr (requires { rule.at(first()); }) {
      update_row(rule.at(first()), decay, row, by);
    } else {
      update_row(rule, decay, row, by);
    }
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
