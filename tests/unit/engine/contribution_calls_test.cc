// SPDX-License-Identifier: Apache-2.0
// Pushes and reduces over a network of sections, without engines.
#include "engine/contribution_calls.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "unit/engine/calls_world.h"
#include "unit/server/layouts.h"

namespace parallax::testkit {
namespace {

parallax_slice_t dense(uint32_t variable, std::vector<float>* values, bool more = false) {
  parallax_slice_t slice = {};
  slice.size = sizeof slice;
  slice.variable = variable;
  slice.form = PARALLAX_FORM_DENSE;
  slice.values = values->data();
  slice.more = more ? 1 : 0;
  return slice;
}

parallax_slice_t rows(uint32_t variable, const std::vector<int64_t>& ids,
                      std::vector<float>* values, bool more = false) {
  parallax_slice_t slice = dense(variable, values, more);
  slice.form = PARALLAX_FORM_ROWS;
  slice.ids = ids.data();
  slice.row_count = ids.size();
  return slice;
}

Status post(CallsWorld& world, uint32_t rank, RequestKind kind,
            const std::vector<parallax_slice_t>& slices, Request** request) {
  return world[rank].contributions.post(kind, world[rank].pipeline.window().begun(), slices,
                                        request);
}

Request* reduce(CallsWorld& world, uint32_t rank, const std::vector<parallax_slice_t>& slices) {
  Request* request = nullptr;
  const Status status = post(world, rank, RequestKind::kReduce, slices, &request);
  EXPECT_TRUE(status.ok()) << status.message();
  return request;
}

void begin(CallsWorld& world) {
  for (uint32_t rank = 0; rank < world.size(); ++rank) world[rank].pipeline.begin();
}

std::vector<float> numbers(const RowsResult& rows) {
  std::vector<float> values(rows.values.size() / sizeof(float));
  std::memcpy(values.data(), rows.values.data(), rows.values.size());
  return values;
}

// Given a dense slice and one of rows in one call of every rank, expect the sum in the caller's
// buffer, the union of the rows beside it, and nothing left open.
TEST(ContributionCalls, AReduceHandsBackWhatAllRanksGave) {
  for (const auto& hosts : layouts()) {
    CallsWorld world(hosts);
    begin(world);
    float sum = 0;
    std::vector<std::vector<float>> values, of_rows;
    std::vector<std::vector<int64_t>> ids;
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      sum += static_cast<float>(rank + 1);
      values.emplace_back(6, static_cast<float>(rank + 1));
      of_rows.emplace_back(4, static_cast<float>(rank + 1));
      ids.push_back({8, static_cast<int64_t>(rank)});
    }
    ids.back()[1] = -1;  // padding
    std::vector<Request*> requests;
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      requests.push_back(reduce(world, rank,
                                {dense(CallsWorld::kHeld, &values[rank]),
                                 rows(CallsWorld::kHeldRows, ids[rank], &of_rows[rank])}));
      EXPECT_EQ(world[rank].pipeline.state(1).unstarted, 1u);
      EXPECT_EQ(world[rank].pipeline.state(1).contributions_open, 1u);
    }
    world.settle();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(requests[rank]->done()) << "rank " << rank;
      EXPECT_EQ(world[rank].pipeline.state(1).unstarted, 0u);
      EXPECT_EQ(world[rank].pipeline.state(1).contributions_open, 0u);
      EXPECT_EQ(values[rank], std::vector<float>(6, sum));
      const RowsResult& result = requests[rank]->rows[1];
      ASSERT_EQ(result.ids.size(), world.size());
      EXPECT_EQ(result.ids.back(), 8);
      EXPECT_EQ(numbers(result).back(), sum);
      EXPECT_EQ(numbers(result).front(), world.size() == 1 ? sum : 1.0f);  // row 0, or 8 alone
    }
  }
}

