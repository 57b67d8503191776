// SPDX-License-Identifier: Apache-2.0
// SimWorld: thousands of ranks in one thread, on a virtual clock, over a link model, with faults;
// seeded, so that a run can be repeated exactly. Each rank is an Actor (an engine and its caller)
// that is run when something is deliverable to its transport, when its deadline is due, or when it
// is poked; a rank that is busy (charged with work) or stopped runs later.
//
// The world owns clock, wires and transports; actors belong to the caller and must outlive their
// attachment. Everything is called on one thread; nothing blocks.
#ifndef PARALLAX_TRANSPORT_SIM_SIM_WORLD_H_
#define PARALLAX_TRANSPORT_SIM_SIM_WORLD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "transport/sim/event_queue.h"
#include "transport/sim/fault_injector.h"
#include "transport/sim/sim_network.h"
#include "transport/sim/sim_options.h"
#include "transport/transport.h"

namespace parallax {

class Actor {
 public:
  virtual void run(int64_t now_ns) = 0;
  // When run() must be called next even if nothing arrives; kNever if not at all.
  virtual int64_t next_deadline_ns() const = 0;

 protected:
  ~Actor() = default;
};

class SimWorld final : private SimMachines, private FaultTargets {
 public:
  explicit SimWorld(SimOptions options);
  ~SimWorld();
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  const SimOptions& options() const { return options_; }
  const Clock& clock() const { return clock_; }
  int64_t now_ns() const { return queue_.now_ns(); }
  Transport& transport(uint32_t rank);
  const SimNetwork& network() const { return network_; }

  // The actor is run once soon. Attaching another replaces it.
  void attach(uint32_t rank, Actor* actor);
  // The rank's process ends in order: it is not run again, and its transport sends no more.
  void leave(uint32_t rank);
  // Runs the actor as soon as it is free.
  void poke(uint32_t rank);
  // The rank computes over `bytes` bytes from now on.
  void charge(uint32_t rank, uint64_t bytes);

  // Runs until `done` holds, true; or until nothing happens before `limit_ns`, or events_max is
  // reached, false. `done` is asked after each run of an actor.
  bool run_until(const std::function<bool()>& done, int64_t limit_ns);

  FaultInjector& faults() { return faults_; }
  const FaultInjector& faults() const { return faults_; }

  // Killed, or left.
  bool gone(uint32_t rank) const override { return ranks_[rank].gone; }
  bool stopped(uint32_t rank) const { return ranks_[rank].stopped; }
  bool stopped_for_good(uint32_t rank) const {
    return ranks_[rank].stopped && ranks_[rank].stopped_until_ns == kNever;
  }

  uint64_t events_count() const { return events_count_; }
  uint64_t runs_count() const { return runs_count_; }
  // Equal for two runs exactly if they did the same things at the same times.
  uint64_t trace_hash() const { return trace_hash_; }

 private:
  struct Rank {
    Actor* actor = nullptr;
    std::unique_ptr<Transport> transport;
    int64_t run_at_ns = kNever;  // of the run event that counts; others are stale
    int64_t busy_until_ns = 0;
    SlowSpell slow;
    int64_t stopped_until_ns = 0;
    bool poked = false;
    bool gone = false;
    bool stopped = false;
  };

  int64_t local_now_ns(uint32_t rank) const override;
  void charge_ns(uint32_t rank, int64_t ns) override;
  void on_deliverable(uint32_t rank) override;
  void on_send(uint32_t rank) override { faults_.on_send(rank); }
  void on_fault_felt(int fault, uint32_t rank) override { faults_.on_felt(fault, rank); }
  void end(uint32_t rank) override { ranks_[rank].gone = true; }
  void stop(uint32_t rank, int64_t until_ns) override;
  void slow_down(uint32_t rank, const SlowSpell& spell) override { ranks_[rank].slow = spell; }

  void wake(uint32_t rank, int64_t at_ns);
  bool run(uint32_t rank);
  bool handle(const SimEvent& event);
  void resume(uint32_t rank);
  void trace(const SimEvent& event);

  SimOptions options_;
  EventQueue queue_;
  SimClock clock_;
  SimNetwork network_;
  FaultInjector faults_;
  std::vector<Rank> ranks_;
  uint64_t events_count_ = 0;
  uint64_t runs_count_ = 0;
  uint64_t trace_hash_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SIM_SIM_WORLD_H_
