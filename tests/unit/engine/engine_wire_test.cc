// SPDX-License-Identifier: Apache-2.0
// Rows that cross between hosts in fewer bits than they are summed in (wire_dtype), with several
// rules and layouts, against the naive program, bit for bit: each host's sum is rounded once, the
// owner's own too. And what that spares. A failure prints its seed.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
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

// Of two hosts whose owners sum at once, and so keep their own host's rows where they are if
// nothing is rounded. Two numbers have one sum in either order.
TEST(EngineWire, AnOwnersOwnRowsAreRoundedToo) {
  for (uint64_t seed = 9300; seed < (kBrief ? 9302 : 9306); ++seed) {
    ScriptOptions options = options_of({0, 1}, seed);
    options.world.deterministic = false;
    options.world.inline_jobs = true;
    Script script(options);
    EXPECT_EQ(script.play(), "") << "seed " << seed;
  }
}

// A step of all ranks, each of which pushes its row of `pushed` by these ids, and pulls them all
// in the next one: what each pulls.
std::vector<std::vector<float>> pulled_after(EngineWorld& world, const std::vector<int64_t>& ids,
                                             std::vector<std::vector<float>>& pushed) {
  std::vector<std::vector<float>> values(world.size(), std::vector<float>(pushed[0].size()));
  for (int i = 0; i < 2; ++i) {
    uint64_t step = 0;
    const auto all = [&](auto post) {
      for (const Status& status : world.everywhere(post)) {
        EXPECT_TRUE(status.ok()) << status.message();
      }
    };
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_TRUE(world.engine(rank).step_calls().begin(&step).ok());
    }
    all([&](uint32_t rank, Request** request) {
      const parallax_slice_t slice =
          rows_slice(0, ids, i == 0 ? pushed[rank].data() : values[rank].data());
      StepCalls& calls = world.engine(rank).step_calls();
      return i == 0 ? calls.push(step, {&slice, 1}, request)
                    : calls.pull(step, {&slice, 1}, request);
    });
    all([&](uint32_t rank, Request** request) {
      return world.engine(rank).step_calls().end(step, end_options(1), request);
    });
  }
  return values;
}

