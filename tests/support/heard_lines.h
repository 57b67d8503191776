// SPDX-License-Identifier: Apache-2.0
// HeardLines: the warnings that the process logs while it lives. Asserting thread only.
#ifndef PARALLAX_TESTS_SUPPORT_HEARD_LINES_H_
#define PARALLAX_TESTS_SUPPORT_HEARD_LINES_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/log.h"

namespace parallax::testkit {

class HeardLines {
 public:
  HeardLines() { EXPECT_TRUE(log_set_callback(hear, &lines_, LogLevel::kWarn).ok()); }
  ~HeardLines() { EXPECT_TRUE(log_set_callback(nullptr, nullptr, LogLevel::kNone).ok()); }
  HeardLines(const HeardLines&) = delete;
  HeardLines& operator=(const HeardLines&) = delete;

  // Those logged before this call.
  const std::vector<std::string>& lines() {
    constexpr int64_t kForeverMs = 60'000;
    log_flush(kForeverMs);
    return lines_;
  }

 private:
  static void hear(void* context, int, const char*, const char* message) {
    static_cast<std::vector<std::string>*>(context)->push_back(message);
  }

  std::vector<std::string> lines_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_HEARD_LINES_H_
