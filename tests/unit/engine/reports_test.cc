// SPDX-License-Identifier: Apache-2.0
// What a rank tells of itself, from parts without an engine. The sentences of whole jobs that wait
// are asked of engines, in engine_pull_test.cc and others.
#include "engine/reports.h"

#include <gtest/gtest.h>

#include <numeric>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/engine_world.h"
#include "unit/engine/calls_world.h"
#include "unit/server/layouts.h"

namespace parallax::testkit {
namespace {

// Told by rank 0, with rank 1 on its host and rank 2 on another.
class ReportsTest : public testing::Test {
 protected:
  class StoppedClock final : public Clock {
   public:
    int64_t now_ns() const override { return 1; }
  };

  ReportsTest() {
    traffic_.reserve(rank_.group.size());
    for (uint32_t rank = 0; rank < world_.size(); ++rank) world_[rank].pipeline.begin();
  }

  Reports reports() {
    return Reports({.plan_mode = PARALLAX_PLAN_AUTO,
                    .transport = "carrier",
                    .registry = world_.registry(),
                    .group = rank_.group,
                    .plan_control = rank_.plan_control,
                    .pipeline = rank_.pipeline,
                    .trees = rank_.trees,
                    .broadcast = broadcast_,
                    .goodbye = goodbye_,
                    .row_calls = rank_.rows,
                    .device_calls = device_calls_,
                    .splits = splits_,
                    .collectives = collectives_,
                    .requests = rank_.requests,
                    .outbox = world_.network().outbox(0),
                    .traffic = traffic_,
                    .probe = probe_});
  }
  Request* take(RequestKind kind, uint64_t step = 0) {
    Request* request = nullptr;
    EXPECT_TRUE(rank_.requests.take(kind, step, &request).ok());
    return request;
  }

