// SPDX-License-Identifier: Apache-2.0
// A host of eight domains of memory, of four ranks each, or of rows of four of eight, on the
// simulator: what crosses between domains, of elements and of rows, and how long it takes, where
// ranks know their domains and where they do not.
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
constexpr uint64_t kLevelRows = 1000, kLevelWidth = 64, kLevelRowsMax = 2000;
constexpr uint32_t kLevelSteps = 1;

// Elements that the framework holds, or rows of a table.
parallax_variable_t new_variable(bool rows) {
  parallax_variable_t variable = {};
  variable.size = sizeof variable;
  variable.reduction = PARALLAX_SUM;
  variable.rows = rows ? kLevelRows : kLevelElements;
  variable.row_elements = rows ? kLevelWidth : 1;
  if (!rows) return variable;
  variable.rows_max = kLevelRowsMax;
  variable.tag = PARALLAX_SPARSE;
  variable.rule = PARALLAX_RULE_SGD;
  return variable;
}

SimVerdict play(bool rows, bool known, bool deterministic) {
  std::vector<uint32_t> domains;
  for (uint32_t rank = 0; rank < kLevelRanks; ++rank)
    domains.push_back(rank / (rows ? 2 * kRanksOfDomain : kRanksOfDomain));
  Scenario scenario;
  scenario.seed = 1;
  scenario.world = kLevelRanks;
  scenario.hosts = known ? testkit::map_of_domains(domains)
                         : testkit::host_map(std::vector<uint32_t>(kLevelRanks));
  scenario.variables = {new_variable(rows)};
  scenario.names = {rows ? "table" : "held"};
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
  EXPECT_GT(rows ? verdict.pulls_checked : verdict.reduces_checked, 0u);
  return verdict;
}

// Given domains that ranks know, expect every value right, about a fourth of the bytes to cross
// that cross without, and less time to pass. (Some ranks are absent: how much exactly is counted in
// tests/unit/collectives/allreduce_test.cc.)
TEST(Levels, CrossTheBusOnceForEachDomain) {
  const SimVerdict flat = play(false, false, false), levels = play(false, true, false);
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
  const SimVerdict flat = play(false, false, true), levels = play(false, true, true);
  EXPECT_EQ(levels.across_bytes, flat.across_bytes);
  EXPECT_EQ(levels.end_ns, flat.end_ns);
}

// Given rows that ranks have in common, expect those of a domain to cross once, summed, every value
// right, and less time to pass; but where sums have an order, all to go as they are.
TEST(Levels, RowsCrossOnceForEachDomain) {
  const SimVerdict flat = play(true, false, false), levels = play(true, true, false);
  // Pulls, which cross either way, are more than half of it.
  EXPECT_GT(flat.across_bytes, levels.across_bytes * 5 / 4);
  EXPECT_GT(flat.end_ns, levels.end_ns);
  std::printf("rows: %.1f MB between domains in %.2f ms, flat %.1f MB in %.2f ms\n",
              static_cast<double>(levels.across_bytes) / 1e6,
              static_cast<double>(levels.end_ns) / 1e6,
              static_cast<double>(flat.across_bytes) / 1e6, static_cast<double>(flat.end_ns) / 1e6);
  const SimVerdict in_order = play(true, true, true), flat_in_order = play(true, false, true);
  EXPECT_EQ(in_order.across_bytes, flat_in_order.across_bytes);
}

}  // namespace
}  // namespace parallax::simtest
