// SPDX-License-Identifier: Apache-2.0
// Where a rank lets others write what they return to it, and where others let it. See
// dense_exchange.h.
#include <algorithm>

#include "collectives/dense_exchange.h"
#include "collectives/place_rules.h"

namespace parallax {

// Control, which goes ahead of data: a sum that comes back has this rank's share in it, so its
// sender has the offer before. None in rounds: nobody waits for an offer, and who is done with a
// round takes nothing of it any more.
void DenseExchange::offer_places(uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  RemoteWrites* const writes = outbox_.remote_writes();
  if (writes == nullptr || buffer.result.values == nullptr || buffer.result.dtype != dtype_ ||
      options_.rounds != nullptr) {
    return;
  }
  const PlaceRules rules = {writes, columns_.rank(), element_bytes_};
  for (const uint32_t i : wiring_.receives()) {
    const Op& op = wiring_.ops()[i];
    OpState& state = buffer.ops[i];
    if (state.area != 0 || state.done > 0 || state.nothing || !rules.can_be_placed(op)) continue;
    const Range& range = wiring_.cells()[wiring_.cells_of(i).to].range;
    const std::byte* const first = buffer.result.of(range.first);
    SharedPart shared;
    const ByteRange place = ByteRange::at(first, range.count * element_bytes_);
    if (!writes->share(place, &shared)) continue;
    state.area = shared.area;
    ++buffer.areas_shared;
    const PlaceOffer offer(place, shared);
    outbox_.send_bytes(op.peer,
                       {.kind = beside_ ? SectionKind::kCollectivePlace : SectionKind::kDensePlace,
                        .tag = options_.variable,
                        .step = buffer.step,
                        .first = wiring_.on_wire(op)},
                       offer.bytes());
  }
}

void DenseExchange::end_offer(StepBuffer& buffer, uint32_t i) {
  OpState& state = buffer.ops[i];
  if (state.area == 0) return;
  if (outbox_.remote_writes() != nullptr) outbox_.remote_writes()->unshare(state.area);
  state.area = 0;
  --buffer.areas_shared;
}

void DenseExchange::end_offers(StepBuffer& buffer) {
  buffer.offer_count = 0;
  if (buffer.areas_shared == 0) return;
  for (const uint32_t i : wiring_.receives()) end_offer(buffer, i);
}

// One for each send at most. Too late for what is packed already.
bool DenseExchange::on_offer(uint32_t from, const Section& section) {
  StepBuffer& buffer = step_buffer(section.header.step);
  for (uint32_t i = 0; i < wiring_.ops().size(); ++i) {
    const Op& op = wiring_.ops()[i];
    OpState& state = buffer.ops[i];
    if (op.kind != OpKind::kSend || op.peer != from || op.stage != kGatherStage ||
        wiring_.on_wire(op) != section.header.first) {
      continue;
    }
    if (state.offer != 0 || section.header.encoding != Encoding::kBytes ||
        options_.rounds != nullptr) {
      return false;
    }
    if (buffer.offers.size() == buffer.offer_count) buffer.offers.emplace_back();
    PlaceOffer& offer = buffer.offers[buffer.offer_count];
    if (!offer.read(section.payload) || offer.place_bytes != op.range.count * element_bytes_) {
      return false;
    }
    state.offer = static_cast<uint32_t>(++buffer.offer_count);
    if (state.queued != nullptr) buffer.place_send(state, element_bytes_, state.queued);
    return true;
  }
  return false;
}

// Elements as they are in memory alone.
void DenseExchange::StepBuffer::place_send(const OpState& state, size_t element_bytes,
                                           Send* send) const {
  if (state.offer == 0 || send->format.convert != nullptr || state.narrow) return;
  send->place = &offers[state.offer - 1];
  send->place_offset = (state.done - send->count) * element_bytes;
}

}  // namespace parallax