TEST(ContributionCalls, ADenseSliceAndOneOfRowsOfAVariableGoTogether) {
  CallsWorld world({0, 1});
  begin(world);
  std::vector<float> every(18, 1.0f), some(2, 5.0f);
  const std::vector<int64_t> ids = {2};
  Request* request = nullptr;
  const std::vector<parallax_slice_t> both = {dense(CallsWorld::kEveryRow, &every),
                                              rows(CallsWorld::kEveryRow, ids, &some)};
  ASSERT_TRUE(post(world, 0, RequestKind::kReduce, both, &request).ok());
  EXPECT_EQ(world[0].pipeline.state(1).dense_variable, CallsWorld::kEveryRow);
  std::vector<float> other(2, 10.0f);
  Request* of_other = reduce(world, 1, {rows(CallsWorld::kEveryRow, ids, &other)});
  world.settle();
  ASSERT_TRUE(request->done() && of_other->done());
  EXPECT_EQ(every[0], 1.0f);
  EXPECT_EQ(every[4], 16.0f);
  EXPECT_EQ(request->rows[1].ids.size(), 9u);
  EXPECT_EQ(of_other->rows[0].ids.size(), 9u);
}

// Given several slices of a variable in one call, expect their sum in their order, as if they had
// come in one slice, and the same aggregate for each of them: of dense ones in every destination.
TEST(ContributionCalls, SlicesOfOneVariableAreOneContribution) {
  for (const bool accumulates : {true, false}) {
    const uint32_t of_rows = accumulates ? CallsWorld::kHeldRows : CallsWorld::kEveryRow;
    const uint32_t of_dense = accumulates ? CallsWorld::kHeld : CallsWorld::kMore;
    CallsWorld world({0, 1}, 1);
    begin(world);
    // Sums that depend on their order.
    std::vector<float> a(2, 1e8f), b(4, 1.0f), c(2, -1e8f);
    const std::vector<int64_t> ids_a = {2}, ids_b = {2, 3}, ids_c = {2};
    std::vector<float> x(6, 1e8f), y(6, 1.0f), z(6, -1e8f), into(6, 77.0f);
    std::vector<parallax_slice_t> slices = {dense(of_dense, &x),      rows(of_rows, ids_a, &a),
                                            dense(of_dense, &y),      rows(of_rows, ids_b, &b),
                                            rows(of_rows, ids_c, &c), dense(of_dense, &z)};
    slices[2].into = into.data();
    Request* request = reduce(world, 0, slices);
    std::vector<float> other(2, 3.0f), other_dense(6, 3.0f);
    const std::vector<int64_t> ids_other = {4};
    Request* of_other =
        reduce(world, 1, {rows(of_rows, ids_other, &other), dense(of_dense, &other_dense)});
    world.settle();
    ASSERT_TRUE(request->done() && of_other->done());
    const float sum = (1e8f + 1.0f) + -1e8f;
    EXPECT_EQ(x, std::vector<float>(6, sum + 3));
    EXPECT_EQ(into, x);
    EXPECT_EQ(y, std::vector<float>(6, 1.0f)) << "it was given a place apart";
    EXPECT_EQ(z, x);
    EXPECT_EQ(other_dense, x);
    for (const size_t slice : {1u, 3u, 4u}) {
      const RowsResult& result = request->rows[slice];
      EXPECT_EQ(result.ids, (std::vector<int64_t>{2, 3, 4})) << slice;
      EXPECT_EQ(numbers(result), (std::vector<float>{sum, sum, 1, 1, 3, 3})) << slice;
    }
    EXPECT_EQ(numbers(of_other->rows[0]), numbers(request->rows[1]));
  }
}

