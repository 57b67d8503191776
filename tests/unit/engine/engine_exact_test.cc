// SPDX-License-Identifier: Apache-2.0
// Whole jobs against the naive program: every placement and method, even and uneven hosts, moves
// between placements, any order of arrival. A failure prints its seed; PARALLAX_SEED replays it.
// What the jobs gave in version 0.1 is kept in engine_exact_bits.txt, so that the naive program and
// the engine cannot change together; PARALLAX_RECORD=1 writes it anew.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "collectives/exchange.h"
#include "support/sanitizers.h"
#include "support/script.h"
#include "support/slot_maps.h"
#include "variable/pins.h"

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

// By which rows that the framework holds go as bytes have it: by the standard ones the few rows of
// these jobs go in one round.
CostSetting bytes_alone() {
  CostSetting setting = {.measured = false, .given = {}, .values = {}};
  setting.given.fill(true);
  for (const ConstantRow& row : kConstantRows) row.of(setting.values) = 0;
  setting.values.inside.byte_ps = setting.values.between.byte_ps = 1'000;
  return setting;
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
  if (seed / 2 % 2 == 0) {
    options.world.adjust = [](uint32_t, EngineOptions* engine) { engine->costs = bytes_alone(); };
  }
  options.pipelined = random.chance(60);
  options.density_percent = random.chance(50) ? 100 : 15;
  options.variables = everything();
  return options;
}

constexpr const char* kBitsFile = PARALLAX_SOURCE_DIR "/tests/unit/engine/engine_exact_bits.txt";

// Digests of a mode's jobs by "mode hosts seed", as version 0.1 gave them.
std::map<std::string, std::string> recorded_bits() {
  std::ifstream file(kBitsFile);
  std::map<std::string, std::string> bits;
  for (std::string line; std::getline(file, line);) {
    const size_t end = line.rfind(' ');
    if (end != std::string::npos && line[0] != '#')
      bits[line.substr(0, end)] = line.substr(end + 1);
  }
  return bits;
}

std::string hex(uint64_t digest) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, digest);
  return text;
}

bool recording() { return std::getenv("PARALLAX_RECORD") != nullptr; }

class EngineExact : public testing::TestWithParam<parallax_plan_mode_t> {};

