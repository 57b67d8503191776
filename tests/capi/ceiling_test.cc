// SPDX-License-Identifier: Apache-2.0
// A ceiling of what exchanging rows may take (exchange_bytes_max) where they are made dense, which
// then goes in chunks: ranks of two hosts as threads.
#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/rank_threads.h"

namespace parallax::ceiling_test {
namespace {

constexpr uint32_t kWorld = 4;
constexpr uint64_t kRows = 6000, kWidth = 4;
constexpr uint64_t kShared = 50, kOwn = 40;  // rows that each rank gives, and that it alone does
constexpr uint64_t kAllElements = kRows * kWidth * sizeof(float);

uint32_t register_rows(Job& job, uint64_t bytes_max) {
  auto rows = sized<parallax_variable_t>();
  rows.name = "rows";
  rows.rows = kRows;
  rows.row_elements = kWidth;
  rows.rows_max = kShared + kOwn;
  rows.method = PARALLAX_METHOD_MADE_DENSE;
  rows.exchange_bytes_max = bytes_max;
  return job.register_variable(rows);
}

void on_two_hosts(const std::function<void(uint32_t rank, Job& job)>& body) {
  testkit::on_ranks(kWorld, body, [](uint32_t rank, parallax_options_t& options) {
    options.host = testkit::left_or_right(rank);
  });
}

// Every rank gives for a row its number and the step's, which add up exactly.
void expect_sums(Job& job, uint32_t variable, uint32_t rank) {
  const uint64_t step = job.step_begin();
  std::vector<int64_t> ids;
  std::vector<float> values;
  for (uint64_t i = 0; i < kShared + kOwn; ++i) {
    const uint64_t id = i < kShared ? i * 7 : 1000 * (rank + 1) + i;
    ids.push_back(static_cast<int64_t>(id));
    values.insert(values.end(), kWidth, static_cast<float>(id + step));
  }
  auto slice = sized<parallax_slice_t>();
  slice.variable = variable;
  slice.form = PARALLAX_FORM_ROWS;
  slice.values = values.data();
  slice.ids = ids.data();
  slice.row_count = ids.size();
  Request reduce = job.reduce(step, {slice});
  reduce.wait();
  const auto rows = reduce.rows(0);
  ASSERT_EQ(rows.row_count, kShared + kOwn * kWorld);
  const auto* const sums = static_cast<const float*>(rows.values);
  for (uint64_t row = 0; row < rows.row_count; ++row) {
    const int64_t id = rows.ids[row];
    EXPECT_TRUE(row == 0 || rows.ids[row - 1] < id);
    const uint64_t givers = id < 1000 ? kWorld : 1;
    const auto sum = static_cast<float>(givers * (static_cast<uint64_t>(id) + step));
    for (uint64_t at = 0; at < kWidth; ++at) EXPECT_EQ(sums[row * kWidth + at], sum) << id;
  }
  job.step_end(step, sized<parallax_step_end_options_t>()).wait();
}

// Given less than all elements take, expect chunks that take no more, and the same sums.
TEST(Ceiling, RowsMadeDenseGoInChunks) {
  on_two_hosts([](uint32_t rank, Job& job) {
    const uint32_t variable = register_rows(job, kAllElements / 2);
    job.commit();
    for (int step = 0; step < 3; ++step) expect_sums(job, variable, rank);
    const auto plan = nlohmann::json::parse(job.report(PARALLAX_REPORT_PLAN))["variables"][0];
    EXPECT_EQ(plan["method"], "made_dense");
    EXPECT_GT(plan["chunks"], 1);
    EXPECT_LE(plan["exchange_bytes"], kAllElements / 2);
    const auto why = plan["why"].get<std::string>();
    EXPECT_NE(why.find(" rounds of "), std::string::npos) << why;
    const auto stats = nlohmann::json::parse(job.report(PARALLAX_REPORT_STATS))["variables"][0];
    EXPECT_EQ(stats["exchange_chunks"], plan["chunks"]);
    job.close();
  });
}

// Given less than the smallest chunk takes, expect LIMIT, and the field.
TEST(Ceiling, LessThanAChunkIsLimit) {
  // The first rank to know ends the job: all are to be in the call that tells it.
  std::barrier registered(kWorld);
  on_two_hosts([&registered](uint32_t, Job& job) {
    register_rows(job, 100);
    registered.arrive_and_wait();
    try {
      job.commit();
      ADD_FAILURE() << "a commit that should be refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), PARALLAX_LIMIT) << error.what();
      EXPECT_NE(std::string(error.what()).find("made_dense takes "), std::string::npos)
          << error.what();
      EXPECT_STREQ(error.info().field, "exchange_bytes_max");
    }
  });
}

}  // namespace
}  // namespace parallax::ceiling_test
