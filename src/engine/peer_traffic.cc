// SPDX-License-Identifier: Apache-2.0
// What passes between ranks. See peer_traffic.h.
#include "engine/peer_traffic.h"

#include "message/kinds.h"

namespace parallax {

// By difference, since the count wraps after 2^32 messages.
bool PeerTraffic::is_next(uint32_t from, const SectionReader& reader) const {
  if (from >= received_sequence_.size() || reader.malformed()) return false;
  const uint32_t ahead = reader.header().sequence - received_sequence_[from];
  return reader.header().epoch == options_.epoch && static_cast<int32_t>(ahead) > 0;
}

bool PeerTraffic::take(uint32_t from, const SectionReader& reader, size_t bytes) {
  if (from >= received_sequence_.size() ||
      (!reader.malformed() && reader.header().epoch != options_.epoch)) {
    ++dropped_messages_;  // of another job or generation: none of ours
    return false;
  }
  if (from != options_.rank) {
    // Whatever the message holds, its sender lives.
    membership_.heard(from, clock_.now_ns());
    Traffic& traffic = is_local(from) ? local_ : wire_;
    traffic.received_bytes += bytes;
    ++traffic.received_messages;
  }
  if (reader.malformed()) return true;
  if (!is_next(from, reader)) {
    ++dropped_messages_;  // a repeat
    return false;
  }
  received_sequence_[from] = reader.header().sequence;
  return true;
}

// Of sections that carry a variable to or from another host; null: not of one. The tag may be of
// none.
VariableTraffic* PeerTraffic::of_wire(uint32_t peer, const SectionHeader& header) {
  if (!carries_variable(header.kind) || is_local(peer)) return nullptr;
  return header.tag < variables_.size() ? &variables_[header.tag] : nullptr;
}

void PeerTraffic::take_section(uint32_t from, const SectionHeader& header) {
  VariableTraffic* traffic = of_wire(from, header);
  if (traffic != nullptr) traffic->received_bytes += sizeof header + header.payload_bytes;
  // It was not in the message.
  if (header.encoding == Encoding::kPlaced) {
    (is_local(from) ? local_ : wire_).received_bytes += header.payload_bytes;
  }
}

void PeerTraffic::on_section_packed(uint32_t to, const SectionHeader& header, size_t bytes) {
  VariableTraffic* traffic = of_wire(to, header);
  if (traffic == nullptr) return;
  traffic->sent_bytes += bytes;
  if (header.encoding == Encoding::kPlaced) traffic->placed_bytes += header.payload_bytes;
}

void PeerTraffic::on_section_coded(uint32_t to, const SectionHeader& header, size_t spared_bytes) {
  if (VariableTraffic* traffic = of_wire(to, header)) traffic->spared_bytes += spared_bytes;
}

void PeerTraffic::on_message_packed(uint32_t to, size_t bytes) {
  if (to == options_.rank) return;
  membership_.sent(to, clock_.now_ns());
  Traffic& traffic = is_local(to) ? local_ : wire_;
  traffic.sent_bytes += bytes;
  ++traffic.sent_messages;
}

}  // namespace parallax
