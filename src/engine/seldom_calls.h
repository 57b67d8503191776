// SPDX-License-Identifier: Apache-2.0
// SeldomCalls: what an engine may have to move on besides its steps: devices and the order of their
// launches, splits, the commit and the close, rows, collectives. In most passes there is none of it
// (at_rest), and none is looked at. Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_SELDOM_CALLS_H_
#define PARALLAX_ENGINE_SELDOM_CALLS_H_

#include "base/clock.h"
#include "base/status.h"
#include "collectives/device_launches.h"
#include "engine/collective_calls.h"
#include "engine/first_failure.h"
#include "engine/job_calls.h"
#include "engine/job_phase.h"
#include "engine/row_calls.h"
#include "engine/step_calls.h"
#include "group/group.h"

namespace parallax {

class SeldomCalls {
 public:
  struct Parts {
    const Clock& clock;
    Group& group;
    const JobPhase& phase;
    FirstFailure& failure;
    JobCalls& job_calls;
    RowCalls& row_calls;
    CollectiveCalls& collective_calls;
    const StepCalls& step_calls;  // of devices
  };

  // All parts outlive the calls of this; they may be built after it.
  explicit SeldomCalls(const Parts& parts) : parts_(parts) {}

  DeviceLaunches& launches() { return launches_; }
  const DeviceLaunches& launches() const { return launches_; }

  // There is nothing but steps.
  bool at_rest() const;
  // Copies, sums or updates of devices are under way.
  bool devices_busy() const;
  // Move on what comes before the steps of a pass, and what comes behind them. Either may end the
  // job.
  void advance_before();
  // True: it has launched what calls had just given; who waits for that was asked before.
  bool advance_behind();

 private:
  const Parts parts_;
  DeviceLaunches launches_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_SELDOM_CALLS_H_
