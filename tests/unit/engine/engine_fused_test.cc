// SPDX-License-Identifier: Apache-2.0
// Fused tables, whole engines: against the naive program, which knows each table by itself, bit for
// bit; and what callers are told of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/seeded_random.h"
#include "support/sanitizers.h"
#include "support/script.h"
#include "support/shared_host.h"
#include "support/words.h"

namespace parallax::testkit::engine_fused {
namespace {

constexpr uint32_t kTables = 9;
static_assert(kTables >= kFusedMin);

std::string table_name(uint32_t number) { return "table" + std::to_string(number); }

void expect_says(const Status& status, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_TRUE(has(status, word)) << status.message();
}

// So many tables of a kind, each of other rows and initial values.
struct Named {
  std::deque<std::string> names;
  std::vector<parallax_variable_t> variables;

  void add(uint32_t count, parallax_rule_t rule, uint64_t width) {
    for (uint32_t i = 0; i < count; ++i) {
      names.push_back(table_name(static_cast<uint32_t>(names.size())));
      parallax_variable_t table =
          sparse_variable(names.back().c_str(), 30 + 7 * i, width, 5 + i % 9, rule);
      table.init = PARALLAX_INIT_UNIFORM;
      table.init_low = -1;
      table.init_high = 1;
      table.init_seed = names.size();
      if (rule == PARALLAX_RULE_ADAGRAD) table.initial_accumulator_value = 0.1f;
      variables.push_back(table);
    }
  }
};

struct Job {
  std::vector<uint32_t> hosts;
  uint64_t seed = 1;
  uint32_t whole_percent = 50;
};

ScriptOptions script_of(const Job& job, const Named& named, SharedHost* host) {
  ScriptOptions options;
  options.world.hosts = job.hosts;
  options.world.seed = job.seed;
  options.world.lenders = job.seed % 4 == 3 ? nullptr : host;
  options.world.inline_jobs = job.seed % 2 == 0;
  options.world.compute_threads = job.seed % 7 == 5 ? 2 : 0;
  options.world.deterministic = job.seed % 3 == 1;
  options.variables = named.variables;
  options.pipelined = true;
  options.density_percent = 100;
  options.whole_percent = job.whole_percent;
  options.tied_percent = 30;
  return options;
}

// Given ranks that push all tables in one call, or some of them, or in several calls, some of them
// in several parts, and pull what they like, expect the naive program's values.
TEST(EngineFused, TablesAreTrainedAsByThemselves) {
  const std::vector<std::vector<uint32_t>> layouts = {{0},    {0, 0},       {0, 0, 0},
                                                      {0, 1}, {0, 0, 1, 1}, {0, 1, 0, 2, 1}};
  for (uint64_t round = 0; round < (kBrief ? 12 : 120); ++round) {
    SeededRandom random(round);
    const parallax_rule_t rules[] = {PARALLAX_RULE_SGD, PARALLAX_RULE_ADAGRAD, PARALLAX_RULE_ADAM};
    const parallax_method_t pinned[] = {PARALLAX_METHOD_MADE_DENSE, PARALLAX_METHOD_ALLGATHERV,
                                        PARALLAX_METHOD_REDUCE_ROWS, PARALLAX_METHOD_PUSH_PULL};
    Named named;
    named.add(kTables, PARALLAX_RULE_SGD, 4);
    named.add(kTables, rules[random.below(3)], 5);
    named.add(kTables, rules[random.below(3)], 3);
    const auto reduction = static_cast<uint32_t>(random.below(4));
    const bool many_calls = random.chance(30), narrow = random.chance(25),
               large = random.chance(30);
    const bool by_chance = random.chance(20), mirrored = random.chance(15);
    const parallax_method_t method =
        random.chance(30) ? pinned[random.below(4)] : PARALLAX_METHOD_AUTO;
    for (size_t i = 0; i < named.variables.size(); ++i) {
      parallax_variable_t& table = named.variables[i];
      // Some may be given whole.
      if (i >= 2 * kTables && large) table.rows_max = 70;
      if (i >= 2 * kTables) table.rows = large ? 62 + i % 8 : 1 + table.rows_max % 4;
      table.reduction = reduction;
      if (many_calls) table.accumulate = i % 4 == 0 ? 1 : 0;
      if (narrow) table.dtype = PARALLAX_BF16;
      if (by_chance) table.storage_dtype = PARALLAX_AS(PARALLAX_BF16);
      if (by_chance) table.rounding = PARALLAX_ROUNDING_STOCHASTIC;
      table.method = method;
      if (mirrored && method == PARALLAX_METHOD_AUTO) table.placement = PARALLAX_PLACEMENT_MIRRORED;
    }
    const Job job = {layouts[round % layouts.size()], 90'000 + round, round % 6 == 5 ? 100u : 50u};
    SharedHost host(static_cast<uint32_t>(job.hosts.size()));
    Script script(script_of(job, named, &host));
    ASSERT_EQ(script.play(), "") << "seed " << job.seed;
    EXPECT_EQ(script.world().engine(0).group().size(), 3u) << "seed " << job.seed;
  }
}

// A step of all ranks that pull, and then push, what is said; then all values of all tables.
struct Ranks {
  explicit Ranks(std::vector<uint32_t> hosts, uint32_t accumulate = 0, bool inline_jobs = true,
                 uint32_t reduction = PARALLAX_SUM)
      : lenders(static_cast<uint32_t>(hosts.size())),
        world({.hosts = std::move(hosts),
               .late_jobs = !inline_jobs,
               .inline_jobs = inline_jobs,
               .lenders = &lenders}) {
    named.add(kTables, PARALLAX_RULE_SGD, 2);
    for (parallax_variable_t& table : named.variables) {
      table.accumulate = accumulate;
      table.reduction = reduction;
    }
    for (const Status& status : world.commit(named.variables)) {
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
  template <typename Post>
  void all(Post post) {
    for (const Status& status : world.everywhere(post))
      EXPECT_TRUE(status.ok()) << status.message();
  }
  StepCalls& calls(uint32_t rank) { return world.engine(rank).step_calls(); }
  void begin() {
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_TRUE(calls(rank).begin(&step).ok());
    }
  }
  void end(uint32_t found_inf = 0) {
    parallax_step_end_options_t options = end_options(1);
    options.found_inf = found_inf;
    all([&](uint32_t rank, Request** request) { return calls(rank).end(step, options, request); });
  }
  uint64_t updates(uint32_t rank, uint32_t table) {
    uint64_t count = 0;
    parallax_rows_t call = rows_call(table, 5, 1, nullptr);
    call.updates = &count;
    Request* request = nullptr;
    EXPECT_TRUE(world.engine(rank).row_calls().post(call, false, &request).ok());
    EXPECT_TRUE(world.run_until_done({&request, 1}));
    EXPECT_TRUE(world.engine(rank).release(request).ok());
    return count;
  }
  std::vector<float> read(uint32_t table, uint64_t rows) {
    std::vector<float> values(2 * rows);
    const parallax_rows_t call = rows_call(table, 0, rows, values.data());
    Request* request = nullptr;
    EXPECT_TRUE(world.engine(0).row_calls().post(call, false, &request).ok());
    EXPECT_TRUE(world.run_until_done({&request, 1}));
    EXPECT_TRUE(request->status.ok());
    EXPECT_TRUE(world.engine(0).release(request).ok());
    return values;
  }
  std::vector<float> pull(uint64_t of_step, const std::vector<parallax_slice_t>& slices) {
    all([&](uint32_t rank, Request** request) {
      return calls(rank).pull(of_step, slices, request);
    });
    return {};
  }

  SharedHost lenders;
  Named named;
  EngineWorld world;
  uint64_t step = 0;
};

// Given a table that is named twice in a call, expect what it would be of one slice; and no other
// table to be touched.
TEST(EngineFused, ATableMayComeTwiceInACall) {
  for (const uint32_t way : {0u, 1u, 2u, 3u}) {
    // A row counts its ranks once, however many of their slices have it.
    const bool means = way % 2 == 1;
    Ranks ranks({0, way / 2}, 0, true, means ? PARALLAX_MEAN_ROW : PARALLAX_SUM);
    const float ranks_of_row = means ? 2 : 1;
    const std::vector<float> before = ranks.read(3, 51);
    const std::vector<int64_t> ids = {4, -1, 50}, others = {50, 0};
    std::vector<float> first(6), second(4), third(6, 1), fourth(4, 2);
    ranks.begin();
    ranks.pull(ranks.step,
               {rows_slice(3, ids, first.data()), rows_slice(3, others, second.data())});
    EXPECT_EQ(std::vector<float>(first.begin() + 4, first.end()),
              std::vector<float>(second.begin(), second.begin() + 2));
    EXPECT_EQ(second[2], before[0]);
    EXPECT_EQ(first[2], 0) << "padding";
    EXPECT_EQ(ranks.world.engine(0).group().pulls().pulled_ids(0)->item_count(), 3u);
    const std::vector<int64_t> of_another = {1};
    std::vector<float> fifth(2, 8);
    ranks.all([&](uint32_t rank, Request** request) {
      const std::vector<parallax_slice_t> given = {rows_slice(3, ids, third.data()),
                                                   rows_slice(5, of_another, fifth.data()),
                                                   rows_slice(3, others, fourth.data())};
      return ranks.calls(rank).push(ranks.step, given, request);
    });
    ranks.end();
    const std::vector<float> after = ranks.read(3, 51);
    EXPECT_EQ(after[8], before[8] - 2 / ranks_of_row);
    EXPECT_EQ(after[100], before[100] - 6 / ranks_of_row) << "of both ranks, and both slices";
    EXPECT_EQ(after[0], before[0] - 4 / ranks_of_row);
    EXPECT_EQ(after[2], before[2]);
  }
}

// Given what is wrong with a table's slice, expect the sentence to name that table and its rows.
TEST(EngineFused, RefusalsNameTheTable) {
  Ranks ranks({0, 0});
  ranks.begin();
  const std::vector<int64_t> beyond = {44}, within = {43};
  std::vector<float> values(2, 1);
  Request* request = nullptr;
  const auto push = [&](uint32_t table, const std::vector<int64_t>& ids) {
    const std::vector<parallax_slice_t> given = {rows_slice(table, ids, values.data())};
    return ranks.calls(0).push(ranks.step, given, &request);
  };
  expect_says(push(2, beyond), {"table2", "ids[0] is 44", "rows 0..43"});
  ASSERT_TRUE(push(2, within).ok());
  const Status again = push(2, within);
  expect_says(again, {"'table2'", "was given in step 1 already"});
  EXPECT_EQ(again.facts().variable, 2u);
  ASSERT_TRUE(push(3, within).ok()) << "another one was not";
  const parallax_rows_t rows = rows_call(2, 40, 5, values.data());
  expect_says(ranks.world.engine(0).row_calls().post(rows, false, &request),
              {"table2", "it has 44"});
}

// Given more rows than a table may have, in slices of a call or of several, expect it to be
// refused, and nothing of the call to be added; and as many to be taken.
TEST(EngineFused, ATableHasNoMoreRowsThanItMay) {
  for (const uint32_t way : {0u, 1u, 2u, 3u}) {
    const uint32_t accumulate = way % 2;
    Ranks ranks({0, 0}, accumulate, way < 2);
    const std::vector<float> before = ranks.read(3, 51);
    const std::vector<int64_t> some = {1, 2, 3, 4, 5}, same = {3, 4, 5, 6, 7},
                               more = {6, 7, 8, 9, 10};
    std::vector<float> ones(10, 1);
    ranks.begin();
    const auto push = [&](uint32_t rank, const std::vector<const std::vector<int64_t>*>& of_slices,
                          bool follows, Request** request) {
      std::vector<parallax_slice_t> given;
      for (const auto* ids : of_slices) {
        given.push_back(rows_slice(3, *ids, ones.data()));
        given.back().more = follows ? 1 : 0;
      }
      return ranks.calls(rank).push(ranks.step, given, request);
    };
    Request* request = nullptr;
    const std::vector<std::string> words = {"'table3'", "more than rows_max = 8 distinct rows"};
    const Status refused = push(0, {&some, &more}, false, &request);
    EXPECT_EQ(refused.code(), PARALLAX_LIMIT);
    expect_says(refused, words);
    if (accumulate != 0) {
      ranks.all([&](uint32_t rank, Request** done) { return push(rank, {&some}, true, done); });
      expect_says(push(1, {&more}, false, &request), words);
      ranks.all([&](uint32_t rank, Request** done) { return push(rank, {&same}, false, done); });
    } else {
      ranks.all([&](uint32_t rank, Request** done) {
        return push(rank, {&some, &same}, false, done);
      });
    }
    ranks.end();
    const std::vector<float> after = ranks.read(3, 51);
    EXPECT_EQ(after[2], before[2] - 2);
    EXPECT_EQ(after[10], before[10] - 4);
    EXPECT_EQ(after[14], before[14] - 2);
    EXPECT_EQ(after[16], before[16]) << "of the calls that were refused";
  }
}

// Given every table with as many rows as it may have, the last one twice in a call, expect room for
// them, in one call and in two.
TEST(EngineFused, RowsThatComeTwiceTakeRoomOnce) {
  for (const bool in_two_calls : {false, true}) {
    Ranks ranks({0, 0});
    std::vector<std::vector<int64_t>> ids(kTables);
    std::vector<float> ones(64, 1);
    for (uint32_t table = 0; table < kTables; ++table) {
      for (uint64_t id = 0; id < ranks.named.variables[table].rows_max; ++id) {
        ids[table].push_back(static_cast<int64_t>(2 * id));
      }
    }
    const uint32_t last = kTables - 1;
    const std::vector<float> before = ranks.read(last, 86);
    ranks.begin();
    std::vector<std::vector<parallax_slice_t>> calls(1);
    for (uint32_t table = 0; table < kTables; ++table) {
      if (table == last && in_two_calls) calls.emplace_back();
      calls.back().push_back(rows_slice(table, ids[table], ones.data()));
    }
    calls.back().push_back(rows_slice(last, ids[last], ones.data()));
    for (const auto& given : calls) {
      ranks.all([&](uint32_t rank, Request** request) {
        return ranks.calls(rank).push(ranks.step, given, request);
      });
    }
    ranks.end();
    const std::vector<float> after = ranks.read(last, 86);
    EXPECT_EQ(after[0], before[0] - 4);
    EXPECT_EQ(after[2], before[2]);
    EXPECT_EQ(after[4 * (ids[last].size() - 1)], before[4 * (ids[last].size() - 1)] - 4);
  }
}

// Given a number that is not finite, where that is refused, expect the caller's row id.
TEST(EngineFused, WhatIsNotFiniteIsNamedByItsRow) {
  Named named;
  named.add(kTables, PARALLAX_RULE_SGD, 2);
  for (parallax_variable_t& table : named.variables) table.refuse_nonfinite = 1;
  EngineWorld world({.hosts = {0}});
  ASSERT_TRUE(world.commit(named.variables)[0].ok());
  uint64_t step = 0;
  ASSERT_TRUE(world.engine(0).step_calls().begin(&step).ok());
  const std::vector<int64_t> ids = {7, 9};
  std::vector<float> values = {1, 2, 3, INFINITY};
  const std::vector<parallax_slice_t> given = {rows_slice(5, ids, values.data())};
  Request* request = nullptr;
  const Status refused = world.engine(0).step_calls().push(step, given, &request);
  expect_says(refused, {"'table5'", "row 1 of the slice (id 9), column 1"});
  EXPECT_EQ(refused.facts().row, 9);
}

// Given parts of a table, and others behind its last, expect the one to be open meanwhile and the
// sum of all.
TEST(EngineFused, PartsOfATableAreAddedUp) {
  Ranks ranks({0, 0}, 1);
  const std::vector<float> before = ranks.read(1, 37);
  const std::vector<int64_t> ids = {36, 5};
  std::vector<float> values(4, 1);
  ranks.begin();
  for (const uint32_t more : {1u, 1u, 0u}) {
    ranks.all([&](uint32_t rank, Request** request) {
      std::vector<parallax_slice_t> given = {rows_slice(1, ids, values.data())};
      given[0].more = more;
      return ranks.calls(rank).push(ranks.step, given, request);
    });
  }
  Request* request = nullptr;
  expect_says(
      ranks.calls(0).push(
          ranks.step, std::vector<parallax_slice_t>{rows_slice(1, ids, values.data())}, &request),
      {"'table1'", "already"});
  ranks.end();
  const std::vector<float> after = ranks.read(1, 37);
  EXPECT_EQ(after[72], before[72] - 6);
  EXPECT_EQ(after[10], before[10] - 6);
}

// Given rows that are written and an evaluation, expect those of the table.
TEST(EngineFused, RowsAreWrittenAndEvaluatedByTable) {
  Ranks ranks({0, 1});
  std::vector<float> values = {7, 8, 9, 10};
  const parallax_rows_t rows = rows_call(4, 10, 2, values.data());
  Request* request = nullptr;
  ASSERT_TRUE(ranks.world.engine(1).row_calls().post(rows, true, &request).ok());
  ASSERT_TRUE(ranks.world.run_until_done({&request, 1}));
  ASSERT_TRUE(request->status.ok());
  const std::vector<float> read = ranks.read(4, 58);
  EXPECT_EQ(read[20], 7);
  EXPECT_EQ(read[23], 10);
  EXPECT_LT(read[24], 1);
  const std::vector<int64_t> ids = {11, 10};
  std::vector<float> evaluated(4);
  const std::vector<parallax_slice_t> wanted = {rows_slice(4, ids, evaluated.data())};
  ASSERT_TRUE(ranks.calls(0).pull(0, wanted, &request).ok());
  ASSERT_TRUE(ranks.world.run_until_done({&request, 1}));
  EXPECT_EQ(evaluated, (std::vector<float>{9, 10, 7, 8}));
}

// Given tables that all ranks leave out, or that one of two gives without rows, of a first commit
// and of a second, and a step that is discarded, expect each to count the committed steps in which
// it was given, and what is written to be of that one alone.
TEST(EngineFused, EachCountsItsOwnUpdates) {
  for (const std::vector<uint32_t>& hosts :
       std::vector<std::vector<uint32_t>>{{0}, {0, 0}, {0, 1}, {0, 0, 1, 2, 2}}) {
    Ranks ranks(hosts);
    Named more;
    more.names.resize(kTables);  // theirs are taken
    more.add(kTables, PARALLAX_RULE_ADAM, 2);
    for (const Status& status : ranks.world.commit(more.variables)) {
      ASSERT_TRUE(status.ok()) << status.message();
    }
    ASSERT_EQ(ranks.world.engine(0).group().size(), 2u);
    const std::vector<int64_t> ids = {3, 9};
    std::vector<float> values(4, 1);
    for (uint32_t count = kTables; count >= kTables - 2; --count) {
      ranks.begin();
      ranks.all([&](uint32_t rank, Request** request) {
        std::vector<parallax_slice_t> given;
        for (uint32_t i = 0; i < kTables; ++i) {
          given.push_back(rows_slice(kTables + i, ids, values.data()));
        }
        if (count < kTables) given.erase(given.begin() + 3);
        for (uint32_t i = 0; i < count; ++i) given.push_back(rows_slice(i, ids, values.data()));
        // Rank 0 alone gives the last, and no rows of it.
        if (rank > 0) given.pop_back();
        if (rank == 0) given.back().row_count = 0;
        return ranks.calls(rank).push(ranks.step, given, request);
      });
      ranks.end();
    }
    ranks.begin();
    ranks.all([&](uint32_t rank, Request** request) {
      const std::vector<parallax_slice_t> given = {rows_slice(1, ids, values.data())};
      return ranks.calls(rank).push(ranks.step, given, request);
    });
    ranks.end(1);
    uint64_t written = 40;
    parallax_rows_t call = rows_call(4, 2, 1, values.data());
    call.updates = &written;
    Request* request = nullptr;
    const auto last = static_cast<uint32_t>(hosts.size() - 1);
    ASSERT_TRUE(ranks.world.engine(last).row_calls().post(call, true, &request).ok());
    ASSERT_TRUE(ranks.world.run_until_done({&request, 1}));
    ASSERT_TRUE(request->status.ok()) << request->status.message();
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      for (uint32_t table = 0; table < 2 * kTables; ++table) {
        uint64_t want = table < kTables ? std::min(3u, kTables - table) : 3;
        if (table == kTables + 3) want = 1;
        if (table == 4) want = 40;
        EXPECT_EQ(ranks.updates(rank, table), want) << "table " << table << ", rank " << rank;
      }
    }
  }
}

// Given the reports, expect each table under its own name, and with whom it goes.
TEST(EngineFused, ReportsSayWithWhomATableGoes) {
  Ranks ranks({0, 1});
  for (const bool plan : {true, false}) {
    const Reports reports = ranks.world.engine(0).reports();
    const auto report = nlohmann::json::parse(plan ? reports.plan_json() : reports.stats_json());
    ASSERT_EQ(report["variables"].size(), kTables);
    for (uint32_t table = 0; table < kTables; ++table) {
      const auto& variable = report["variables"][table];
      EXPECT_EQ(variable["name"], table_name(table));
      EXPECT_EQ(variable["fused"]["first"], "table0");
      EXPECT_EQ(variable["fused"]["tables"], kTables);
      if (plan) {
        EXPECT_EQ(variable["rows"], 30 + 7 * table);
        EXPECT_EQ(variable["alternatives"].empty(), table > 0);
      } else {
        EXPECT_EQ(variable["memory_reserved_bytes"] > 0, table == 0);
      }
    }
  }
}

// Given a rank that has the setting off, expect the commit to name it.
TEST(EngineFused, TheSettingIsTheSameOnEveryRank) {
  Named named;
  named.add(kTables, PARALLAX_RULE_SGD, 2);
  EngineWorld world({.hosts = {0, 0}, .adjust = [](uint32_t rank, EngineOptions* options) {
                       options->fuse_tables = rank == 0 ? FuseTables::kManaged : FuseTables::kNone;
                     }});
  for (const Status& status : world.commit(named.variables)) {
    EXPECT_EQ(status.code(), PARALLAX_MISMATCH);
    expect_says(status, {"table0", "field fuse_tables"});
  }
}

}  // namespace
}  // namespace parallax::testkit::engine_fused
