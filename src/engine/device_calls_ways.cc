// SPDX-License-Identifier: Apache-2.0
// Which way the slices of a call go: from and to tables on devices, coalesced there, and used while
// the rest of them comes. See device_calls.h.
#include <utility>

#include "engine/device_calls.h"

namespace parallax {

// Its table is there, and stays (DeviceTable), and writes such a slice: of elements where it has
// all of them.
bool DeviceCalls::in_table(uint32_t variable, uint32_t device) const {
  const VariableRuntime& runtime = parts_.group->runtime(parts_.registry.number_of(variable));
  if (runtime.table == nullptr || runtime.table->store() == nullptr ||
      runtime.table->store()->device() != device) {
    return false;
  }
  return runtime.variable->ids_declared() || runtime.table->device()->holds_all();
}

// Of the variable's contributions to the step: whatever is called later is taken later.
bool DeviceCalls::is_first(uint64_t step, uint32_t variable) const {
  if (ahead_[variable].waiting > 0) return false;
  const StepState& state = parts_.pipeline.state(step);
  const uint32_t member = parts_.registry.member_of(variable);
  if (member != Registry::kNotFused) {
    return state.contributed_members[member] == Contributed::kNothing;
  }
  return state.contributed[parts_.registry.number_of(variable)] == Contributed::kNothing;
}

// Whether the exchanges of its step use what has come.
bool DeviceCalls::takes_arriving(const Staged& staged) const {
  if (parts_.group == nullptr || !staged.slices.may_go_ahead()) return false;
  const auto slices = staged.slices.host_slices();
  for (size_t i = 0; i < slices.size(); ++i) {
    if (staged.slices.arriving()[i] == nullptr) continue;
    // Fused tables are too small to be used while they come.
    if (parts_.registry.member_of(slices[i].variable) != Registry::kNotFused) return false;
    const uint32_t number = parts_.registry.number_of(slices[i].variable);
    if (!parallax::takes_arriving(parts_.group->runtime(number).exchange_at(staged.step))) {
      return false;
    }
  }
  return true;
}

Status DeviceCalls::advance_arriving() {
  if (arriving_ == 0) return {};
  for (Staged& each : staged_) {
    if (!each.arriving) continue;
    Status copied;
    const bool over = each.slices.poll(&copied, true);
    if (!copied.ok()) return copying(each, "copying its slices from ", copied);
    if (over) stop_arriving(each);
  }
  return {};
}

// All of it is here, or the job fails.
void DeviceCalls::stop_arriving(Staged& staged) {
  if (!std::exchange(staged.arriving, false)) return;
  --arriving_;
  staged.slices.stop_arriving();
  --parts_.pipeline.state(staged.step).unstarted;
}

}  // namespace parallax
