// SPDX-License-Identifier: Apache-2.0
// Words: one line of a script, cut at blanks; some of them options, as NAME=VALUE. Plain value.
#ifndef PARALLAX_TESTS_TRANSCRIPTS_WORDS_H_
#define PARALLAX_TESTS_TRANSCRIPTS_WORDS_H_

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace parallax::transcripts {

// The script is wrong, not the library.
class ScriptError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline std::vector<std::string> cut(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

inline double number_of(const std::string& text) {
  try {
    size_t used = 0;
    const double number = std::stod(text, &used);
    if (used == text.size()) return number;
  } catch (const std::logic_error&) {  // none, or too large
  }
  throw ScriptError("'" + text + "' is no number");
}

class Words {
 public:
  explicit Words(const std::string& line) {
    std::istringstream stream(line);
    for (std::string word; stream >> word;) words_.push_back(word);
  }

  bool empty() const { return words_.empty(); }
  size_t size() const { return words_.size(); }
  // The n-th word; past the end the script is wrong.
  const std::string& at(size_t n) const {
    if (n >= words_.size()) throw ScriptError("a word is missing");
    return words_[n];
  }
  uint32_t rank(size_t n) const { return static_cast<uint32_t>(number_of(at(n))); }
  // From the n-th word on.
  std::string text_from(size_t n) const {
    std::string text;
    for (size_t i = n; i < words_.size(); ++i) text += (i > n ? " " : "") + words_[i];
    return text;
  }
  Words from(size_t n) const { return Words(text_from(n)); }

  bool has(const std::string& word) const {
    for (const std::string& each : words_) {
      if (each == word) return true;
    }
    return false;
  }
  std::string option(const std::string& name, const std::string& otherwise) const {
    for (const std::string& word : words_) {
      if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
    }
    return otherwise;
  }
  double number(const std::string& name, double otherwise) const {
    const std::string text = option(name, "");
    return text.empty() ? otherwise : number_of(text);
  }

 private:
  std::vector<std::string> words_;
};

}  // namespace parallax::transcripts

#endif  // PARALLAX_TESTS_TRANSCRIPTS_WORDS_H_
