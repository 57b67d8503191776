// SPDX-License-Identifier: Apache-2.0
// StepCalls: the calls of steps, where they come in: whether the job takes them now, and whether
// the step does. Pulls go on to PullCalls, pushes and reduces to ContributionCalls; a pull of no
// step is an evaluation, and RowCalls'. The requests of step_end are kept here: how a step ends is
// StepPipeline's. Calls with slices on a device come by DeviceCalls first. Engine's owner only;
// nothing blocks.
#ifndef PARALLAX_ENGINE_STEP_CALLS_H_
#define PARALLAX_ENGINE_STEP_CALLS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/contribution_calls.h"
#include "engine/device_calls.h"
#include "engine/job_phase.h"
#include "engine/pull_calls.h"
#include "engine/request_pool.h"
#include "engine/row_calls.h"
#include "engine/slice_checks.h"
#include "group/group.h"
#include "group/step_pipeline.h"

namespace parallax {

class StepCalls {
 public:
  struct Parts {
    const Clock& clock;
    const Registry& registry;
    const JobPhase& phase;
    Group& group;
    StepPipeline& pipeline;
    Outbox& outbox;
    RowCalls& row_calls;
    RequestPool& requests;
    OpenDevices devices = {};  // none: a slice on a device is refused
    DeviceLaunches* launches = nullptr;
  };

  // All parts outlive this; the group is built before the first call.
  explicit StepCalls(const Parts& parts)
      : parts_(parts),
        checks_(parts.registry),
        pull_calls_(parts.group, parts.pipeline, parts.requests),
        contribution_calls_(parts.group, parts.pipeline, parts.outbox, checks_, parts.requests),
        device_calls_({.registry = parts.registry,
                       .checks = checks_,
                       .pipeline = parts.pipeline,
                       .requests = parts.requests,
                       .launches = parts.launches,
                       .group = &parts.group},
                      parts.devices,
                      [this](const DeviceCalls::Call& call, Request* request) {
                        return take(call, request);
                      }),
        ends_(parts.pipeline.window().depth()) {}
  StepCalls(const StepCalls&) = delete;
  StepCalls& operator=(const StepCalls&) = delete;

  // At their bounds, so that no call of a step grows anything.
  void reserve();

  // The calls. STATE, INVALID, LIMIT; one that is refused has changed nothing.
  Status begin(uint64_t* step);
  Status pull(uint64_t step, std::span<const parallax_slice_t> slices, Request** request);
  Status push(uint64_t step, std::span<const parallax_slice_t> slices, Request** request);
  Status reduce(uint64_t step, std::span<const parallax_slice_t> slices, Request** request);
  Status end(uint64_t step, const parallax_step_end_options_t& options, Request** request);

  // Of a reduce that somebody is about to wait for. STATE: it goes with others of its step, which
  // are still to be called (FusedCalls).
  Status check_wait(const Request& reduce) const;
  // Of a reduce: ranks of other hosts are sent so few bytes that a message takes longer.
  bool sends_little(const Request& reduce) const;

  // Of a request of any of them that is not released: as DeviceCalls::follow.
  Status follow(Request& request, uint32_t device, void* stream, bool* followed) {
    return device_calls_.follow(request, device, stream, followed);
  }

  // Moves on what can be moved. Not OK: the job fails with it.
  Status advance();
  // As ContributionCalls has it.
  int64_t held_until_ns() const { return contribution_calls_.held_until_ns(); }
  // The job is over. Completes all requests whose buffers no compute job and no send reads any
  // more, or all.
  void finish_unborrowed(const Status& status);
  void finish_all(const Status& status);
  const DeviceCalls& device_calls() const { return device_calls_; }

 private:
  void advance_contributions();
  const StepWindow& window() const { return parts_.pipeline.window(); }
  Status check_step(uint64_t step, const char* call) const {
    if (parts_.phase.takes_calls() && window().takes_calls(step)) return {};
    return refuse_step(step, call);
  }
  Status refuse_step(uint64_t step, const char* call) const;
  Status contribute(RequestKind kind, uint64_t step, std::span<const parallax_slice_t> slices,
                    Request** request);
  Status check_absent(uint64_t step) const;
  Status check_before(const DeviceCalls::Call& call) const;
  Status look_at(const DeviceCalls::Call& call, bool* by_device) const;
  Status post_pull(const DeviceCalls::Call& call, Request** request, Request* there);
  Status take(const DeviceCalls::Call& call, Request* request);
  void finish_end(const StepPipeline::Finished& finished);
  // Just now; what own_time hears of it waits for the pass that follows, and its time.
  void called(uint64_t step, StepPhase phase) { called_ = {step, phase}; }

  struct Called {
    uint64_t step = 0;  // 0: nothing was
    StepPhase phase = StepPhase::kPull;
  };

  const Parts parts_;
  const SliceChecks checks_;
  PullCalls pull_calls_;
  ContributionCalls contribution_calls_;
  DeviceCalls device_calls_;
  std::vector<PullSlice> pulled_;  // of the call being made
  std::vector<Request*> ends_;     // by StepWindow::calls_slot
  Called called_;
  StepEnd end_;  // of the call being made: it is large
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_STEP_CALLS_H_
