// SPDX-License-Identifier: Apache-2.0
// Reads and writes of rows, and evaluations, over a network of sections, without engines.
#include "engine/row_calls.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/engine_world.h"
#include "support/words.h"
#include "unit/engine/calls_world.h"

namespace parallax::testkit {
namespace {

TEST(RowCalls, WhatOneRankWritesAnotherReads) {
  CallsWorld world({0, 0, 1});
  constexpr uint64_t kCount = CallsWorld::kRowCount;
  std::vector<float> before(2 * kCount), written(2 * kCount), after(2 * kCount);
  Request* read = nullptr;
  ASSERT_TRUE(world[2]
                  .rows.post(rows_call(CallsWorld::kRows, 0, kCount, before.data()), false, &read)
                  .ok());
  EXPECT_TRUE(world[2].rows.pending());
  world.settle();
  ASSERT_TRUE(read->done() && read->status.ok());
  EXPECT_FALSE(world[2].rows.pending());
  for (uint64_t row = 0; row < kCount; ++row) {
    EXPECT_EQ(std::vector<float>(&before[2 * row], &before[2 * row] + 2), world.row(row));
  }
  for (size_t i = 0; i < written.size(); ++i) written[i] = static_cast<float>(i) + 0.5f;
  Request* write = nullptr;
  ASSERT_TRUE(world[0]
                  .rows.post(rows_call(CallsWorld::kRows, 0, kCount, written.data()), true, &write)
                  .ok());
  world.settle();
  ASSERT_TRUE(write->done() && write->status.ok()) << write->status.message();
  ASSERT_TRUE(
      world[1].rows.post(rows_call(CallsWorld::kRows, 0, kCount, after.data()), false, &read).ok());
  world.settle();
  ASSERT_TRUE(read->done());
  EXPECT_EQ(after, written);
}

TEST(RowCalls, CallsGoOneAtATime) {
  CallsWorld world({0, 1});
  std::vector<float> values(4);
  Request* requests[3] = {};
  for (Request*& request : requests) {
    ASSERT_TRUE(world[0]
                    .rows.post(rows_call(CallsWorld::kRows, 0, 2, values.data()), false, &request)
                    .ok());
  }
  world[0].rows.advance();
  EXPECT_TRUE(requests[0]->started);
  EXPECT_FALSE(requests[1]->started);
  world.settle();
  for (const Request* request : requests) EXPECT_TRUE(request->done());
}

TEST(RowCalls, AnEvaluationReadsOwnersAndMirrorsByThisRankAlone) {
  CallsWorld world({0, 1});
  const int64_t ids[] = {5, -1, 5};
  std::vector<float> rows(6, 77.0f), dense(6);
  parallax_slice_t slices[2] = {};
  slices[0].variable = CallsWorld::kRows;
  slices[0].form = PARALLAX_FORM_ROWS;
  slices[0].ids = ids;
  slices[0].row_count = 3;
  slices[0].values = rows.data();
  slices[1].variable = CallsWorld::kDense;
  slices[1].values = dense.data();
  Request* request = nullptr;
  const SliceChecks checks = world.checks();
  const PullSlice pulled[] = {checks.slice_of(slices[0]), checks.slice_of(slices[1])};
  ASSERT_TRUE(world[0].rows.evaluate(pulled, &request).ok());
  world.settle();
  ASSERT_TRUE(request->done() && request->status.ok());
  EXPECT_EQ(std::vector<float>(&rows[0], &rows[2]), world.row(5));
  EXPECT_EQ(std::vector<float>(&rows[2], &rows[4]), std::vector<float>(2));
  EXPECT_EQ(std::vector<float>(&rows[4], &rows[4] + 2), world.row(5));
  EXPECT_NE(dense[5], 0.0f);
}

TEST(RowCalls, AreRefusedWithinAStep) {
  CallsWorld world({0});
  float values[2] = {};
  world[0].pipeline.begin();
  Request* request = nullptr;
  const Status refused =
      world[0].rows.post(rows_call(CallsWorld::kRows, 0, 1, values), false, &request);
  EXPECT_EQ(refused.code(), PARALLAX_STATE);
  EXPECT_TRUE(has(refused, "read: step 1 is not over")) << refused.message();
  EXPECT_TRUE(has(world[0].rows.evaluate({}, &request), "an evaluation"));
  EXPECT_FALSE(world[0].rows.pending());
}

TEST(RowCalls, RefuseRowsThatAreNotThere) {
  CallsWorld world({0});
  float values[4] = {};
  Request* request = nullptr;
  const auto expect = [&](const parallax_rows_t& rows, const char* word) {
    const Status refused = world[0].rows.post(rows, true, &request);
    EXPECT_TRUE(has(refused, std::string("write: "))) << refused.message();
    EXPECT_TRUE(has(refused, word)) << refused.message();
  };
  expect(rows_call(5, 0, 1, values), "variable is 5, the job has 5");
  expect(rows_call(CallsWorld::kHeld, 0, 1, values), "framework-held");
  expect(rows_call(CallsWorld::kRows, CallsWorld::kRowCount, 1, values), "none beyond the last");
  expect(rows_call(CallsWorld::kRows, 39, 2, values), "none beyond the last");
  expect(rows_call(CallsWorld::kRows, 0, 0, values), "at least one row");
  parallax_rows_t rows = rows_call(CallsWorld::kRows, 0, 1, values);
  rows.values = reinterpret_cast<std::byte*>(values) + 1;
  expect(rows, "not aligned");
  rows = rows_call(CallsWorld::kRows, 0, 1, values);
  rows.state[1] = values;
  expect(rows, "state[1] is given");
  EXPECT_EQ(world[0].requests.outstanding(), 0u);
}

}  // namespace
}  // namespace parallax::testkit
