// SPDX-License-Identifier: Apache-2.0
// Control characters escaped. See text.h.
#include "base/text.h"

namespace parallax {

namespace {

unsigned byte_at(std::string_view text, size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
}

// How many bytes the character at the beginning takes, if a terminal may have it; else 0.
size_t harmless(std::string_view text) {
  const unsigned first = byte_at(text, 0);
  const unsigned second = byte_at(text, 1);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  size_t bytes = 0;
  if (first >= 0xc2 && first <= 0xdf) {
    if (first == 0xc2 && second < 0xa0) return 0;  // the control characters beyond ASCII
    bytes = 2;
  } else if (first >= 0xe0 && first <= 0xef) {
    if (first == 0xe0 && second < 0xa0) return 0;   // written longer than it is
    if (first == 0xed && second >= 0xa0) return 0;  // half a pair of UTF-16
    bytes = 3;
  } else if (first >= 0xf0 && first <= 0xf4) {
    if (first == 0xf0 && second < 0x90) return 0;
    if (first == 0xf4 && second >= 0x90) return 0;  // beyond U+10FFFF
    bytes = 4;
  }
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte_at(text, i) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = harmless(text);
    const unsigned first = byte_at(text, 0);
    if (bytes > 0) {
      out += text.substr(0, bytes);
    } else if (first == '\n' || first == '\r' || first == '\t') {
      out += ' ';
    } else {
      out += "\\x";
      out += "0123456789abcdef"[first >> 4];
      out += "0123456789abcdef"[first & 15];
    }
    text.remove_prefix(bytes > 0 ? bytes : 1);
  }
  return out;
}

}  // namespace parallax
