// SPDX-License-Identifier: Apache-2.0
// Rows in place or in messages, listed or by row keys, whole engines: ranks that go by other ways
// than their neighbours, against the naive program, bit for bit; and what each way reads, lends and
// sends.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "support/sanitizers.h"
#include "support/script.h"
#include "support/shared_host.h"

namespace parallax::testkit::engine_row_ways {
namespace {

// Who has the ways switched off.
enum class Off : uint8_t { kNobody, kSome, kAll };

bool is_off(Off off, uint32_t rank) { return off == Off::kAll || (off == Off::kSome && rank % 2); }

struct Job {
  std::vector<uint32_t> hosts;
  uint64_t seed = 1;
  Off off = Off::kNobody;
};

uint64_t read_bytes(EngineWorld& world, uint32_t rank) {
  const auto stats = nlohmann::json::parse(world.engine(rank).reports().stats_json());
  return stats["local"]["read_bytes"].get<uint64_t>();
}

// Rows alone, so that all that is read in place is theirs.
ScriptOptions script_of(const Job& job, SharedHost* host) {
  ScriptOptions options;
  options.world.hosts = job.hosts;
  options.world.seed = job.seed;
  options.world.lenders = host;
  options.world.inline_jobs = job.seed % 2 == 0;
  options.world.deterministic = job.seed % 3 == 1;
  options.world.adjust = [off = job.off](uint32_t rank, EngineOptions* engine) {
    engine->row_ways.in_place = !is_off(off, rank);
    engine->row_ways.push_listed = !is_off(off, rank + 1);
  };
  options.variables = {sparse_variable("table", 70, 5, 40, PARALLAX_RULE_ADAGRAD),
                       sparse_variable("few", 3, 4, 30, PARALLAX_RULE_SGD)};
  options.variables[0].initial_accumulator_value = 0.1f;
  for (parallax_variable_t& variable : options.variables) {
    variable.method = PARALLAX_METHOD_PUSH_PULL;
  }
  // Tables that go from hand to hand while ranks read them.
  if (job.seed % 4 == 0) options.variables[0].method = PARALLAX_METHOD_AUTO;
  options.pipelined = true;
  options.density_percent = 100;
  return options;
}

// Given ranks of which none, some and all have a way off, expect the naive program's values, and
// that ranks read what others let them read, and no more.
TEST(EngineRowWays, AreRightInAnyMixture) {
  const std::vector<std::vector<uint32_t>> layouts = {
      {0, 0}, {0, 0, 0}, {0, 1}, {0, 0, 1, 1}, {0, 1, 0, 2, 1}};
  uint64_t of_nobody = 0, of_some = 0;
  for (uint64_t round = 0; round < (kBrief ? 6 : 60); ++round) {
    for (const Off off : {Off::kNobody, Off::kSome, Off::kAll}) {
      const Job job = {layouts[round % layouts.size()], 70'000 + round, off};
      SharedHost host(static_cast<uint32_t>(job.hosts.size()));
      Script script(script_of(job, &host));
      ASSERT_EQ(script.play(), "") << "seed " << job.seed << ", off " << static_cast<int>(off);
      for (uint32_t rank = 0; rank < script.world().size(); ++rank) {
        const uint64_t read = read_bytes(script.world(), rank);
        if (off == Off::kNobody) of_nobody += read;
        if (off == Off::kSome) of_some += read;
        ASSERT_TRUE(off != Off::kAll || read == 0) << "seed " << job.seed << ", rank " << rank;
      }
    }
  }
  EXPECT_GT(of_nobody, of_some);
  EXPECT_GT(of_some, 0u) << "those who may";
}

// Bytes that two ranks send each other in three steps, in which each pulls 1,000 rows of two
// numbers, and pushes them.
uint64_t sent_bytes(const std::vector<uint32_t>& hosts, SharedHost* lenders,
                    const std::function<void(uint32_t, RowWays*)>& ways) {
  WorldOptions options = {.hosts = hosts, .plan_after_steps = 1000, .seed = 2};
  options.lenders = lenders;
  options.inline_jobs = true;
  options.adjust = [&](uint32_t rank, EngineOptions* engine) {
    engine->row_ways.coding = RowCodingMode::kOff;
    ways(rank, &engine->row_ways);
  };
  EngineWorld world(options);
  const parallax_variable_t table = sparse_variable("table", 4000, 2, 1000, PARALLAX_RULE_SGD);
  for (const Status& status : world.commit({&table, 1})) EXPECT_TRUE(status.ok());
  std::vector<int64_t> ids(1000);
  std::iota(ids.begin(), ids.end(), 500);
  std::vector<float> values(2000), gradients(2000, 1);
  const std::vector<parallax_slice_t> wanted = {rows_slice(0, ids, values.data())};
  const std::vector<parallax_slice_t> given = {rows_slice(0, ids, gradients.data())};
  uint64_t before = 0, bytes = 0;
  for (int step = 0; step < 4; ++step) {
    std::vector<uint64_t> numbers(2);
    const auto all = [&](auto post) {
      for (const Status& status : world.everywhere(post)) {
        EXPECT_TRUE(status.ok()) << status.message();
      }
    };
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(world.engine(rank).step_calls().begin(&numbers[rank]).ok());
    }
    all([&](uint32_t rank, Request** request) {
      return world.engine(rank).step_calls().pull(numbers[rank], wanted, request);
    });
    EXPECT_EQ(values.back(), static_cast<float>(-2 * step));
    all([&](uint32_t rank, Request** request) {
      return world.engine(rank).step_calls().push(numbers[rank], given, request);
    });
    all([&](uint32_t rank, Request** request) {
      return world.engine(rank).step_calls().end(numbers[rank], end_options(1), request);
    });
    world.settle();  // all know where tables lie
    bytes = 0;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const auto stats = nlohmann::json::parse(world.engine(rank).reports().stats_json());
      for (const char* where : {"wire", "local"}) {
        bytes += stats[where]["sent_bytes"].get<uint64_t>();
      }
    }
    if (step == 0) before = bytes;
  }
  return bytes - before;
}

// Given neighbours, expect rows to go in messages of those alone who have in_place off: what one
// gives, and what one asks for.
TEST(EngineRowWays, RowsInPlaceAreInNoMessage) {
  std::array<uint64_t, 3> bytes = {};
  for (const Off off : {Off::kNobody, Off::kSome, Off::kAll}) {
    SharedHost host(2);
    bytes[static_cast<size_t>(off)] = sent_bytes(
        {0, 0}, &host, [&](uint32_t rank, RowWays* ways) { ways->in_place = !is_off(off, rank); });
  }
  // Of three steps and two ranks: half of 1,000 rows of 8 bytes and a row key, there and back.
  const double all = 3 * 2 * 500 * (12 + 12);
  EXPECT_LT(static_cast<double>(bytes[0]), 0.05 * all);
  EXPECT_GT(static_cast<double>(bytes[2]), 0.95 * all);
  // Who has it off gives its rows, and asks for the other's; and the other asks for its, but only
  // says where those are that it gives.
  EXPECT_NEAR(static_cast<double>(bytes[1]), 0.75 * all, 0.05 * all);
}

// Given two hosts, expect a row key for each pushed row of those alone who have push_listed off.
TEST(EngineRowWays, RowsThatAreNotListedHaveRowKeys) {
  std::array<uint64_t, 3> bytes = {};
  for (const Off off : {Off::kNobody, Off::kSome, Off::kAll}) {
    bytes[static_cast<size_t>(off)] =
        sent_bytes({0, 1}, nullptr,
                   [&](uint32_t rank, RowWays* ways) { ways->push_listed = !is_off(off, rank); });
  }
  // Of three steps and two ranks half of 1,000 row keys.
  EXPECT_NEAR(static_cast<double>(bytes[2] - bytes[0]), 3 * 2 * 500 * 4, 300);
  EXPECT_NEAR(static_cast<double>(bytes[1] - bytes[0]), 3 * 500 * 4, 300);
}

}  // namespace
}  // namespace parallax::testkit::engine_row_ways
