// SPDX-License-Identifier: Apache-2.0
// Framework-held rows under a ceiling (exchange_bytes_max), through the whole engine: against the
// naive program, bit for bit, in jobs of many shapes; the same bits as without a ceiling; what the
// reports say of chunks and memory; and what a ceiling that nothing keeps answers. A failure prints
// its seed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/sanitizers.h"
#include "support/script.h"
#include "support/words.h"
#include "transport/shm/ring.h"

namespace parallax::testkit::engine_chunks {
namespace {

using Hosts = std::vector<uint32_t>;
using Json = nlohmann::json;

parallax_variable_t capped(const char* name, uint64_t rows, uint64_t width, uint64_t rows_max,
                           uint64_t bytes_max) {
  parallax_variable_t variable = sparse_variable(name, rows, width, rows_max);
  variable.exchange_bytes_max = bytes_max;
  return variable;
}

// In some chunks, in many, by either method; with counts, and of integers; and beside one that has
// none, and one that is managed.
std::vector<parallax_variable_t> variables(bool ceilings) {
  parallax_variable_t few = capped("few", 300, 9, 80, 40'000);
  parallax_variable_t many = capped("many", 400, 3, 60, 6'000);
  many.method = PARALLAX_METHOD_REDUCE_ROWS;
  parallax_variable_t counted = capped("counted", 200, 4, 50, 20'000);
  counted.reduction = PARALLAX_MEAN_ROW;
  counted.method = PARALLAX_METHOD_ALLGATHERV;
  parallax_variable_t mean = capped("mean", 250, 5, 50, 20'000);
  mean.reduction = PARALLAX_MEAN_CONTRIBUTORS;
  mean.accumulate = 1;
  parallax_variable_t integers = capped("integers", 150, 2, 70, 14'000);
  integers.dtype = PARALLAX_I64;
  parallax_variable_t half = capped("half", 300, 6, 40, 20'000);
  half.dtype = PARALLAX_F16;
  std::vector<parallax_variable_t> all = {few, many, counted, mean, integers, half};
  if (!ceilings) {
    for (parallax_variable_t& each : all) each.exchange_bytes_max = 0;
  }
  all.push_back(sparse_variable("whole", 100, 3, 40));
  all.push_back(sparse_variable("managed", 100, 3, 40, PARALLAX_RULE_SGD));
  return all;
}

ScriptOptions options_of(const Hosts& hosts, uint64_t seed, bool ceilings = true) {
  ScriptOptions options;
  options.world.hosts = hosts;
  options.world.seed = seed;
  options.world.deterministic = true;
  options.exact_numbers = false;
  options.steps = 5;
  options.variables = variables(ceilings);
  return options;
}

const std::vector<Hosts>& layouts() {
  static const std::vector<Hosts> all = {{0},          {0, 1},          {0, 0, 0, 0},
                                         {0, 0, 1, 1}, {0, 1, 0},       {0, 1, 2, 3},
                                         {0, 0, 0, 1}, {0, 1, 2, 0, 1}, {0, 0, 1, 1, 2, 2, 3, 3}};
  return all;
}

Json plan_of(Script* script, const std::string& variable) {
  const auto plan = Json::parse(script->world().engine(0).reports().plan_json());
  for (const Json& each : plan["variables"]) {
    if (each["name"] == variable) return each;
  }
  return {};
}

TEST(EngineChunks, GiveTheNaiveSums) {
  uint64_t seed = 9500;
  for (size_t round = 0; round < (kBrief ? 4 : 2 * layouts().size()); ++round, ++seed) {
    ScriptOptions options = options_of(layouts()[round % layouts().size()], seed);
    options.world.message_bytes_max = round % 2 == 0 ? 4096 : kInprocMessageBytesMax;
    options.world.late_jobs = round % 2 == 0;
    options.pipelined = round % 3 == 0;
    Script script(options);
    EXPECT_EQ(script.play(), "") << "seed " << seed << ", layout " << round;
    const uint64_t chunks = plan_of(&script, "many")["chunks"].get<uint64_t>();
    EXPECT_TRUE(chunks > 1 || options.world.hosts.size() == 1) << "layout " << round;
  }
}

// Sums of small multiples of 1/64 are exact in any order.
TEST(EngineChunks, InAnyOrderOfArrival) {
  for (uint64_t seed = 9600; seed < (kBrief ? 9602 : 9608); ++seed) {
    ScriptOptions options = options_of({0, 0, 1, 2, 2}, seed);
    options.world.deterministic = false;
    options.exact_numbers = true;
    options.world.slow_percent = 15;
    Script script(options);
    EXPECT_EQ(script.play(), "") << "seed " << seed;
  }
}

// Given the same job with ceilings and without, expect the same bits.
TEST(EngineChunks, BitsAreThoseOfTheWhole) {
  uint64_t seed = 9700;
  for (const Hosts& hosts : layouts()) {
    Script capped(options_of(hosts, ++seed)), whole(options_of(hosts, seed, false));
    EXPECT_EQ(capped.play(), "");
    EXPECT_EQ(whole.play(), "");
    EXPECT_EQ(capped.digest(), whole.digest()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace parallax::testkit::engine_chunks
