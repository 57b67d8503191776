// SPDX-License-Identifier: Apache-2.0
// Whole jobs against the naive program: every placement and method, even and uneven hosts, moves
// between placements, any order of arrival. A failure prints its seed; PARALLAX_SEED replays it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "support/sanitizers.h"
#include "support/script.h"

namespace parallax::testkit {
namespace {

using Hosts = std::vector<uint32_t>;

const std::vector<Hosts>& layouts() {
  static const std::vector<Hosts> all = {
      {0},
      {0, 0},
      {0, 1},
      {0, 0, 0},
      {0, 1, 0},              // interleaved and uneven
      {0, 0, 1, 1},           // even
      {0, 1, 2, 3},           // one rank each
      {0, 0, 0, 1},           // three and one
      {0, 1, 1, 1, 1},        // one and four
      {0, 1, 2, 0, 1, 2},     // interleaved
      {0, 0, 0, 1, 1, 2},     // three, two, one
      {0, 0, 0, 0, 0, 0, 0},  // one host
      {0, 0, 1, 1, 2, 2, 3, 3},
      {0, 1, 2, 3, 4, 5, 6, 7, 8},        // a host each: a tree of hosts
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 3},  // uneven, beyond the tree's bound
      {2, 2, 2, 2, 0, 0, 0, 1, 1},
  };
  return all;
}

std::string layout_name(const Hosts& hosts) {
  std::string name;
  for (const uint32_t host : hosts) name += std::to_string(host);
  return name;
}

// One of everything: dense and sparse, managed and held, both rules, all reductions.
std::vector<parallax_variable_t> everything() {
  parallax_variable_t embedding = sparse_variable("embedding", 60, 5, 25, PARALLAX_RULE_ADAGRAD);
  embedding.init = PARALLAX_INIT_UNIFORM;
  embedding.init_low = -1;
  embedding.init_high = 2;
  embedding.init_seed = 11;
  embedding.initial_accumulator_value = 0.1f;
  embedding.reduction = PARALLAX_MEAN_CONTRIBUTORS;
  parallax_variable_t full = sparse_variable("full", 12, 3, 30, PARALLAX_RULE_SGD);
  full.init_low = 0.5f;
  full.reduction = PARALLAX_MEAN_WORLD;
  parallax_variable_t rare = sparse_variable("rare", 500, 2, 3, PARALLAX_RULE_ADAGRAD);
  rare.tag = PARALLAX_AUTO;
  parallax_variable_t wide = dense_variable("wide", 3, 600, PARALLAX_RULE_ADAGRAD);
  wide.init = PARALLAX_INIT_UNIFORM;
  wide.init_high = 1;
  parallax_variable_t bias = dense_variable("bias", 7, 1, PARALLAX_RULE_SGD);
  bias.reduction = PARALLAX_MEAN_CONTRIBUTORS;
  return {embedding,
          full,
          dense_variable("held", 40, 20),
          rare,
          sparse_variable("held_rows", 30, 4, 40),
          wide,
          bias,
          sparse_variable("held_one", 1, 1, 1),
          sparse_variable("held_full", 8, 1, 60),
          sparse_variable("mean_full", 8, 1, 60, PARALLAX_RULE_ADAGRAD),
          dense_variable("one", 1, 1, PARALLAX_RULE_SGD)};
}

uint64_t seed_or(uint64_t seed) {
  const char* given = std::getenv("PARALLAX_SEED");
  return given == nullptr ? seed : std::strtoull(given, nullptr, 10);
}

// Draws the circumstances; what is under test is given.
ScriptOptions draw(uint64_t seed, const Hosts& hosts, parallax_plan_mode_t mode) {
  SeededRandom random(seed);
  ScriptOptions options;
  options.world.hosts = hosts;
  options.world.plan_mode = mode;
  options.world.seed = seed;
  options.world.plan_after_steps = static_cast<uint32_t>(random.between(1, 3));
  options.world.deterministic = random.chance(50);
  options.exact_numbers = !options.world.deterministic || random.chance(30);
  options.world.message_bytes_max = random.chance(50) ? 4096 : kInprocMessageBytesMax;
  options.world.slow_percent = random.chance(50) ? 15 : 0;
  options.world.late_jobs = random.chance(50);
  options.pipelined = random.chance(60);
  options.density_percent = random.chance(50) ? 100 : 15;
  options.variables = everything();
  return options;
}

class EngineExact : public testing::TestWithParam<parallax_plan_mode_t> {};

TEST_P(EngineExact, EveryLayoutAgreesWithTheNaiveSum) {
  uint64_t seed = seed_or(1000 * (1 + GetParam()));
  std::set<std::string> seen;
  for (const Hosts& hosts : layouts()) {
    for (int round = 0; round < (kThreadSanitizer ? 1 : 4); ++round, ++seed) {
      Script script(draw(seed, hosts, GetParam()));
      EXPECT_EQ(script.play(), "") << "hosts " << layout_name(hosts) << ": PARALLAX_SEED=" << seed;
      if (HasFailure()) return;
      seen.insert(script.plans_seen().begin(), script.plans_seen().end());
    }
  }
  // Without these the test would show less than it says.
  std::set<std::string> wanted = {"framework allreduce", "framework allgatherv",
                                  "framework reduce_rows", "framework made_dense"};
  if (GetParam() != PARALLAX_PLAN_AR) wanted.insert("sharded push_pull");
  if (GetParam() == PARALLAX_PLAN_AR || GetParam() == PARALLAX_PLAN_AUTO) {
    wanted.insert({"mirrored allreduce", "mirrored reduce_rows", "mirrored made_dense"});
  }
  for (const std::string& plan : wanted) EXPECT_EQ(seen.count(plan), 1u) << plan << " never held";
}

// For ThreadSanitizer: what a job owns until it is handed back.
TEST(EngineExactThreads, JobsOnOtherThreads) {
  uint64_t seed = seed_or(9000);
  for (const Hosts& hosts : {Hosts{0}, Hosts{0, 0}, Hosts{0, 0, 1, 1}, Hosts{0, 1, 1}}) {
    const auto mode = static_cast<parallax_plan_mode_t>(seed % 4);
    ScriptOptions options = draw(seed, hosts, mode);
    options.world.compute_threads = 2;
    Script script(options);
    EXPECT_EQ(script.play(), "") << "hosts " << layout_name(hosts) << ": PARALLAX_SEED=" << seed;
    ++seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Pins, EngineExact,
                         testing::Values(PARALLAX_PLAN_AUTO, PARALLAX_PLAN_HYBRID, PARALLAX_PLAN_PS,
                                         PARALLAX_PLAN_AR),
                         [](const auto& info) { return mode_name(info.param); });

}  // namespace
}  // namespace parallax::testkit
