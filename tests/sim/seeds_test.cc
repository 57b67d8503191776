// SPDX-License-Identifier: Apache-2.0
// A thousand seeds of the real engine on the simulator, with faults of every kind in every phase.
//
// A failing seed is replayed by the command it prints. Settings of the run, by environment:
//   PARALLAX_SIM_SEED=N        one seed, with its story
//   PARALLAX_SIM_SEEDS=A:B     seeds A..B-1 instead of 0..999
#include <gtest/gtest.h>

#include <atomic>
#include <cinttypes>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

#include "sim/sim_job.h"
#include "support/sanitizers.h"

namespace parallax::simtest {
namespace {

constexpr uint64_t kSeeds = 1000;
constexpr size_t kFailuresShown = 10;

void print_story(uint64_t seed, const SimVerdict& verdict) {
  std::printf("seed %" PRIu64 ": %s\n", seed, verdict.description.c_str());
  std::printf("  %" PRIu64 " events, %" PRIu64
              " messages, %.3f ms, %u ranks finished, %u failed, "
              "trace %016" PRIx64 "\n",
              verdict.events, verdict.messages, static_cast<double>(verdict.end_ns) / 1e6,
              verdict.finished_ranks, verdict.failed_ranks, verdict.trace_hash);
  for (const std::string& error : verdict.errors) std::printf("  %s\n", error.c_str());
}

struct Totals {
  FaultCounts counts;
  uint64_t survived = 0;
  uint64_t pulls = 0;
  uint64_t reduces = 0;
  uint64_t collectives = 0;
  uint64_t steps = 0;
  uint64_t early_rows = 0;
  uint64_t messages = 0;
  uint64_t placed = 0, spoiled = 0;
  uint64_t failures = 0;
  uint64_t failed_ranks = 0;
};

Totals run_seeds(uint64_t first, uint64_t end) {
  Totals totals;
  std::mutex mutex;
  std::atomic<uint64_t> next{first};
  const auto work = [&] {
    for (uint64_t seed = next++; seed < end; seed = next++) {
      const SimVerdict verdict = run_seed(seed);
      const std::lock_guard lock(mutex);
      totals.counts.merge(verdict.counts);
      totals.survived += verdict.survived ? 1 : 0;
      totals.pulls += verdict.pulls_checked;
      totals.reduces += verdict.reduces_checked;
      totals.collectives += verdict.collectives_checked;
      totals.steps += verdict.steps_ended;
      totals.early_rows += verdict.early_rows;
      totals.messages += verdict.messages;
      totals.placed += verdict.placed_messages;
      totals.spoiled += verdict.spoiled_messages;
      totals.failed_ranks += verdict.failed_ranks;
      if (verdict.errors.empty() || ++totals.failures > kFailuresShown) continue;
      print_story(seed, verdict);
      std::printf("  replay: PARALLAX_SIM_SEED=%" PRIu64 " %s --gtest_filter=Seeds.one\n", seed,
                  std::filesystem::read_symlink("/proc/self/exe").c_str());
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back(work);
  }
  work();
  for (std::thread& thread : threads) thread.join();
  return totals;
}

// Given one seed (PARALLAX_SIM_SEED), expect no error; prints its story.
TEST(Seeds, one) {
  const char* chosen = std::getenv("PARALLAX_SIM_SEED");
  const uint64_t seed = chosen == nullptr ? 7 : std::strtoull(chosen, nullptr, 10);
  const SimVerdict verdict = run_seed(seed);
  print_story(seed, verdict);
  EXPECT_TRUE(verdict.errors.empty());
}

// Given a seed twice, expect the same run to the last event.
TEST(Seeds, repeat_exactly) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    EXPECT_EQ(run_seed(seed).trace_hash, run_seed(seed).trace_hash) << "seed " << seed;
  }
}

// Given a thousand seeds, expect every one to be right, and every kind of fault to have struck in
// every phase.
TEST(Seeds, a_thousand) {
  uint64_t first = 0;
  uint64_t end = testkit::kThreadSanitizer ? kSeeds / 10 : kSeeds;
  const char* range = std::getenv("PARALLAX_SIM_SEEDS");
  if (range != nullptr) {
    ASSERT_EQ(std::sscanf(range, "%" SCNu64 ":%" SCNu64, &first, &end), 2);
  }
  const Totals totals = run_seeds(first, end);
  std::printf(
      "%" PRIu64 " seeds: %" PRIu64 " finished whole; %" PRIu64 " steps ended, %" PRIu64
      " pulls, %" PRIu64 " reductions and %" PRIu64 " collectives checked, %" PRIu64
      " rows answered early, %" PRIu64 " messages, %" PRIu64
      " of them received where they go, %" PRIu64 " in part; %" PRIu64 " ranks lost a peer\n",
      end - first, totals.survived, totals.steps, totals.pulls, totals.reduces, totals.collectives,
      totals.early_rows, totals.messages, totals.placed, totals.spoiled, totals.failed_ranks);
  std::printf("faults felt, by kind and phase:\n%s", totals.counts.table(kPhases).c_str());
  EXPECT_EQ(totals.failures, 0u);
  EXPECT_GT(totals.collectives, end - first);
  if (end - first < kSeeds) return;
  EXPECT_GT(totals.early_rows, kSeeds / 2);
  EXPECT_GT(totals.placed, kSeeds);
  EXPECT_GT(totals.spoiled, 0u);
  for (size_t kind = 0; kind < kFaultKinds; ++kind) {
    for (const std::string& phase : kPhases) {
      EXPECT_GT(totals.counts.of(static_cast<FaultKind>(kind), phase), 0u)
          << fault_name(static_cast<FaultKind>(kind)) << " never struck in " << phase;
    }
  }
}

}  // namespace
}  // namespace parallax::simtest
