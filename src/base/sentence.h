// SPDX-License-Identifier: Apache-2.0
// Sentence: a text of bounded length that lies in place. There is nothing to allocate, so that it
// can be kept when there is no memory, and nothing to destroy, so that it can be a thread's: a
// destructor at a thread's end keeps the library loaded until then, and may run after what it needs
// is gone.
#ifndef PARALLAX_BASE_SENTENCE_H_
#define PARALLAX_BASE_SENTENCE_H_

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace parallax {

class Sentence {
 public:
  static constexpr size_t kBytesMax = 2047;  // without the NUL

  const char* c_str() const { return text_.data(); }

  // `text` may lie in this sentence. A longer one is cut before a character of UTF-8 that does not
  // fit, and ends in "...".
  void assign(std::string_view text) {
    size_ = 0;
    append(text);
  }
  void append(std::string_view text) {
    constexpr std::string_view kCut = "...";
    const size_t room = kBytesMax - size_;
    size_t taken = text.size();
    if (taken > room) {
      taken = room > kCut.size() ? room - kCut.size() : 0;
      while (taken > 0 && continues(text[taken])) --taken;
    }
    if (taken > 0) std::memmove(text_.data() + size_, text.data(), taken);
    size_ += taken;
    if (taken < text.size() && kCut.size() <= kBytesMax - size_) {
      std::memcpy(text_.data() + size_, kCut.data(), kCut.size());
      size_ += kCut.size();
    }
    text_[size_] = '\0';
  }

 private:
  static bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

  std::array<char, kBytesMax + 1> text_ = {};
  size_t size_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_SENTENCE_H_
