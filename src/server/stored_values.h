// SPDX-License-Identifier: Apache-2.0
// StoredValues: the values of a table that keeps them narrower than they are updated in
// (Variable::storage_dtype). A row, or a piece of a dense variable, is widened to floats, which a
// rule updates, and rounded back once: to nearest even, or by random bits that are a function of
// the variable, of how often it was updated, and of row and column alone, so that they are the same
// wherever the row lies. What is given to the table is rounded to nearest even. Owned by its table,
// of which it is the only one that knows how narrow values are.
#ifndef PARALLAX_SERVER_STORED_VALUES_H_
#define PARALLAX_SERVER_STORED_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/arena.h"
#include "base/counter_bits.h"
#include "base/number.h"
#include "server/update_counts.h"
#include "variable/variable.h"

namespace parallax {

class StoredValues {
 public:
  explicit StoredValues(const Variable& variable);
  // `values`: the table's, which stay there.
  void lay_out(Arena& arena, std::span<std::byte> values);

  // Floats that may be open at once; with row ids whole rows.
  uint64_t most() const { return most_; }
  // Of those: memory for what is given next.
  float* floats() { return floats_.data(); }
  // Rounds floats, which may be unaligned, to nearest even into the elements from `at` on.
  void put(uint64_t at, const std::byte* from, uint64_t count) { round_(from, place(at), count); }

  // An update begins, which is counted; the counts outlive it.
  void begin(const UpdateCounts& updates) { updates_ = &updates; }
  uint64_t number_bytes() const { return element_bytes_; }
  std::byte* place(uint64_t at) const { return &values_[at * element_bytes_]; }
  // The elements from `at` on, to be changed.
  float* open(uint64_t at, uint64_t count) {
    widen_(place(at), reinterpret_cast<std::byte*>(floats_.data()), count);
    return floats_.data();
  }
  // What was opened is rounded back. first(): which element of the variable, row by row, the first
  // of them is.
  template <typename First>
  void close(uint64_t at, uint64_t count, const First& first) {
    if (by_chance_ == nullptr) {
      put(at, reinterpret_cast<const std::byte*>(floats_.data()), count);
    } else {
      close_by_chance(at, count, first());
    }
  }

 private:
  using RoundByChance = void (*)(const float* from, std::byte* to, size_t count,
                                 const CounterBits& bits, uint64_t column);
  void close_by_chance(uint64_t at, uint64_t count, uint64_t first);

  const uint64_t row_elements_;
  const size_t element_bytes_;
  const uint64_t most_;
  const Convert widen_, round_;
  const RoundByChance by_chance_;  // null: to nearest even
  std::vector<uint64_t> seeds_;    // by fused table; of a table by itself one
  const UpdateCounts* updates_ = nullptr;
  std::span<std::byte> values_;
  std::span<float> floats_;
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_STORED_VALUES_H_
