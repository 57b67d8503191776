// SPDX-License-Identifier: Apache-2.0
// RowProbe: rows to be measured on, of one element each, so that what is measured is what a row
// costs beside its bytes: in looking it up and adding it, as owners do, and in putting it in order
// and copying it, as results do. In the cache. One thread at a time; nothing blocks.
#ifndef PARALLAX_ENGINE_ROW_PROBE_H_
#define PARALLAX_ENGINE_ROW_PROBE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "aggregate/accumulator.h"
#include "base/arena.h"

namespace parallax {

class RowProbe {
 public:
  // That each pass adds, of which half come again, or puts in order.
  static constexpr uint32_t kRows = 4096;
  // That a pass moves, about: for the simulator.
  static constexpr uint64_t kBytes = kRows * 64;

  RowProbe();
  RowProbe(const RowProbe&) = delete;
  RowProbe& operator=(const RowProbe&) = delete;

  void add();
  void put_in_order();

  // What that came to.
  const RowAccumulator& sum() const { return sum_; }
  const std::vector<std::pair<int64_t, uint64_t>>& order() const { return order_; }

 private:
  static constexpr uint32_t kDistinct = kRows / 2;

  Arena arena_;
  RowAccumulator sum_;
  std::vector<std::byte> given_;                     // row keys, then rows, of one source
  std::vector<std::pair<int64_t, uint64_t>> order_;  // ids and rows
  std::vector<float> rows_, result_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_ROW_PROBE_H_
