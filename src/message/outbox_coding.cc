// SPDX-License-Identifier: Apache-2.0
// Sections that are packed in fewer bytes. See outbox.h and section_coding.h.
#include <cstring>

#include "message/outbox.h"

namespace parallax {

// Where a payload that was just written takes fewer bytes coded, it is written over, and its header
// says so.
void Outbox::code(uint32_t to, const Send& send, SectionHeader* header, std::byte* payload) {
  PlainSection plain = {.payload = {payload, header->payload_bytes}};
  const size_t numbers_bytes = header->count * send.row_bytes();
  const bool has_numbers = header->encoding != Encoding::kIds;
  plain.before_bytes = header->payload_bytes - (has_numbers ? numbers_bytes : 0);
  plain.number_bytes = has_numbers ? send.format.element_bytes : 0;
  if (header->encoding == Encoding::kRows || header->encoding == Encoding::kIds) {
    plain.row_keys = {send.rows.row_keys + send.packed, header->count};
  }
  const std::span<const std::byte> coded = code_section(plain, send.coding, coded_);
  if (coded.empty()) return;
  std::memcpy(payload, coded.data(), coded.size());
  observer_.on_section_coded(to, *header, header->payload_bytes - coded.size());
  header->flags |= kSectionCoded;
  header->payload_bytes = static_cast<uint32_t>(coded.size());
}

// What coding has spared is room for more of the same.
bool Outbox::pack_coded(uint32_t to, Send& send, SendBuffer& buffer) {
  while (true) {
    const uint64_t before = send.packed;
    if (pack(to, send, buffer)) return true;
    const size_t room = buffer.bytes.size() - buffer.message_bytes;
    if (send.packed == before || room < buffer.bytes.size() / 8) return false;
  }
}

}  // namespace parallax
