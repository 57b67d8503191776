// SPDX-License-Identifier: Apache-2.0
// How many messages a step with row ids takes as hosts become many: those of the rows' own owners,
// and what trees of hosts take to end it. PARALLAX_SIM_HOSTS=N tries another number of hosts.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "sim/sim_job.h"
#include "support/sanitizers.h"

namespace parallax::simtest {
namespace {

constexpr uint32_t kRowsMax = 6;  // that a rank pushes in a step

Scenario an_embedding_on(uint32_t hosts, uint32_t steps) {
  Scenario scenario;
  scenario.seed = 5;
  scenario.world = hosts;
  std::vector<std::string> names;
  for (uint32_t host = 0; host < hosts; ++host) names.push_back("host" + std::to_string(host));
  scenario.hosts = map_hosts(names);
  parallax_variable_t variable = {};
  variable.size = sizeof variable;
  variable.rows = 50'000;
  variable.row_elements = 4;
  variable.rows_max = kRowsMax;
  variable.rule = PARALLAX_RULE_SGD;
  variable.reduction = PARALLAX_MEAN_WORLD;
  variable.init = PARALLAX_INIT_UNIFORM;
  variable.init_low = -1;
  variable.init_high = 1;
  scenario.variables = {variable};
  scenario.names = {"embedding"};
  scenario.steps = steps;
  scenario.plan_after_steps = 100;
  scenario.lease_ns = 2000 * kMillisecond;
  scenario.sim.world = hosts;
  scenario.sim.host_of = scenario.hosts.host_of;
  scenario.sim.seed = 5;
  return scenario;
}

// A rank's in a step, without those of opening, reading all back, and closing.
double messages_of_a_step(uint32_t hosts) {
  constexpr uint32_t kSteps[] = {2, 8};
  double messages[2] = {};
  for (int i = 0; i < 2; ++i) {
    SimJob job(an_embedding_on(hosts, kSteps[i]), {});
    const SimVerdict verdict = job.run();
    for (const std::string& error : verdict.errors) ADD_FAILURE() << error;
    EXPECT_EQ(verdict.finished_ranks, hosts);
    messages[i] = static_cast<double>(verdict.messages);
  }
  return (messages[1] - messages[0]) / (kSteps[1] - kSteps[0]) / hosts;
}

TEST(MessageCounts, AreOfTheRowsOwnersAndOfTrees) {
  // Smaller jobs of the simulator have collectives beside their steps.
  std::vector<uint32_t> many = {128};
  if (!testkit::kBrief) many.push_back(512);
  if (const char* asked = std::getenv("PARALLAX_SIM_HOSTS")) {
    many = {static_cast<uint32_t>(std::strtoul(asked, nullptr, 10))};
  }
  for (const uint32_t hosts : many) {
    const double messages = messages_of_a_step(hosts);
    std::printf("report: %u hosts: %.1f messages a rank and step\n", hosts, messages);
    EXPECT_LE(messages, 2.0 * kRowsMax + std::log2(hosts)) << hosts << " hosts";
  }
}

}  // namespace
}  // namespace parallax::simtest
