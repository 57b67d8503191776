// SPDX-License-Identifier: Apache-2.0
// Rows that the framework holds, of small tables that are reduced as one, whole engines: against
// the naive program, which knows each table by itself; and who may not wait.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/seeded_random.h"
#include "support/fake_devices.h"
#include "support/sanitizers.h"
#include "support/script.h"
#include "support/shared_host.h"
#include "support/words.h"

namespace parallax::testkit::engine_fused_reduce {
namespace {

constexpr uint32_t kTables = 9;
static_assert(kTables >= kFusedMin);

void fuse_all(uint32_t /*rank*/, EngineOptions* options) {
  options->fuse_tables = FuseTables::kAll;
}

struct Tables {
  std::deque<std::string> names;
  std::vector<parallax_variable_t> variables;

  void add(uint32_t count, uint64_t width, parallax_rule_t rule = PARALLAX_RULE_NONE) {
    for (uint32_t i = 0; i < count; ++i) {
      names.push_back("table" + std::to_string(names.size()));
      variables.push_back(
          sparse_variable(names.back().c_str(), 30 + 7 * i, width, 5 + i % 9, rule));
    }
  }
};

// Given ranks that reduce all tables in one call, or some of them, or in several calls, as rows or
// whole, beside managed ones, expect the naive program's sums.
TEST(EngineFusedReduce, TablesAreReducedAsByThemselves) {
  const std::vector<std::vector<uint32_t>> layouts = {{0},    {0, 0},       {0, 0, 0},
                                                      {0, 1}, {0, 0, 1, 1}, {0, 1, 0, 2, 1}};
  for (uint64_t round = 0; round < (kBrief ? 12 : 120); ++round) {
    SeededRandom random(round);
    const parallax_method_t pinned[] = {PARALLAX_METHOD_MADE_DENSE, PARALLAX_METHOD_ALLGATHERV,
                                        PARALLAX_METHOD_REDUCE_ROWS};
    Tables tables;
    tables.add(kTables, 4);
    tables.add(kTables, 5);
    tables.add(kTables, 3, PARALLAX_RULE_SGD);
    const auto reduction = static_cast<uint32_t>(random.below(4));
    const bool many_calls = random.chance(30), narrow = random.chance(25),
               large = random.chance(30);
    const parallax_method_t method =
        random.chance(50) ? pinned[random.below(3)] : PARALLAX_METHOD_AUTO;
    for (size_t i = 0; i < tables.variables.size(); ++i) {
      parallax_variable_t& table = tables.variables[i];
      // Some may be given whole.
      if (i % (2 * kTables) >= kTables && large) table.rows_max = table.rows;
      if (i < 2 * kTables) table.reduction = reduction;
      if (many_calls) table.accumulate = i % 4 == 0 ? 1 : 0;
      if (narrow) table.dtype = PARALLAX_BF16;
      if (i < 2 * kTables) table.method = method;
    }
    ScriptOptions options;
    options.world.hosts = layouts[round % layouts.size()];
    options.world.seed = 91'000 + round;
    SharedHost host(static_cast<uint32_t>(options.world.hosts.size()));
    options.world.lenders = round % 4 == 3 ? nullptr : &host;
    options.world.inline_jobs = round % 2 == 0;
    options.world.compute_threads = round % 7 == 5 ? 2 : 0;
    options.world.deterministic = round % 3 == 1;
    options.world.adjust = fuse_all;
    options.variables = tables.variables;
    options.pipelined = true;
    options.density_percent = 100;
    options.whole_percent = round % 6 == 5 ? 100 : 50;
    options.tied_percent = 30;
    Script script(options);
    ASSERT_EQ(script.play(), "") << "round " << round;
    const bool counted = reduction == PARALLAX_MEAN_CONTRIBUTORS;
    EXPECT_EQ(script.world().engine(0).group().size(), counted ? 2 * kTables + 1 : 3u);
  }
}

// A rank that reduces tables call by call.
class Waiting : public testing::Test {
 protected:
  Waiting() {
    tables_.add(kTables, 2);
    tables_.variables[0].accumulate = 1;
    for (const Status& status : world_.commit(tables_.variables)) {
      EXPECT_TRUE(status.ok()) << status.message();
    }
    for (uint32_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(calls(rank).begin(&step_).ok());
  }
  StepCalls& calls(uint32_t rank) { return world_.engine(rank).step_calls(); }
  Request* reduce(uint32_t rank, uint32_t first, uint32_t count) {
    std::vector<parallax_slice_t> slices;
    for (uint32_t table = first; table < first + count; ++table) {
      slices.push_back(rows_slice(table, ids_, values_.data()));
    }
    Request* request = nullptr;
    EXPECT_TRUE(calls(rank).reduce(step_, slices, &request).ok());
    return request;
  }

  SharedHost lenders_{2};
  Tables tables_;
  EngineWorld world_{{.hosts = {0, 0}, .lenders = &lenders_, .adjust = fuse_all}};
  uint64_t step_ = 0;
  std::vector<int64_t> ids_ = {4, 7};
  std::vector<float> values_ = {1, 2, 3, 4};
};

// Given a rank that waits for a reduce before all of a set are called, expect to be told which are
// not, and nothing to be lost: it may wait once they are.
TEST_F(Waiting, IsRefusedBeforeAllAreCalled) {
  std::vector<Request*> requests;
  for (uint32_t rank = 0; rank < 2; ++rank) requests.push_back(reduce(rank, 2, kTables - 2));
  const Status refused = calls(0).check_wait(*requests[0]);
  EXPECT_EQ(refused.code(), PARALLAX_STATE);
  EXPECT_TRUE(has(refused, "'table2' goes with that of 'table0' and 1 more")) << refused.message();
  EXPECT_TRUE(has(refused, "fuse_tables")) << refused.message();
  for (uint32_t rank = 0; rank < 2; ++rank) requests.push_back(reduce(rank, 0, 1));
  const Status again = calls(0).check_wait(*requests[0]);
  EXPECT_TRUE(has(again, "'table2' goes with that of 'table1', still to be called"))
      << again.message();
  for (uint32_t rank = 0; rank < 2; ++rank) requests.push_back(reduce(rank, 1, 1));
  for (const Request* each : requests) EXPECT_TRUE(calls(0).check_wait(*each).ok());
  ASSERT_TRUE(world_.run_until_done(requests));
  for (Request* each : requests) {
    EXPECT_TRUE(each->status.ok()) << each->status.message();
    EXPECT_EQ(each->rows[0].ids, ids_);
    std::vector<float> sums(4);
    ASSERT_EQ(each->rows[0].values.size(), sizeof(float) * sums.size());
    std::memcpy(sums.data(), each->rows[0].values.data(), sizeof(float) * sums.size());
    EXPECT_EQ(sums, (std::vector<float>{2, 4, 6, 8}));
  }
}

// Given a micro-batch, expect its buffer to be waited for, and its sum once the last one is called.
TEST_F(Waiting, IsForABufferWhereMoreFollows) {
  parallax_slice_t slice = rows_slice(0, ids_, values_.data());
  slice.more = 1;
  std::vector<Request*> requests(2);
  ASSERT_TRUE(calls(0).reduce(step_, {&slice, 1}, &requests[0]).ok());
  EXPECT_TRUE(calls(0).check_wait(*requests[0]).ok());
  requests[1] = reduce(0, 1, kTables - 1);
  const Status refused = calls(0).check_wait(*requests[1]);
  EXPECT_TRUE(has(refused, "'table1' goes with that of 'table0', still to be called"))
      << refused.message();
  requests.push_back(reduce(0, 0, 1));
  for (const Request* each : requests) EXPECT_TRUE(calls(0).check_wait(*each).ok());
}

// Given a rank that has ended its step without some of a set, expect it to wait.
TEST_F(Waiting, GoesOnOnceTheStepHasEnded) {
  std::vector<Request*> requests;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    requests.push_back(reduce(rank, 2 * rank, 3));
    EXPECT_FALSE(calls(rank).check_wait(*requests.back()).ok());
    Request* ended = nullptr;
    EXPECT_TRUE(calls(rank).end(step_, end_options(0), &ended).ok());
    EXPECT_TRUE(calls(rank).check_wait(*requests.back()).ok());
    requests.push_back(ended);
  }
  ASSERT_TRUE(world_.run_until_done(requests));
  const std::vector<float> mine = {1, 2, 3, 4}, both = {2, 4, 6, 8};
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (uint32_t at = 0; at < 3; ++at) {
      const RowsResult& rows = requests[2 * rank]->rows[at];
      EXPECT_EQ(rows.ids, ids_);
      // Of the third table of one, and the first of the other.
      const std::vector<float>& want = 2 * rank + at == 2 ? both : mine;
      ASSERT_EQ(rows.values.size(), sizeof(float) * want.size());
      EXPECT_EQ(std::memcmp(rows.values.data(), want.data(), rows.values.size()), 0);
    }
  }
}

// Given tables that were called, and are on their way from a device, expect them to be waited for,
// and those that were not called to be named.
TEST(EngineFusedReduce, WhatIsOnItsWayIsCalled) {
  FakeShare share(0);
  EngineWorld world({.hosts = {0}, .adjust = [&share](uint32_t rank, EngineOptions* options) {
                       fuse_all(rank, options);
                       options->devices = share.opener();
                     }});
  Tables tables;
  tables.add(kTables, 2);
  for (const Status& status : world.commit(tables.variables)) ASSERT_TRUE(status.ok());
  StepCalls& calls = world.engine(0).step_calls();
  uint64_t step = 0;
  ASSERT_TRUE(calls.begin(&step).ok());
  const std::vector<int64_t> ids = {4, 7};
  std::vector<float> here = {1, 2, 3, 4};
  FakeStream stream = {.held = true};
  std::vector<parallax_slice_t> slices;
  for (uint32_t table = 0; table < kTables; ++table) {
    slices.push_back(rows_slice(table, ids, here.data()));
    if (table >= 2) continue;
    slices.back().ids = share.devices.make(ids);
    slices.back().values = share.devices.make(here);
    slices.back().memory = PARALLAX_MEMORY_CUDA;
    slices.back().stream = &stream;
  }
  const auto all = std::span<const parallax_slice_t>(slices);
  std::vector<Request*> requests(2);
  ASSERT_TRUE(calls.reduce(step, all.first(2), &requests[0]).ok());
  const Status refused = calls.check_wait(*requests[0]);
  EXPECT_TRUE(has(refused, "'table0' goes with that of 'table2' and 6 more")) << refused.message();
  ASSERT_TRUE(calls.reduce(step, all.subspan(2), &requests[1]).ok());
  for (const Request* each : requests) EXPECT_TRUE(calls.check_wait(*each).ok());
  world.settle();
  for (const Request* each : requests) EXPECT_FALSE(each->done());
  stream.held = false;
  ASSERT_TRUE(world.run_until_done(requests));
  for (const Request* each : requests) {
    EXPECT_TRUE(each->status.ok()) << each->status.message();
    ASSERT_EQ(each->rows[1].ids, ids);
    EXPECT_EQ(std::memcmp(each->rows[1].values.data(), here.data(), sizeof(float) * here.size()),
              0);
  }
}

}  // namespace
}  // namespace parallax::testkit::engine_fused_reduce
