// SPDX-License-Identifier: Apache-2.0
// View: the ranks of a group at one time: which they are, by host, and who of them owns which slot
// of what is sharded. Ranks are numbered within the view; who joins, leaves or takes over a slot
// makes another view, of the next epoch. A pure value, whose copies share their arrays.
#ifndef PARALLAX_WORLD_VIEW_H_
#define PARALLAX_WORLD_VIEW_H_

#include <cstdint>

#include "world/host_map.h"
#include "world/slot_map.h"

namespace parallax {

struct View {
  uint32_t epoch = 1;
  HostMap hosts;
  SlotMap slots;
  SlotMap ranks;  // one for each: who sums what all get back, and nobody owns

  uint32_t world() const { return static_cast<uint32_t>(hosts.host_of.size()); }
  bool operator==(const View&) const = default;
};

// Without slots every rank owns, kSlotsPerOwner each.
inline View first_view(const HostMap& hosts, uint32_t epoch = 1, const SlotMap& slots = {}) {
  const auto world = static_cast<uint32_t>(hosts.host_of.size());
  return {.epoch = epoch,
          .hosts = hosts,
          .slots = slots.empty() ? SlotMap::of_ranks(world, kSlotsPerOwner) : slots,
          .ranks = SlotMap::of_ranks(world, 1)};
}

}  // namespace parallax

#endif  // PARALLAX_WORLD_VIEW_H_
