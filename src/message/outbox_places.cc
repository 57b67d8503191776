// SPDX-License-Identifier: Apache-2.0
// Sections without their elements: those lie where the peer reads them, or are put where it wants
// them. See outbox.h.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "message/outbox.h"
#include "message/place_offer.h"
#include "message/section_payload.h"

namespace parallax {

// All of it at once: who reads cuts it as it likes.
bool Outbox::pack_lent(uint32_t to, Send& send, SendBuffer& buffer) {
  SectionHeader header = send.header;
  if (buffer.bytes.size() - buffer.message_bytes < sizeof header + sizeof(LentPart)) return false;
  const uint64_t count = std::min<uint64_t>(send.count - send.packed, UINT32_MAX);
  const uint64_t bytes = count * send.format.element_bytes;
  LentPart part = {.place = send.lent, .bytes = bytes, .returns = send.returns};
  part.place.offset += send.packed * send.format.element_bytes;
  const ByteRange pages =
      send.returns.any() ? lending_.pages_of(part.place, send.dense, send.returns) : ByteRange();
  part.loan = lending_.lend(to, bytes, send.pending, pages);
  header.encoding = Encoding::kLent;
  header.first += send.packed;
  header.count = static_cast<uint32_t>(count);
  header.payload_bytes = sizeof part;
  std::byte* const out = buffer.bytes.data() + buffer.used;
  std::memcpy(out, &header, sizeof header);
  std::memcpy(out + sizeof header, &part, sizeof part);
  buffer.used += sizeof header + sizeof part;
  buffer.message_bytes += sizeof header + sizeof part;
  send.packed += count;
  ++buffer.section_count;
  observer_.on_section_packed(to, header, sizeof header + sizeof part);
  return send.packed == send.count;
}

// That they are there, and nothing else.
bool Outbox::pack_written(uint32_t to, Send& send, SendBuffer& buffer) {
  constexpr uint64_t kBytesMax = uint64_t{1} << 30;  // what a header can say
  SectionHeader header = send.header;
  if (buffer.bytes.size() - buffer.message_bytes < sizeof header) return false;
  const uint64_t count = std::min(send.count - send.packed, kBytesMax / send.format.element_bytes);
  header.encoding = Encoding::kPlaced;
  header.first += send.packed;
  header.count = static_cast<uint32_t>(count);
  header.payload_bytes = static_cast<uint32_t>(count * send.format.element_bytes);
  std::memcpy(buffer.bytes.data() + buffer.used, &header, sizeof header);
  buffer.used += sizeof header;
  buffer.message_bytes += sizeof header;
  send.packed += count;
  ++buffer.section_count;
  observer_.on_section_packed(to, header, sizeof header);
  return send.packed == send.count;
}

bool Outbox::places(uint32_t to, const Send& send) const {
  return send.place != nullptr && send.packed < send.count && writes_ != nullptr && to != self_ &&
         writes_->piece_bytes_max(to) > 0;
}

// Of a send that is placed, what its next piece has. Elements are written from where they lie. The
// values of rows are gathered behind the message in its buffer, and not one row of them where a
// message of their own would have room for more.
uint64_t Outbox::items_of_piece(const Send& send, uint32_t to, const SendBuffer& buffer) const {
  const uint64_t left = send.count - send.packed;
  const size_t bytes_max = writes_->piece_bytes_max(to);
  if (send.header.encoding == Encoding::kDense) {
    return std::min(left, bytes_max / send.format.element_bytes / kDenseGrain * kDenseGrain);
  }
  const size_t room = buffer.bytes.size() - buffer.used - sizeof(SectionHeader);
  const uint64_t fit = std::min(left, std::min(room, bytes_max) / send.row_bytes());
  return fit < left && buffer.section_count > 0 ? 0 : fit;
}

// Writes the header of a section whose elements are placed; true if that was the send's last.
bool Outbox::pack_piece(Send& send, uint32_t to, SendBuffer& buffer) {
  if (buffer.bytes.size() - buffer.message_bytes < sizeof(SectionHeader)) return false;
  const bool gathered = send.header.encoding == Encoding::kValues;
  const size_t item_bytes = gathered ? send.row_bytes() : send.format.element_bytes;
  const uint64_t left = send.count - send.packed;
  const uint64_t count = items_of_piece(send, to, buffer);
  if (count == 0) {
    PARALLAX_CHECK(buffer.section_count > 0);  // else it would never fit
    return false;
  }
  SectionHeader header = send.header;
  header.encoding = Encoding::kPlaced;
  header.first += send.packed;
  header.count = static_cast<uint32_t>(count);
  header.payload_bytes = static_cast<uint32_t>(count * item_bytes);
  if (count < left) header.flags &= kSectionKeptFlags;
  std::memcpy(buffer.bytes.data() + buffer.used, &header, sizeof header);
  buffer.used += sizeof header;
  buffer.message_bytes += sizeof header;
  const uint64_t address = send.place->address + send.place_offset + send.packed * item_bytes;
  buffer.piece = {.bytes = header.payload_bytes,
                  .address = address,
                  .area = send.place->area,
                  .key = std::span(send.place->key).first(send.place->key_bytes)};
  if (gathered) {
    std::byte* const out = buffer.bytes.data() + buffer.used;
    write_payload(send, count, out);
    buffer.piece.data = out;
  } else {
    buffer.piece.data = send.dense + send.packed * item_bytes;
    buffer.borrowed = send.pending;
    if (buffer.borrowed != nullptr) ++*buffer.borrowed;
  }
  send.packed += count;
  ++buffer.section_count;
  observer_.on_section_packed(to, header, sizeof header + header.payload_bytes);
  return count == left;
}

}  // namespace parallax
