// SPDX-License-Identifier: Apache-2.0
// SimJob: one seed, played: a scenario, its faults, its ranks, and the judgement. Without a fault
// that costs a rank, every rank must finish with every value right. With one, every call of every
// survivor must end within the lease and some slack, by the right code and naming the culprit;
// committed steps differ by one at most; and no value read may be wrong. One thread per job; jobs
// are independent of each other.
#ifndef PARALLAX_TESTS_SIM_SIM_JOB_H_
#define PARALLAX_TESTS_SIM_SIM_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/oracle.h"
#include "sim/scenario.h"
#include "sim/sim_rank.h"
#include "transport/sim/sim_world.h"

namespace parallax::simtest {

struct SimVerdict {
  std::vector<std::string> errors;
  FaultCounts counts;
  std::string description;
  uint64_t trace_hash = 0;
  uint64_t events = 0;
  uint64_t messages = 0;
  uint64_t placed_messages = 0;   // of these, received where they go
  uint64_t spoiled_messages = 0;  // and in part, until their place was taken back
  uint64_t across_bytes = 0;      // between domains of memory
  uint64_t pulls_checked = 0;
  uint64_t reduces_checked = 0;
  uint64_t collectives_checked = 0;
  uint64_t steps_ended = 0;
  uint64_t early_rows = 0;  // answered before their step was applied
  uint64_t most_ahead = 0;  // Pacing
  uint32_t finished_ranks = 0;
  uint32_t failed_ranks = 0;
  int64_t end_ns = 0;
  bool survived = false;  // every rank finished
};

class SimJob {
 public:
  SimJob(Scenario scenario, FaultPlan plan);
  SimVerdict run();

 private:
  bool survivor(uint32_t rank) const;
  void judge(bool ended);
  void judge_ending(uint32_t rank);
  void judge_steps();
  void judge_time(uint32_t rank);
  bool names_culprit(uint32_t of, const std::string& message) const;
  bool allowed(parallax_status_t code) const;
  int64_t deadline_ns() const;
  bool felt(FaultKind kind) const;

  Scenario scenario_;
  FaultPlan plan_;
  SimWorld world_;
  Oracle oracle_;
  Pacing pacing_;
  std::vector<std::unique_ptr<SimRank>> ranks_;
  SimVerdict verdict_;
};

// The scenario of a seed, and faults drawn from it for such a one.
SimVerdict run_seed(uint64_t seed);
FaultPlan faults_of(uint64_t seed, const Scenario& scenario);

}  // namespace parallax::simtest

#endif  // PARALLAX_TESTS_SIM_SIM_JOB_H_
