// SPDX-License-Identifier: Apache-2.0
// HeldPushes: pushes out of memory that all ranks of the host read, whose rows stay where they are
// until every rank has applied the step (Contribution::may_stay): no byte of a row that comes once
// is copied before it is used.
//
// Such a call completes with its step, so who waits for it first, or does something else, must not
// wait for himself: rows are held until the step ends, and are copied, as those of any other memory
// are when they are called, as soon as somebody waits for the call before that, and after some
// milliseconds in any case. Held rows are told to nobody; so until then nothing has to be taken
// back.
//
// Whoever reads rows says when it has applied the step, as pulls have it (kTablesCurrent). Until
// then they are lent: should the job fail meanwhile, the caller goes on with pages of its own.
// Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_HELD_PUSHES_H_
#define PARALLAX_ENGINE_HELD_PUSHES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "engine/request.h"
#include "group/group.h"
#include "group/step_pipeline.h"
#include "message/outbox.h"

namespace parallax {

class HeldPushes {
 public:
  // Once, and once more, since the pass in which rows are coalesced may take as long. A program
  // that has nothing else to do ends its step right behind its push.
  static constexpr int64_t kHeldNsMax = kNanosecondsPerMillisecond;
  // Rows of so many bytes; and shorter ones, where those of the call are no more bytes than that:
  // else a line is read here and a line there of what is in no cache, and a copy is faster
  // (docs/adr/0118).
  static constexpr uint64_t kRowBytes = 1024, kShortRowBytes = 96;
  static constexpr uint64_t kShortBytes = 2 * 1024 * 1024;

  // All outlive this.
  HeldPushes(Group& group, StepPipeline& pipeline, Outbox& outbox)
      : group_(group), pipeline_(pipeline), outbox_(outbox) {}

  // At its bound, so that no call of a step grows it.
  void reserve() { calls_.reserve(PARALLAX_REQUESTS_MAX); }

  // Bytes of the rows of a call that may stay where they are, as far as it pays; 0: none may. And
  // whether those of that slice of it may.
  uint64_t bytes_of(const Request& call) const;
  bool may_stay(const PullSlice& slice, uint64_t call_bytes) const;

  // Some rows of the call, which was started now, are held.
  void hold(Request& call, int64_t now_ns);
  // To be called in every pass, and as a step ends, once all that was called for it has started:
  // what is still held of it stays where it is.
  void advance(int64_t now_ns);
  void end(uint64_t step);
  // The call, whose rows stay, is over: this rank, too, has applied the step.
  bool is_applied(const Request& call) const {
    return group_.pulls().has_applied(group_.columns().rank(), call.step);
  }
  // The job is over.
  void clear() {
    calls_.clear();
    loans_.clear();
  }
  // When rows are held no more, though their step does not end; kNever: none are.
  int64_t until_ns() const;

 private:
  struct Call {
    Request* push = nullptr;
    int64_t until_ns = 0;
    bool again = false;
  };
  // To one owner of this host, until it has applied the step.
  struct Loan {
    uint64_t step = 0;
    uint32_t to = 0;
    uint64_t number = 0;
  };

  bool gives_up(Call& call, int64_t now_ns) const;
  bool settle(Request& push, bool stay);
  void lend(const PullSlice& slice, Request& push);

  Group& group_;
  StepPipeline& pipeline_;
  Outbox& outbox_;
  std::vector<Call> calls_;  // held
  std::vector<Loan> loans_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_HELD_PUSHES_H_
