// SPDX-License-Identifier: Apache-2.0
// What tests ask of sentences.
#ifndef PARALLAX_TESTS_SUPPORT_WORDS_H_
#define PARALLAX_TESTS_SUPPORT_WORDS_H_

#include <string>

#include "base/status.h"

namespace parallax::testkit {

inline bool has(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}
inline bool has(const Status& status, const std::string& word) {
  return has(status.message(), word);
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_WORDS_H_
