// SPDX-License-Identifier: Apache-2.0
// Numbers and texts as bytes, for what ranks say when they meet: little-endian, texts prefixed by a
// 16-bit length. Pure. What is read is a peer's: every length is checked before use.
#ifndef PARALLAX_BASE_CODEC_H_
#define PARALLAX_BASE_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"

namespace parallax {

template <typename T>
void put_number(std::string* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff));
  }
}

inline void put_text(std::string* out, std::string_view text, size_t bytes_max) {
  PARALLAX_CHECK(text.size() <= bytes_max && text.size() <= UINT16_MAX);
  put_number(out, static_cast<uint16_t>(text.size()));
  out->append(text);
}

// Reads front to back; after the first failure nothing is left to read.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  bool number(T* value) {
    if (bytes_.size() < sizeof(T)) return fail();
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      sum |= static_cast<uint64_t>(static_cast<unsigned char>(bytes_[i])) << (8 * i);
    }
    *value = static_cast<T>(sum);
    bytes_.remove_prefix(sizeof(T));
    return true;
  }

  // The next `count` bytes, as they are.
  bool raw(size_t count, std::string_view* value) {
    if (count > bytes_.size()) return fail();
    *value = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return true;
  }

  bool text(std::string* value, size_t bytes_max) {
    uint16_t bytes = 0;
    std::string_view found;
    if (!number(&bytes)) return false;
    if (bytes > bytes_max || !raw(bytes, &found)) return fail();
    value->assign(found);
    return true;
  }

  bool empty() const { return bytes_.empty(); }

 private:
  bool fail() {
    bytes_ = {};
    return false;
  }

  std::string_view bytes_;
};

// Texts of peers end up in errors and logs: no control bytes.
inline bool is_printable(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  return true;
}

}  // namespace parallax

#endif  // PARALLAX_BASE_CODEC_H_
