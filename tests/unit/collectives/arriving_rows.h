// SPDX-License-Identifier: Apache-2.0
// Rows of a slice that come by and by, as from a device: garbage lies where they do not yet.
#ifndef PARALLAX_TESTS_UNIT_COLLECTIVES_ARRIVING_ROWS_H_
#define PARALLAX_TESTS_UNIT_COLLECTIVES_ARRIVING_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "base/seeded_random.h"
#include "collectives/exchange.h"

namespace parallax::exchange_conformance {

class ArrivingRows {
 public:
  // `values` gets garbage, and back what it had as that comes; `rows` of them.
  void start(std::span<std::byte> values, size_t rows) {
    elements = {};
    there_ = values;
    given_.assign(values.begin(), values.end());
    std::fill(values.begin(), values.end(), std::byte{0x7f});
    rows_ = rows;
  }
  bool left() const { return elements.count < rows_; }
  void bring_some(SeededRandom& random) {
    const size_t first = elements.count;
    const size_t end = std::min(rows_, first + 1 + random.below(rows_ / 3 + 1));
    const size_t row_bytes = given_.size() / rows_;
    std::memcpy(&there_[first * row_bytes], &given_[first * row_bytes], (end - first) * row_bytes);
    elements.bring(end);
  }

  ArrivingElements elements;

 private:
  std::span<std::byte> there_;
  std::vector<std::byte> given_;
  size_t rows_ = 0;
};

}  // namespace parallax::exchange_conformance

#endif  // PARALLAX_TESTS_UNIT_COLLECTIVES_ARRIVING_ROWS_H_