TEST_P(EngineExact, EveryLayoutAgreesWithTheNaiveSum) {
  constexpr uint64_t kRounds = 4;
  uint64_t seed = seed_or(1000 * (1 + GetParam()));
  const std::map<std::string, std::string> recorded = recorded_bits();
  size_t compared = 0;
  std::string record;
  std::set<std::string> seen;
  for (const Hosts& hosts : layouts()) {
    for (uint64_t round = 0; round < (kBrief ? 1 : kRounds); ++round) {
      Script script(draw(seed + round, hosts, GetParam()));
      EXPECT_EQ(script.play(), "")
          << "hosts " << layout_name(hosts) << ": PARALLAX_SEED=" << seed + round;
      if (HasFailure()) return;
      seen.insert(script.plans_seen().begin(), script.plans_seen().end());
      const std::string job =
          mode_name(GetParam()) + " " + layout_name(hosts) + " " + std::to_string(seed + round);
      record += job + " " + hex(script.digest()) + "\n";
      const auto found = recorded.find(job);
      if (found == recorded.end() || recording()) continue;
      EXPECT_EQ(hex(script.digest()), found->second) << job << ": other bits than version 0.1 gave";
      ++compared;
    }
    seed += kRounds;
  }
  if (recording()) std::ofstream(kBitsFile, std::ios::app) << record;
  if (std::getenv("PARALLAX_SEED") == nullptr && !recording()) {
    EXPECT_EQ(compared, layouts().size() * (kBrief ? 1 : kRounds));
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

// Given more hosts than tell each other that they have no rows, even and uneven, expect jobs as
// exact by a census (collectives/census.h).
TEST(EngineExactCensus, ManyHosts) {
  Hosts even;
  for (uint32_t host = 0; host <= kMarkerHostsMax; ++host) even.push_back(host);
  Hosts uneven = even;
  uneven.insert(uneven.end(), {3, 3, 7, kMarkerHostsMax});
  uint64_t seed = seed_or(9500);
  for (const parallax_plan_mode_t mode :
       {PARALLAX_PLAN_AUTO, PARALLAX_PLAN_HYBRID, PARALLAX_PLAN_PS, PARALLAX_PLAN_AR}) {
    for (const Hosts& hosts : {even, uneven}) {
      Script script(draw(++seed, hosts, mode));
      // The first that is wrong is enough: each waits for long.
      ASSERT_EQ(script.play(), "")
          << mode_name(mode) << ", " << hosts.size() << " ranks: PARALLAX_SEED=" << seed - 1;
      if (testkit::kBrief) return;
    }
  }
}

// ---- who owns

std::string digest_of(const ScriptOptions& options) {
  Script script(options);
  const std::string wrong = script.play();
  return wrong.empty() ? hex(script.digest()) : wrong;
}

// Given slots of which some ranks own none and others more than their share, expect every pull,
// reduce, row read and value exact, through every change of placement, and where the job is
// deterministic the bits that it has with slots for all alike.
TEST(EngineExactOwners, AnyMapOfSlotsGivesTheSameBits) {
  std::set<std::string> seen;
  uint64_t seed = seed_or(20'000);
  for (const Hosts& hosts : layouts()) {
    for (const auto mode : {PARALLAX_PLAN_PS, PARALLAX_PLAN_AUTO}) {
      ++seed;
      if (kBrief && hosts.size() > 4) continue;
      ScriptOptions options = draw(seed, hosts, mode);
      SCOPED_TRACE("hosts " + layout_name(hosts) + ": PARALLAX_SEED=" + std::to_string(seed - 1));
      Script even(options);
      ASSERT_EQ(even.play(), "");
      options.world.slots = uneven_slots(static_cast<uint32_t>(hosts.size()), seed);
      Script uneven(options);
      ASSERT_EQ(uneven.play(), "");
      EXPECT_EQ(uneven.digest(), even.digest());
      seen.insert(uneven.plans_seen().begin(), uneven.plans_seen().end());
    }
  }
  for (const char* plan : {"sharded push_pull", "mirrored allreduce", "mirrored reduce_rows"}) {
    EXPECT_EQ(seen.count(plan), 1u) << plan << " never held";
  }
}

// ---- who is pinned

// Given every variable pinned to each way that it can go, in any mode, expect all values exact and
// the bits that the planner's ways give; nothing pinned goes otherwise.
TEST(EngineExactPins, EveryPinGivesTheSameBits) {
  const Hosts some[] = {{0, 0}, {0, 1, 1}, {0, 0, 1, 1}, {0, 1, 2, 0, 1, 2}};
  uint64_t seed = seed_or(40'000);
  for (const Hosts& hosts : some) {
    for (const auto mode : {PARALLAX_PLAN_AUTO, PARALLAX_PLAN_PS, PARALLAX_PLAN_AR}) {
      ScriptOptions options = draw(++seed, hosts, mode);
      options.world.deterministic = true;
      const std::string free = digest_of(options);
      for (uint32_t method = PARALLAX_METHOD_ALLREDUCE; method <= PARALLAX_METHOD_PUSH_PULL;
           ++method) {
        SCOPED_TRACE("hosts " + layout_name(hosts) + ", mode " + mode_name(mode) + ", method " +
                     kMethodPins[method] + ": PARALLAX_SEED=" + std::to_string(seed - 1));
        options.variables = everything();
        for (parallax_variable_t& variable : options.variables) {
          variable.method = method;
          Variable made;
          if (!make_variable(variable, &made).ok()) variable.method = PARALLAX_METHOD_AUTO;
        }
        Script script(options);
        ASSERT_EQ(script.play(), "");
        EXPECT_EQ(hex(script.digest()), free);
        const auto saw = [&](uint32_t of) {
          return std::any_of(
              script.plans_seen().begin(), script.plans_seen().end(),
              [&](const std::string& plan) { return plan.ends_with(kMethodPins[of]); });
        };
        EXPECT_TRUE(saw(method));
        // Of what replicates rows the one alone that all with row ids were pinned to.
        const bool of_held_rows =
            method != PARALLAX_METHOD_ALLREDUCE && method != PARALLAX_METHOD_PUSH_PULL;
        for (const uint32_t other : {PARALLAX_METHOD_ALLGATHERV, PARALLAX_METHOD_REDUCE_ROWS,
                                     PARALLAX_METHOD_MADE_DENSE}) {
          if (!of_held_rows) continue;
          EXPECT_EQ(saw(other), other == method) << kMethodPins[other];
        }
        if (kBrief) return;
      }
    }
  }
}

// Given two jobs of some ranks each of one world, at the same time, with ranks numbered within
// each, expect both as if each were a world.
TEST(EngineExactOwners, AJobOfSomeRanksOfAWorldIsAWorld) {
  const std::vector<uint32_t> odd = {1, 3, 5, 7}, even = {6, 0, 4};
  ScriptOptions first = draw(seed_or(30'000), {0, 0, 1, 1}, PARALLAX_PLAN_AUTO);
  ScriptOptions second = draw(seed_or(30'001), {0, 1, 1}, PARALLAX_PLAN_PS);
  const std::string first_alone = digest_of(first), second_alone = digest_of(second);
  const auto hub = std::make_shared<InprocHub>(8);
  first.world.hub = second.world.hub = hub;
  first.world.members = odd;
  second.world.members = even;
  Script other(second);  // open while the first is played
  EXPECT_EQ(digest_of(first), first_alone);
  EXPECT_EQ(other.play(), "");
  EXPECT_EQ(hex(other.digest()), second_alone);
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
