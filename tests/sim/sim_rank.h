// SPDX-License-Identifier: Apache-2.0
// SimRank: one rank of a scenario: a real engine and its caller, who plays a script of calls and
// waits, checks every result against the oracle, and spoils every buffer the moment that a request
// gives it back. After a failure it waits for what is pending, closes and leaves, as a program
// would. One thread: all ranks of a world are run by its loop.
#ifndef PARALLAX_TESTS_SIM_SIM_RANK_H_
#define PARALLAX_TESTS_SIM_SIM_RANK_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "sim/oracle.h"
#include "sim/scenario.h"
#include "sim/sim_compute.h"
#include "support/own_rules.h"
#include "transport/sim/sim_world.h"

namespace parallax::simtest {

inline const std::vector<std::string> kPhases = {"commit",   "pull",       "push",
                                                 "step_end", "collective", "close"};

// A call of the script, or a wait for earlier ones.
enum class Act : uint8_t {
  kThink,     // for `number` ns
  kRegister,  // what is new with `step`
  kCommit,
  kBegin,
  kPull,  // the `number`-th call of the step
  kPush,  // the variables of `list`
  kReduce,
  kEnd,
  kBarrier,
  kBroadcast,
  kCollective,  // the `number`-th beside the step
  kAbort,
  kCancel,
  kWaitKind,  // all of `what` in `step` (0: in any)
  kWaitAll,
  kClose,
};

struct Op {
  Act act = Act::kThink;
  uint64_t step = 0;
  uint64_t number = 0;
  RequestKind what = RequestKind::kCommit;
  std::vector<uint32_t> list;
};

// How far the ranks of a job have come, as they end their steps, and by how many steps a pull that
// was answered was ahead of the step that the slowest was in.
struct Pacing {
  std::vector<uint64_t> ended;  // by rank
  uint64_t most_ahead = 0;

  void pulled(uint64_t step) {
    const uint64_t slowest = *std::min_element(ended.begin(), ended.end()) + 1;
    if (step > slowest) most_ahead = std::max(most_ahead, step - slowest);
  }
};

class SimRank final : public Actor {
 public:
  // All ranks of a job share one view.
  SimRank(SimWorld& world, const Scenario& scenario, const View& view, Oracle& oracle,
          Pacing& pacing, uint32_t rank);

  void run(int64_t now_ns) override;
  int64_t next_deadline_ns() const override;

  // The script ended, well or not, and the rank has left.
  bool over() const { return over_; }
  bool completed() const { return over_ && failure_.ok(); }
  // The first failed call or request; and when it failed.
  const Status& failure() const { return failure_; }
  int64_t failed_ns() const { return failed_ns_; }
  const std::vector<std::string>& errors() const { return errors_; }
  const Engine& engine() const { return *engine_; }
  uint64_t pulls_checked() const { return pulls_checked_; }
  uint64_t reduces_checked() const { return reduces_checked_; }
  uint64_t collectives_checked() const { return collectives_checked_; }
  uint64_t steps_ended() const { return steps_ended_; }
  uint64_t early_rows() const { return engine_->reports().early_rows(); }
  // What it is stuck at.
  std::string describe() const;

 private:
  // A request under way with the buffers it borrows.
  struct Call {
    Act act = Act::kCommit;
    uint64_t step = 0;
    Request* request = nullptr;
    std::vector<parallax_slice_t> slices;
    std::vector<std::vector<int64_t>> ids;
    std::vector<std::vector<float>> values;
    std::vector<std::vector<float>> into;   // of slices that are reduced out of place; else empty
    std::vector<std::vector<float>> given;  // of those: what was in `values`
    std::vector<std::byte> bytes;
    uint32_t root = 0;
    std::shared_ptr<testkit::CollectiveBuffers> collective;
  };

  void write_script();
  void write_commit(uint64_t step, SeededRandom& random);
  // As many as the rank likes, before or behind what it gives.
  void add_pulls(uint64_t step, size_t first, size_t end, SeededRandom& random);
  void write_step(uint64_t step, SeededRandom& random);
  void write_collectives(uint64_t step, size_t begin, SeededRandom& random);
  void add(Act act, uint64_t step, uint64_t number = 0);
  void add_wait(RequestKind kind, uint64_t step);
  void think(SeededRandom& random);

  bool advance();
  bool play(const Op& op);
  bool pending(RequestKind kind, uint64_t step) const;
  Status post(const Op& op, Call* call);
  Status register_before(uint64_t step);
  Status post_pull(const Op& op, Call* call);
  Status post_contribution(const Op& op, Call* call);
  Status post_end(const Op& op, Call* call);
  Status post_broadcast(const Op& op, Call* call);
  Status post_collective(const Op& op, Call* call);
  bool reap();
  void check(Call& call);
  void check_pull(const Call& call);
  void check_reduce(const Call& call);
  void check_untouched(const Call& call);
  void add_slices(const Op& op, uint32_t variable, Call* call);
  void spoil(Call& call);
  bool expected(const Call& call, const Status& status) const;
  void fail(const Status& status, const std::string& what);
  void leave();
  bool close_after_failure();
  void error(const std::string& text);

  SimWorld& world_;
  const Scenario& scenario_;
  Oracle& oracle_;
  Pacing& pacing_;
  uint32_t rank_;
  SimCompute compute_;
  std::deque<testkit::OwnRule> own_rules_;  // by variable
  std::unique_ptr<Engine> engine_;
  std::vector<Op> script_;
  size_t next_ = 0;
  int64_t resume_ns_ = kNever;             // of a think under way
  bool posted_ = false;                    // something, in this run
  std::vector<uint32_t> ids_, variables_;  // by variable of the scenario, and by id
  std::deque<Call> calls_;
  Status failure_;
  int64_t failed_ns_ = kNever;
  bool close_posted_ = false;
  int64_t leave_ns_ = kNever;
  bool over_ = false;
  uint64_t pulls_checked_ = 0;
  uint64_t reduces_checked_ = 0;
  uint64_t collectives_checked_ = 0;
  uint64_t steps_ended_ = 0;
  std::vector<std::string> errors_;
};

}  // namespace parallax::simtest

#endif  // PARALLAX_TESTS_SIM_SIM_RANK_H_
