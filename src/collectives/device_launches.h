// SPDX-License-Identifier: Apache-2.0
// DeviceLaunches: the order in which a group's reductions among devices are launched, which is the
// same on every rank however its calls came: step by step, by the numbers of variables, neighbours
// that are small as one launch. What a rank does not give in a step it takes part in all the same,
// with zeros, once the step has ended here. The communicator forms with the first of them; one that
// is made out of another's (CommunicatorOptions::out_of) at once.
//
// So a launch waits for all calls of its variables and of those before: a program makes the calls
// of a step before it waits for one. waits_for() says it where one does not.
//
// Where hosts sum by messages (go_by_host), each launch goes in two legs, with the total of the
// hosts between them (between_hosts.h), and the first rank of a host says which leg comes next
// (host_order.h).
//
// A step allocates nothing once it is warm. Engine's owner only; nothing blocks but finish() and
// the end.
#ifndef PARALLAX_COLLECTIVES_DEVICE_LAUNCHES_H_
#define PARALLAX_COLLECTIVES_DEVICE_LAUNCHES_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/between_hosts.h"
#include "collectives/host_order.h"
#include "device/devices.h"

namespace parallax {

class DeviceLaunches {
 public:
  // Together, in one launch: so much of a group of NCCL's is latency, beyond it is bandwidth.
  static constexpr uint64_t kSmallBytes = 64 << 10, kTogetherBytes = 1 << 20;
  static constexpr uint32_t kNoDevice = UINT32_MAX;

  DeviceLaunches() = default;
  ~DeviceLaunches();  // waits for the communicator's end, for a bounded while
  DeviceLaunches(const DeviceLaunches&) = delete;
  DeviceLaunches& operator=(const DeviceLaunches&) = delete;

  // As agreed by all ranks. `device` of the options: of a rank that never gives a slice. `devices`
  // outlives this. What takes longer than timeout_ns, to form or from a launch on, fails the job,
  // which gives it up; 0: nothing does. Between two passes no more of it passes than a quarter, nor
  // than a second.
  void begin(Devices& devices, const CommunicatorOptions& options, int64_t timeout_ns = 0);
  bool begun() const { return devices_ != nullptr; }
  // Before begin(): the communicator is that of this rank's host, and finds its ranks by `order`.
  void go_by_host(std::unique_ptr<HostOrder> order) { order_ = std::move(order); }
  // Variables of one commit, by ascending number, which the steps behind `finished` have. `like`
  // says count, dtype and average; and, of what lies in a window, `from` and `to`: zeros are
  // written there where nothing is given.
  struct Entry {
    uint32_t variable = 0;
    DeviceReduction like = {};
    BetweenHosts* between = nullptr;  // of those that go by host; outlives the launches' end
    std::string name = {};            // for what fails, with its id
    uint32_t id = 0;
  };
  // `windows`: memory of this rank's that variables of the commit lie in, which all register
  // together before the next launch, as many ranges of the same sizes on each.
  void add(const std::vector<Entry>& entries, uint64_t finished,
           const std::vector<ByteRange>& windows = {});
  // Some of it is registered so, or is about to be.
  bool in_window(const ByteRange& bytes) const;

  // That of this rank; `otherwise`: it is not settled yet.
  uint32_t device(uint32_t otherwise) const { return device_ == kNoDevice ? otherwise : device_; }
  // A slice may be on this device: the first one settles it. Else the one that it has to be on.
  bool fits_device(uint32_t device, uint32_t* settled);

  // Of the whole job, whose communicator one of a part is to be made out of. Why it cannot be lent;
  // "": it can. While it is held nothing is launched.
  std::string why_not_lent() const;
  bool there() const { return communicator_ != nullptr && !given_up_ && order_ == nullptr; }
  void hold(bool held) { held_ = held; }
  bool held() const { return held_ && !given_up_; }
  // Null: none yet.
  Communicator* communicator() const { return communicator_.get(); }

  // What this rank gives of a variable in a step that is open, once. Its buffers are borrowed until
  // *pending is back where it was; then it has ended, or the job has failed.
  void give(uint32_t variable, uint64_t step, const DeviceReduction& reduction, uint32_t* pending);
  // The step has ended here. Does nothing where the variable was given.
  void give_nothing(uint32_t variable, uint64_t step);
  bool joined(uint32_t variable, uint64_t step) const;
  bool ended(uint32_t variable, uint64_t step) const;

