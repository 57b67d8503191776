// SPDX-License-Identifier: Apache-2.0
// The option staleness: what is refused, that ranks agree on it, and a training by it.
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/rank_threads.h"

namespace staleness {
namespace {

using parallax::Error;
using parallax::Job;
using parallax::Request;
using parallax::sized;
using parallax::testkit::left_or_right;
using parallax::testkit::on_rank_threads;
using parallax::testkit::on_ranks;

std::string refused_field(const parallax_options_t& options, int status) {
  parallax_job_t* job = nullptr;
  EXPECT_EQ(parallax_open(&options, &job), status) << parallax_last_error();
  auto info = sized<parallax_error_info_t>();
  EXPECT_EQ(parallax_last_error_info(&info), PARALLAX_OK);
  return info.field;
}

TEST(Staleness, OptionsThatCannotBeAreNamed) {
  auto options = sized<parallax_options_t>();
  options.staleness = PARALLAX_STALENESS_MAX + 1;
  EXPECT_EQ(refused_field(options, PARALLAX_INVALID), "staleness");
  for (const uint32_t staleness : {1u, uint32_t{PARALLAX_ASYNC}}) {
    options.staleness = staleness;
    options.deterministic = 1;
    EXPECT_EQ(refused_field(options, PARALLAX_INVALID), "staleness");
    options.deterministic = 0;
    Job job(options);
  }
}

TEST(Staleness, RanksAgreeOnIt) {
  on_rank_threads(2, [](uint32_t rank, parallax_options_t& options) {
    options.staleness = rank == 0 ? 1 : PARALLAX_ASYNC;
    Job job(options);
    try {
      job.commit();
      ADD_FAILURE() << "they differ";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), PARALLAX_MISMATCH);
      EXPECT_NE(std::string(error.what()).find("staleness"), std::string::npos) << error.what();
    }
  });
}

// What a step has under way; requests go before the buffers that they borrow.
struct Given {
  std::vector<float> gradient;
  Request push, end;
};

// Given ranks that push 1 to each row in each step, and wait for a step that is as many behind as
// may be, expect each pull to see all that it must see and nothing that is not committed; and
// between steps everything, exactly.
void train(uint32_t world, uint32_t staleness, uint32_t plan_mode) {
  constexpr uint32_t kRows = 40, kSteps = 30;
  const uint64_t bound = staleness == PARALLAX_ASYNC ? kSteps : staleness;
  on_ranks(
      world,
      [&](uint32_t rank, Job& job) {
        auto table = sized<parallax_variable_t>();
        table.name = "table";
        table.rows = table.rows_max = kRows;
        table.row_elements = 1;
        table.rule = PARALLAX_RULE_SUM;
        const uint32_t id = job.register_variable(table);
        job.commit();
        std::vector<int64_t> ids(kRows);
        for (uint32_t row = 0; row < kRows; ++row) ids[row] = row;
        std::vector<float> values(kRows);
        auto slice = sized<parallax_slice_t>();
        slice.variable = id;
        slice.form = PARALLAX_FORM_ROWS;
        slice.ids = ids.data();
        slice.row_count = kRows;
        auto options = sized<parallax_step_end_options_t>();
        options.learning_rate = 1;
        std::deque<Given> under_way;
        for (uint64_t step = 1; step <= kSteps; ++step) {
          if (under_way.size() == bound + 2) {
            under_way.front().end.wait();
            under_way.pop_front();
          }
          ASSERT_EQ(job.step_begin(), step);
          slice.values = values.data();
          job.pull(step, {slice}).wait();
          for (const float value : values) {
            ASSERT_LE(value, static_cast<float>(world * (step - 1))) << "rank " << rank;
            ASSERT_GE(value + static_cast<float>(world * bound),
                      static_cast<float>(world * (step - 1)));
          }
          std::vector<float> gradient(kRows, 1);
          slice.values = gradient.data();
          Request push = job.push(step, {slice});
          Request end = job.step_end(step, options);
          under_way.push_back({std::move(gradient), std::move(push), std::move(end)});
        }
        for (Given& each : under_way) each.end.wait();
        slice.values = values.data();
        job.pull(0, {slice}).wait();
        EXPECT_EQ(values, std::vector<float>(kRows, static_cast<float>(world * kSteps)));
        job.barrier().wait();
      },
      [&](uint32_t rank, parallax_options_t& options) {
        options.staleness = staleness;
        options.plan_mode = plan_mode;
        options.compute_threads = rank % 2;
        if (world > 2) options.host = left_or_right(rank);
      });
}

TEST(Staleness, EachGradientCountsOnce) {
  for (const uint32_t staleness : {1u, 3u, uint32_t{PARALLAX_ASYNC}}) {
    for (const uint32_t world : {1u, 2u, 3u}) {
      train(world, staleness, PARALLAX_PLAN_PS);
      train(world, staleness, PARALLAX_PLAN_AR);
    }
  }
}

}  // namespace
}  // namespace staleness
