// SPDX-License-Identifier: Apache-2.0
// Pulls of sharded variables and mirrors over a network of sections, without engines.
#include "engine/pull_calls.h"

#include <gtest/gtest.h>

#include <vector>

#include "unit/engine/calls_world.h"
#include "unit/server/layouts.h"

namespace parallax::testkit {
namespace {

// `ids` and `values` are lent until the request is done.
Request* pull(CallsWorld& world, uint32_t rank, uint64_t step, const std::vector<int64_t>& ids,
              float* values) {
  Request* request = nullptr;
  EXPECT_TRUE(world[rank].requests.take(RequestKind::kPull, step, &request).ok());
  request->slices.push_back({.variable = CallsWorld::kRows,
                             .ids = {ids.data(), nullptr},
                             .count = static_cast<uint32_t>(ids.size()),
                             .values = reinterpret_cast<std::byte*>(values)});
  world[rank].pulls.post(request);
  return request;
}

TEST(PullCalls, BringRowsOfAllOwnersWithDuplicatesAndPadding) {
  for (const auto& hosts : layouts()) {
    CallsWorld world(hosts);
    const std::vector<int64_t> ids = {3, -1, 39, 3, 0};
    std::vector<std::vector<float>> values(world.size(), std::vector<float>(10, 77.0f));
    std::vector<Request*> requests;
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      world[rank].pipeline.begin();
      requests.push_back(pull(world, rank, 1, ids, values[rank].data()));
      EXPECT_EQ(world[rank].pipeline.state(1).unstarted, 1u);
      EXPECT_EQ(world[rank].pipeline.state(1).pulls_left, 1u);
    }
    world.settle();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(requests[rank]->done()) << "rank " << rank;
      EXPECT_EQ(world[rank].pipeline.state(1).unstarted, 0u);
      EXPECT_EQ(world[rank].pipeline.state(1).pulls_left, 0u);
      for (size_t i = 0; i < ids.size(); ++i) {
        const std::vector<float> expected =
            ids[i] < 0 ? std::vector<float>(2) : world.row(static_cast<uint64_t>(ids[i]));
        EXPECT_EQ(std::vector<float>(&values[rank][2 * i], &values[rank][2 * i] + 2), expected);
      }
    }
  }
}

// Given several slices of a variable in one call, expect each to get its rows, whatever the others
// name, and the call to be done with the last of them.
TEST(PullCalls, SlicesOfOneVariableEachGetTheirRows) {
  for (const auto& hosts : layouts()) {
    CallsWorld world(hosts);
    const std::vector<std::vector<int64_t>> ids = {{3, 39}, {}, {3, -1, 5}, {39}};
    std::vector<std::vector<std::vector<float>>> values(world.size());
    std::vector<Request*> requests(world.size());
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      world[rank].pipeline.begin();
      ASSERT_TRUE(world[rank].requests.take(RequestKind::kPull, 1, &requests[rank]).ok());
      for (const std::vector<int64_t>& of : ids) {
        auto& into = values[rank].emplace_back(2 * of.size() + 1, 77.0f);
        requests[rank]->slices.push_back({.variable = CallsWorld::kRows,
                                          .ids = {of.data(), nullptr},
                                          .count = static_cast<uint32_t>(of.size()),
                                          .values = reinterpret_cast<std::byte*>(into.data())});
      }
      world[rank].pulls.post(requests[rank]);
    }
    world.settle();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(requests[rank]->done()) << "rank " << rank;
      EXPECT_EQ(world[rank].pipeline.state(1).pulls_left, 0u);
      for (size_t slice = 0; slice < ids.size(); ++slice) {
        const std::vector<float>& got = values[rank][slice];
        for (size_t i = 0; i < ids[slice].size(); ++i) {
          const int64_t id = ids[slice][i];
          const std::vector<float> expected =
              id < 0 ? std::vector<float>(2) : world.row(static_cast<uint64_t>(id));
          EXPECT_EQ(std::vector<float>(&got[2 * i], &got[2 * i] + 2), expected) << slice;
        }
        EXPECT_EQ(got.back(), 77.0f);
      }
    }
  }
}

// Of the pull that all ranks make, the sections with lists or values of the variable that travel.
uint64_t sections_of(CallsWorld& world, const std::vector<std::vector<int64_t>>& ids,
                     std::vector<uint32_t> dtypes) {
  std::vector<std::vector<float>> values;
  for (const auto& of : ids) values.emplace_back(2 * of.size());
  dtypes.resize(ids.size(), PARALLAX_F32);
  world[0].pipeline.begin();
  Request* request = nullptr;
  EXPECT_TRUE(world[0].requests.take(RequestKind::kPull, 1, &request).ok());
  for (size_t i = 0; i < ids.size(); ++i) {
    request->slices.push_back({.variable = CallsWorld::kRows,
                               .ids = {ids[i].data(), nullptr},
                               .count = static_cast<uint32_t>(ids[i].size()),
                               .values = reinterpret_cast<std::byte*>(values[i].data()),
                               .dtype = dtypes[i]});
  }
  world[0].pulls.post(request);
  world.settle();
  EXPECT_TRUE(request->done());
  return world.sections_of(CallsWorld::kRows);
}

