// SPDX-License-Identifier: Apache-2.0
// parallax.hpp over libparallax.so: one rank alone, and two ranks as threads of this process.
#include "parallax/parallax.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using parallax::Error;
using parallax::Job;
using parallax::Request;
using parallax::sized;

static_assert(!std::is_copy_constructible_v<Job> && !std::is_copy_assignable_v<Job>);
static_assert(!std::is_copy_constructible_v<Request> && !std::is_copy_assignable_v<Request>);
static_assert(std::is_nothrow_move_constructible_v<Job>);
static_assert(std::is_nothrow_move_assignable_v<Request>);

parallax_variable_t sparse_table() {
  auto variable = sized<parallax_variable_t>();
  variable.name = "table";
  variable.rows = 4;
  variable.row_elements = 1;
  variable.tag = PARALLAX_SPARSE;
  variable.rule = PARALLAX_RULE_SGD;
  variable.rows_max = 4;
  return variable;
}

parallax_slice_t rows(const std::vector<int64_t>& ids, std::vector<float>& values) {
  auto slice = sized<parallax_slice_t>();
  slice.form = PARALLAX_FORM_ROWS;
  slice.ids = ids.data();
  slice.row_count = ids.size();
  slice.values = values.data();
  return slice;
}

TEST(Hpp, OneRankTrainsAStep) {
  Job job(sized<parallax_options_t>());
  EXPECT_EQ(job.register_variable(sparse_table()), 0U);
  job.commit();
  const std::vector<int64_t> ids = {3, 1, 3};
  std::vector<float> values = {1, 2, 4};

  uint64_t step = job.step_begin();
  job.push(step, {rows(ids, values)}).wait();
  auto options = sized<parallax_step_end_options_t>();
  options.learning_rate = 1;
  Request end = job.step_end(step, options);
  end.wait();
  EXPECT_TRUE(end.test());
  EXPECT_STREQ(end.error(), "");
  EXPECT_EQ(end.step_info().committed, 1U);
  EXPECT_EQ(end.step_info().contributors, 1U);

  step = job.step_begin();
  job.pull(step, {rows(ids, values)}).wait();
  EXPECT_EQ(values, (std::vector<float>{-5, -2, -5}));
  EXPECT_EQ(job.query().step, 2U);
  EXPECT_NE(job.report(PARALLAX_REPORT_PLAN).find("\"table\""), std::string::npos);
}

TEST(Hpp, ReduceGivesTheUnionOfRows) {
  Job job(sized<parallax_options_t>());
  auto variable = sparse_table();
  variable.rule = PARALLAX_RULE_NONE;
  job.register_variable(variable);
  job.commit();
  const std::vector<int64_t> ids = {3, 1, 3};
  std::vector<float> values = {1, 2, 4};

  Request request = job.reduce(job.step_begin(), {rows(ids, values)});
  request.wait();
  const Request::Rows merged = request.rows(0);

  ASSERT_EQ(merged.row_count, 2U);
  EXPECT_EQ(merged.ids[0], 1);
  EXPECT_EQ(merged.ids[1], 3);
  EXPECT_EQ(static_cast<const float*>(merged.values)[0], 2.0F);
  EXPECT_EQ(static_cast<const float*>(merged.values)[1], 5.0F);
}

TEST(Hpp, FailuresAreThrownWithStatusAndSentence) {
  Job job(sized<parallax_options_t>());
  try {
    job.step_begin();
    FAIL() << "a step began before commit";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), PARALLAX_STATE);
    EXPECT_NE(std::string(error.what()).find("STATE: "), std::string::npos);
    EXPECT_GT(std::string(error.what()).size(), std::string("STATE: ").size());
  }
  auto bad = sized<parallax_options_t>();
  bad.rank = 7;
  EXPECT_THROW(Job{bad}, Error);
}

TEST(Hpp, MovingHandsOver) {
  Job first(sized<parallax_options_t>());
  Job second = std::move(first);
  EXPECT_EQ(first.get(), nullptr);
  second.commit();
  Request barrier = second.barrier();
  Request moved = std::move(barrier);
  EXPECT_EQ(barrier.get(), nullptr);
  moved.wait();
  moved = second.barrier();  // releases the one before
  // The destructors wait for the barrier, then close the job.
}

// What one of two ranks does: both push to row 0, one to its own row, and both see both.
void train_as(uint32_t rank) {
  auto options = sized<parallax_options_t>();
  options.rank = rank;
  options.world = 2;
  options.rendezvous = "inproc:hpp_test";
  options.timeout_ms = 20000;
  Job job(options);
  job.register_variable(sparse_table());
  job.commit();
  const std::vector<int64_t> own = {0, 1 + static_cast<int64_t>(rank)};
  std::vector<float> gradients = {1, 10};

  uint64_t step = job.step_begin();
  Request push = job.push(step, {rows(own, gradients)});
  auto end_options = sized<parallax_step_end_options_t>();
  end_options.learning_rate = 1;
  Request end = job.step_end(step, end_options);
  push.wait();
  end.wait();
  EXPECT_EQ(end.step_info().contributors, 2U);

  step = job.step_begin();
  const std::vector<int64_t> all = {0, 1, 2, 3};
  std::vector<float> values(all.size(), 99);
  job.pull(step, {rows(all, values)}).wait();
  EXPECT_EQ(values, (std::vector<float>{-2, -10, -10, 0}));
  job.step_end(step, sized<parallax_step_end_options_t>()).wait();

  uint32_t word = rank == 1 ? 4711 : 0;
  job.broadcast(&word, sizeof word, 1).wait();
  EXPECT_EQ(word, 4711U);
  job.barrier().wait();
  job.close();
}

TEST(Hpp, TwoRanksAsThreads) {
  std::array<std::string, 2> failures;
  std::array<std::thread, 2> ranks;
  for (uint32_t rank = 0; rank < 2; rank++) {
    ranks[rank] = std::thread([rank, &failures] {
      try {
        train_as(rank);
      } catch (const Error& error) {
        failures[rank] = error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(failures[0], "");
  EXPECT_EQ(failures[1], "");
}

}  // namespace
