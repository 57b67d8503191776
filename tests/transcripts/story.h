// SPDX-License-Identifier: Apache-2.0
// Story: what happened, as lines with the virtual time of each, in the order in which it happened.
// Heartbeats are counted. One thread.
#ifndef PARALLAX_TESTS_TRANSCRIPTS_STORY_H_
#define PARALLAX_TESTS_TRANSCRIPTS_STORY_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "transcripts/message_text.h"

namespace parallax::transcripts {

class Story {
 public:
  Story(const Clock& clock, const MessageText& text) : clock_(clock), text_(text) {}

  // What the script itself has to say.
  void add(const std::string& line) { lines_.push_back(kIndent + line); }
  void add_now(const std::string& line) { lines_.push_back(time() + line); }
  void message(uint32_t from, uint32_t to, std::span<const std::byte> bytes) {
    const MessageText::Lines message = text_.lines(bytes);
    heartbeats_ += message.heartbeats;
    std::string head =
        time() + "rank " + std::to_string(from) + " -> rank " + std::to_string(to) + ": ";
    for (const std::string& section : message.sections) {
      lines_.push_back(head + section);
      head.assign(head.size(), ' ');  // of one message: under the first
    }
  }

  const std::vector<std::string>& lines() const { return lines_; }
  bool tells(const std::string& words) const {
    return std::any_of(lines_.begin(), lines_.end(), [&](const std::string& line) {
      return line.find(words) != std::string::npos;
    });
  }
  // All that was not taken before.
  std::vector<std::string> take() {
    if (heartbeats_ > 0) add("(" + std::to_string(std::exchange(heartbeats_, 0)) + " heartbeats)");
    return std::exchange(lines_, {});
  }

 private:
  static constexpr const char* kIndent = "    ";

  std::string time() const {
    char text[32];
    std::snprintf(text, sizeof text, "%s%8.1f us  ", kIndent,
                  static_cast<double>(clock_.now_ns()) / 1e3);
    return text;
  }

  const Clock& clock_;
  const MessageText& text_;
  std::vector<std::string> lines_;
  uint64_t heartbeats_ = 0;
};

}  // namespace parallax::transcripts

#endif  // PARALLAX_TESTS_TRANSCRIPTS_STORY_H_
