// SPDX-License-Identifier: Apache-2.0
// Calls on their way to the engine and back. See device_calls.h.
#include "engine/device_calls.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/log.h"

namespace parallax {

namespace {

// For the end of a job: what copies may take at most.
constexpr int64_t kDrainNs = 5'000'000'000;

bool is_contribution(RequestKind kind) {
  return kind == RequestKind::kPush || kind == RequestKind::kReduce;
}

const char* call_text(RequestKind kind) {
  if (kind == RequestKind::kPush) return "push";
  return kind == RequestKind::kReduce ? "reduce" : "pull";
}

}  // namespace

DeviceCalls::DeviceCalls(const Parts& parts, OpenDevices open, Take take)
    : parts_(parts), open_(std::move(open)), take_(std::move(take)) {
  parts_.requests.keeper(this);
}

DeviceCalls::~DeviceCalls() { parts_.requests.keeper(nullptr); }

// ---- the call

Status DeviceCalls::look_at(const Call& call, bool* comes_by_here) const {
  *comes_by_here = false;
  for (size_t i = 0; i < call.slices.size(); ++i) {
    const parallax_slice_t& slice = call.slices[i];
    if (slice.memory != PARALLAX_MEMORY_HOST) {
      *comes_by_here = true;
      continue;
    }
    if (slice.variable >= parts_.registry.size()) continue;  // refused with the other checks
    const Variable& variable = parts_.registry[slice.variable];
    // Where the job has no device it asks no driver.
    if (variable.memory == PARALLAX_MEMORY_HOST && share_.devices == nullptr) continue;
    const auto refuse = [&](const std::string& why) {
      return invalid(std::string(call_text(call.kind)) + ", slice " + std::to_string(i) +
                     " (variable '" + variable.name + "'): " + why)
          .about_slice(i)
          .about_variable(slice.variable)
          .about_field("memory");
    };
    if (variable.memory != PARALLAX_MEMORY_HOST) {
      return refuse(
          "memory is PARALLAX_MEMORY_HOST, and the variable was registered with memory = "
          "PARALLAX_MEMORY_CUDA: all its slices lie on devices");
    }
    for (const void* address :
         {static_cast<const void*>(slice.values), static_cast<const void*>(slice.into),
          static_cast<const void*>(slice.ids), static_cast<const void*>(slice.ids_i32)}) {
      if (address == nullptr) continue;
      const PlacedMemory found = share_.devices->place_of(address);
      if (found.place != MemoryPlace::kDevice) continue;
      return refuse("it has a buffer on device " + std::to_string(found.device) +
                    ", and memory is PARALLAX_MEMORY_HOST; set it to PARALLAX_MEMORY_CUDA");
    }
  }
  *comes_by_here = *comes_by_here || behind(call);
  return {};
}

// Whether one that waits is to be taken before it.
bool DeviceCalls::behind(const Call& call) const {
  if (waiting_.empty()) return false;
  if (is_contribution(call.kind)) {
    return std::any_of(call.slices.begin(), call.slices.end(), [this](const auto& each) {
      return each.variable < ahead_.size() && ahead_[each.variable].waiting > 0;
    });
  }
  return std::any_of(waiting_.begin(), waiting_.end(), [&call](const Staged* before) {
    return before->kind == RequestKind::kPull && before->step < call.step &&
           call.kind == RequestKind::kPull;
  });
}

Status DeviceCalls::share(DeviceShare* share) {
  if (share_.devices == nullptr) {
    if (!open_) return unsupported("this job has no way to a device");
    PARALLAX_RETURN_IF_ERROR(open_(&share_));
  }
  *share = share_;
  return {};
}

DeviceCalls::Staged& DeviceCalls::free_one() {
  for (Staged& each : staged_) {
    if (each.phase == Phase::kFree) return each;
  }
  // Once copies are under way nothing that notes a call may throw.
  waiting_.reserve(staged_.size() + 1);
  ending_.reserve(staged_.size() + 1);
  return staged_.emplace_back();
}

void DeviceCalls::free(Staged& staged) {
  if (staged.slices.under_way()) staged.slices.abandon();
  staged.slices.release();
  staged.phase = Phase::kFree;
}

Status DeviceCalls::lay_out(const Call& call, StagedSlices* slices) {
  DeviceShare devices;
  const bool any =
      std::any_of(call.slices.begin(), call.slices.end(),
                  [](const parallax_slice_t& each) { return each.memory != PARALLAX_MEMORY_HOST; });
  const Status open = any ? share(&devices) : Status();
  if (!open.ok()) {
    return open
        .prefixed(std::string(call_text(call.kind)) +
                  ": memory is PARALLAX_MEMORY_CUDA, and no device can be used: ")
        .about_field("memory");
  }
  PARALLAX_RETURN_IF_ERROR(check_direct(call));
  borrowed_.clear();
  StagedSlices::Call staged = {.registry = parts_.registry,
                               .checks = parts_.checks,
                               .kind = call.kind,
                               .slices = call.slices,
                               .counts = &coalesced_,
                               .pieces = &pieces_};
  if (is_contribution(call.kind)) {
    staged.first = [this, step = call.step](uint32_t variable) { return is_first(step, variable); };
  }
  if (!is_contribution(call.kind) && parts_.group != nullptr) {
    staged.in_table = [this](uint32_t variable, uint32_t device) {
      return in_table(variable, device);
    };
  }
  return slices->lay_out(devices, staged, &borrowed_);
}

// What devices that sum among themselves do not do, of slices that were checked.
Status DeviceCalls::check_direct(std::span<const parallax_slice_t> slices, size_t at) const {
  const parallax_slice_t& slice = slices[at];
  const auto same = [&](const parallax_slice_t& each) { return each.variable == slice.variable; };
  if (std::any_of(slices.begin(), slices.begin() + static_cast<std::ptrdiff_t>(at), same)) {
    return unsupported(
               "it is in an earlier slice of the call, too; register it with accumulate = "
               "1, which goes by host memory, or give one slice")
        .about_field("variable");
  }
  const uint32_t dtype = parts_.registry[slice.variable].dtype;
  const uint32_t as = slice.as_dtype == 0 ? dtype : slice.as_dtype - 1;
  if (as != dtype && !ConvertedSlices::converts(as, dtype)) {
    return unsupported(std::string("as_dtype is ") + dtype_name(as) +
                       ", and what devices sum among themselves is " + dtype_name(dtype) +
                       " on every rank; they convert f32, f16 and bf16 alone: set as_dtype to 0, "
                       "or the setting nccl to off")
        .about_field("as_dtype");
  }
  if (as == dtype) PARALLAX_RETURN_IF_ERROR(check_outside(slice));
  uint32_t settled = 0;
  PARALLAX_RETURN_IF_ERROR(share_.devices->open(slice.device));
  if (parts_.launches->fits_device(slice.device, &settled)) return {};
  return unsupported("device is " + std::to_string(slice.device) +
                     ", and this rank takes part in reductions among devices with device " +
                     std::to_string(settled) +
                     "; give all its slices there, or set the setting nccl to off")
      .about_field("device");
}

Status DeviceCalls::check_direct(const Call& call) const {
  for (size_t i = 0; i < call.slices.size(); ++i) {
    const Variable& variable = parts_.registry[call.slices[i].variable];
    Status fits;
    if (variable.place.given()) fits = check_slice(call.slices[i], variable.place, variable.dtype);
    if (fits.ok() && variable.direct) fits = check_direct(call.slices, i);
    if (fits.ok()) continue;
    return fits
        .prefixed(std::string(call_text(call.kind)) + ", slice " + std::to_string(i) +
                  " (variable '" + variable.name + "'): ")
        .about_slice(i)
        .about_variable(call.slices[i].variable);
  }
  return {};
}

Status DeviceCalls::post(const Call& call, Request** request) {
  if (ahead_.size() < parts_.registry.size()) ahead_.resize(parts_.registry.size());
  Staged& staged = free_one();
  PARALLAX_RETURN_IF_ERROR(lay_out(call, &staged.slices));
  TakenRequest taken(parts_.requests);
  Status status;
  try {
    status = taken.take(call.kind, call.step);
    if (status.ok()) {
      staged.kind = call.kind;
      staged.step = call.step;
      staged.status = {};
      staged.request = &*taken;
      staged.request->borrowed.swap(borrowed_);
      status = begin(staged);
    }
  } catch (...) {
    free(staged);
    throw;
  }
  if (status.ok())
    *request = taken.keep();
  else
    free(staged);
  return status;
}

// Not OK: nothing is under way, and the request is not used.
Status DeviceCalls::begin(Staged& staged) {
  const auto at = std::find_if(staged_.begin(), staged_.end(),
                               [&](const Staged& each) { return &each == &staged; });
  const bool first = !behind({staged.kind, staged.step, staged.slices.host_slices()});
  const Status begun = staged.slices.begin(CopyDirection::kToHost);
  const bool under_way = staged.slices.under_way();
  if (!begun.ok()) staged.status = copying(staged, "copying its slices from ", begun);
  // Of several devices' copies one was not begun: the request ends once the others have.
  if (!begun.ok() && !under_way) return staged.status;
  staged.request->staged = static_cast<uint32_t>(at - staged_.begin()) + 1;
  if (under_way || !first) {
    wait(staged);
    return {};
  }
  const Status taken = take(staged);
  if (!taken.ok()) staged.request->staged = 0;
  return taken;
}

void DeviceCalls::wait(Staged& staged) {
  staged.phase = Phase::kWaiting;
  waiting_.push_back(&staged);
  count_waiting(staged, 1);
  // The step does not end before the call was taken.
  if (staged.kind != RequestKind::kEvaluate) ++parts_.pipeline.state(staged.step).unstarted;
}

void DeviceCalls::stop_waiting(size_t at) {
  const Staged& staged = *waiting_[at];
  count_waiting(staged, -1);
  if (staged.kind != RequestKind::kEvaluate) --parts_.pipeline.state(staged.step).unstarted;
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
}

Status DeviceCalls::take(Staged& staged, bool ahead) {
  staged.phase = Phase::kTaken;
  Call call = {.kind = staged.kind,
               .step = staged.step,
               .slices = staged.slices.host_slices(),
               .from_tables = staged.slices.from_tables(),
               .result_dtypes = staged.slices.result_dtypes(),
               .leaving = staged.slices.leaving()};
  if (ahead) call.arriving = staged.slices.arriving();
  PARALLAX_RETURN_IF_ERROR(take_(call, staged.request));
  if (!ahead) return {};
  // The step does not end here before all of it was given.
  staged.arriving = true;
  ++arriving_;
  ++parts_.pipeline.state(staged.step).unstarted;
  return {};
}

void DeviceCalls::count_waiting(const Staged& staged, int change) {
  if (!is_contribution(staged.kind)) return;
  for (const parallax_slice_t& each : staged.slices.host_slices()) {
    ahead_[each.variable].waiting += static_cast<uint32_t>(change);
  }
}

// "push: copying its slices from device 0: " and why. Copies may be under way: without memory for
// the sentence it is what it was.
Status DeviceCalls::copying(const Staged& staged, const char* what, const Status& failed) noexcept {
  try {
    return failed.prefixed(std::string(call_text(staged.kind)) + ": " + what +
                           staged.slices.where() + ": ");
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  }
}

// ---- the pass

Status DeviceCalls::advance() {
  Status status;
  do {
    status = advance_arriving();
    advance_waiting();
    advance_ending();
  } while (status.ok() && pieces_.may_ask_again());
  if (order_asked_) advance_order();
  return status;
}

// An earlier one in this look is not taken, and it may not overtake that one.
bool DeviceCalls::held(const Staged& staged) const {
  if (staged.kind == RequestKind::kPull) return staged.step >= pulls_from_;
  const auto slices = staged.slices.host_slices();
  return is_contribution(staged.kind) &&
         std::any_of(slices.begin(), slices.end(), [this](const parallax_slice_t& each) {
           return ahead_[each.variable].held_in == look_;
         });
}

void DeviceCalls::hold_those_behind(const Staged& staged) {
  if (staged.kind == RequestKind::kPull) pulls_from_ = std::min(pulls_from_, staged.step + 1);
  if (!is_contribution(staged.kind)) return;
  for (const parallax_slice_t& each : staged.slices.host_slices()) {
    ahead_[each.variable].held_in = look_;
  }
}

void DeviceCalls::advance_waiting() {
  ++look_;
  pulls_from_ = UINT64_MAX;
  for (size_t i = 0; i < waiting_.size();) {
    Staged& staged = *waiting_[i];
    Status copied;
    const bool over = staged.slices.poll(&copied, staged.status.ok());
    if (staged.status.ok() && !copied.ok()) {
      staged.status = copying(staged, "copying its slices from ", copied);
    }
    const bool ahead = !over && staged.status.ok() && takes_arriving(staged);
    if ((!over && !ahead) || held(staged)) {
      hold_those_behind(staged);
      ++i;
      continue;
    }
    // Where memory runs out it waits on, and ends with the job.
    Status status = staged.status.ok() ? take(staged, ahead) : staged.status;
    stop_waiting(i);
    if (!status.ok()) parts_.requests.finish(staged.request, std::move(status));
  }
}

// Before a request completes. One whose copies have to be waited for first is kept, and completed
// from here.
bool DeviceCalls::keep(Request& request, const Status& status) {
  if (request.staged == 0) return false;
  Staged& staged = staged_[request.staged - 1];
  stop_arriving(staged);
  staged.status = status;
  staged.gives = false;
  const bool gives = staged.phase == Phase::kTaken && status.ok() &&
                     staged.slices.copies(CopyDirection::kToDevice);
  if (gives) {
    const Status begun = staged.slices.begin(CopyDirection::kToDevice);
    if (!begun.ok()) staged.status = copying(staged, "copying its results to ", begun);
    staged.gives = begun.ok();
  } else {
    staged.slices.stop_leaving();
  }
  if (gives || staged.slices.under_way()) {
    staged.phase = Phase::kEnding;
    ending_.push_back(&staged);
    tell_order(staged);
    return true;
  }
  request.staged = 0;
  free(staged);
  return false;
}

void DeviceCalls::advance_ending() {
  for (size_t i = 0; i < ending_.size();) {
    Staged& staged = *ending_[i];
    Status copied;
    const bool over = staged.slices.poll(&copied, staged.gives && staged.status.ok());
    // What failed the call first is what its caller hears. Kept: another of its copies may be under
    // way yet, and end well.
    if (staged.status.ok() && !copied.ok()) {
      staged.status = copying(staged, "copying its results to ", copied);
    }
    if (!over) {
      ++i;
      continue;
    }
    ending_.erase(ending_.begin() + static_cast<std::ptrdiff_t>(i));
    Request* request = staged.request;
    const Status status = std::exchange(staged.status, {});
    request->staged = 0;
    free(staged);
    parts_.requests.finish(request, status);
  }
}

// ---- the end of a job

void DeviceCalls::finish_waiting(const Status& status) {
  for (Staged& each : staged_) stop_arriving(each);
  while (!waiting_.empty()) {
    Request* request = waiting_.front()->request;
    stop_waiting(0);
    parts_.requests.finish(request, status);
  }
  advance_ending();
}

void DeviceCalls::finish_all(const Status& status) {
  if (share_.devices == nullptr) return;
  // What comes in pieces is not waited for to the last of them: those under way end, and no others.
  for (Staged* each : ending_) {
    if (!each->slices.in_pieces()) continue;
    each->gives = false;
    if (!each->status.ok()) continue;
    each->status = status.reworded(status.message() + "; the copy of its results to " +
                                   each->slices.where() + " was not over");
  }
  if (!ending_.empty()) share_.devices->drain(kDrainNs);
  // A device that has failed is asked twice before it is believed.
  for (int i = 0; i < 2; ++i) advance_ending();
  while (!ending_.empty()) {
    Staged& staged = *ending_.back();
    ending_.pop_back();
    Status ends = std::exchange(staged.status, {});
    if (ends.ok()) {
      ends = status.reworded(status.message() + "; " + staged.slices.where() +
                             " did not end the copy of its results, which are not there");
    }
    PARALLAX_LOG(kWarn, kStep,
                 std::string(call_text(staged.kind)) + ": " + staged.slices.where() +
                     " did not end its copies: the pinned memory that it may still use is not "
                     "used again, and the caller's buffers are not to be freed");
    staged.slices.abandon();
    staged.phase = Phase::kFree;
    staged.request->staged = 0;
    parts_.requests.finish(staged.request, std::move(ends));
  }
}

// ---- what others ask

bool DeviceCalls::contributes(uint64_t step, uint32_t* variable) const {
  for (const Staged* each : waiting_) {
    if (each->step != step || !is_contribution(each->kind)) continue;
    if (each->slices.host_slices().empty()) continue;
    *variable = each->slices.host_slices().front().variable;
    return true;
  }
  return false;
}

bool DeviceCalls::evaluates() const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [](const Staged* each) { return each->kind == RequestKind::kEvaluate; });
}

