// SPDX-License-Identifier: Apache-2.0
// A thousand ranks of the real engine in one thread: 125 hosts of 8, several steps, every value
// exact; and what becomes of them when one dies.
#include <gtest/gtest.h>

#include "sim/sim_job.h"
#include "support/sanitizers.h"

namespace parallax::simtest {
namespace {

constexpr uint32_t kHosts = testkit::kBrief ? 16 : 125;
constexpr uint32_t kRanksPerHost = 8;
constexpr uint32_t kWorld = kHosts * kRanksPerHost;

parallax_variable_t variable(uint64_t rows, uint64_t row_elements, uint64_t rows_max,
                             parallax_rule_t rule) {
  parallax_variable_t variable = {};
  variable.size = sizeof variable;
  variable.rows = rows;
  variable.row_elements = row_elements;
  variable.rows_max = rows_max;
  variable.rule = rule;
  variable.reduction = rule == PARALLAX_RULE_NONE ? PARALLAX_SUM : PARALLAX_MEAN_WORLD;
  variable.init = PARALLAX_INIT_UNIFORM;
  variable.init_low = -1;
  variable.init_high = 1;
  return variable;
}

Scenario thousand_ranks(uint64_t seed) {
  Scenario scenario;
  scenario.seed = seed;
  scenario.world = kWorld;
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    names.push_back("host" + std::to_string(rank / kRanksPerHost));
  }
  scenario.hosts = map_hosts(names);
  scenario.variables = {variable(5000, 4, 6, PARALLAX_RULE_ADAGRAD),  // an embedding
                        variable(40, 100, 0, PARALLAX_RULE_SGD),      // a dense layer
                        variable(600, 1, 4, PARALLAX_RULE_NONE)};     // held by the framework
  scenario.names = {"embedding", "layer", "held"};
  scenario.steps = 3;
  scenario.plan_after_steps = 8;
  scenario.lease_ns = 500 * kNanosecondsPerMillisecond;
  scenario.sim.world = kWorld;
  scenario.sim.host_of = scenario.hosts.host_of;
  scenario.sim.seed = seed;
  scenario.sim.message_bytes_max = 16 * 1024;
  scenario.sim.inter_host.jitter_ns = 5 * kMicrosecond;
  return scenario;
}

// Given a thousand ranks, expect every pull and every reduction exact, and all of them to close.
TEST(ThousandRanks, train_exactly) {
  SimJob job(thousand_ranks(1), {});
  const SimVerdict verdict = job.run();
  for (const std::string& error : verdict.errors) ADD_FAILURE() << error;
  EXPECT_EQ(verdict.finished_ranks, kWorld);
  EXPECT_GT(verdict.pulls_checked, kWorld);
  std::printf(
      "%u ranks: %llu steps ended, %llu pulls and %llu reductions checked, %llu messages, "
      "%.3f ms of virtual time\n",
      kWorld, static_cast<unsigned long long>(verdict.steps_ended),
      static_cast<unsigned long long>(verdict.pulls_checked),
      static_cast<unsigned long long>(verdict.reduces_checked),
      static_cast<unsigned long long>(verdict.messages), static_cast<double>(verdict.end_ns) / 1e6);
}

// Given a host among them that loses power in mid-step, expect every other rank to learn which.
TEST(ThousandRanks, learn_of_a_loss) {
  Fault fault;
  fault.kind = FaultKind::kPowerOff;
  fault.rank = kWorld / 2;
  fault.peer = 0;
  fault.trigger = FaultTrigger::kAtPhase;
  fault.phase = "step_end";
  fault.at = 2;
  FaultPlan plan;
  plan.faults.push_back(fault);
  SimJob job(thousand_ranks(2), plan);
  const SimVerdict verdict = job.run();
  for (const std::string& error : verdict.errors) ADD_FAILURE() << error;
  EXPECT_EQ(verdict.failed_ranks, kWorld - 1);
}

}  // namespace
}  // namespace parallax::simtest
