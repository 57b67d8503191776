// SPDX-License-Identifier: Apache-2.0
// Comparing rates. See step_rates.h.
#include "group/step_rates.h"

#include <algorithm>
#include <bit>

namespace parallax {

RatesDifference difference(std::span<const Rates> first, uint32_t first_rank,
                           std::span<const Rates> second, uint32_t second_rank) {
  using Words = std::array<uint32_t, kRatesFieldCount>;
  for (uint32_t group = 0; group < std::min(first.size(), second.size()); ++group) {
    const auto a = std::bit_cast<Words>(first[group]);
    const auto b = std::bit_cast<Words>(second[group]);
    const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin());
    if (in_a == a.end()) continue;
    return {.any = 1,
            .group = group,
            .field = static_cast<uint32_t>(in_a - a.begin()),
            .first_rank = first_rank,
            .second_rank = second_rank,
            .first_bits = *in_a,
            .second_bits = *in_b};
  }
  return {};
}

}  // namespace parallax