  const HostMap hosts_ = host_map({0, 0, 1});
  CallsWorld world_{{0, 0, 1}};
  CallsWorld::Rank& rank_ = world_[0];
  Broadcast broadcast_{hosts_, 0, world_.network().outbox(0)};
  Goodbye goodbye_{0, rank_.trees};
  SplitCalls splits_{hosts_, 0, world_.network().outbox(0), rank_.requests};
  CollectiveRounds collectives_{
      {rank_.group.columns(), rank_.trees, world_.network().outbox(0), rank_.requests, false}};
  DeviceCalls device_calls_{{.registry = world_.registry(),
                             .checks = world_.checks(),
                             .pipeline = rank_.pipeline,
                             .requests = rank_.requests},
                            {},
                            {}};
  StoppedClock clock_;
  CostProbe probe_{
      {rank_.group.columns(), world_.network().outbox(0), rank_.group.compute(), clock_}};
  Membership membership_{{1, 2}, 1000, 0};
  PeerTraffic traffic_{{.rank = 0, .epoch = 1}, hosts_, clock_, membership_};
};

TEST_F(ReportsTest, StatsAreJson) {
  SectionHeader rows;
  rows.kind = SectionKind::kHostReduce;
  rows.tag = CallsWorld::kHeldRows;
  traffic_.on_section_packed(2, rows, 64);
  traffic_.on_message_packed(2, 100);
  traffic_.on_message_packed(1, 10);
  const auto stats = nlohmann::json::parse(reports().stats_json());
  EXPECT_EQ(stats["rank"], 0);
  EXPECT_EQ(stats["transport"], "carrier");
  EXPECT_EQ(stats["steps_committed"], 0);
  EXPECT_EQ(stats["wire"]["sent_bytes"], 100);
  EXPECT_EQ(stats["local"]["sent_messages"], 1);
  EXPECT_EQ(stats["dropped_messages"], 0);
  EXPECT_TRUE(stats["late"].is_null());
  ASSERT_EQ(stats["variables"].size(), rank_.group.size());
  const auto& held_rows = stats["variables"][CallsWorld::kHeldRows];
  EXPECT_EQ(held_rows["name"], "held rows");
  EXPECT_EQ(held_rows["wire_sent_bytes"], 64);
  uint64_t reserved = 0;
  for (const auto& each : stats["variables"]) {
    reserved += each["memory_reserved_bytes"].get<uint64_t>();
  }
  EXPECT_GT(reserved, 0u);
  EXPECT_EQ(stats["memory"]["reserved_bytes"], reserved);
}

TEST_F(ReportsTest, ThePlanIsJsonOfEachVariable) {
  const std::string text = reports().plan_json();
  EXPECT_FALSE(nlohmann::json::parse(text).empty());
  for (const auto& runtime : rank_.group.runtimes()) {
    EXPECT_NE(text.find('"' + runtime->variable->name + '"'), std::string::npos) << text;
  }
}

TEST_F(ReportsTest, WhatAllRanksCallWaitsForWhoHasNotCalled) {
  Request* commit = take(RequestKind::kCommit);
  EXPECT_EQ(reports().missing(*commit).message(),
            "commit waits for this rank to fill in initial values");
  rank_.trees[TreeKind::kCommit].join();
  EXPECT_EQ(reports().missing(*commit).message().find("commit waits for rank "), 0u);
  EXPECT_EQ(reports().missing(*take(RequestKind::kClose)).message().find("close waits for rank "),
            0u);
  EXPECT_EQ(reports().missing(*take(RequestKind::kBarrier)).message(),
            "barrier waits for rank 2 (host host1), rank 1 (host host0) to call barrier, or one "
            "that it waits for");
}

TEST_F(ReportsTest, APullWaitsForWhoOwesItsRows) {
  std::vector<float> values(2 * CallsWorld::kRowCount);
  std::vector<int64_t> ids(4);
  std::iota(ids.begin(), ids.end(), 0);
  Request* pull = take(RequestKind::kPull, 1);
  pull->slices.push_back({.variable = CallsWorld::kRows,
                          .ids = {ids.data(), nullptr},
                          .count = static_cast<uint32_t>(ids.size()),
                          .values = reinterpret_cast<std::byte*>(values.data())});
  world_.network().hold(2);
  rank_.pulls.post(pull);
  world_.settle();
  EXPECT_EQ(reports().missing(*pull).message(),
            "pull of step 1 waits for rank 2 (host host1) to answer");
  Request* ended = take(RequestKind::kStepEnd, 1);
  EXPECT_EQ(reports().missing(*ended).message(),
            "step 1 does not end before its pulls are answered: one waits for rank 2 (host host1) "
            "to answer");
  world_.network().release();
  world_.settle();
  EXPECT_TRUE(pull->done());
}

TEST_F(ReportsTest, AReduceWaitsForWhoHasNotGivenItsVariable) {
  std::vector<float> values(6);
  parallax_slice_t slice = {};
  slice.size = sizeof slice;
  slice.variable = CallsWorld::kHeld;
  slice.values = values.data();
  Request* reduce = nullptr;
  ASSERT_TRUE(
      rank_.contributions.post(RequestKind::kReduce, 1, std::span(&slice, 1), &reduce).ok());
  world_.settle();
  const std::string text = reports().missing(*reduce).message();
  EXPECT_EQ(text.find("step 1 waits for variable 'held': rank 1 (host host0)"), 0u) << text;
  EXPECT_NE(text.find("to give it or end the step"), std::string::npos) << text;
}

TEST_F(ReportsTest, AStepThatMayNotStartWaitsForTheDecisionBeforeIt) {
  Request* end = take(RequestKind::kStepEnd, 2);
  const std::string text = reports().missing(*end).message();
  EXPECT_EQ(text.find("step 2 waits for the decision of step 1: rank "), 0u) << text;
}

// Given a job whose hosts hold a census, and a rank in the middle of its tree that reduces nothing,
// expect those of whom only the word is missed not to be asked to give what they gave.
TEST(ReportsOfEngines, WhoWaitsInACensusIsNotSaidToGiveNothing) {
  constexpr uint32_t kRanks = 12, kLate = 5;
  WorldOptions options;
  options.hosts.clear();
  for (uint32_t rank = 0; rank < kRanks; ++rank) options.hosts.push_back(rank);
  options.adjust = [](uint32_t, EngineOptions* adjusted) { adjusted->marker_hosts_max = 0; };
  EngineWorld world(options);
  const parallax_variable_t variables[] = {sparse_variable("held_rows", 100, 1, 4)};
  for (const Status& status : world.commit(variables)) ASSERT_TRUE(status.ok());
  const std::vector<int64_t> ids = {1, 2};
  std::vector<float> values(2, 1);
  std::vector<Request*> reduces(kRanks);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    uint64_t step = 0;
    ASSERT_TRUE(world.engine(rank).step_calls().begin(&step).ok());
    if (rank == kLate) continue;
    const parallax_slice_t slice = rows_slice(0, ids, values.data());
    ASSERT_TRUE(world.engine(rank).step_calls().reduce(step, {&slice, 1}, &reduces[rank]).ok());
  }
  world.settle();
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    if (rank == kLate) continue;
    const std::string text = world.engine(rank).reports().missing(*reduces[rank]).message();
    EXPECT_EQ(text.find("step 1 waits for variable 'held_rows': rank "), 0u) << text;
    EXPECT_NE(text.find(" to say that nothing more of it comes, or one that it waits for"),
              std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace parallax::testkit
