// SPDX-License-Identifier: Apache-2.0
// What tests of every kind of rendezvous share. Tests only.
#ifndef PARALLAX_TESTS_UNIT_RENDEZVOUS_RENDEZVOUS_KIT_H_
#define PARALLAX_TESTS_UNIT_RENDEZVOUS_RENDEZVOUS_KIT_H_

#include <signal.h>
#include <sys/wait.h>

#include <cstdint>

#include "support/real_time.h"
#include "support/words.h"

namespace parallax::rendezvous_kit {

using testkit::has;
using testkit::in_ms;
using testkit::kClock;

// A lease or a deadline that no test waits for.
inline constexpr uint32_t kForeverMs = 600000;

inline void end(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace parallax::rendezvous_kit

#endif  // PARALLAX_TESTS_UNIT_RENDEZVOUS_RENDEZVOUS_KIT_H_
