// SPDX-License-Identifier: Apache-2.0
// A clock that a test sets. One thread.
#ifndef PARALLAX_TESTS_SUPPORT_MANUAL_CLOCK_H_
#define PARALLAX_TESTS_SUPPORT_MANUAL_CLOCK_H_

#include <cstdint>

#include "base/clock.h"

namespace parallax::testkit {

class ManualClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_; }
  void advance(int64_t by_ns) { now_ns_ += by_ns; }

 private:
  int64_t now_ns_ = 1'000'000'000;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_MANUAL_CLOCK_H_
