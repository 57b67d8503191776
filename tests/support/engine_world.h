// SPDX-License-Identifier: Apache-2.0
// EngineWorld: the engines of a whole job as objects in one thread, over inproc, on a clock set by
// hand. Every pass is drawn from a seed: which rank moves, which peers have credits
// (SlowTransport), when a job of the compute pool is over (LateCompute). So arrivals come in any
// order the contract allows, memory stays borrowed for long, and a seed replays them.
#ifndef PARALLAX_TESTS_SUPPORT_ENGINE_WORLD_H_
#define PARALLAX_TESTS_SUPPORT_ENGINE_WORLD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/compute.h"
#include "base/seeded_random.h"
#include "engine/job_groups.h"
#include "support/manual_clock.h"
#include "support/shared_host.h"
#include "transport/inproc/inproc_transport.h"
#include "world/host_map.h"
#include "world/slot_map.h"

namespace parallax::testkit {

// True on this thread while it is inside the transport beneath: what inproc's mailboxes grow by is
// counted by inproc and tested there.
inline constinit thread_local bool inside_transport = false;

// The transport beneath, with smaller messages, and with credits that come and go by chance.
class SlowTransport final : public Transport {
 public:
  SlowTransport(std::unique_ptr<Transport> inner, uint32_t world, size_t message_bytes_max,
                uint32_t slow_percent, uint64_t seed);

  std::string_view name() const override { return inner_->name(); }
  size_t message_bytes_max() const override { return message_bytes_max_; }
  bool writable(uint32_t to) const override { return slow_[to] == 0 && inner_->writable(to); }
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override;
  bool poll(Receiver& receiver) override;
  int wait_fd() const override { return inner_->wait_fd(); }
  bool arm() override { return inner_->arm(); }
  void forget(uint32_t rank) override { inner_->forget(rank); }
  Boards* boards() override { return boards_ ? inner_->boards() : nullptr; }
  void use_boards() { boards_ = true; }
  PeerMemory* peer_memory() override { return memory_; }
  void use_memory(PeerMemory* memory) { memory_ = memory; }

  // Else it lends on what it is given, which keeps engines looking.
  bool copies_sends(uint32_t to) const override { return copies_ && inner_->copies_sends(to); }
  void copy_sends() { copies_ = true; }

  // As tcp does: long messages are received where they go.
  using Watch = std::function<void(Receiver&, uint32_t from, std::span<const std::byte> message)>;
  void place_messages() { places_ = true; }
  // Sees who is about to be asked where a message goes, or gets it. While they are placed.
  void watch(Watch watch) { watch_ = std::move(watch); }

  // Sees what is sent, before it goes.
  void tap(std::function<void(uint32_t to, std::span<const Segment>)> tap) {
    tap_ = std::move(tap);
  }

  // Nothing is sent to `rank` for so many polls, whatever else is drawn.
  void hold(uint32_t rank, uint32_t polls) { slow_[rank] = polls; }

 private:
  std::unique_ptr<Transport> inner_;
  const size_t message_bytes_max_;
  const uint32_t slow_percent_;
  bool copies_ = false;
  bool boards_ = false;
  bool places_ = false;
  Watch watch_;
  PeerMemory* memory_ = nullptr;
  SeededRandom random_;
  std::function<void(uint32_t, std::span<const Segment>)> tap_;
  std::vector<uint32_t> slow_;  // polls until there are credits again
};

// Jobs run when they are taken, a few looks later.
class LateCompute final : public Compute {
 public:
  LateCompute(bool late, uint64_t seed) : late_(late), random_(seed) {}
  void submit(ComputeJob& job) override;
  ComputeJob* take_done() override;
  void drain() override;

