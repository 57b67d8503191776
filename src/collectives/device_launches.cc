// SPDX-License-Identifier: Apache-2.0
// Launching in the order of the plan. See device_launches.h.
#include "collectives/device_launches.h"

#include <algorithm>

#include "base/check.h"
#include "base/number.h"

namespace parallax {

namespace {

uint64_t reduction_bytes(const DeviceReduction& reduction) {
  return reduction.count * bytes_of_dtype(reduction.dtype);
}

}  // namespace

// ---- what there is

void DeviceLaunches::begin(Devices& devices, const CommunicatorOptions& options) {
  devices_ = &devices;
  options_ = options;
}

// Only those of one commit go together: what was agreed before stays as it is.
void DeviceLaunches::add(const std::vector<Entry>& entries, uint64_t finished) {
  for (const Entry& entry : entries) {
    PARALLAX_CHECK(places_.empty() || places_.back().variable < entry.variable);
    places_.push_back({.variable = entry.variable, .like = entry.like});
  }
  for (size_t first = places_.size() - entries.size(), end = first; first < places_.size();
       first = end) {
    uint64_t bytes = reduction_bytes(places_[first].like);
    const bool small = bytes <= kSmallBytes;
    for (end = first + 1; small && end < places_.size(); ++end) {
      const uint64_t more = reduction_bytes(places_[end].like);
      if (more > kSmallBytes || bytes + more > kTogetherBytes) break;
      bytes += more;
    }
    for (size_t i = first; i < end; ++i) places_[i].end = end;
  }
  together_.reserve(places_.size());
  if (step_ == 0) step_ = finished + 1;
}

bool DeviceLaunches::fits_device(uint32_t device, uint32_t* settled) {
  if (device_ == kNoDevice) device_ = device;
  *settled = device_;
  return device == device_;
}

DeviceLaunches::Place& DeviceLaunches::place_of(uint32_t variable) {
  const auto found =
      std::lower_bound(places_.begin(), places_.end(), variable,
                       [](const Place& place, uint32_t number) { return place.variable < number; });
  PARALLAX_CHECK(found != places_.end() && found->variable == variable);
  return *found;
}

const DeviceLaunches::Slot* DeviceLaunches::slot_of(uint32_t variable, uint64_t step) const {
  const Slot& slot = const_cast<DeviceLaunches*>(this)->place_of(variable).slots[step & 1];
  return slot.step == step ? &slot : nullptr;
}

// ---- giving

DeviceLaunches::Slot& DeviceLaunches::join(uint32_t variable, uint64_t step) {
  Place& place = place_of(variable);
  Slot& slot = place.slots[step & 1];
  PARALLAX_CHECK(slot.step < step);
  slot = {.step = step, .joined = true, .ended = false, .reduction = place.like};
  slot.reduction.from = nullptr;
  return slot;
}

void DeviceLaunches::give(uint32_t variable, uint64_t step, const DeviceReduction& reduction,
                          uint32_t* pending) {
  Slot& slot = join(variable, step);
  slot.reduction.from = reduction.from;
  slot.reduction.to = reduction.to;
  slot.reduction.after = reduction.after;
  slot.pending = pending;
  ++*pending;
}

void DeviceLaunches::give_nothing(uint32_t variable, uint64_t step) {
  if (!joined(variable, step)) join(variable, step);
}

bool DeviceLaunches::joined(uint32_t variable, uint64_t step) const {
  const Slot* slot = slot_of(variable, step);
  return slot != nullptr && slot->joined;
}

bool DeviceLaunches::ended(uint32_t variable, uint64_t step) const {
  const Slot* slot = slot_of(variable, step);
  return slot != nullptr && slot->ended;
}

// ---- the pass

bool DeviceLaunches::next_is_there() const {
  if (places_.empty()) return false;
  for (size_t i = at_; i < places_[at_].end; ++i) {
    const Slot& slot = places_[i].slots[step_ & 1];
    if (slot.step != step_ || !slot.joined) return false;
  }
  return true;
}

Status DeviceLaunches::form() {
  if (device_ == kNoDevice) device_ = options_.device;
  options_.device = device_;
  return devices_->form(options_, &communicator_);
}

Status DeviceLaunches::advance() {
  if (devices_ == nullptr || given_up_) return {};
  if (communicator_ == nullptr) {
    if (!next_is_there()) return {};
    PARALLAX_RETURN_IF_ERROR(form());
    if (communicator_ == nullptr) return {};  // its device is being opened
  }
  PARALLAX_RETURN_IF_ERROR(communicator_->advance());
  end_launches();
  while (communicator_->ready() && next_is_there()) PARALLAX_RETURN_IF_ERROR(launch_next());
  return {};
}

Status DeviceLaunches::launch_next() {
  const size_t end = places_[at_].end;
  together_.clear();
  for (size_t i = at_; i < end; ++i) together_.push_back(places_[i].slots[step_ & 1].reduction);
  PARALLAX_RETURN_IF_ERROR(communicator_->launch(together_));
  under_way_.push_back(
      {.step = step_, .first = at_, .end = end, .number = communicator_->launched()});
  at_ = end;
  if (at_ < places_.size()) return {};
  at_ = 0;
  ++step_;
  return {};
}

void DeviceLaunches::end_launches() {
  while (!under_way_.empty() && under_way_.front().number <= communicator_->ended()) {
    const Launch& launch = under_way_.front();
    for (size_t i = launch.first; i < launch.end; ++i) {
      Slot& slot = places_[i].slots[launch.step & 1];
      slot.ended = true;
      if (slot.pending != nullptr) --*slot.pending;
      slot.pending = nullptr;
    }
    under_way_.pop_front();
  }
}

bool DeviceLaunches::busy() const {
  if (communicator_ == nullptr) return !given_up_ && next_is_there();
  if (given_up_) return !given_back_;
  return communicator_->to_be_asked() || !under_way_.empty();
}

uint32_t DeviceLaunches::waits_for(uint32_t variable, uint64_t step) const {
  if (step_ > step || ended(variable, step) || places_.empty()) return kNoVariable;
  // Up to the last that goes with it.
  const size_t end = const_cast<DeviceLaunches*>(this)->place_of(variable).end;
  for (size_t i = step == step_ ? at_ : 0; i < end; ++i) {
    const Slot& slot = places_[i].slots[step & 1];
    if (slot.step != step || !slot.joined) return places_[i].variable;
  }
  return kNoVariable;
}

// ---- the end

void DeviceLaunches::give_back_all() {
  given_back_ = true;
  under_way_.clear();
  for (Place& place : places_) {
    for (Slot& slot : place.slots) {
      if (slot.pending != nullptr) --*slot.pending;
      slot.pending = nullptr;
    }
  }
}

void DeviceLaunches::give_up() {
  if (!given_up_ && communicator_ != nullptr) communicator_->abort();
  given_up_ = true;
  if (!given_back_ && (communicator_ == nullptr || communicator_->quiet())) give_back_all();
}

void DeviceLaunches::finish(int64_t timeout_ns) {
  if (under_way_.empty() && !given_up_) return give_back_all();
  give_up();
  if (!given_back_ && communicator_->drain(timeout_ns)) give_back_all();
  if (given_back_) return;
  // The device does not end. Whoever waits for it is told all the same, and not from here.
  for (Place& place : places_) {
    for (Slot& slot : place.slots) slot.pending = nullptr;
  }
}

}  // namespace parallax