// Rows before a dense slice are summed first.
TEST(ContributionCalls, RowsBeforeADenseSliceAreSummedBeforeIt) {
  for (const bool rows_first : {true, false}) {
    CallsWorld world({0});
    begin(world);
    std::vector<float> every(18, 1e8f), some = {1, 1, -1e8f, -1e8f};
    const std::vector<int64_t> ids = {2, 2};
    std::vector<parallax_slice_t> slices = {dense(CallsWorld::kEveryRow, &every),
                                            rows(CallsWorld::kEveryRow, ids, &some)};
    if (rows_first) std::swap(slices[0], slices[1]);
    Request* request = reduce(world, 0, slices);
    world.settle();
    ASSERT_TRUE(request->done());
    const float want = rows_first ? (1 + -1e8f) + 1e8f : (1e8f + 1) + -1e8f;
    EXPECT_EQ(every[4], want);
    EXPECT_EQ(every[0], 1e8f) << "of the dense slice alone";
    EXPECT_EQ(request->rows[rows_first ? 0 : 1].ids.size(), 9u);
  }
}

// Distinct rows count, of the call and of the calls before it; nothing of a refused call is given.
TEST(ContributionCalls, SlicesOfOneVariableFitByTheirDistinctRows) {
  CallsWorld world({0});
  begin(world);
  std::vector<float> values(8, 1.0f);
  const std::vector<int64_t> first = {0, 1, 2}, second = {2, 3}, third = {4};
  Request* request = nullptr;
  const Status refused = post(
      world, 0, RequestKind::kReduce,
      {rows(CallsWorld::kHeldRows, first, &values), rows(CallsWorld::kHeldRows, second, &values),
       rows(CallsWorld::kHeldRows, third, &values)},
      &request);
  EXPECT_EQ(refused.code(), PARALLAX_LIMIT);
  EXPECT_NE(refused.message().find("more than rows_max = 4 distinct rows together"),
            std::string::npos)
      << refused.message();
  Request* part = reduce(world, 0,
                         {rows(CallsWorld::kHeldRows, first, &values, true),
                          rows(CallsWorld::kHeldRows, second, &values, true)});
  world.settle();
  EXPECT_TRUE(part->done());
  EXPECT_TRUE(part->rows[0].ids.empty());
  EXPECT_EQ(post(world, 0, RequestKind::kReduce,
                 {rows(CallsWorld::kHeldRows, third, &values),
                  rows(CallsWorld::kHeldRows, first, &values)},
                 &request)
                .code(),
            PARALLAX_LIMIT);
  Request* last = reduce(
      world, 0,
      {rows(CallsWorld::kHeldRows, second, &values), rows(CallsWorld::kHeldRows, first, &values)});
  const Status again =
      post(world, 0, RequestKind::kReduce, {rows(CallsWorld::kHeldRows, first, &values)}, &request);
  EXPECT_EQ(again.code(), PARALLAX_INVALID);
  EXPECT_NE(again.message().find("accumulate = 1"), std::string::npos) << again.message();
  world.settle();
  ASSERT_TRUE(last->done());
  for (const size_t slice : {0u, 1u}) {
    EXPECT_EQ(last->rows[slice].ids, (std::vector<int64_t>{0, 1, 2, 3}));
    EXPECT_EQ(numbers(last->rows[slice]), (std::vector<float>{2, 2, 2, 2, 4, 4, 2, 2}));
  }
}

// Given two calls with `more` and none after them, expect both done at once, and their sum with the
// other rank when the step has ended.
TEST(ContributionCalls, SeveralCallsAreOneContributionWithTheEndOfTheStep) {
  CallsWorld world({0, 1});
  begin(world);
  std::vector<float> other(6, 100.0f);
  Request* whole = reduce(world, 1, {dense(CallsWorld::kHeld, &other)});
  std::vector<float> values(6, 1.0f);
  std::vector<Request*> parts;
  for (int i = 0; i < 2; ++i) {
    parts.push_back(reduce(world, 0, {dense(CallsWorld::kHeld, &values, true)}));
    world.settle();
    EXPECT_TRUE(parts.back()->done()) << "the caller's buffer is free";
    values.assign(6, 2.0f);
  }
  EXPECT_FALSE(whole->done());
  EXPECT_EQ(world[0].pipeline.state(1).parts_left, 1u);
  world[0].pipeline.end(1, {});
  world.settle();
  ASSERT_TRUE(whole->done());
  EXPECT_EQ(other, std::vector<float>(6, 103.0f));
  EXPECT_EQ(world[0].pipeline.state(1).parts_left, 0u);
  EXPECT_EQ(world[0].pipeline.state(1).sums_pending, 0u);
}

