// SPDX-License-Identifier: Apache-2.0
// What tests of every kind of meeting share. Tests only.
#ifndef PARALLAX_TESTS_UNIT_TRANSPORT_MEETING_H_
#define PARALLAX_TESTS_UNIT_TRANSPORT_MEETING_H_

#include <signal.h>
#include <sys/wait.h>

#include <cstdint>

#include "support/real_time.h"
#include "support/words.h"

namespace parallax::meeting {

using testkit::has;
using testkit::in_ms;
using testkit::kClock;

// A lease or a deadline that no test waits for.
inline constexpr uint32_t kForeverMs = 600000;

inline void end(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace parallax::meeting

#endif  // PARALLAX_TESTS_UNIT_TRANSPORT_MEETING_H_
