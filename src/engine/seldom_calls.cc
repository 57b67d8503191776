// SPDX-License-Identifier: Apache-2.0
// What is seldom under way, in its order. See seldom_calls.h.
#include "engine/seldom_calls.h"

namespace parallax {

bool SeldomCalls::at_rest() const {
  return parts_.phase.running() && !launches_.begun() && !parts_.group.devices_busy() &&
         !parts_.step_calls.device_calls().busy() && parts_.job_calls.at_rest() &&
         parts_.row_calls.at_rest() && parts_.collective_calls.at_rest();
}

bool SeldomCalls::devices_busy() const {
  return parts_.step_calls.device_calls().busy() || launches_.busy() || parts_.group.devices_busy();
}

void SeldomCalls::advance_before() {
  const Status& failure = parts_.failure.status();
  // What has come of devices moves the others on.
  const Status devices = parts_.group.advance_devices();
  if (!devices.ok()) return parts_.failure.abort(devices);
  // Before the commit and the steps: nothing may start that waits for a rank that has left.
  parts_.job_calls.check_leaving();
  if (!failure.ok()) return;
  const Status splits = parts_.job_calls.advance_splits();
  if (!splits.ok()) return parts_.failure.abort(splits);
  // Before the commit, which may wait for a communicator.
  if (launches_.begun()) {
    const Status launches = launches_.advance(parts_.clock.now_ns());
    if (!launches.ok()) return parts_.failure.abort(launches);
  }
  parts_.job_calls.advance_commit();
}

bool SeldomCalls::advance_behind() {
  // What calls have just given goes at once: the next pass may be another thread's, which sleeps.
  const Communicator* const communicator = launches_.communicator();
  const uint64_t before = communicator == nullptr ? 0 : communicator->launched();
  const Status launched = launches_.launch_due();
  if (!launched.ok()) {
    parts_.failure.abort(launched);
    return true;
  }
  parts_.row_calls.advance();
  const Status collectives = parts_.collective_calls.advance();
  if (!collectives.ok()) parts_.failure.abort(collectives);
  // That this rank closes follows what it has called before.
  if (parts_.phase.closing() && parts_.collective_calls.rounds().said()) {
    parts_.job_calls.advance_close();
  }
  return communicator != nullptr && communicator->launched() > before;
}

}  // namespace parallax
