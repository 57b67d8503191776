// SPDX-License-Identifier: Apache-2.0
// What tests of every kind of meeting share. Tests only.
#ifndef PARALLAX_TESTS_UNIT_TRANSPORT_MEETING_H_
#define PARALLAX_TESTS_UNIT_TRANSPORT_MEETING_H_

#include <signal.h>
#include <sys/wait.h>

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace parallax::meeting {

inline const SteadyClock kClock;

// A lease or a deadline that no test waits for.
inline constexpr uint32_t kForeverMs = 600000;

inline int64_t in_ms(int64_t milliseconds) {
  return kClock.now_ns() + milliseconds * kNanosecondsPerMillisecond;
}

inline bool has(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

inline void end(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace parallax::meeting

#endif  // PARALLAX_TESTS_UNIT_TRANSPORT_MEETING_H_
