// SPDX-License-Identifier: Apache-2.0
// What `deterministic` promises, by whole jobs of 1 to 16 ranks: bit for bit the naive program's
// values, whatever the method, wherever the rows lie, in whichever hosts, and whether the next
// pull's rows are answered early.
#include <gtest/gtest.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "server/pull_owner.h"
#include "support/sanitizers.h"
#include "support/script.h"
#include "support/shared_host.h"
#include "variable/pins.h"

namespace parallax::testkit {
namespace {

constexpr uint32_t kRanksMax = 16;

// One way of a job's rows.
struct Way {
  bool in_place = false;  // ranks of a host read each other's memory; else all goes in messages
  bool early = false;
};
constexpr Way kWays[] = {{false, false}, {true, false}, {false, true}, {true, true}};

constexpr const char* kIdSetNames[] = {"drawn", "few", "disjoint", "identical", "some_empty"};

// What jobs have shown that they went by.
struct Seen {
  uint64_t read_in_place_bytes = 0;
  uint64_t early_rows = 0;
  std::set<std::string> plans;
};

// Tables that owners update, and rows that the framework holds.
std::vector<parallax_variable_t> tables(uint32_t method) {
  std::vector<parallax_variable_t> variables = {
      sparse_variable("table", 70, 5, 40, PARALLAX_RULE_ADAGRAD),
      sparse_variable("means", 40, 3, 30, PARALLAX_RULE_SGD), sparse_variable("held", 50, 4, 40)};
  variables[0].initial_accumulator_value = 0.1f;
  variables[1].reduction = PARALLAX_MEAN_CONTRIBUTORS;
  for (parallax_variable_t& variable : variables) {
    variable.method = method;
    Variable made;
    if (!make_variable(variable, &made).ok()) variable.method = PARALLAX_METHOD_AUTO;
  }
  return variables;
}

// Of the same job by another way: the same seed.
ScriptOptions job_of(uint32_t ranks, uint32_t method, IdSets id_sets) {
  const uint64_t seed = 50'000 + 100 * ranks + 10 * method + static_cast<uint64_t>(id_sets);
  SeededRandom random(seed);
  ScriptOptions options;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint32_t host = static_cast<uint32_t>(random.below(4));
    if (rank == 0) options.world.hosts[0] = host;
    if (rank > 0) options.world.hosts.push_back(host);
  }
  options.world.seed = seed;
  options.world.deterministic = true;
  options.world.inline_jobs = random.chance(50);
  options.world.slow_percent = random.chance(30) ? 15 : 0;
  options.variables = tables(method);
  options.exact_numbers = false;
  options.pipelined = true;
  options.steps = 4;
  options.density_percent = 100;
  options.id_sets = id_sets;
  return options;
}

void play(ScriptOptions options, const Way& way, Seen* seen) {
  SharedHost host(static_cast<uint32_t>(options.world.hosts.size()));
  if (way.in_place) options.world.lenders = &host;
  options.world.adjust = [&way](uint32_t, EngineOptions* engine) {
    engine->row_ways.early_bytes_min = way.early ? 1 : kNeverEarly;
  };
  Script script(options);
  EXPECT_EQ(script.play(), "") << "seed " << options.world.seed;
  seen->plans.insert(script.plans_seen().begin(), script.plans_seen().end());
  for (uint32_t rank = 0; rank < script.world().size(); ++rank) {
    const auto stats = nlohmann::json::parse(script.world().engine(rank).reports().stats_json());
    seen->read_in_place_bytes += stats["local"]["read_bytes"].get<uint64_t>();
    seen->early_rows += stats["early_rows"].get<uint64_t>();
  }
}

class EngineBits : public testing::TestWithParam<IdSets> {};

TEST_P(EngineBits, AreTheNaivePrograms) {
  Seen of_ways[std::size(kWays)];
  for (uint32_t ranks = 1; ranks <= kRanksMax; ++ranks) {
    for (uint32_t method = PARALLAX_METHOD_ALLREDUCE; method <= PARALLAX_METHOD_PUSH_PULL;
         ++method) {
      for (size_t way = 0; way < std::size(kWays); ++way) {
        if (kBrief && (ranks + method) % std::size(kWays) != way) continue;
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + kMethodPins[method] +
                     (kWays[way].in_place ? ", in place" : "") +
                     (kWays[way].early ? ", early" : ""));
        play(job_of(ranks, method, GetParam()), kWays[way], &of_ways[way]);
        if (HasFailure()) return;
      }
    }
  }
  // Without these the test would show less than it says.
  for (size_t way = 0; way < std::size(kWays); ++way) {
    EXPECT_EQ(of_ways[way].read_in_place_bytes > 0, kWays[way].in_place) << way;
    EXPECT_EQ(of_ways[way].early_rows > 0, kWays[way].early) << way;
    for (const char* plan : {"sharded push_pull", "framework allgatherv", "framework reduce_rows",
                             "framework made_dense"}) {
      EXPECT_EQ(of_ways[way].plans.count(plan), 1u) << plan << " never held";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ids, EngineBits,
                         testing::Values(IdSets::kDrawn, IdSets::kFew, IdSets::kDisjoint,
                                         IdSets::kIdentical, IdSets::kSomeEmpty),
                         [](const auto& info) {
                           return kIdSetNames[static_cast<size_t>(info.param)];
                         });

}  // namespace
}  // namespace parallax::testkit
