// SPDX-License-Identifier: Apache-2.0
// What a call is told that comes too early or too late. See job_phase.h.
#include "engine/job_phase.h"

#include <string>

namespace parallax {

Status JobPhase::refuse(const char* call) const {
  // Every call of a failed job says what failed it.
  if (!failure_.ok()) return failure_;
  const std::string name = call;
  if (committing()) {
    return bad_state(name + ": a commit is under way, or timed out; in that case close the job");
  }
  return bad_state(
      name + (open() ? ": the job is not committed; call commit first" : ": the job is closing"));
}

Status JobPhase::check_preparing(const char* call, const StepWindow& window) const {
  if (failure_.ok() && open()) return {};
  PARALLAX_RETURN_IF_ERROR(check_running(call));
  if (window.between_steps()) return {};
  const std::string name = std::string(call) + ": step " + std::to_string(window.begun());
  return bad_state(window.in_calls()
                       ? name + " is under way; end it, and wait for its step_end request first"
                       : name + " is not over; wait for its step_end request first");
}

}  // namespace parallax
