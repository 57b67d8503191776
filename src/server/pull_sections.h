// SPDX-License-Identifier: Apache-2.0
// What the sections of a pull have in common, whoever sends them: how they are made, and whether
// one is what it says. Whose it is to send is its receiver's to know.
#ifndef PARALLAX_SERVER_PULL_SECTIONS_H_
#define PARALLAX_SERVER_PULL_SECTIONS_H_

#include <cstdint>
#include <cstring>

#include "base/number.h"
#include "message/outbox.h"
#include "message/wire.h"

namespace parallax {

// The tag of the section that ends what a rank wants of a leader in a pull.
inline constexpr uint32_t kNoPulledVariable = UINT32_MAX;

inline uint8_t pull_flags(uint32_t dtype) {
  return static_cast<uint8_t>(dtype << kSectionDtypeShift);
}
inline uint32_t pull_dtype(const SectionHeader& header) {
  return header.flags >> kSectionDtypeShift;
}

inline Send pull_send(SectionKind kind, Encoding encoding, uint32_t variable, uint64_t step) {
  Send send;
  send.header.kind = kind;
  send.header.encoding = encoding;
  send.header.tag = variable;
  send.header.step = step;
  return send;
}

// A section that says all by its header: nothing hides behind it that nobody reads.
inline bool is_bare(const Section& section) {
  return section.header.encoding == Encoding::kBytes && section.header.count == 0 &&
         section.payload.empty();
}

// Row keys, and at least one: none would say nothing, and a peer could say it for ever.
inline bool is_row_keys(const Section& section) {
  const uint32_t count = section.header.count;
  return section.header.encoding == Encoding::kIds && count > 0 &&
         section.payload.size() == sizeof(uint32_t) * size_t{count};
}
// Copied: the payload is not aligned.
inline uint32_t row_key_at(const Section& section, uint32_t i) {
  uint32_t row_key;
  std::memcpy(&row_key, section.payload.data() + i * sizeof row_key, sizeof row_key);
  return row_key;
}

// What the values of a pull travel as: the dtype asked for where it is the smaller one, else the
// master's, which is what the table keeps them in.
inline uint32_t wire_dtype(uint32_t asked, uint32_t master) {
  return bytes_of_dtype(asked) < bytes_of_dtype(master) ? asked : master;
}
// Whether values of that master may be asked for in a dtype: no larger one, since nobody needs more
// than the owner has, and buffers are sized by the master.
inline bool may_travel_as(uint32_t dtype, uint32_t master) {
  return is_dtype(dtype) && convertible(master, dtype) &&
         bytes_of_dtype(dtype) <= bytes_of_dtype(master);
}

}  // namespace parallax

#endif  // PARALLAX_SERVER_PULL_SECTIONS_H_
