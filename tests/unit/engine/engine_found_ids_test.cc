// SPDX-License-Identifier: Apache-2.0
// A push takes what the pull has found: what a rank looks for in a step, by its counter.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "support/engine_world.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kFoundRows = 50;
constexpr uint32_t kFoundWidth = 4;

struct PullAndPush {
  explicit PullAndPush(std::vector<uint32_t> hosts)
      : world({.hosts = std::move(hosts), .plan_mode = PARALLAX_PLAN_PS, .inline_jobs = true}) {
    const auto variable = sparse_variable("v", kFoundRows, kFoundWidth, 8, PARALLAX_RULE_SGD);
    for (const Status& status : world.commit({&variable, 1})) EXPECT_TRUE(status.ok());
    world.settle();
  }

  // A step in which both ranks pull the one and push the other; rows that rank 0 looked for.
  uint64_t step(const std::vector<int64_t>& pulled, const std::vector<int64_t>& pushed) {
    const uint64_t before = looked_up();
    std::array<Request*, 2> pulls = {}, pushes = {}, ends = {};
    std::vector<float> values(8 * kFoundWidth, 1.0F), other(8 * kFoundWidth, 1.0F);
    uint64_t number = 0;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      StepCalls& calls = world.engine(rank).step_calls();
      EXPECT_TRUE(calls.begin(&number).ok());
      const std::array slices = {rows_slice(0, pulled, rank == 0 ? values.data() : other.data())};
      EXPECT_TRUE(calls.pull(number, slices, &pulls[rank]).ok());
    }
    expect_done(pulls);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      StepCalls& calls = world.engine(rank).step_calls();
      const std::array slices = {rows_slice(0, pushed, rank == 0 ? values.data() : other.data())};
      EXPECT_TRUE(calls.push(number, slices, &pushes[rank]).ok());
      EXPECT_TRUE(calls.end(number, end_options(0), &ends[rank]).ok());
    }
    expect_done(pushes);
    expect_done(ends);
    return looked_up() - before;
  }

  uint64_t looked_up() {
    const auto stats = nlohmann::json::parse(world.engine(0).reports().stats_json());
    return stats["looked_up_rows"].get<uint64_t>();
  }
  void expect_done(std::span<Request* const> requests) {
    ASSERT_TRUE(world.run_until_done(requests));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(requests[rank]->status.ok()) << requests[rank]->status.message();
      EXPECT_TRUE(world.engine(rank).release(requests[rank]).ok());
    }
  }

  EngineWorld world;
};

// Given a push of what was pulled, or of the first of it, expect nothing to be looked for that is
// not looked for without a push of ids but its rows at their owners; and of others each.
TEST(EngineFoundIds, APushOfThePulledIdsLooksForNone) {
  for (const std::vector<uint32_t>& hosts : {std::vector<uint32_t>{0, 0}, {0, 1}}) {
    PullAndPush ranks(hosts);
    const std::vector<int64_t> ids = {7, 3, 7, 49, 3, 12};
    std::vector<int64_t> turned = ids;
    std::reverse(turned.begin(), turned.end());
    const uint64_t same = ranks.step(ids, ids);
    EXPECT_EQ(ranks.step(ids, ids), same) << "as ever";
    EXPECT_EQ(ranks.step(ids, turned), same + ids.size()) << "the same rows, in another order";
    EXPECT_EQ(ranks.step(ids, ids), same) << "and again";
  }
}

}  // namespace
}  // namespace parallax::testkit
