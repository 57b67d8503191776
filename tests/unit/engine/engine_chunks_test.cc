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

parallax_variable_t made_dense(parallax_variable_t variable, uint32_t dtype) {
  variable.method = PARALLAX_METHOD_MADE_DENSE;
  variable.dtype = dtype;
  return variable;
}

// In some chunks, in many, by each method; with counts, and of integers; and beside one that has
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
  all.push_back(made_dense(capped("dense", 300, 9, 80, 40'000), PARALLAX_F32));
  all.push_back(made_dense(capped("dense_f16", 400, 3, 60, 30'000), PARALLAX_F16));
  all.push_back(made_dense(capped("dense_bf16", 200, 6, 50, 30'000), PARALLAX_BF16));
  all.back().reduction = PARALLAX_MEAN_ROW;
  all.push_back(made_dense(capped("dense_f64", 250, 4, 90, 40'000), PARALLAX_F64));
  all.back().reduction = PARALLAX_MEAN_CONTRIBUTORS;
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

Json plan_of(EngineWorld& world, const std::string& variable) {
  const auto plan = Json::parse(world.engine(0).reports().plan_json());
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
    options.world.plan_after_steps = round % 2 == 0 ? 2 : 8;
    Script script(options);
    EXPECT_EQ(script.play(), "") << "seed " << seed << ", layout " << round;
    const uint64_t chunks = plan_of(script.world(), "many")["chunks"].get<uint64_t>();
    EXPECT_TRUE(chunks > 1 || options.world.hosts.size() == 1) << "layout " << round;
    EXPECT_GT(plan_of(script.world(), "dense")["chunks"].get<uint64_t>(), 1u) << round;
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

// For ThreadSanitizer: slices are coalesced on other threads.
TEST(EngineChunksThreads, SlicesOnOtherThreads) {
  uint64_t seed = 9800;
  for (const Hosts& hosts : {Hosts{0}, Hosts{0, 0}, Hosts{0, 0, 1, 1}, Hosts{0, 1, 1}}) {
    ScriptOptions options = options_of(hosts, ++seed);
    options.world.compute_threads = 2;
    Script script(options);
    EXPECT_EQ(script.play(), "") << "seed " << seed;
  }
}

// A slice of every rank, of as many rows as there may be.
class OneCapped {
 public:
  OneCapped(const Hosts& hosts, uint64_t bytes_max, uint32_t method = PARALLAX_METHOD_AUTO)
      : world_({.hosts = hosts, .deterministic = true}),
        ids_(kRowsMax),
        values_(world_.size(), std::vector<float>(kRowsMax * kWidth, 1)) {
    parallax_variable_t variables[] = {capped("rows", 20'000, kWidth, kRowsMax, bytes_max)};
    variables[0].method = method;
    committed = world_.commit(variables);
    for (size_t i = 0; i < ids_.size(); ++i) ids_[i] = static_cast<int64_t>(i * 7);
  }

  EngineWorld& world() { return world_; }
  void begin(uint32_t rank) { EXPECT_TRUE(world_.engine(rank).step_calls().begin(&step_).ok()); }
  // The step begins, and the rank gives its rows.
  Request* reduce(uint32_t rank) {
    begin(rank);
    Request* request = nullptr;
    parallax_slice_t slice = rows_slice(0, ids_, values_[rank].data());
    EXPECT_TRUE(world_.engine(rank).step_calls().reduce(step_, {&slice, 1}, &request).ok());
    return request;
  }
  // Of all ranks, until it is decided.
  void end() {
    std::vector<Request*> ends(world_.size());
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      EXPECT_TRUE(world_.engine(rank).step_calls().end(step_, {}, &ends[rank]).ok());
    }
    ASSERT_TRUE(world_.run_until_done(ends));
    for (const Request* each : ends) EXPECT_TRUE(each->status.ok()) << each->status.message();
  }
  uint64_t reserved_bytes() {
    const auto stats = Json::parse(world_.engine(0).reports().stats_json());
    return stats["variables"][0]["memory_reserved_bytes"].get<uint64_t>();
  }

  std::vector<Status> committed;

 private:
  static constexpr uint64_t kWidth = 16, kRowsMax = 2'000;
  EngineWorld world_;
  uint64_t step_ = 0;
  std::vector<int64_t> ids_;
  std::vector<std::vector<float>> values_;
};

constexpr uint32_t kPins[] = {PARALLAX_METHOD_AUTO, PARALLAX_METHOD_MADE_DENSE};

// Given a ceiling of a tenth of what is staged without one, expect what is reserved beside slice
// and result to be less by what is spared, and within it.
TEST(EngineChunks, MemoryStaysUnderTheCeiling) {
  for (const Hosts& hosts : layouts()) {
    if (hosts.size() == 1) continue;
    OneCapped roomy(hosts, uint64_t{1} << 40);
    const Json whole = plan_of(roomy.world(), "rows");
    EXPECT_EQ(whole["chunks"], 1);
    const auto staged = whole["exchange_bytes"].get<uint64_t>();
    OneCapped tight(hosts, staged / 10);
    ASSERT_TRUE(tight.committed[0].ok()) << tight.committed[0].message();
    const Json cut = plan_of(tight.world(), "rows");
    EXPECT_GT(cut["chunks"].get<uint64_t>(), 5u);
    EXPECT_LE(cut["exchange_bytes"].get<uint64_t>(), staged / 10);
    EXPECT_NE(cut["why"].get<std::string>().find(" rounds of "), std::string::npos) << cut["why"];
    // Of each alike, but for where chunks begin.
    OneCapped barely(hosts, staged / 5);
    const uint64_t own = 4096 * 3 * 8;
    EXPECT_LE(tight.reserved_bytes(), barely.reserved_bytes() + own);
    EXPECT_LE(tight.reserved_bytes() + staged * 4 / 5, roomy.reserved_bytes() + staged / 5 + own);
  }
}

// Given rows made dense under a ceiling of a tenth of what is staged without one, expect chunks
// that stage no more, and with half the chunks no more to be reserved than that takes.
TEST(EngineChunks, MadeDenseStaysUnderTheCeiling) {
  for (const Hosts& hosts : layouts()) {
    OneCapped roomy(hosts, uint64_t{1} << 40, PARALLAX_METHOD_MADE_DENSE);
    const Json whole = plan_of(roomy.world(), "rows");
    EXPECT_EQ(whole["method"], "made_dense");
    EXPECT_EQ(whole["chunks"], 1);
    const auto staged = whole["exchange_bytes"].get<uint64_t>();
    OneCapped tight(hosts, staged / 10, PARALLAX_METHOD_MADE_DENSE);
    ASSERT_TRUE(tight.committed[0].ok()) << tight.committed[0].message();
    const Json cut = plan_of(tight.world(), "rows");
    EXPECT_EQ(cut["method"], "made_dense");
    EXPECT_GT(cut["chunks"].get<uint64_t>(), 5u);
    EXPECT_LE(cut["exchange_bytes"].get<uint64_t>(), staged / 10);
    OneCapped barely(hosts, staged / 5, PARALLAX_METHOD_MADE_DENSE);
    const uint64_t own = 4096 * 3 * 8;
    EXPECT_LE(tight.reserved_bytes(), barely.reserved_bytes() + own);
    EXPECT_LE(barely.reserved_bytes(), tight.reserved_bytes() + staged / 5 + own);
  }
}

// Given a ceiling that no chunk keeps, expect LIMIT on every rank, and the least that it tells to
// do.
TEST(EngineChunks, TheLeastCeilingIsTold) {
  for (const Hosts& hosts : layouts()) {
    for (const uint32_t pin : kPins) {
      OneCapped refused(hosts, 100, pin);
      std::string said;
      for (const Status& each : refused.committed) {
        EXPECT_EQ(each.code(), PARALLAX_LIMIT);
        EXPECT_EQ(each.facts().field, "exchange_bytes_max");
        said = each.message();
      }
      const std::string lead =
          pin == PARALLAX_METHOD_AUTO ? "allgatherv takes " : "made_dense takes ";
      ASSERT_NE(said.find(lead), std::string::npos) << said;
      const uint64_t least = std::stoull(said.substr(said.find(lead) + lead.size()));
      EXPECT_EQ(OneCapped(hosts, least - 1, pin).committed[0].code(), PARALLAX_LIMIT);
      EXPECT_TRUE(OneCapped(hosts, least, pin).committed[0].ok());
    }
  }
}

// Given a step in which no rank gives anything of rows that go in chunks, and then one in which all
// do, and again one in which none does, expect each to end, and the rows that were given.
TEST(EngineChunks, StepsWithoutRowsEnd) {
  for (const uint32_t pin : kPins) {
    OneCapped job({0, 0, 1, 2}, 200'000, pin);
    ASSERT_TRUE(job.committed[0].ok()) << job.committed[0].message();
    EXPECT_GT(plan_of(job.world(), "rows")["chunks"].get<uint64_t>(), 1u);
    EngineWorld& world = job.world();
    for (const bool given : {false, true, false}) {
      std::vector<Request*> reduces;
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        if (given) {
          reduces.push_back(job.reduce(rank));
        } else {
          job.begin(rank);
        }
      }
      ASSERT_TRUE(world.run_until_done(reduces));
      for (const Request* each : reduces) {
        EXPECT_TRUE(each->status.ok()) << each->status.message();
        EXPECT_EQ(each->rows[0].ids.size(), 2'000u);
      }
      job.end();
    }
  }
}

// Given a rank that is gone in the midst of a step's rounds, expect the others to say so.
void lose_one_in_the_midst(uint32_t pin) {
  for (const Hosts& hosts : {Hosts{0, 1, 2, 3}, Hosts{0, 0, 1, 1}}) {
    for (uint32_t passes = 0; passes < 60; passes += 6) {
      OneCapped job(hosts, 60'000, pin);
      ASSERT_TRUE(job.committed[0].ok()) << job.committed[0].message();
      EngineWorld& world = job.world();
      std::vector<Request*> reduces;
      for (uint32_t rank = 0; rank < world.size(); ++rank) reduces.push_back(job.reduce(rank));
      world.shuffle(passes);
      world.kill(2);
      reduces.erase(reduces.begin() + 2);
      ASSERT_TRUE(world.run_until_done(reduces));
      for (const Request* each : reduces) {
        EXPECT_TRUE(each->status.ok() || each->status.code() == PARALLAX_PEER_LOST)
            << each->status.message();
      }
      EXPECT_TRUE(passes > 0 || reduces[0]->status.code() == PARALLAX_PEER_LOST);
    }
  }
}

TEST(EngineChunks, ALossEndsTheRounds) { lose_one_in_the_midst(PARALLAX_METHOD_AUTO); }
TEST(EngineChunks, ALossEndsThoseOfElements) { lose_one_in_the_midst(PARALLAX_METHOD_MADE_DENSE); }

}  // namespace
}  // namespace parallax::testkit::engine_chunks
