// SPDX-License-Identifier: Apache-2.0
// FaultInjector: delivers the faults of a plan: when each strikes, what it does to ranks and wires,
// and which of them were felt, in which phase of a rank. SimWorld owns it and tells it of sends and
// events. One thread; never blocks.
#ifndef PARALLAX_TRANSPORT_SIM_FAULT_INJECTOR_H_
#define PARALLAX_TRANSPORT_SIM_FAULT_INJECTOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/sim/event_queue.h"
#include "transport/sim/fault_plan.h"
#include "transport/sim/sim_network.h"

namespace parallax {

// A while in which a rank wakes late.
struct SlowSpell {
  int64_t until_ns = 0;
  int64_t by_ns = 0;
  int fault = kNoFault;
};

// The processes that faults happen to.
class FaultTargets {
 public:
  virtual bool gone(uint32_t rank) const = 0;
  virtual void end(uint32_t rank) = 0;                     // it is not run again
  virtual void stop(uint32_t rank, int64_t until_ns) = 0;  // kNever: for good
  virtual void slow_down(uint32_t rank, const SlowSpell& spell) = 0;

 protected:
  ~FaultTargets() = default;
};

class FaultInjector {
 public:
  // What it is made of outlives it.
  FaultInjector(EventQueue& queue, SimNetwork& network, FaultTargets& targets, uint32_t world)
      : queue_(queue), network_(network), targets_(targets), ranks_(world) {}

  void set_plan(FaultPlan plan);
  // What a rank is doing: faults are triggered by it and counted under it.
  void set_phase(uint32_t rank, std::string_view phase);
  // What makes a message look as if it were of another job (FaultKind::kOtherJob).
  void set_disguise(std::function<void(std::span<std::byte>)> disguise) {
    disguise_ = std::move(disguise);
  }
  void strike_now(const Fault& fault);  // one more than were planned

  void strike(uint32_t fault);  // SimEventKind::kFault
  void on_send(uint32_t rank);
  void on_felt(int fault, uint32_t rank);

  const FaultCounts& counts() const { return counts_; }
  bool felt(size_t fault) const { return felt_at_ns(fault) != kNever; }
  int64_t felt_at_ns(size_t fault) const { return progress_[fault].felt_at_ns; }
  // When the first fault of that kind was felt, or kNever: faults that were drawn but never met
  // anything to disturb do not count.
  int64_t first_felt_ns(bool fatal) const;

 private:
  struct Progress {
    int64_t phase_entries = 0;
    int64_t felt_at_ns = kNever;
  };
  struct Rank {
    std::string phase;
    int64_t operations = 0;
  };

  void apply(const Fault& fault, int index);
  void silence(const Fault& fault, int index, bool both_ways);
  void close(const Fault& fault, int index);
  void strike_later(int index);
  void stray(const Fault& fault);
  void replay(const Fault& fault, int index);
  uint32_t peer_of(const Fault& fault);
  int64_t until_ns(const Fault& fault) const;

  EventQueue& queue_;
  SimNetwork& network_;
  FaultTargets& targets_;
  std::vector<Rank> ranks_;
  FaultPlan plan_;
  std::vector<Progress> progress_;  // by fault of the plan
  FaultCounts counts_;
  std::function<void(std::span<std::byte>)> disguise_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SIM_FAULT_INJECTOR_H_
