// SPDX-License-Identifier: Apache-2.0
// Bytes as text, for what ranks exchange as JSON. Pure.
#ifndef PARALLAX_TOOL_HEX_H_
#define PARALLAX_TOOL_HEX_H_

#include <charconv>
#include <string>

namespace parallax::tool {

inline std::string hex_of(const std::string& bytes) {
  static constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const char each : bytes) {
    const auto byte = static_cast<unsigned char>(each);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

// False: a peer's text is none of hex_of(); *bytes is not to be used.
inline bool bytes_of(const std::string& hex, std::string* bytes) {
  bytes->clear();
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned byte = 0;
    const char* const last = hex.data() + i + 2;
    const auto [end, error] = std::from_chars(last - 2, last, byte, 16);
    if (error != std::errc() || end != last) return false;
    *bytes += static_cast<char>(byte);
  }
  return hex.size() % 2 == 0;
}

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_HEX_H_
