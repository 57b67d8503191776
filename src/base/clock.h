// SPDX-License-Identifier: Apache-2.0
// Clock: the only source of time for protocol code, injected so that the simulator can own it.
// now_ns may be called from any thread; it never goes back.
#ifndef PARALLAX_BASE_CLOCK_H_
#define PARALLAX_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace parallax {

inline constexpr int64_t kNanosecondsPerMillisecond = 1'000'000;
inline constexpr int64_t kNever = INT64_MAX;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() const = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t now_ns() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

// The time at which a pass of the engine, or a call, began: whatever happens in it happens then,
// and costs no look at the clock of its own. One owner.
class PassClock final : public Clock {
 public:
  explicit PassClock(const Clock& clock) : clock_(clock), now_ns_(clock.now_ns()) {}
  int64_t look() { return now_ns_ = clock_.now_ns(); }
  int64_t now_ns() const override { return now_ns_; }

 private:
  const Clock& clock_;
  int64_t now_ns_;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_CLOCK_H_
