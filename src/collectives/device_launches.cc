// SPDX-License-Identifier: Apache-2.0
// Launching in the order of the plan. See device_launches.h.
#include "collectives/device_launches.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/number.h"

namespace parallax {

namespace {

// What of a deadline may pass between two passes, which come every 20 ms.
constexpr int64_t kPassesPerTimeout = 4;
constexpr int64_t kPassNsMax = 1000 * kNanosecondsPerMillisecond;

uint64_t reduction_bytes(const DeviceReduction& reduction) {
  return reduction.count * bytes_of_dtype(reduction.dtype);
}

}  // namespace

DeviceLaunches::~DeviceLaunches() {
  if (communicator_ != nullptr && !communicator_->end()) static_cast<void>(communicator_.release());
}

// ---- what there is

void DeviceLaunches::begin(Devices& devices, const CommunicatorOptions& options,
                           int64_t timeout_ns) {
  devices_ = &devices;
  options_ = options;
  if (options.out_of != nullptr) device_ = options.device;
  timeout_ns_ = timeout_ns;
}

// Only those of one commit go together: what was agreed before stays as it is.
void DeviceLaunches::add(const std::vector<Entry>& entries, uint64_t finished,
                         const std::vector<ByteRange>& windows) {
  windows_.insert(windows_.end(), windows.begin(), windows.end());
  for (const Entry& entry : entries) {
    PARALLAX_CHECK(places_.empty() || places_.back().variable < entry.variable);
    places_.push_back({.variable = entry.variable,
                       .like = entry.like,
                       .between = entry.between,
                       .name = entry.name,
                       .id = entry.id});
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
  if (next_.step == 0) next_ = told_to_host_ = told_to_ranks_ = {finished + 1, 0};
}

bool DeviceLaunches::in_window(const ByteRange& bytes) const {
  return std::any_of(windows_.begin(), windows_.end(),
                     [&](const ByteRange& each) { return each.overlaps(bytes); });
}

std::string DeviceLaunches::why_not_lent() const {
  if (!there()) return "it has no communicator of all ranks";
  if (guessed_) {
    return "this rank has given none of the job's slices, and may give those of the part on "
           "another device than " +
           std::to_string(device_);
  }
  if (held_) return "another part is made of it";
  if (communicator_->idle()) return "";
  return communicator_->ready() ? "it has reductions under way"
                                : "it is registering memory, or has reductions under way";
}

bool DeviceLaunches::fits_device(uint32_t device, uint32_t* settled) {
  if (device_ == kNoDevice) device_ = device;
  guessed_ = guessed_ && device != device_;
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
  slot.reduction.zeros = place.like.from != nullptr;
  return slot;
}

void DeviceLaunches::give(uint32_t variable, uint64_t step, const DeviceReduction& reduction,
                          uint32_t* pending) {
  Slot& slot = join(variable, step);
  slot.reduction.from = reduction.from;
  slot.reduction.to = reduction.to;
  slot.reduction.after = reduction.after;
  slot.reduction.zeros = false;
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

// The launch that its sum comes of; 0: none has begun.
uint64_t DeviceLaunches::launch_of(uint32_t variable, uint64_t step) const {
  for (const Launch& launch : under_way_) {
    if (launch.step != step || launch.leg == DeviceLeg::kToHost) continue;
    if (places_[launch.first].variable <= variable &&
        variable <= places_[launch.end - 1].variable) {
      return launch.number;
    }
  }
  return 0;
}

bool DeviceLaunches::placed(uint32_t variable, uint64_t step) const {
  if (given_up_) return false;
  if (ended(variable, step)) return true;
  const uint64_t launch = launch_of(variable, step);
  return launch != 0 && launch <= communicator_->placed();
}

Status DeviceLaunches::follow(uint32_t variable, uint64_t step, uint32_t device,
                              void* stream) const {
  const uint64_t launch = launch_of(variable, step);
  return launch == 0 ? Status() : communicator_->follow(launch, device, stream);
}

// ---- the pass

bool DeviceLaunches::next_is_there() const {
  if (places_.empty()) return false;
  for (size_t i = next_.at; i < places_[next_.at].end; ++i) {
    const Slot& slot = places_[i].slots[next_.step & 1];
    if (slot.step != next_.step || !slot.joined) return false;
    // By host it goes through a stage, which the launch before may still have.
    if (places_[i].between != nullptr && !places_[i].between->idle()) return false;
  }
  return true;
}

// Nobody else ends what waits for a rank that does not come, or for a device that stands still:
// leases are kept meanwhile, and a stream of the program's may be all that waits for it.
Status DeviceLaunches::check_deadline() const {
  const bool forms = forming_ns_ != 0, leaves = !forms && leaving_ns_ != 0;
  if (timeout_ns_ == 0 || (!forms && !leaves && under_way_.empty())) return {};
  Launch began = {.step = next_.step, .first = next_.at};
  began.began_ns = forms ? forming_ns_ : leaving_ns_;
  if (!forms && !leaves) began = under_way_.front();
  if (lived_ns_ - began.began_ns < timeout_ns_) return {};
  const std::string rest =
      " did not end within " + std::to_string(timeout_ns_ / kNanosecondsPerMillisecond) + " ms " +
      (forms    ? "since its communicator forms"
       : leaves ? "since it was due"
                : "of its launch") +
      (leaves ? ": the library does not let go of memory that was freed, or is no longer "
                "registered (ncclCommDeregister does not return)"
              : ": another rank has not given it, or a device, a link or work on a stream before "
                "it stands still") +
      "; it is given up. Raise the setting nccl_timeout_ms where it may take longer";
  // One out of the job's forms before its first variable is there.
  if (began.first >= places_.size()) return io_error("what devices do among themselves" + rest);
  const Place& place = places_[began.first];
  return io_error("the sum of variable '" + place.name + "' among the devices in step " +
                  std::to_string(began.step) + rest)
      .about_variable(place.id)
      .about_step(began.step);
}

Status DeviceLaunches::advance(int64_t now_ns) {
  if (devices_ == nullptr || given_up_) return {};
  // A pass that comes late is this rank's own standstill, of a process that was stopped or of a
  // machine that slept: what has ended meanwhile, or has come from others, it is yet to see.
  const int64_t most_ns = std::min(timeout_ns_ / kPassesPerTimeout, kPassNsMax);
  lived_ns_ += std::min(now_ns - std::exchange(passed_ns_, now_ns), most_ns);
  if (communicator_ != nullptr) {
    PARALLAX_RETURN_IF_ERROR(communicator_->advance());
    registering_ = registering_ && !communicator_->ready();
    if (communicator_->ready() || (communicator_->launched() > 0 && !registering_)) forming_ns_ = 0;
    end_launches();
    // It neither forms nor has anything under way: it lets go of memory.
    DeviceLeg due = DeviceLeg::kAll;
    const bool leaves = !communicator_->ready() && !communicator_->to_be_asked() &&
                        under_way_.empty() && !held_ && is_due(&due);
    if (!leaves) leaving_ns_ = 0;
    if (leaves && leaving_ns_ == 0) leaving_ns_ = lived_ns_;
  }
  PARALLAX_RETURN_IF_ERROR(check_deadline());
  say_next();
  DeviceLeg leg = DeviceLeg::kAll;
  if (communicator_ == nullptr) {
    // One out of the job's forms in the commit.
    if (options_.out_of == nullptr && !is_due(&leg)) return {};
    if (forming_ns_ == 0) forming_ns_ = lived_ns_;
    guessed_ = guessed_ || device_ == kNoDevice;
    options_.device = device_ = device(options_.device);
    if (order_ != nullptr) options_.id = order_->id();
    PARALLAX_RETURN_IF_ERROR(devices_->form(options_, &communicator_));
    if (communicator_ == nullptr) return {};  // its device is being opened
    options_.out_of = nullptr;
    PARALLAX_RETURN_IF_ERROR(communicator_->advance());
  }
  return launch_due();
}

Status DeviceLaunches::launch_due() {
  if (communicator_ == nullptr || given_up_) return {};
  say_next();
  DeviceLeg leg = DeviceLeg::kAll;
  while (!held_ && communicator_->ready() && is_due(&leg)) {
    PARALLAX_RETURN_IF_ERROR(launch_next(leg));
    say_next();
  }
  return {};
}

// Whether this rank can launch what comes next.
bool DeviceLaunches::is_due(DeviceLeg* leg) {
  if (order_ == nullptr) return next_is_there();
  if (order_->empty()) return false;
  *leg = order_->front().leg;
  return *leg == DeviceLeg::kToHost ? next_is_there() : totals_are_there();
}

// Windows first: the first launch of a commit is at one place in the order of all ranks, and all
// that came before has ended, so that every rank registers between the same two launches.
Status DeviceLaunches::launch_next(DeviceLeg leg) {
  if (windows_begun_ < windows_.size()) {
    const auto first = std::exchange(windows_begun_, windows_.size());
    forming_ns_ = lived_ns_;
    registering_ = true;
    return communicator_->register_windows(std::span<const ByteRange>(windows_).subspan(first));
  }
  Launch launch = {.step = next_.step, .first = next_.at, .leg = leg};
  if (leg == DeviceLeg::kFromHost) {
    launch = between_.front();
    launch.leg = leg;
  } else {
    launch.end = places_[next_.at].end;
  }
  together_.clear();
  for (size_t i = launch.first; i < launch.end; ++i) {
    DeviceReduction& each = together_.emplace_back(places_[i].slots[launch.step & 1].reduction);
    each.leg = launch.leg;
    if (launch.leg == DeviceLeg::kToHost) {
      PARALLAX_RETURN_IF_ERROR(places_[i].between->stage(&each.staged));
    } else if (launch.leg == DeviceLeg::kFromHost) {
      each.after = 0;  // the first leg was behind it
      static_cast<void>(places_[i].between->total(launch.step, &each.staged));
    }
  }
  PARALLAX_RETURN_IF_ERROR(communicator_->launch(together_));
  launch.number = communicator_->launched();
  launch.began_ns = lived_ns_;
  under_way_.push_back(launch);
  if (order_ != nullptr) order_->pop();
  if (leg == DeviceLeg::kFromHost) {
    between_.pop_front();
  } else {
    next_.go_on(places_);
  }
  return {};
}

void DeviceLaunches::end_launches() {
  for (; !under_way_.empty() && under_way_.front().number <= communicator_->ended();
       under_way_.pop_front()) {
    const Launch& launch = under_way_.front();
    if (launch.leg == DeviceLeg::kToHost) between_.push_back(launch);
    for (size_t i = launch.first; i < launch.end; ++i) {
      BetweenHosts* const between = places_[i].between;
      if (launch.leg == DeviceLeg::kToHost) {
        between->give(launch.step);
        continue;
      }
      if (between != nullptr) between->done();
      Slot& slot = places_[i].slots[launch.step & 1];
      slot.ended = true;
      if (slot.pending != nullptr) --*slot.pending;
      slot.pending = nullptr;
    }
  }
}

// ---- by host

// Of the first launch that waits for its totals. All are asked, since each moves on as it is.
bool DeviceLaunches::totals_are_there() {
  in_pieces_ = false;
  if (between_.empty()) return false;
  bool all = true;
  const Launch& launch = between_.front();
  for (size_t i = launch.first; i < launch.end; ++i) {
    BetweenHosts& between = *places_[i].between;
    std::byte* share = nullptr;
    all = between.total(launch.step, &share) && all;
    in_pieces_ = in_pieces_ || between.in_pieces();
  }
  return all;
}

// One launch ahead of what is launched here: what comes behind is decided by what is there then.
// Totals first, which somebody waits for.
void DeviceLaunches::say_next() {
  if (order_ == nullptr) return;
  const bool totals = totals_are_there();
  if (!order_->decides() || !order_->empty()) return;
  if (totals) {
    const Launch& launch = between_.front();
    order_->say({places_[launch.first].variable, launch.step, DeviceLeg::kFromHost});
  } else if (next_is_there()) {
    order_->say({places_[next_.at].variable, next_.step, DeviceLeg::kToHost});
  }
}

// Each leg goes by the order of the plan, and the second of a launch comes after its first.
bool DeviceLaunches::on_order(uint32_t from, const Section& section) {
  if (order_ == nullptr || places_.empty()) return false;
  const bool to_host = section.header.part == 0;
  Cursor& cursor = to_host ? told_to_host_ : told_to_ranks_;
  if (places_[cursor.at].variable != section.header.tag || cursor.step != section.header.step) {
    return false;
  }
  if (!to_host && told_to_ranks_ == told_to_host_) return false;
  if (!order_->on_section(from, section)) return false;
  cursor.go_on(places_);
  return true;
}

// ---- what others ask

bool DeviceLaunches::busy() const {
  if (communicator_ == nullptr)
    return !given_up_ && (options_.out_of != nullptr || next_is_there());
  if (given_up_) return !given_back_;
  return communicator_->to_be_asked() || !under_way_.empty() || leaving_ns_ != 0 ||
         ((order_ != nullptr || !communicator_->ready()) && next_is_there());
}

uint32_t DeviceLaunches::waits_for(uint32_t variable, uint64_t step) const {
  if (next_.step > step || ended(variable, step) || places_.empty()) return kNoVariable;
  // Up to the last that goes with it.
  const size_t end = const_cast<DeviceLaunches*>(this)->place_of(variable).end;
  for (size_t i = step == next_.step ? next_.at : 0; i < end; ++i) {
    const Slot& slot = places_[i].slots[step & 1];
    if (slot.step != step || !slot.joined) return places_[i].variable;
  }
  return kNoVariable;
}

std::string DeviceLaunches::waits_for_hosts(uint32_t variable, uint64_t step) const {
  const BetweenHosts* const between = const_cast<DeviceLaunches*>(this)->place_of(variable).between;
  if (between == nullptr || !between->waits(step)) return "";
  const MissingRanks missing = between->exchange()->missing(step);
  return "of its share in the sums of other hosts there is nothing yet from " +
         rank_names(order_->hosts(), missing.to_give.empty() ? missing.to_return : missing.to_give);
}

// ---- the end

void DeviceLaunches::give_back_all() {
  given_back_ = true;
  under_way_.clear();
  between_.clear();
  in_pieces_ = false;
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

// No send reads what is pinned any more, but for those that a transport has under way.
void DeviceLaunches::release_stages(bool quiet) {
  for (const Place& place : places_) {
    if (place.between != nullptr) place.between->release(quiet);
  }
}

void DeviceLaunches::finish(int64_t timeout_ns) {
  if (under_way_.empty() && !given_up_) {
    give_back_all();
    return release_stages(true);
  }
  give_up();
  if (!given_back_ && communicator_->drain(timeout_ns)) give_back_all();
  release_stages(given_back_);
  if (given_back_) return;
  // The device does not end. Whoever waits for it is told all the same, and not from here.
  for (Place& place : places_) {
    for (Slot& slot : place.slots) slot.pending = nullptr;
  }
}

}  // namespace parallax
