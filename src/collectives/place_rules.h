// SPDX-License-Identifier: Apache-2.0
// PlaceRules: which ranges of a dense result its senders can write where they belong
// (transport/remote_writes.h), and when the result had better come to memory that the network
// knows. Used by the exchange that asks; a view.
#ifndef PARALLAX_COLLECTIVES_PLACE_RULES_H_
#define PARALLAX_COLLECTIVES_PLACE_RULES_H_

#include <cstddef>
#include <cstdint>

#include "base/byte_range.h"
#include "collectives/schedule_wiring.h"
#include "message/place_offer.h"
#include "transport/remote_writes.h"

namespace parallax {

struct PlaceRules {
  RemoteWrites* writes = nullptr;  // null: nothing is placed
  uint32_t rank = 0;               // the exchange's
  size_t element_bytes = 0;

  // A long range that another rank returns, whose network writes here.
  bool can_be_placed(const Op& op) const {
    return writes != nullptr && op.kind == OpKind::kReceiveCopy && op.peer != rank &&
           op.range.count * element_bytes >= kPlacedBytesMin &&
           writes->piece_bytes_max(op.peer) > 0;
  }

  // Half of what `elements` there are, or more, can be placed in memory of the exchange, `own`, and
  // nothing in the caller's `result`. A byte that comes in a message is copied twice, as the
  // network puts segments together and as it is put into the result; one that is placed is copied
  // as the result is given, as are all others then. So from half on it is no loss.
  bool comes_to_own(const ScheduleWiring& wiring, uint64_t elements, const ByteRange& own,
                    const ByteRange& result) const {
    if (writes == nullptr || writes->has_room(result) || !writes->has_room(own)) return false;
    uint64_t placed = 0;
    for (const uint32_t receive : wiring.receives()) {
      const Op& op = wiring.ops()[receive];
      if (can_be_placed(op)) placed += op.range.count;
    }
    // About half, since ranges are of whole blocks and one of two is the smaller one.
    return 2 * placed + elements / 64 >= elements;
  }
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_PLACE_RULES_H_
