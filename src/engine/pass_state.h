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
  int64_t now_ns() const { return real_.now_ns(); }

  // It has left nothing that another one would move.
  bool settled() const { return settled_; }
  void settle(bool settled) { settled_ = settled; }
  // Something has come, or may be posted to these.
  template <typename Calls>
  Calls& unsettled_by(Calls& calls) {
    settled_ = false;
    return calls;
  }

 private:
  PassClock clock_;
  const Clock& real_;
  bool settled_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_PASS_STATE_H_