// The same with a last call, which gets the aggregate.
TEST(ContributionCalls, TheLastOfSeveralCallsGetsTheSum) {
  CallsWorld world({0, 0});
  begin(world);
  std::vector<float> other(2, 100.0f);
  const std::vector<int64_t> ids = {3}, last_ids = {5, 3};
  Request* whole = reduce(world, 1, {rows(CallsWorld::kHeldRows, ids, &other)});
  std::vector<float> first(2, 1.0f), last(4, 2.0f);
  Request* part = reduce(world, 0, {rows(CallsWorld::kHeldRows, ids, &first, true)});
  Request* rest = reduce(world, 0, {rows(CallsWorld::kHeldRows, last_ids, &last)});
  world.settle();
  ASSERT_TRUE(part->done() && rest->done() && whole->done());
  EXPECT_TRUE(part->rows[0].ids.empty());
  for (Request* each : {rest, whole}) {
    EXPECT_EQ(each->rows[0].ids, (std::vector<int64_t>{3, 5}));
    EXPECT_EQ(numbers(each->rows[0]), (std::vector<float>{103, 103, 2, 2}));
  }
}

TEST(ContributionCalls, WhatIsRefusedContributesNothing) {
  CallsWorld world({0});
  begin(world);
  std::vector<float> values(80, 1.0f);
  const std::vector<int64_t> few = {0, 1, 2}, more = {3, 4};
  Request* request = nullptr;
  const auto refused = [&](RequestKind kind, const std::vector<parallax_slice_t>& slices,
                           const std::string& why) {
    const uint32_t outstanding = world[0].requests.outstanding();
    const Status status = post(world, 0, kind, slices, &request);
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
    EXPECT_EQ(world[0].requests.outstanding(), outstanding);
  };
  // The slice before the wrong one counts as little as that.
  refused(RequestKind::kReduce,
          {dense(CallsWorld::kHeld, &values), rows(CallsWorld::kRows, few, &values)},
          "is managed (it has an update rule); use push");
  EXPECT_EQ(world[0].pipeline.state(1).contributed[CallsWorld::kHeld], Contributed::kNothing);
  refused(RequestKind::kPush, {dense(CallsWorld::kHeld, &values)}, "use reduce");
  reduce(world, 0, {rows(CallsWorld::kHeldRows, few, &values, true)});
  refused(RequestKind::kReduce, {rows(CallsWorld::kHeldRows, more, &values)},
          "more than rows_max = 4 distinct rows together");
  Request* push = nullptr;
  ASSERT_TRUE(
      post(world, 0, RequestKind::kPush, {rows(CallsWorld::kRows, few, &values)}, &push).ok());
  refused(RequestKind::kPush, {rows(CallsWorld::kRows, few, &values)}, "given in step 1 already");
  world.settle();
  EXPECT_TRUE(push->done()) << "nothing borrows its buffers";
}