  // Whether its sum has ended or is on a stream of the device's, to its end; and then: makes a
  // stream of the caller's, on any device, wait for that. IO.
  bool placed(uint32_t variable, uint64_t step) const;
  Status follow(uint32_t variable, uint64_t step, uint32_t device, void* stream) const;

  // What a rank of this host says of the order. False: not what it may say now.
  [[nodiscard]] bool on_order(uint32_t from, const Section& section);

  // Moves on what can be moved. Not OK: the job fails with it; IO, too, where something has taken
  // too long.
  Status advance(int64_t now_ns);
  // Begins what this rank can launch by now. Not OK: as advance().
  Status launch_due();
  // Launches wait, or are under way: advance() finds their end, of which nobody may tell.
  bool busy() const;
  // And at once: nobody will tell.
  bool to_be_asked() const {
    if (communicator_ == nullptr) return options_.out_of != nullptr && !given_up_;
    return communicator_->to_be_asked() || in_pieces_;
  }
  // The variable that this rank has not given, which keeps that one's launch waiting; kNoVariable:
  // none does, and the launch is under way or forms.
  static constexpr uint32_t kNoVariable = UINT32_MAX;
  uint32_t waits_for(uint32_t variable, uint64_t step) const;
  // Whose share of it is waited for, in words; "": nobody's of another host.
  std::string waits_for_hosts(uint32_t variable, uint64_t step) const;

  // The job has failed: launches are given up, and buffers given back once nothing uses them.
  void give_up();
  // And now, after at most timeout_ns.
  void finish(int64_t timeout_ns);

 private:
  // Of one variable in one step.
  struct Slot {
    uint64_t step = 0;
    bool joined = false, ended = false;
    DeviceReduction reduction = {};
    uint32_t* pending = nullptr;
  };
  struct Place {
    uint32_t variable = 0;
    DeviceReduction like = {};
    BetweenHosts* between = nullptr;
    std::string name;
    uint32_t id = 0;
    size_t end = 0;  // behind the last of those that go with it
    std::array<Slot, 2> slots = {};
  };
  struct Launch {
    uint64_t step = 0;
    size_t first = 0, end = 0;
    uint64_t number = 0;
    DeviceLeg leg = DeviceLeg::kAll;
    int64_t began_ns = 0;
  };
  // A launch in the order of the plan.
  struct Cursor {
    uint64_t step = 0;
    size_t at = 0;
    bool operator==(const Cursor&) const = default;
    void go_on(const std::vector<Place>& places) {
      at = places[at].end;
      if (at >= places.size()) *this = {step + 1, 0};
    }
  };

  Place& place_of(uint32_t variable);
  const Slot* slot_of(uint32_t variable, uint64_t step) const;
  uint64_t launch_of(uint32_t variable, uint64_t step) const;
  Slot& join(uint32_t variable, uint64_t step);
  bool next_is_there() const;
  bool totals_are_there();
  void say_next();
  bool is_due(DeviceLeg* leg);
  Status launch_next(DeviceLeg leg);
  Status check_deadline() const;
  void end_launches();
  void release_stages(bool quiet);
  void give_back_all();

  Devices* devices_ = nullptr;
  CommunicatorOptions options_;
  int64_t timeout_ns_ = 0;
  int64_t forming_ns_ = 0;  // since when; 0: not yet, or no more
  // What is due waits for the library to let go of memory (Communicator::forget): since when; 0: it
  // does not.
  int64_t leaving_ns_ = 0;
  // The last pass; and the time of the passes so far, by which deadlines go.
  int64_t passed_ns_ = 0, lived_ns_ = 0;
  uint32_t device_ = kNoDevice;
  std::unique_ptr<Communicator> communicator_;
  std::vector<Place> places_;  // by ascending variable
  Cursor next_;                // what is launched, of those that go in two legs the first one
  std::deque<Launch> under_way_;
  std::vector<ByteRange> windows_;  // by ascending commit
  size_t windows_begun_ = 0;        // of these, given to the communicator
  bool registering_ = false;
  // By host.
  std::unique_ptr<HostOrder> order_;     // null: among all ranks
  std::deque<Launch> between_;           // whose totals are waited for
  Cursor told_to_host_, told_to_ranks_;  // the legs that others say next
  bool in_pieces_ = false;
  std::vector<DeviceReduction> together_;
  bool given_up_ = false, given_back_ = false, held_ = false;
  bool guessed_ = false;  // the device: it has formed, and no slice has come
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_DEVICE_LAUNCHES_H_
