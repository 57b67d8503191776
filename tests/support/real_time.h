// SPDX-License-Identifier: Apache-2.0
// The clock of tests that wait for real processes and threads.
#ifndef PARALLAX_TESTS_SUPPORT_REAL_TIME_H_
#define PARALLAX_TESTS_SUPPORT_REAL_TIME_H_

#include "base/clock.h"

namespace parallax::testkit {

inline const SteadyClock kClock;

// Less than whatever would hang takes to give up, more than a machine busy with other things takes.
inline constexpr int64_t kPromptMs = 20'000;

inline int64_t in_ms(int64_t milliseconds) {
  return kClock.now_ns() + milliseconds * kNanosecondsPerMillisecond;
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_REAL_TIME_H_
