// SPDX-License-Identifier: Apache-2.0
// Sections by their encoding. See section_payload.h.
#include "message/section_payload.h"

#include <algorithm>
#include <cstring>

#include "base/bits.h"
#include "base/row_copies.h"

namespace parallax {

namespace {

// Of listed rows that are packed next: the bits that tell which of the places they are of.
size_t bytes_of_bits(const Send& send, uint64_t count) {
  const uint32_t* const places = send.rows.row_keys + send.packed;
  const uint64_t spread = count == 0 ? 0 : uint64_t{places[count - 1]} - places[0] + 1;
  return spread == count ? 0 : (spread + 7) / 8;
}

uint64_t listed_rows_that_fit(const Send& send, size_t room) {
  const size_t row_bytes = send.row_bytes();
  uint64_t fit = std::min(send.count - send.packed, uint64_t{room / row_bytes});
  while (fit > 0) {
    const size_t needed = bytes_of_bits(send, fit) + fit * row_bytes;
    if (needed <= room) break;
    // Fewer rows have fewer bits, too.
    fit -= std::min((needed - room + row_bytes - 1) / row_bytes, (fit + 1) / 2);
  }
  return fit;
}

}  // namespace

size_t bytes_before_numbers(const Send& send, uint64_t count) {
  switch (send.header.encoding) {
    case Encoding::kIds:
    case Encoding::kRows:
      return count * sizeof(uint32_t);
    case Encoding::kListedRows:
      return bytes_of_bits(send, count);
    default:
      return 0;
  }
}

size_t bytes_of_item(const Send& send) {
  switch (send.header.encoding) {
    case Encoding::kBytes:
      return 1;
    case Encoding::kDense:
      return send.format.element_bytes;
    case Encoding::kIds:
      return 0;
    default:
      return send.row_bytes();
  }
}

PlainSection plain_section(const Send& send, const SectionHeader& header,
                           const std::byte* payload) {
  const bool has_row_keys = header.encoding == Encoding::kRows || header.encoding == Encoding::kIds;
  PlainSection plain = {.payload = {payload, header.payload_bytes}};
  plain.before_bytes = bytes_before_numbers(send, header.count);
  if (has_row_keys) plain.row_keys = {send.rows.row_keys + send.packed, header.count};
  if (header.encoding != Encoding::kIds) plain.number_bytes = send.format.element_bytes;
  return plain;
}

uint64_t items_that_fit(const Send& send, size_t room) {
  const size_t row_bytes = send.row_bytes();
  switch (send.header.encoding) {
    case Encoding::kBytes:
      return room;
    case Encoding::kDense: {
      const uint64_t fit = room / send.format.element_bytes;
      // Whole grains but for the end, for the kernels' sake.
      const uint64_t left = send.count - send.packed;
      return fit >= left ? left : fit / kDenseGrain * kDenseGrain;
    }
    case Encoding::kRows:
      return room / (sizeof(uint32_t) + row_bytes);
    case Encoding::kIds:
      return room / sizeof(uint32_t);
    case Encoding::kValues:
      return room / row_bytes;
    case Encoding::kListedRows:
      return listed_rows_that_fit(send, room);
    case Encoding::kPlaced:  // pack_piece()
    case Encoding::kLent:    // pack_lent()
    case Encoding::kEncodingCount:
      break;
  }
  return 0;
}

void write_payload(const Send& send, uint64_t count, std::byte* out) {
  if (count == 0) return;
  if (send.header.encoding == Encoding::kBytes) {
    std::memcpy(out, send.bytes + send.packed, count);
    return;
  }
  const WireFormat& format = send.format;
  if (send.header.encoding == Encoding::kDense) {
    // Converted while copied: a value is read once on its way out.
    convert_or_copy(format.convert, send.dense + send.packed * format.source_bytes, out, count,
                    format.element_bytes);
    return;
  }
  const RowSource& rows = send.rows;
  if (send.header.encoding == Encoding::kListedRows) {
    const std::span<std::byte> bits(out, bytes_of_bits(send, count));
    std::fill(bits.begin(), bits.end(), std::byte{0});
    const uint32_t* const places = rows.row_keys + send.packed;
    for (uint64_t i = 0; i < count && !bits.empty(); ++i) set_bit(bits, places[i] - places[0]);
    out += bits.size();
  } else if (rows.row_keys != nullptr) {
    std::memcpy(out, rows.row_keys + send.packed, count * sizeof(uint32_t));
    out += count * sizeof(uint32_t);
  }
  if (!rows.has_rows()) return;
  const size_t source_row_bytes = size_t{format.source_bytes} * rows.row_elements;
  const RowCopies copies(format.convert, rows.row_elements, format.element_bytes);
  copies.copy_all(
      count, [&](uint64_t at) { return rows.row(send.packed + at, source_row_bytes); },
      rows.order == nullptr ? 0 : source_row_bytes, out);
}

}  // namespace parallax