// Of numbers of any size and sign, whose sums nearly cancel here and there: what parallax.h says.
TEST(EngineWire, SumsAreOffByNoMoreThanIsSaid) {
  constexpr uint64_t kRows = 200, kElements = 9;
  for (const Hosts& hosts : {Hosts{0, 1}, Hosts{0, 1, 0, 2}, Hosts{0, 1, 2, 3, 4}}) {
    EngineWorld world({.hosts = hosts, .seed = 9600});
    const parallax_variable_t table =
        pushed_narrow("table", kRows, kElements, kRows, PARALLAX_RULE_SGD);
    for (const Status& status : world.commit({&table, 1})) ASSERT_TRUE(status.ok());
    SeededRandom random(hosts.size());
    std::vector<int64_t> ids(kRows);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<std::vector<float>> pushed(hosts.size());
    for (std::vector<float>& values : pushed) {
      for (uint64_t i = 0; i < kRows * kElements; ++i) {
        const auto power = static_cast<int>(random.between(-9, 9));
        values.push_back(static_cast<float>(std::ldexp(random.unit() * 2 - 1, power)));
      }
    }
    const std::vector<std::vector<float>> of_ranks = pulled_after(world, ids, pushed);
    for (const std::vector<float>& other : of_ranks) ASSERT_EQ(other, of_ranks[0]);
    const std::vector<float>& got = of_ranks[0];
    uint64_t rounded = 0;
    for (uint64_t i = 0; i < got.size(); ++i) {
      std::map<uint32_t, double> of_hosts;
      double sum = 0, magnitudes = 0, hosts_sums = 0;
      for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
        of_hosts[hosts[rank]] += pushed[rank][i];
        sum += pushed[rank][i];
        magnitudes += std::abs(pushed[rank][i]);
      }
      for (const auto& [host, of_host] : of_hosts) hosts_sums += std::abs(of_host);
      const double in_float = 1e-6 * magnitudes;
      ASSERT_LE(std::abs(-got[i] - sum), std::ldexp(hosts_sums, -8) + in_float) << i;
      rounded += std::abs(-got[i] - sum) > in_float ? 1 : 0;
    }
    EXPECT_GT(rounded, got.size() / 2) << "nothing was rounded";
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

// Bytes that two steps of two hosts of a rank each bring to each other, of rows of one number: what
// both ranks pull, and what they push.
uint64_t bytes_of_rows(const std::vector<int64_t>& pulled, const std::vector<int64_t>& pushed,
                       RowCodingMode coding = RowCodingMode::kOff) {
  WorldOptions options = {.hosts = {0, 1}, .plan_after_steps = 1000, .seed = 9500};
  options.adjust = [coding](uint32_t, EngineOptions* engine) { engine->row_ways.coding = coding; };
  EngineWorld world(options);
  const parallax_variable_t table = sparse_variable("table", 4000, 1, 1000, PARALLAX_RULE_SGD);
  for (const Status& status : world.commit({&table, 1})) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
  std::vector<float> values(pulled.size()), gradients(pushed.size(), 1);
  for (int i = 0; i < 2; ++i) {
    uint64_t step = 0;
    const auto all = [&](auto post) {
      for (const Status& status : world.everywhere(post)) {
        EXPECT_TRUE(status.ok()) << status.message();
      }
    };
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(world.engine(rank).step_calls().begin(&step).ok());
    }
    const std::vector<parallax_slice_t> wanted = {rows_slice(0, pulled, values.data())};
    const std::vector<parallax_slice_t> given = {rows_slice(0, pushed, gradients.data())};
    all([&](uint32_t rank, Request** request) {
      return world.engine(rank).step_calls().pull(step, wanted, request);
    });
    all([&](uint32_t rank, Request** request) {
      return world.engine(rank).step_calls().push(step, given, request);
    });
    parallax_step_end_options_t end = {};
    end.size = sizeof end;
    end.learning_rate = 1;
    all([&](uint32_t rank, Request** request) {
      return world.engine(rank).step_calls().end(step, end, request);
    });
    EXPECT_EQ(values.front(), static_cast<float>(pulled == pushed ? -2 * i : 0));
  }
  uint64_t bytes = 0;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const auto stats = nlohmann::json::parse(world.engine(rank).reports().stats_json());
    bytes += stats["variables"][0]["wire_sent_bytes"].get<uint64_t>();
  }
  return bytes;
}

// Of 1,000 rows half are another host's. A pull takes row key and value of each, a push as much, or
// the value alone where the row was pulled.
TEST(EngineWire, PushedRowsThatWerePulledHaveNoRowKeys) {
  std::vector<int64_t> ids(1000), others(1000), most(1000);
  std::iota(ids.begin(), ids.end(), 0);
  std::iota(others.begin(), others.end(), 1000);
  std::iota(most.begin(), most.end(), 0);
  for (size_t i = 0; i < most.size(); i += 10) most[i] += 2000;
  const uint64_t of_others = bytes_of_rows(ids, others), of_same = bytes_of_rows(ids, ids);
  const uint64_t of_most = bytes_of_rows(ids, most);
  // Two steps of two ranks.
  EXPECT_NEAR(static_cast<double>(of_others - of_same), 4 * 500 * 4, 400);
  // A bit for each, and the row keys of every tenth.
  EXPECT_NEAR(static_cast<double>(of_most - of_same), 4 * (500 / 8 + 50 * 4), 500);
}

// Row keys of every other row in fewer than 4 bits, and numbers that are all alike.
TEST(EngineWire, RowsThatAreCodedTakeFewerBytes) {
  std::vector<int64_t> ids(1000), others(1000);
  std::iota(ids.begin(), ids.end(), 0);
  std::iota(others.begin(), others.end(), 1000);
  const uint64_t plain = bytes_of_rows(ids, others);
  const uint64_t coded = bytes_of_rows(ids, others, RowCodingMode::kOn);
  EXPECT_LT(coded, plain / 4);
  EXPECT_EQ(bytes_of_rows(ids, others, RowCodingMode::kAuto), plain) << "a link of 10 Gbit/s";
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