// Given a refused call that summed the slices of a variable, and then a pair of its slices, expect
// the pair to go out as it is, and nothing to be added to that sum.
TEST(ContributionCalls, APairIsToldFromASumOfACallThatWasRefused) {
  CallsWorld world({0});
  begin(world);
  std::vector<float> values(18, 1.0f), held(6, 1.0f);
  const std::vector<int64_t> ids = {2, 4};
  Request* request = nullptr;
  EXPECT_EQ(world[0].group.growth_count(), 0u);
  EXPECT_FALSE(post(world, 0, RequestKind::kReduce,
                    {rows(CallsWorld::kEveryRow, ids, &values),
                     rows(CallsWorld::kEveryRow, ids, &values), dense(CallsWorld::kDense, &held)},
                    &request)
                   .ok());
  const VariableRuntime& runtime = world[0].group.runtime(CallsWorld::kEveryRow);
  ASSERT_NE(runtime.sums[1], nullptr);
  EXPECT_EQ(world[0].group.growth_count(), 1u) << "the step reserved it";
  Request* pair = reduce(
      world, 0, {dense(CallsWorld::kEveryRow, &values), rows(CallsWorld::kEveryRow, ids, &values)});
  EXPECT_EQ(pair->slices[0].way, SliceWay::kWithRows);
  EXPECT_EQ(pair->slices[1].way, SliceWay::kWithAnother);
  EXPECT_EQ(runtime.sums[1]->rows().count, 0u) << "it is no slice of a sum";
  EXPECT_EQ(world[0].group.growth_count(), 1u);
  world.settle();
  EXPECT_TRUE(pair->done());
}

// Given many variables in one call, which another rank gives one by one, the first last, expect the
// call to be complete with the last of them, and every sum in its place.
TEST(ContributionCalls, AReduceOfManyIsDoneWhateverComesFirst) {
  constexpr uint32_t kMany = 50;
  CallsWorld world({0, 1}, kMany);
  begin(world);
  std::vector<std::vector<float>> values(kMany), of_other(kMany);
  std::vector<parallax_slice_t> slices;
  for (uint32_t i = 0; i < kMany; ++i) {
    values[i].assign(6, static_cast<float>(i));
    of_other[i].assign(6, 100.0f);
    slices.push_back(dense(CallsWorld::kMore + i, &values[i]));
  }
  Request* request = reduce(world, 0, slices);
  for (uint32_t i = kMany; i > 0; --i) {
    world.settle();
    ASSERT_FALSE(request->done()) << i << " are missing";
    reduce(world, 1, {dense(CallsWorld::kMore + i - 1, &of_other[i - 1])});
  }
  world.settle();
  ASSERT_TRUE(request->done());
  for (uint32_t i = 0; i < kMany; ++i) {
    EXPECT_EQ(values[i], std::vector<float>(6, 100.0f + static_cast<float>(i)));
  }
}

TEST(ContributionCalls, WaitUntilTheStepBeforeIsDecided) {
  CallsWorld world({0, 1});
  std::vector<float> values(6, 1.0f);
  world[0].pipeline.begin();
  world[0].pipeline.end(1, {});
  world[0].pipeline.begin();
  Request* request = reduce(world, 0, {dense(CallsWorld::kHeld, &values)});
  world.settle();
  EXPECT_FALSE(request->started);
  EXPECT_EQ(world[0].pipeline.state(2).unstarted, 1u);
  world[0].contributions.finish_all(invalid("over"));
  EXPECT_TRUE(request->done());
}

// Given sends that still read a caller's buffer, expect its request to outlive the end of the job
// until they have left.
TEST(ContributionCalls, WhatIsBorrowedIsNotHandedBackWithTheEndOfTheJob) {
  CallsWorld world({0, 0});
  begin(world);
  world.network().hold(0);
  std::vector<float> values(8, 1.0f);
  const std::vector<int64_t> ids = {0, 1, 2, 3};
  Request* request = reduce(world, 0, {rows(CallsWorld::kHeldRows, ids, &values)});
  world.settle();
  ASSERT_GT(request->pending, 0u);
  world[0].contributions.finish_unborrowed(invalid("over"));
  EXPECT_FALSE(request->done());
  world.network().release();
  world.settle();
  EXPECT_EQ(request->pending, 0u);
  world[0].contributions.finish_unborrowed(invalid("over"));
  EXPECT_TRUE(request->done());
}

}  // namespace
}  // namespace parallax::testkit
