// SPDX-License-Identifier: Apache-2.0
#include "engine/fused_calls.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "support/engine_world.h"

namespace parallax::testkit {
namespace {

constexpr uint32_t kFusedCallTables = 6;

// Tables of one number a row, of a rank alone, whose pushes are looked at before they start.
struct FusedPushes {
  explicit FusedPushes(bool inline_jobs)
      : world({.hosts = {0}, .late_jobs = !inline_jobs, .inline_jobs = inline_jobs}) {
    std::vector<parallax_variable_t> tables;
    for (uint32_t i = 0; i < kFusedCallTables; ++i) {
      names.push_back("t" + std::to_string(i));
      tables.push_back(sparse_variable(names.back().c_str(), 20, 1, 4, PARALLAX_RULE_SGD));
    }
    EXPECT_TRUE(world.commit(tables)[0].ok());
    EXPECT_TRUE(world.engine(0).step_calls().begin(&step).ok());
  }
  // The ways of a call's slices.
  std::vector<SliceWay> push(const std::vector<uint32_t>& tables) {
    std::vector<parallax_slice_t> given;
    for (const uint32_t table : tables) given.push_back(rows_slice(table, ids, values.data()));
    Request* request = nullptr;
    EXPECT_TRUE(world.engine(0).step_calls().push(step, given, &request).ok());
    std::vector<SliceWay> ways;
    for (const PullSlice& slice : request->slices) ways.push_back(slice.way);
    return ways;
  }

  std::deque<std::string> names;
  EngineWorld world;
  uint64_t step = 0;
  const std::vector<int64_t> ids = {3, 7};
  std::vector<float> values = {1, 2};
};

constexpr auto kOther = SliceWay::kWithAnother;

// Given all tables in one call, expect the last slice to go with all, jobs or not.
TEST(FusedCalls, OneCallGoesOutAsItIs) {
  for (const bool inline_jobs : {true, false}) {
    FusedPushes pushes(inline_jobs);
    EXPECT_EQ(pushes.push({4, 0, 1, 5, 3, 2}),
              (std::vector<SliceWay>{kOther, kOther, kOther, kOther, kOther, SliceWay::kAllParts}));
  }
}

// Given several calls, expect parts where slices are coalesced at once, and a sum where jobs do
// that.
TEST(FusedCalls, SeveralCallsAreParts) {
  FusedPushes at_once(true), by_jobs(false);
  EXPECT_EQ(at_once.push({4, 0}), (std::vector<SliceWay>{kOther, SliceWay::kSomeParts}));
  EXPECT_EQ(at_once.push({1}), (std::vector<SliceWay>{SliceWay::kSomeParts}));
  EXPECT_EQ(at_once.push({5, 2, 3}), (std::vector<SliceWay>{kOther, kOther, SliceWay::kLastParts}));
  EXPECT_EQ(by_jobs.push({4, 0}),
            (std::vector<SliceWay>{SliceWay::kInSumYet, SliceWay::kInSumYet}));
  EXPECT_EQ(by_jobs.push({5, 2, 3, 1}),
            (std::vector<SliceWay>{SliceWay::kInSumYet, SliceWay::kInSumYet, SliceWay::kInSumYet,
                                   SliceWay::kInSum}));
}

// Given one twice, expect no way that takes each for one of a table.
TEST(FusedCalls, OneThatComesTwiceIsNotAll) {
  FusedPushes pushes(true);
  EXPECT_EQ(pushes.push({0, 1, 2, 0, 3, 4, 5}).back(), SliceWay::kLastParts);
  FusedPushes some(true);
  EXPECT_EQ(some.push({0, 1, 2, 0, 3, 4}).back(), SliceWay::kSomeParts);
}

}  // namespace
}  // namespace parallax::testkit
