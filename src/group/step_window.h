// SPDX-License-Identifier: Apache-2.0
// StepWindow: how far the steps of a rank have come. A step begins, ends when the caller says so,
// is decided, and is finished once it is applied or discarded here; each in order, one step at a
// time. So four numbers tell it all: finished <= decided <= ended <= begun <= finished + depth().
// What may be done for a step follows from where it stands, and is asked here by name.
//
// kDepth steps have buffers at a time: a step takes over those of the step kDepth before it. What a
// peer gives is at most one step ahead: it starts step t + 1 when t is decided, which takes this
// rank's vote on t, and so step t - 1 finished here. A pull alone may be sent before that, once the
// rank has ended t (admits_asks).
//
// With a staleness of s the calls of a rank may be s steps further ahead, and a pull of step t
// waits for the updates up to t - 1 - s alone. What is pushed waits with its caller until its step
// may start, as it does without, and steps are voted on, decided and applied as without. Pure; one
// owner.
#ifndef PARALLAX_GROUP_STEP_WINDOW_H_
#define PARALLAX_GROUP_STEP_WINDOW_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "parallax/parallax.h"

namespace parallax {

class StepWindow {
 public:
  static constexpr uint64_t kDepth = 2;
  // Steps that are open to calls at a time, whatever the staleness.
  static constexpr uint64_t kDepthMax = kDepth + PARALLAX_STALENESS_MAX;
  // That of PARALLAX_ASYNC: the updates that a pull of any step that may begin waits for are here.
  static constexpr uint32_t kAsync = kDepthMax - 1;

  explicit StepWindow(uint32_t staleness = 0) : staleness_(staleness) {
    PARALLAX_CHECK(staleness <= kAsync);
  }
  uint32_t staleness() const { return staleness_; }

  // The last step that came so far; 0: none yet.
  uint64_t begun() const { return begun_; }
  uint64_t ended() const { return ended_; }        // its step_end was called
  uint64_t decided() const { return decided_; }    // commit or discard is known here
  uint64_t finished() const { return finished_; }  // applied or discarded here

  // What happens, each when the question before it says so.
  uint64_t begin() {
    PARALLAX_CHECK(!in_calls() && has_room());
    return ++begun_;
  }
  void end(uint64_t step) {
    PARALLAX_CHECK(takes_calls(step));
    ended_ = step;
  }
  void decide() {
    PARALLAX_CHECK(ended_ > finished_ && decided_ == finished_);
    ++decided_;
  }
  void finish() {
    PARALLAX_CHECK(decided_ == next_to_vote());
    finished_ = decided_;
  }

  // Where a step's buffers lie among kDepth of them.
  static size_t slot(uint64_t step) { return static_cast<size_t>(step % kDepth); }
  // So many steps may be open to calls here, and where what is called for one lies among so many.
  uint64_t depth() const { return std::min(kDepth + staleness_, kDepthMax); }
  size_t calls_slot(uint64_t step) const { return static_cast<size_t>(step % depth()); }

  // ---- calls of this rank
  // A step has begun and not ended: it takes calls, and none other may begin.
  bool in_calls() const { return begun_ > ended_; }
  bool takes_calls(uint64_t step) const { return in_calls() && step == begun_; }
  bool has_begun(uint64_t step) const { return step > 0 && step <= begun_; }
  // One more step may begin: the slot that it takes over is free.
  bool has_room() const { return begun_ < finished_ + depth(); }
  // Nothing is under way: the tables are as of the last commit.
  bool between_steps() const { return begun_ == finished_; }
  // What is given in a step may start. Until the step before is decided, its buffers may still be
  // those of the step kDepth before.
  bool may_start(uint64_t step) const { return step <= decided_ + 1; }
  // The updates that a pull of it must see are applied here.
  bool is_current(uint64_t step) const { return step <= finished_ + 1 + staleness_; }

  // ---- messages
  // It has buffers here, so messages of it may come.
  bool admits(uint64_t step) const { return step > finished_ && step <= opens(); }
  // A pull of it may come, or what a pull is answered: its rank has finished the step 1 + staleness
  // before it, and this rank the one before that.
  bool admits_pulls(uint64_t step) const {
    return step > finished_ && step <= opens() + staleness_;
  }
  // A rank whose pull asks early has finished the step two before it, which took this rank's vote
  // on that step; this rank need not have finished it. What is asked for needs no step buffer.
  bool admits_asks(uint64_t step) const { return step > finished_ && step <= opens() + 1; }
  // It is over here; late messages that nothing waits for may still come.
  bool is_over(uint64_t step) const { return step <= finished_; }
  // The last step that has buffers: the one to open for when a step is finished.
  uint64_t opens() const { return finished_ + kDepth; }

  // ---- the end of a step
  // The caller has ended it, and it is not over here.
  bool is_ending(uint64_t step) const { return step > finished_ && step <= ended_; }
  // The one to vote on, to decide and to apply: always the oldest, since a vote on it says that the
  // one before is applied here.
  uint64_t next_to_vote() const { return finished_ + 1; }
  bool is_decided(uint64_t step) const { return step <= decided_; }

 private:
  uint32_t staleness_;
  uint64_t begun_ = 0;
  uint64_t ended_ = 0;
  uint64_t decided_ = 0;
  uint64_t finished_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_STEP_WINDOW_H_
