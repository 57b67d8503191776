// SPDX-License-Identifier: Apache-2.0
// PassState: when the engine's last pass began, and whether another one would move anything before
// something comes. Engine's owner only.
#ifndef PARALLAX_ENGINE_PASS_STATE_H_
#define PARALLAX_ENGINE_PASS_STATE_H_

#include <cstdint>

#include "base/clock.h"

namespace parallax {

class PassState {
 public:
  explicit PassState(const Clock& clock) : clock_(clock), real_(clock) {}

  // What happens in a pass, or a call, happens when it began.
  const Clock& clock() const { return clock_; }
  int64_t began_ns() const { return clock_.now_ns(); }
  int64_t begin() { return clock_.look(); }
  // It reads messages and keeps leases.
  int64_t begin_run() { return ran_ns_ = begin(); }
  // One has, not long before the last pass.
  bool has_run_lately() const { return began_ns() - ran_ns_ <= kLatelyNs; }
  int64_t now_ns() const { return real_.now_ns(); }

  // It has left nothing that another one would move.
  bool settled() const { return left_ == Left::kNothing; }
  void settle(bool settled) { left_ = settled ? Left::kNothing : Left::kAnything; }
  // Since it settled, steps alone have been given something to do.
  bool steps_alone() const { return left_ == Left::kSteps; }
  void give_steps() {
    if (settled()) left_ = Left::kSteps;
  }
  // Something has come, or may be posted to these.
  template <typename Calls>
  Calls& unsettled_by(Calls& calls) {
    left_ = Left::kAnything;
    return calls;
  }
  template <typename Calls>
  Calls& given_to_steps(Calls& calls) {
    give_steps();
    return calls;
  }

 private:
  PassClock clock_;
  const Clock& real_;
  static constexpr int64_t kLatelyNs = kNanosecondsPerMillisecond / 10;

  // For the next pass to look at.
  enum class Left : uint8_t { kNothing, kSteps, kAnything };
  Left left_ = Left::kAnything;
  int64_t ran_ns_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_PASS_STATE_H_
