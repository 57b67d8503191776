// SPDX-License-Identifier: Apache-2.0
// Pulls that are answered before the step before is applied, against the oracle's bits: of many
// jobs of several hosts, each played with early answers and without.
#include <gtest/gtest.h>

#include <cinttypes>
#include <utility>

#include "sim/sim_job.h"

namespace parallax::simtest {
namespace {

// A job of hosts whose ranks begin a step while the last one still ends, and pull of sharded
// tables; every value is told to the bit. Every other one sums in no order: then owners name their
// own host's rows where that has them, and have no index of them before somebody asks.
Scenario job_of(uint64_t seed, bool early) {
  Scenario scenario = make_scenario(seed, {.world_max = 6, .large_world_max = 6});
  scenario.pipelined = true;
  scenario.deterministic = seed % 2 == 0;
  scenario.numbers = scenario.deterministic ? Numbers::kAny : Numbers::kExact;
  scenario.plan_mode = seed % 8 < 2 ? PARALLAX_PLAN_AUTO : PARALLAX_PLAN_PS;
  scenario.abort_rank = scenario.cancel_rank = scenario.mismatch_rank = UINT32_MAX;
  scenario.early = early;
  return scenario;
}

SimVerdict play(uint64_t seed, bool early) { return SimJob(job_of(seed, early), {}).run(); }

// Given jobs, when rows that a step leaves alone are answered before it is applied, and when none
// are, expect the values of one process, bit for bit, in both; and that some were.
TEST(EarlyPull, GivesTheValuesOfOneProcess) {
  constexpr uint64_t kSeeds = 120;
  uint64_t early_rows = 0, jobs_with = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const SimVerdict early = play(seed, true);
    const SimVerdict late = play(seed, false);
    for (const SimVerdict* each : {&early, &late}) {
      EXPECT_TRUE(each->survived) << "seed " << seed;
      for (const std::string& error : each->errors)
        ADD_FAILURE() << "seed " << seed << ": " << error;
    }
    EXPECT_EQ(late.early_rows, 0u) << "seed " << seed;
    EXPECT_EQ(early.pulls_checked, late.pulls_checked);
    early_rows += early.early_rows;
    jobs_with += early.early_rows > 0 ? 1 : 0;
  }
  std::printf("%" PRIu64 " rows answered early, in %" PRIu64 " of %" PRIu64 " jobs\n", early_rows,
              jobs_with, kSeeds);
  EXPECT_GT(jobs_with, kSeeds / 8);
}

}  // namespace
}  // namespace parallax::simtest
