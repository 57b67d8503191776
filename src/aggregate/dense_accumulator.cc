// SPDX-License-Identifier: Apache-2.0
// How pieces are added, held back and lent. See dense_accumulator.h.
#include "aggregate/dense_accumulator.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "aggregate/accumulator.h"
#include "aggregate/row_kernels.h"
#include "aggregate/scaled_numbers.h"
#include "base/check.h"

namespace parallax {

void DenseAccumulator::lay_out(Arena& arena, uint64_t elements,
                               const DenseAccumulatorOptions& options) {
  options_ = options;
  elements_ = elements;
  element_bytes_ = bytes_of_sum(options.sum);
  came_ = arena.take<uint64_t>(options.addends);
  own_values_ = arena.take<std::byte>(elements * element_bytes_);
  values_ = own_values_.data();
  if (!options.ordered) return;
  added_ = arena.take<uint64_t>(options.addends);
  // Nothing comes before the turn of addend 0.
  held_ = arena.take<std::byte>((options.addends - 1) * elements * element_bytes_);
}

void DenseAccumulator::clear() {
  std::fill(came_.begin(), came_.end(), uint64_t{0});
  std::fill(added_.begin(), added_.end(), uint64_t{0});
  values_ = own_values_.data();
  lent_addend_ = kNoAddend;
  left_out_ = 0;
  unstarted_ = options_.addends;
  touched_ = complete_ = 0;
}

void DenseAccumulator::place(std::byte* here) {
  PARALLAX_CHECK(complete_ == 0);
  std::memcpy(here, values_, touched_ * element_bytes_);
  values_ = here;
}

void DenseAccumulator::place_over_lent(std::byte* here) {
  PARALLAX_CHECK(complete_ == 0 && lent_addend_ == kNoAddend && !options_.ordered);
  values_ = here;
}

bool DenseAccumulator::add(uint32_t addend, uint64_t count, const RowValues& values) {
  if (count == 0 || came_[addend] == kLeftOut || count > elements_ - came_[addend]) return false;
  const uint64_t at = came_[addend];
  came_[addend] += count;
  if (at == 0) --unstarted_;
  if (options_.ordered) {
    add_ordered(addend, at, count, values);
  } else {
    sum(at, count, values);
  }
  update_complete();
  return true;
}

void DenseAccumulator::lend(uint32_t addend, const RowValues& values) {
  PARALLAX_CHECK(came_[addend] == 0 && lent_addend_ == kNoAddend);
  came_[addend] = elements_;
  --unstarted_;
  if (options_.ordered) {
    lent_ = values;
    lent_addend_ = addend;
    drain(addend);
  } else {
    // To what is there it is added now; where nothing is, with the first that comes.
    if (values.rows == values_) {  // placed where that lies, and what was begun before is not
      sum(0, touched_, {own_values_.data(), dtype_of(options_.sum)});
    } else if (touched_ > 0) {
      sum(0, touched_, values);
    }
    lent_ = values;
    lent_addend_ = addend;
  }
  update_complete();
}

void DenseAccumulator::leave_out(uint32_t addend) {
  PARALLAX_CHECK(came_[addend] == 0);
  came_[addend] = kLeftOut;
  --unstarted_;
  ++left_out_;
  if (options_.ordered) drain(addend);
  update_complete();
}

void DenseAccumulator::scale(uint64_t at, uint64_t count, double factor) {
  PARALLAX_CHECK(at + count <= complete_);
  scale_numbers(values_ + at * element_bytes_, count, factor, options_.sum);
}

// ---- in order

// How far an addend may be added: as far as the one before it that is not left out.
uint64_t DenseAccumulator::turn_end(uint32_t addend) const {
  while (addend > 0) {
    --addend;
    if (came_[addend] != kLeftOut) return added_[addend];
  }
  return elements_;
}

void DenseAccumulator::add_ordered(uint32_t addend, uint64_t at, uint64_t count,
                                   const RowValues& values) {
  const uint64_t turn = turn_end(addend);
  // What came before and is still held goes first.
  const uint64_t now = at < turn && added_[addend] == at ? std::min(count, turn - at) : 0;
  if (now > 0) {
    sum(at, now, values);
    added_[addend] = at + now;
  }
  if (now < count) {
    const size_t read = now * bytes_of_dtype(values.dtype);
    hold(addend, at + now, count - now, {values.rows + read, values.dtype});
  }
  drain(addend);
}

void DenseAccumulator::hold(uint32_t addend, uint64_t at, uint64_t count, const RowValues& values) {
  PARALLAX_CHECK(addend > 0);
  std::byte* to = &held_[((addend - 1) * elements_ + at) * element_bytes_];
  convert_or_copy(converter(values.dtype, dtype_of(options_.sum)), values.rows, to, count,
                  element_bytes_);
}

RowValues DenseAccumulator::held(uint32_t addend, uint64_t at) const {
  if (addend == lent_addend_) {
    return {lent_.rows + at * bytes_of_dtype(lent_.dtype), lent_.dtype};
  }
  // Of addend 0 nothing is held: it never asks.
  const uint64_t slot = (addend - 1) * elements_ + at;
  return {held_.data() + slot * element_bytes_, dtype_of(options_.sum)};
}

// Adds what waited for this addend's progress: of itself, and then of those behind it.
void DenseAccumulator::drain(uint32_t addend) {
  for (; addend < options_.addends; ++addend) {
    if (came_[addend] == kLeftOut) continue;
    const uint64_t until = std::min(came_[addend], turn_end(addend));
    if (until <= added_[addend]) continue;
    sum(added_[addend], until - added_[addend], held(addend, added_[addend]));
    added_[addend] = until;
  }
}

// ---- sums

void DenseAccumulator::update_complete() {
  if (unstarted_ > 0) return;
  const std::span<const uint64_t> done = options_.ordered ? added_ : came_;
  uint64_t least = elements_;
  for (uint32_t addend = 0; addend < options_.addends; ++addend) {
    if (came_[addend] != kLeftOut) least = std::min(least, done[addend]);
  }
  complete_ = least;
  // Lent, and all the others were left out.
  if (complete_ > touched_ && lent_addend_ != kNoAddend) {
    const RowValues alone = held(lent_addend_, touched_);
    lent_addend_ = kNoAddend;
    sum(touched_, complete_ - touched_, alone);
  }
}

void DenseAccumulator::sum(uint64_t at, uint64_t count, const RowValues& values) {
  with_addend_types(values.dtype, options_.sum, [&](auto in, auto to) {
    using In = typename decltype(in)::type;
    using Sum = typename decltype(to)::type;
    if (options_.combine == Combine::kSum) {
      sum_as<In, Sum>(at, count, values.rows);
    } else {
      combine_as<In, Sum>(at, count, values.rows);
    }
  });
}

// As sum_as, where speed matters less.
template <typename In, typename Sum>
void DenseAccumulator::combine_as(uint64_t at, uint64_t count, const std::byte* addend) {
  Sum* all = reinterpret_cast<Sum*>(values_);
  const uint64_t begun = at < touched_ ? std::min(count, touched_ - at) : 0;
  combine_into<In, Sum>(options_.combine, all + at, addend, begun);
  const uint64_t fresh = count - begun;
  if (fresh == 0) return;
  at += begun;
  PARALLAX_CHECK(at == touched_);  // every addend comes front to back
  touched_ = at + fresh;
  start_combine<In, Sum>(options_.combine, all + at, addend + begun * sizeof(In), fresh);
  if (!options_.ordered && lent_addend_ != kNoAddend) sum(at, fresh, held(lent_addend_, at));
}

template <typename In, typename Sum>
void DenseAccumulator::sum_as(uint64_t at, uint64_t count, const std::byte* addend) {
  Sum* sums = reinterpret_cast<Sum*>(values_);
  const uint64_t begun = at < touched_ ? std::min(count, touched_ - at) : 0;
  if (begun > 0) add_to_sum<In, Sum>(sums + at, addend, begun);
  const uint64_t fresh = count - begun;
  if (fresh == 0) return;
  at += begun;
  addend += begun * sizeof(In);
  PARALLAX_CHECK(at == touched_);  // every addend comes front to back
  touched_ = at + fresh;
  // The first addend is written, not added: no pass is needed to clear the sums of a step.
  const bool lent = !options_.ordered && lent_addend_ != kNoAddend;
  if (lent && lent_.rows == values_) {  // placed where that lies
    return add_to_first<In, Sum>(sums + at, addend, fresh);
  }
  if (addend == reinterpret_cast<const std::byte*>(sums + at)) {  // the same, and it is alone
    return start_sum_there(sums + at, fresh);
  }
  if (options_.made_dense) {  // as it is: kNoRow must stay, and no sum of rows is -0
    std::memcpy(sums + at, addend, fresh * sizeof(Sum));
  } else if (std::is_same_v<In, Sum> && lent && lent_.dtype == dtype_of(options_.sum)) {
    // Both at once: one pass over the sum, and not two.
    start_sum_of_two(sums + at, held(lent_addend_, at).rows, addend, fresh);
    return;
  } else {
    start_sum<In, Sum>(sums + at, addend, fresh);
  }
  if (lent) sum(at, fresh, held(lent_addend_, at));
}

}  // namespace parallax
