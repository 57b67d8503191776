// SPDX-License-Identifier: Apache-2.0
// SimCompute: the compute pool of a simulated rank. Inline jobs charge their rank; late ones take a
// while beside it and are run at the end of that while, so that memory which the engine gives away
// too soon shows. One thread.
#ifndef PARALLAX_TESTS_SIM_SIM_COMPUTE_H_
#define PARALLAX_TESTS_SIM_SIM_COMPUTE_H_

#include <algorithm>
#include <cstdint>
#include <deque>

#include "base/compute.h"
#include "transport/sim/sim_world.h"

namespace parallax::simtest {

class SimCompute final : public Compute {
 public:
  SimCompute(SimWorld& world, uint32_t rank, bool late)
      : world_(world), rank_(rank), late_(late), random_(SeededRandom(rank).fork(9)) {}

  void submit(ComputeJob& job) override {
    if (!late_) {
      job.run(job);
      world_.charge(rank_, job.cost_bytes);
      queue_.push_back({&job, world_.now_ns()});
      return;
    }
    const double cost_ns =
        static_cast<double>(job.cost_bytes) * world_.options().compute_ns_per_byte;
    free_ns_ = std::max(free_ns_, world_.now_ns()) + static_cast<int64_t>(cost_ns) +
               random_.between(0, kLateNsMax);
    queue_.push_back({&job, free_ns_});
  }

  ComputeJob* take_done() override {
    if (queue_.empty() || queue_.front().ready_ns > world_.now_ns()) return nullptr;
    ComputeJob* job = queue_.front().job;
    queue_.pop_front();
    if (late_) job->run(*job);
    return job;
  }

  bool at_once() const override { return !late_; }

  // What is queued at the end of an engine is never run.
  void drain() override { queue_.clear(); }

  int64_t next_ready_ns() const { return queue_.empty() ? kNever : queue_.front().ready_ns; }

 private:
  static constexpr int64_t kLateNsMax = 100'000;
  struct Queued {
    ComputeJob* job;
    int64_t ready_ns;
  };

  SimWorld& world_;
  uint32_t rank_;
  bool late_;
  SeededRandom random_;
  std::deque<Queued> queue_;
  int64_t free_ns_ = 0;
};

}  // namespace parallax::simtest

#endif  // PARALLAX_TESTS_SIM_SIM_COMPUTE_H_
