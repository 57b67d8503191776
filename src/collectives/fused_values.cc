// SPDX-License-Identifier: Apache-2.0
// Putting small numbers together. See fused_values.h.
#include "collectives/fused_values.h"

#include <cstring>

#include "aggregate/scaled_numbers.h"

namespace parallax {

FusedValues::FusedValues(const Collective& what) : bytes_(what.terms.fused_bytes(what.world)) {
  if (bytes_.empty()) return;
  if (!combines(what.terms.kind)) {
    const Range own = what.given_by(what.rank);
    const size_t bytes = what.terms.element_bytes();
    if (own.count > 0) std::memcpy(&bytes_[own.first * bytes], what.send, own.count * bytes);
    return;
  }
  with_addend_types(what.terms.dtype, what.terms.sum(), [&](auto in, auto to) {
    using In = typename decltype(in)::type;
    using Sum = typename decltype(to)::type;
    start_combine<In, Sum>(combine_of(what.terms.op), reinterpret_cast<Sum*>(bytes_.data()),
                           what.send, bytes_.size() / sizeof(Sum));
  });
}

void FusedValues::add(const Collective& what, std::span<const std::byte> values) {
  if (!combines(what.terms.kind)) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] |= values[i];
    return;
  }
  with_sum_type(what.terms.sum(), [&](auto tag) {
    using Sum = typename decltype(tag)::type;
    combine_into<Sum, Sum>(combine_of(what.terms.op), reinterpret_cast<Sum*>(bytes_.data()),
                           values.data(), bytes_.size() / sizeof(Sum));
  });
}

void FusedValues::give(const Collective& what) const {
  const Range got = what.got();
  if (got.count == 0 || bytes_.empty()) return;
  const std::byte* from = bytes_.data() + got.first * what.terms.element_bytes();
  if (combines(what.terms.kind)) {
    give_numbers(from, got.count, what.factor(),
                 {.values = what.recv, .dtype = what.terms.dtype, .sum = what.terms.sum()});
  } else {
    std::memcpy(what.recv, from, got.count * what.terms.element_bytes());
  }
}

}  // namespace parallax
