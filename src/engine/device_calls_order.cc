// SPDX-License-Identifier: Apache-2.0
// Streams that wait for results in the place of a thread. See device_calls.h.
//
// What a stream can wait for is an event behind work that a stream of ours has already. Of a sum
// among devices that is so once it is launched; of results that come by host memory once they are
// here, and their copies have begun. Of all else the thread waits for the end.
#include <algorithm>

#include "engine/device_calls.h"

namespace parallax {

Status DeviceCalls::follow(Request& request, uint32_t device, void* stream, bool* followed) {
  // What it has a slice on a device for is there, and opened them.
  const bool on_devices = request.staged != 0 && share_.devices != nullptr;
  if (on_devices) PARALLAX_RETURN_IF_ERROR(share_.devices->follow(0, device, stream));
  *followed = request.done();
  if (*followed) return {};
  const Staged* const staged = on_devices ? &staged_[request.staged - 1] : nullptr;
  if (staged == nullptr || !has_order(*staged)) {
    request.waiter.order = Order::kAsked;
    order_asked_ = order_asked_ || on_devices;
    return {};
  }
  *followed = true;
  request.waiter.order = Order::kNotAsked;
  if (staged->phase == Phase::kEnding) return staged->slices.follow(device, stream);
  for (const PullSlice& slice : request.slices) {
    PARALLAX_RETURN_IF_ERROR(parts_.launches->follow(slice.variable, request.step, device, stream));
  }
  return {};
}

// Whether a stream can be made to wait for all that the call gives.
bool DeviceCalls::has_order(const Staged& staged) const {
  if (staged.phase == Phase::kEnding) {
    return staged.gives && staged.status.ok() && !staged.slices.in_pieces();
  }
  if (staged.phase != Phase::kTaken || parts_.launches == nullptr ||
      staged.slices.copies(CopyDirection::kToDevice)) {
    return false;
  }
  const std::vector<PullSlice>& slices = staged.request->slices;
  return !slices.empty() && std::all_of(slices.begin(), slices.end(), [&](const PullSlice& slice) {
    return parts_.registry.numbered()[slice.variable]->direct &&
           parts_.launches->placed(slice.variable, staged.request->step);
  });
}

// Whoever waits on a stream's behalf asks again.
void DeviceCalls::tell_order(const Staged& staged) {
  if (staged.request->waiter.order != Order::kAsked || !has_order(staged)) return;
  staged.request->waiter.order = Order::kThere;
  parts_.requests.tell();
}

void DeviceCalls::advance_order() {
  order_asked_ = false;
  for (const Staged& each : staged_) {
    if (each.phase == Phase::kFree) continue;
    tell_order(each);
    order_asked_ = order_asked_ || each.request->waiter.order == Order::kAsked;
  }
}

// ---- windows

// NCCL takes what lies in windows for what lies there on every rank.
Status DeviceCalls::check_outside(const parallax_slice_t& slice) const {
  const Variable& variable = parts_.registry[slice.variable];
  if (variable.place.given()) return {};
  const uint64_t bytes = variable.elements() * bytes_of_dtype(variable.dtype);
  for (const void* address :
       {static_cast<const void*>(slice.values), static_cast<const void*>(slice.into)}) {
    if (address == nullptr || !parts_.launches->in_window(ByteRange::at(address, bytes))) continue;
    const char* const field = address == slice.values ? "values" : "into";
    return invalid(std::string(field) +
                   " lies in a buffer that ranks have registered together, for variables with a "
                   "place there (place_values), and this one was registered without; give it other "
                   "memory, or register it with its place")
        .about_field(field);
  }
  return {};
}

}  // namespace parallax
