// SPDX-License-Identifier: Apache-2.0
// RailSpread: over which of a rank's rails the next piece goes: the one with the fewest bytes under
// way, so that a slow one is not waited for. Rails are as fast as each other
// (topology/rails.h), so bytes alone count. Pure, without UCX; one owner; nothing allocates.
#ifndef PARALLAX_TRANSPORT_UCX_RAIL_SPREAD_H_
#define PARALLAX_TRANSPORT_UCX_RAIL_SPREAD_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "transport/module/network_transport.h"

namespace parallax {

class RailSpread {
 public:
  // Of the rails in `usable` (bit i: rail i; at least one) the least laden; of those that tie, the
  // next after the one that was chosen last.
  size_t choose(uint32_t usable) {
    PARALLAX_CHECK(usable != 0 && usable < (1u << kRailsMax));
    size_t chosen = kRailsMax;
    for (size_t i = 1; i <= kRailsMax; ++i) {
      const size_t rail = (last_ + i) % kRailsMax;
      if ((usable & (1u << rail)) == 0) continue;
      if (chosen == kRailsMax || under_way_[rail] < under_way_[chosen]) chosen = rail;
    }
    return last_ = chosen;
  }

  void begin(size_t rail, size_t bytes) { under_way_[rail] += bytes; }
  void end(size_t rail, size_t bytes) {
    PARALLAX_CHECK(under_way_[rail] >= bytes);
    under_way_[rail] -= bytes;
  }

  uint64_t bytes_under_way(size_t rail) const { return under_way_[rail]; }

 private:
  std::array<uint64_t, kRailsMax> under_way_ = {};
  size_t last_ = kRailsMax - 1;  // so that the first is rail 0
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_UCX_RAIL_SPREAD_H_