// Of a call whose slices devices sum among themselves: what has not ended yet.
std::string DeviceCalls::launch_of(const Request& request) const {
  for (const PullSlice& slice : request.slices) {
    const Variable& variable = *parts_.registry.numbered()[slice.variable];
    if (!variable.direct || parts_.launches->ended(slice.variable, request.step)) continue;
    const std::string lead = "the sum of variable '" + variable.name + "' among the devices: ";
    const uint32_t before = parts_.launches->waits_for(slice.variable, request.step);
    const std::string hosts = parts_.launches->waits_for_hosts(slice.variable, request.step);
    if (!hosts.empty()) return lead + hosts;
    if (before == DeviceLaunches::kNoVariable) {
      return lead + "another rank has not given it, or what is before it, or a device is not done";
    }
    return lead + "it is not launched before variable '" +
           parts_.registry.numbered()[before]->name +
           "', which this rank has not given; make all calls of a step before waiting for one";
  }
  return "";
}

std::string DeviceCalls::waits_for(const Request& request) const {
  if (request.staged == 0) return "";
  const Staged& staged = staged_[request.staged - 1];
  const std::string call =
      std::string(call_text(staged.kind)) + (staged.kind == RequestKind::kEvaluate
                                                 ? " between steps"
                                                 : " of step " + std::to_string(staged.step));
  if (staged.phase == Phase::kWaiting && !staged.slices.under_way()) {
    return call + " waits for an earlier call, whose slices are on their way from a device";
  }
  if (staged.phase == Phase::kWaiting) {
    return call + " waits for " + staged.slices.where() +
           ": the work that was on its stream before the call, or the copy of its slices behind it";
  }
  if (staged.phase == Phase::kTaken && staged.slices.comes()) {
    return call + " waits for the rest of its slices, on its way from " + staged.slices.where();
  }
  if (staged.phase == Phase::kTaken) {
    const std::string launch = launch_of(request);
    return launch.empty() ? "" : call + " waits for " + launch;
  }
  if (staged.phase != Phase::kEnding) return "";
  return call + " waits for the copies between " + staged.slices.where() + " and the host to end";
}

}  // namespace parallax
