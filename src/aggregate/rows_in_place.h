// SPDX-License-Identifier: Apache-2.0
// RowsInPlace: of a slice's rows those that come once, which stay where they are, and those that
// come more often, which are to be summed. Nothing branches on which these are. Views of memory
// that somebody else owns; one thread.
#ifndef PARALLAX_AGGREGATE_ROWS_IN_PLACE_H_
#define PARALLAX_AGGREGATE_ROWS_IN_PLACE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "aggregate/row_index.h"
#include "base/prefetch.h"

namespace parallax {

class RowsInPlace {
 public:
  // Marks the place of a row that lies in the slice.
  static constexpr uint32_t kInSlice = uint32_t{1} << 31;

  // `numbers`: of each of `count` rows of the slice which distinct row it is, numbered in the order
  // in which they first come; kNoSlot: it is padding. `places`: room for one more than there may be
  // of these; `times`: for as many, at most `distinct_max`.
  RowsInPlace(const uint32_t* numbers, uint32_t count, uint32_t distinct_max, uint32_t* places,
              uint32_t* times)
      : numbers_(numbers), count_(count), places_(places) {
    std::fill_n(times, distinct_max, 0);
    for (uint32_t row = 0; row < count; ++row) {
      const uint32_t number = numbers[row];
      if (number == kNoSlot) continue;
      places[distinct_] = kInSlice | row;
      distinct_ += number == distinct_ ? 1 : 0;
      ++times[number];
    }
    for (uint32_t number = 0; number < distinct_; ++number) {
      const uint32_t more = times[number] > 1 ? 1 : 0;
      places[number] = more != 0 ? repeated_ : places[number];
      repeated_ += more;
    }
  }

  uint32_t distinct() const { return distinct_; }
  // Of these, those that come more often. Their places are numbers from 0 on, in their order.
  uint32_t repeated() const { return repeated_; }
  uint32_t place(uint32_t number) const { return places_[number]; }

  // Calls add(places, rows, count) for some rows of the slice at a time that come more often, in
  // their order. Those that follow have been asked for.
  template <typename Add>
  void each_repeated(const std::byte* values, uint64_t row_bytes, Add add) const {
    std::array<Some, 2> both = {};
    uint32_t row = find_some(0, values, row_bytes, &both[0]);
    for (uint32_t turn = 0; both[turn % 2].count > 0; ++turn) {
      row = find_some(row, values, row_bytes, &both[(turn + 1) % 2]);
      const Some& some = both[turn % 2];
      add(some.places.data(), some.rows.data(), some.count);
    }
  }

 private:
  static constexpr uint32_t kTogether = 32;
  struct Some {
    uint32_t count = 0;
    std::array<uint32_t, kTogether + 1> places = {}, rows = {};
  };

  // From a row of the slice on; where the next ones begin is returned.
  uint32_t find_some(uint32_t row, const std::byte* values, uint64_t row_bytes, Some* some) const {
    uint32_t found = 0;
    for (; row < count_ && found < kTogether; ++row) {
      const uint32_t number = numbers_[row];
      if (number == kNoSlot) continue;
      const uint32_t place = places_[number];
      some->places[found] = place;
      some->rows[found] = row;
      found += (place & kInSlice) == 0 ? 1 : 0;
    }
    some->count = found;
    for (uint32_t i = 0; i < found; ++i)
      prefetch_row(values + some->rows[i] * row_bytes, row_bytes);
    return row;
  }

  const uint32_t* numbers_;
  uint32_t count_;
  uint32_t* places_;
  uint32_t distinct_ = 0, repeated_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_ROWS_IN_PLACE_H_