// Given several slices of a variable in one call, expect them to be one list, as far as they have
// rows_max = 5 rows together and are of one dtype.
TEST(PullCalls, SlicesOfOneVariableAreOneList) {
  const auto sections = [](const std::vector<std::vector<int64_t>>& ids,
                           const std::vector<uint32_t>& dtypes = {}) {
    CallsWorld world({0, 1});
    return sections_of(world, ids, dtypes);
  };
  // Of the other host, which they are asked of.
  CallsWorld world({0, 1});
  const Partition& partition = world[0].group.runtime(CallsWorld::kRows).partition;
  std::vector<int64_t> ids;
  for (int64_t id = 0; ids.size() < 5; ++id) {
    ASSERT_LT(id, 40);
    const uint32_t row_key = partition.row_key_of(static_cast<uint64_t>(id));
    if (partition.owner_of(row_key) == 1) ids.push_back(id);
  }
  const int64_t a = ids[0], b = ids[1], c = ids[2], d = ids[3], e = ids[4];
  const uint64_t of_one = sections({{a, b, c, a, d}});
  ASSERT_GT(of_one, 0u);
  EXPECT_EQ(sections({{a, b}, {c}, {a, d}}), of_one);
  EXPECT_EQ(sections({{a, b, c, d}, {}, {c}}), of_one);
  EXPECT_GT(sections({{a, b, c, a, d}, {e}}), of_one) << "too many together";
  EXPECT_GT(sections({{a, b}, {c, a, d}}, {PARALLAX_F32, PARALLAX_F16}), of_one);
}

// Given ranks of one host, expect a pull of each to be answered whatever the other one calls.
TEST(PullCalls, APullWaitsForNoOtherRank) {
  CallsWorld world({0, 0});
  for (uint32_t rank = 0; rank < 2; ++rank) world[rank].pipeline.begin();
  std::vector<float> mirror(6), rows(2);
  Request* of_mirror = nullptr;
  ASSERT_TRUE(world[0].requests.take(RequestKind::kPull, 1, &of_mirror).ok());
  of_mirror->slices.push_back({.variable = CallsWorld::kDense,
                               .ids = {},
                               .values = reinterpret_cast<std::byte*>(mirror.data())});
  world[0].pulls.post(of_mirror);
  world.settle();
  EXPECT_TRUE(of_mirror->done());
  EXPECT_NE(mirror[5], 0.0f);
  const std::vector<int64_t> ids = {7};
  for (uint32_t times = 0; times < 3; ++times) {
    rows.assign(2, -1);
    Request* of_rows = pull(world, 1, 1, ids, rows.data());
    world.settle();
    EXPECT_TRUE(of_rows->done());
    EXPECT_NE(rows[0], -1.0f);
  }
}

TEST(PullCalls, WaitUntilTheStepBeforeIsDecided) {
  CallsWorld world({0, 0});
  std::vector<float> values(2);
  world[0].pipeline.begin();
  world[0].pipeline.end(1, {.learning_rate = 1});
  world[0].pipeline.begin();
  const std::vector<int64_t> ids = {1};
  Request* request = pull(world, 0, 2, ids, values.data());
  world.settle();
  EXPECT_FALSE(request->started);
  EXPECT_EQ(world[0].pipeline.state(2).unstarted, 1u);
  world[0].pulls.queue().finish_all(invalid("over"));
  EXPECT_TRUE(request->done());
}

// Given a step that has ended here and is not decided, expect a pull of the next one to be asked
// for between hosts, and to wait where a host is alone or where the shards move meanwhile.
TEST(PullCalls, AreAskedForOnceTheStepBeforeHasEnded) {
  struct Case {
    std::vector<uint32_t> hosts;
    uint64_t mirrored_from;  // step; 0: never
    bool starts;
  };
  for (const Case& each :
       {Case{{0, 1}, 0, true}, {{0, 0}, 0, false}, {{0, 1}, 2, false}, {{0, 1}, 3, true}}) {
    CallsWorld world(each.hosts);
    std::vector<float> values(2);
    world[0].pipeline.begin();
    world[0].pipeline.end(1, {.learning_rate = 1});
    world[0].pipeline.begin();
    VariableRuntime::Change& change = world[0].group.runtime(CallsWorld::kRows).change;
    change.step = each.mirrored_from;
    change.plan.placement = Placement::kMirrored;
    const std::vector<int64_t> ids = {1};
    Request* request = pull(world, 0, 2, ids, values.data());
    world[0].pulls.advance();
    EXPECT_FALSE(request->started) << "the leaders do not know that step 1 has ended";
    change.step = 0;
    ASSERT_TRUE(world[0].pipeline.may_say_ended(1));
    world[0].pipeline.say_ended(1);
    change.step = each.mirrored_from;
    world[0].pulls.advance();
    EXPECT_EQ(request->started, each.starts);
    EXPECT_FALSE(request->done());
    world[0].pulls.queue().finish_all(invalid("over"));
    change.step = 0;
  }
}

}  // namespace
}  // namespace parallax::testkit
