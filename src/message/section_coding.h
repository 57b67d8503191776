// SPDX-License-Identifier: Apache-2.0
// Sections of rows in fewer bytes, without loss, where a link is what a step waits for: row keys
// that ascend as their differences (row_key_coding.h), numbers with narrow exponents
// (number_coding.h). A coded section says so by a flag, and is laid out again as it would have been
// without before anybody looks at it; so who sends may choose for each, and nobody agrees on it.
//
// Layout of a coded payload: a CodedHead; what lies before the numbers (row keys, or the bits of
// listed rows), coded or as it is; the numbers, coded or as they are.
#ifndef PARALLAX_MESSAGE_SECTION_CODING_H_
#define PARALLAX_MESSAGE_SECTION_CODING_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "message/wire.h"
#include "parallax/parallax.h"

namespace parallax {

// What of a section is worth coding, as its sender knows.
struct SectionCoding {
  bool row_keys = false;  // they ascend
  bool numbers = false;   // f32, or bf16
  bool any() const { return row_keys || numbers; }
};

// Numbers of this parallax_dtype_t have exponents that the coding knows.
inline bool has_number_code(uint32_t dtype) {
  return dtype == PARALLAX_F32 || dtype == PARALLAX_BF16;
}

// Of one variable: the row keys that owners are asked for, their answers, and what is pushed, or
// gathered. A rank's own choice, which may change at any time.
struct RowCodings {
  SectionCoding asked, answered, pushed;
};

struct CodedHead {
  static constexpr uint8_t kRowKeys = 1, kNumbers = 2;
  uint8_t coded = 0;
  uint8_t number_bytes = 0;  // of each
  uint16_t unused = 0;
  uint32_t before_bytes = 0;  // what lies before the numbers, as it was
  uint32_t numbers = 0;
};
static_assert(sizeof(CodedHead) == 12);

// A section as it was packed, and what is known of it besides.
struct PlainSection {
  std::span<const std::byte> payload;
  size_t before_bytes = 0;                  // of it, before the numbers
  std::span<const uint32_t> row_keys = {};  // the same, aligned; none: those bytes are no row keys
  uint32_t number_bytes = 0;
};

// The payload of the coded section; nothing: it would not be smaller. Written to `out`, which has
// room for as much as the plain one takes.
std::span<const std::byte> code_section(const PlainSection& section, SectionCoding coding,
                                        std::span<std::byte> out);

// Writes coded sections over plain ones, which were packed just now. One owner.
class SectionCoder {
 public:
  // `room`: for as much as a payload takes.
  void reserve(std::span<std::byte> room) { room_ = room; }

  // Whether that section is coded now: its header says so, and how much it takes.
  bool code(const PlainSection& section, SectionCoding coding, SectionHeader* header,
            std::byte* payload) const {
    const std::span<const std::byte> coded = code_section(section, coding, room_);
    if (coded.empty()) return false;
    std::memcpy(payload, coded.data(), coded.size());
    header->flags |= kSectionCoded;
    header->payload_bytes = static_cast<uint32_t>(coded.size());
    return true;
  }

 private:
  std::span<std::byte> room_;
};

// Lays coded sections out as they were. One owner; the next one takes over the memory of the last.
class SectionDecoder {
 public:
  // `bytes_max`: of a payload as it was.
  void reserve(size_t bytes_max) { plain_.resize((bytes_max + 3) / 4); }

  // Whether a section is coded.
  static bool is_coded(const SectionHeader& header) { return (header.flags & kSectionCoded) != 0; }
  // False: malformed.
  [[nodiscard]] bool decode(Section* section);

 private:
  std::vector<uint32_t> plain_;  // aligned as row keys are
};

}  // namespace parallax

#endif  // PARALLAX_MESSAGE_SECTION_CODING_H_
