// SPDX-License-Identifier: Apache-2.0
// A host of eight domains of memory, of four ranks each, on the simulator: what crosses between
// domains, and how long it takes, where ranks know their domains and where they do not.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/sim_job.h"
#include "support/host_map_of.h"

namespace parallax::simtest {
namespace {

constexpr uint32_t kLevelDomains = 8, kRanksOfDomain = 4;
constexpr uint32_t kLevelRanks = kLevelDomains * kRanksOfDomain;
constexpr uint64_t kLevelElements = 64 * 1024;
constexpr uint32_t kLevelSteps = 1;

SimVerdict reduce_on(bool known, bool deterministic) {
  std::vector<uint32_t> domains;
  for (uint32_t rank = 0; rank < kLevelRanks; ++rank) domains.push_back(rank / kRanksOfDomain);
  Scenario scenario;
  scenario.seed = 1;
  scenario.world = kLevelRanks;
  scenario.hosts = known ? testkit::map_of_domains(domains)
                         : testkit::host_map(std::vector<uint32_t>(kLevelRanks));
  parallax_variable_t variable = {};
  variable.size = sizeof variable;
  variable.rows = kLevelElements;
  variable.row_elements = 1;
  variable.reduction = PARALLAX_SUM;
  scenario.variables = {variable};
  scenario.names = {"held"};
  scenario.steps = kLevelSteps;
  scenario.deterministic = deterministic;
  scenario.lease_ns = 500 * kMillisecond;
  scenario.sim.world = kLevelRanks;
  scenario.sim.host_of = scenario.hosts.host_of;
  scenario.sim.domain_of = domains;
  scenario.sim.adversarial = false;
  SimVerdict verdict = SimJob(scenario, {}).run();
  for (const std::string& error : verdict.errors) ADD_FAILURE() << error;
  EXPECT_EQ(verdict.finished_ranks, kLevelRanks);
  EXPECT_GT(verdict.reduces_checked, 0u);
  return verdict;
}

// Given domains that ranks know, expect every value right, about a fourth of the bytes to cross
// that cross without, and less time to pass. (Some ranks are absent: how much exactly is counted in
// tests/unit/collectives/allreduce_test.cc.)
TEST(Levels, CrossTheBusOnceForEachDomain) {
  const SimVerdict flat = reduce_on(false, false), levels = reduce_on(true, false);
  EXPECT_GT(flat.across_bytes, 3 * levels.across_bytes);
  EXPECT_GT(flat.end_ns, 2 * levels.end_ns);
  std::printf(
      "%u domains of %u ranks: %.1f MB between domains in %.2f ms, "
      "flat %.1f MB in %.2f ms\n",
      kLevelDomains, kRanksOfDomain, static_cast<double>(levels.across_bytes) / 1e6,
      static_cast<double>(levels.end_ns) / 1e6, static_cast<double>(flat.across_bytes) / 1e6,
      static_cast<double>(flat.end_ns) / 1e6);
}

// Sums in the order of ranks do not go by domains.
TEST(Levels, KeepAnOrderThatIsAskedFor) {
  const SimVerdict flat = reduce_on(false, true), levels = reduce_on(true, true);
  EXPECT_EQ(levels.across_bytes, flat.across_bytes);
  EXPECT_EQ(levels.end_ns, flat.end_ns);
}

}  // namespace
}  // namespace parallax::simtest
