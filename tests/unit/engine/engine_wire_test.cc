// SPDX-License-Identifier: Apache-2.0
// Rows that cross between hosts in fewer bits than they are summed in (wire_dtype), with several
// rules and layouts, against the naive program, bit for bit: each host's sum is rounded once, the
// owner's own too. And what that spares. A failure prints its seed.
#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/sanitizers.h"
#include "support/script.h"
#include "transport/shm/ring.h"

namespace parallax::testkit::engine_wire {
namespace {

using Hosts = std::vector<uint32_t>;

parallax_variable_t pushed_narrow(const char* name, uint64_t rows, uint64_t width,
                                  uint64_t rows_max, parallax_rule_t rule) {
  parallax_variable_t variable = sparse_variable(name, rows, width, rows_max, rule);
  variable.method = PARALLAX_METHOD_PUSH_PULL;
  variable.wire_dtype = PARALLAX_AS(PARALLAX_BF16);
  return variable;
}

// Of each dtype that may be; narrow rows, wide ones, and one that is rounded beside one that is
// not.
std::vector<parallax_variable_t> variables() {
  parallax_variable_t narrow = pushed_narrow("narrow", 40, 1, 30, PARALLAX_RULE_SGD);
  parallax_variable_t wide = pushed_narrow("wide", 25, 130, 40, PARALLAX_RULE_ADAGRAD);
  wide.reduction = PARALLAX_MEAN_CONTRIBUTORS;
  wide.initial_accumulator_value = 0.1f;
  parallax_variable_t half = pushed_narrow("half", 60, 5, 25, PARALLAX_RULE_ADAM);
  half.dtype = PARALLAX_F16;
  half.accumulate = 1;
  parallax_variable_t kept = pushed_narrow("kept", 30, 7, 25, PARALLAX_RULE_MOMENTUM);
  kept.dtype = PARALLAX_BF16;
  kept.storage_dtype = PARALLAX_AS(PARALLAX_BF16);
  kept.momentum = 0.9;
  kept.reduction = PARALLAX_MEAN_WORLD;
  parallax_variable_t whole = pushed_narrow("whole", 30, 7, 25, PARALLAX_RULE_SGD);
  whole.wire_dtype = PARALLAX_AS(PARALLAX_F32);  // as it is summed
  return {narrow, wide, half, kept, whole};
}

ScriptOptions options_of(const Hosts& hosts, uint64_t seed) {
  ScriptOptions options;
  options.world.hosts = hosts;
  options.world.seed = seed;
  options.world.deterministic = true;
  options.exact_numbers = false;
  options.steps = 5;
  options.variables = variables();
  return options;
}

TEST(EngineWire, EachHostsSumIsRoundedOnce) {
  uint64_t seed = 9100;
  const std::vector<Hosts> layouts = {{0, 1},       {0, 0, 1, 1}, {0, 1, 0},
                                      {0, 1, 2, 3}, {0, 0, 0},    {0, 1, 2, 0, 1, 2}};
  for (size_t round = 0; round < (kBrief ? 3 : 2 * layouts.size()); ++round, ++seed) {
    ScriptOptions options = options_of(layouts[round % layouts.size()], seed);
    options.world.message_bytes_max = round % 2 == 0 ? 4096 : kInprocMessageBytesMax;
    options.world.late_jobs = round % 2 == 0;
    options.pipelined = round % 3 == 0;
    options.tied_percent = round % 2 == 0 ? 0 : 25;
    Script script(options);
    EXPECT_EQ(script.play(), "") << "seed " << seed << ", layout " << round;
  }
}

// Sums of small multiples of 1/64 are exact in any order, before and behind the rounding.
TEST(EngineWire, InAnyOrderOfArrival) {
  for (uint64_t seed = 9200; seed < (kBrief ? 9202 : 9208); ++seed) {
    ScriptOptions options = options_of({0, 0, 1, 2, 2}, seed);
    options.world.deterministic = false;
    options.exact_numbers = true;
    options.world.slow_percent = 15;
    Script script(options);
    EXPECT_EQ(script.play(), "") << "seed " << seed;
  }
}

// Bytes of that variable that ranks sent to others' hosts in a job of two.
uint64_t bytes_sent(uint32_t wire_dtype) {
  ScriptOptions options = options_of({0, 1}, 9400);
  options.variables = {pushed_narrow("wide", 400, 256, 400, PARALLAX_RULE_SGD)};
  options.variables[0].wire_dtype = wire_dtype;
  options.variables[0].init_low = 1;
  options.density_percent = 100;
  Script script(options);
  EXPECT_EQ(script.play(), "");
  uint64_t bytes = 0;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const auto stats = nlohmann::json::parse(script.world().engine(rank).reports().stats_json());
    bytes += stats["variables"][0]["wire_sent_bytes"].get<uint64_t>();
  }
  return bytes;
}

// A push and a pull of about as many rows: a quarter of all, as half of the pushed ones.
TEST(EngineWire, SparesHalfOfWhatIsPushed) {
  const auto whole = static_cast<double>(bytes_sent(0));
  const auto narrow = static_cast<double>(bytes_sent(PARALLAX_AS(PARALLAX_BF16)));
  EXPECT_LT(narrow, 0.85 * whole);
  EXPECT_GT(narrow, 0.5 * whole);
}

TEST(EngineWireCommit, RanksMustRoundAlike) {
  const parallax_variable_t narrow = pushed_narrow("table", 9, 2, 4, PARALLAX_RULE_SGD);
  parallax_variable_t whole = narrow;
  whole.wire_dtype = 0;
  Variable first, second;
  ASSERT_TRUE(make_variable(whole, &first).ok());
  ASSERT_TRUE(make_variable(narrow, &second).ok());
  const Variable* of_first[] = {&first};
  const Variable* of_second[] = {&second};
  const RegistryDifference difference =
      compare_registries(encode_registry(of_first), of_second, "rank 0", "rank 1");
  EXPECT_NE(difference.sentence.find("field wire_dtype: rank 0 has F32, rank 1 has BF16"),
            std::string::npos)
      << difference.sentence;
}

}  // namespace
}  // namespace parallax::testkit::engine_wire