 private:
  const bool late_;
  SeededRandom random_;
  ComputeJob* head_ = nullptr;  // linked, since a step of the engine must allocate nothing
  ComputeJob* tail_ = nullptr;
};

struct WorldOptions {
  std::vector<uint32_t> hosts = {0};  // by rank: any number that tells hosts apart
  SlotMap slots = {};                 // none: every rank owns alike
  // The job is of some ranks of a larger world: which they are there. Null: it is a world.
  std::shared_ptr<InprocHub> hub = nullptr;
  std::vector<uint32_t> members = {};
  parallax_plan_mode_t plan_mode = PARALLAX_PLAN_AUTO;
  uint32_t plan_after_steps = 8;
  bool deterministic = false;
  uint64_t memory_max_bytes = 0;
  int64_t lease_ns = 5000 * kNanosecondsPerMillisecond;
  uint64_t seed = 1;  // odd: transports copy what they send, every other one of them places what
                      // comes; even: they have boards. A multiple of three: rows are coded. Two of
                      // five, where they may not be late: jobs run as they are given
  size_t message_bytes_max = kInprocMessageBytesMax;
  uint32_t slow_percent = 0;  // of the peers have no credits at any time
  bool late_jobs = false;
  uint32_t compute_threads = 0;  // > 0: jobs run on threads
  bool inline_jobs = false;      // jobs run as they are given, as of a real rank without threads
  // Where ranks lend memory to each other, which outlives the world; null: nowhere.
  SharedHost* lenders = nullptr;
  // Changes the options of single ranks.
  std::function<void(uint32_t rank, EngineOptions* options)> adjust = {};
};

class EngineWorld {
 public:
  explicit EngineWorld(const WorldOptions& options);
  ~EngineWorld();

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  const HostMap& hosts() const { return hosts_; }
  Engine& engine(uint32_t rank) { return ranks_[rank].groups->whole(); }
  JobGroups& groups(uint32_t rank) { return *ranks_[rank].groups; }
  SlowTransport& transport(uint32_t rank) { return *ranks_[rank].transport; }
  ManualClock& clock() { return clock_; }
  SeededRandom& random() { return random_; }
  bool alive(uint32_t rank) const { return ranks_[rank].groups != nullptr; }

  // Some passes of ranks by chance.
  void shuffle(uint64_t passes);
  // Every rank in turn, until done() or, if it never comes, false. The clock moves a little.
  [[nodiscard]] bool run_until(const std::function<bool()>& done);
  [[nodiscard]] bool run_until_done(std::span<Request* const> requests);
  // Until nothing has moved for a while; the clock stands still.
  void settle();

  // The same registrations everywhere, then commit. The statuses of the commits, by rank.
  std::vector<Status> commit(std::span<const parallax_variable_t> variables);
  // Calls on each rank and waits; the statuses of call or request, by rank.
  std::vector<Status> everywhere(
      const std::function<Status(uint32_t rank, Request** request)>& call);

  // The rank's process is gone.
  void kill(uint32_t rank);
  // Its engine is gone, and the test speaks in its place.
  Transport& take_over(uint32_t rank);

 private:
  struct Rank {
    std::unique_ptr<Compute> compute;
    std::unique_ptr<SlowTransport> transport;
    std::unique_ptr<JobGroups> groups;
  };

  std::unique_ptr<Transport> transport_of(const WorldOptions& options, uint32_t rank);

  SeededRandom random_;
  HostMap hosts_;
  ManualClock clock_;
  std::shared_ptr<InprocHub> hub_;
  std::vector<Rank> ranks_;
};

// A variable's description, so that a test names only what matters to it.
parallax_variable_t dense_variable(const char* name, uint64_t rows, uint64_t row_elements,
                                   parallax_rule_t rule = PARALLAX_RULE_NONE);
parallax_variable_t sparse_variable(const char* name, uint64_t rows, uint64_t row_elements,
                                    uint64_t rows_max, parallax_rule_t rule = PARALLAX_RULE_NONE);
parallax_step_end_options_t end_options(float learning_rate, float clip_norm = 0);
parallax_slice_t dense_slice(uint32_t variable, float* values);
parallax_slice_t rows_slice(uint32_t variable, const std::vector<int64_t>& ids, float* values);
// Of a read or a write of values.
parallax_rows_t rows_call(uint32_t variable, uint64_t first_row, uint64_t count, float* values);

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_ENGINE_WORLD_H_
