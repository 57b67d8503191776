// SPDX-License-Identifier: Apache-2.0
// DenseAccumulator: the sum of several addends over one range of elements, added as they come. Each
// addend comes front to back, in pieces of any size, so what is complete is a prefix of the range
// and can leave while the rest still arrives.
//
// By default addends are added in the order of their arrival. An `ordered` accumulator adds, to
// each element, addend 0 first, then 1, 2, ...; what comes early is held back (a copy) until its
// turn, so the sum is bit for bit the same at any timing. Every sum starts at +0; adding what an
// addend does not have is then the same as adding zeros (+0 + x is never -0), so that absent ranks
// and zeros agree.
//
// Pieces come from peers: add() returns false, having changed nothing, when one does not fit. Owned
// by the engine's owner; nothing allocates after lay_out.
#ifndef PARALLAX_AGGREGATE_DENSE_ACCUMULATOR_H_
#define PARALLAX_AGGREGATE_DENSE_ACCUMULATOR_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "aggregate/combine.h"
#include "aggregate/row_coalescer.h"
#include "base/arena.h"
#include "base/number.h"

namespace parallax {

struct DenseAccumulatorOptions {
  uint32_t addends = 1;
  bool ordered = false;
  bool made_dense = false;  // elements are of rows, and kNoRow where there is none
  SumType sum = SumType::kF32;
  // Another operation than sums has addends that are all there, or all left out.
  Combine combine = Combine::kSum;
};

class DenseAccumulator {
 public:
  void lay_out(Arena& arena, uint64_t elements, const DenseAccumulatorOptions& options);
  void clear();

  // Until clear(), the sums are made here and not in memory of its own: spares a copy to who wants
  // them here. Those that are begun are copied; none may be complete. No addend may lie there.
  void place(std::byte* here);
  // The same where an addend lies that is lent next (lend()), of the sum's type, if that is not
  // ordered, and sums: those that are begun stay where they are until then.
  void place_over_lent(std::byte* here);
  bool placed() const { return values_ != own_values_.data(); }

  // The next `count` elements of an addend, read before the call returns; unaligned. False if it
  // has not so many left, or was left out.
  [[nodiscard]] bool add(uint32_t addend, uint64_t count, const RowValues& values);
  // All of one addend, which has brought nothing yet: read when its turn comes, so it must stay as
  // it is until all elements are complete. Spares a pass over the sum. One addend at most.
  void lend(uint32_t addend, const RowValues& values);
  // The addend, which has brought nothing yet, brings nothing.
  void leave_out(uint32_t addend);

  // Multiplies that many of the sums, complete ones, of a floating type.
  void scale(uint64_t at, uint64_t count, double factor);

  // Elements of an addend that have come.
  uint64_t came(uint32_t addend) const { return came_[addend] == kLeftOut ? 0 : came_[addend]; }
  // Nothing more comes of it.
  bool ended(uint32_t addend) const {
    return came_[addend] == kLeftOut || came_[addend] == elements_;
  }
  // Elements, from the first on, that have all that they will get.
  uint64_t complete() const { return complete_; }
  bool whole() const { return complete_ == elements_; }
  // Whole, and every addend was left out: there are no values.
  bool empty() const { return left_out_ == options_.addends; }
  const std::byte* values() const { return values_; }

 private:
  static constexpr uint64_t kLeftOut = UINT64_MAX;
  static constexpr uint32_t kNoAddend = UINT32_MAX;

  void add_ordered(uint32_t addend, uint64_t at, uint64_t count, const RowValues& values);
  void hold(uint32_t addend, uint64_t at, uint64_t count, const RowValues& values);
  RowValues held(uint32_t addend, uint64_t at) const;
  uint64_t turn_end(uint32_t addend) const;
  void drain(uint32_t addend);
  void update_complete();
  // Adds [at, at + count) of an addend to what is there.
  void sum(uint64_t at, uint64_t count, const RowValues& values);
  template <typename In, typename Sum>
  void sum_as(uint64_t at, uint64_t count, const std::byte* addend);
  template <typename In, typename Sum>
  void combine_as(uint64_t at, uint64_t count, const std::byte* addend);

  DenseAccumulatorOptions options_;
  uint64_t elements_ = 0;
  size_t element_bytes_ = sizeof(float);
  std::span<std::byte> own_values_;
  std::byte* values_ = nullptr;  // in use: own_values_, or where they are placed
  std::span<uint64_t> came_;     // by addend; kLeftOut
  std::span<uint64_t> added_;    // ordered: of them, those in the sum
  std::span<std::byte> held_;    // ordered: all elements of each addend but the first
  RowValues lent_;               // of lent_addend_, from element 0 on
  uint32_t lent_addend_ = kNoAddend;
  uint32_t left_out_ = 0;
  uint32_t unstarted_ = 0;  // addends of which nothing came and that are not left out
  uint64_t touched_ = 0;    // elements, from the first on, whose sums have begun
  uint64_t complete_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_DENSE_ACCUMULATOR_H_
