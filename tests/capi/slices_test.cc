// SPDX-License-Identifier: Apache-2.0
// As many slices as one call takes, in a pull, a push and a reduce: two ranks of two hosts as
// threads, 2,048 variables of each kind, each in two slices of a call.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/rank_threads.h"

namespace parallax {
namespace {

constexpr size_t kSlices = PARALLAX_SLICES_MAX;
constexpr uint32_t kVariables = kSlices / 2;
constexpr uint32_t kWorld = 2;
constexpr uint64_t kRows = 4;

struct Numbers {
  std::vector<float> given = std::vector<float>(kSlices), got = std::vector<float>(kSlices);
  std::vector<int64_t> ids = std::vector<int64_t>(kSlices);
  std::vector<parallax_slice_t> slices = std::vector<parallax_slice_t>(kSlices);
};

uint32_t variable_of(size_t slice) { return static_cast<uint32_t>(slice % kVariables); }
bool second(size_t slice) { return slice >= kVariables; }
// Small whole numbers, so that sums are exact.
float number(uint32_t rank, size_t slice) { return static_cast<float>(slice * 3 + rank + 1); }

void register_all(Job& job, const char* kind, uint32_t rule, uint64_t rows, uint64_t rows_max) {
  for (uint32_t i = 0; i < kVariables; ++i) {
    const std::string name = kind + std::to_string(i);
    auto variable = sized<parallax_variable_t>();
    variable.name = name.c_str();
    variable.rows = rows;
    variable.row_elements = 1;
    variable.rows_max = rows_max;
    variable.rule = rule;
    job.register_variable(variable);
  }
}

Numbers of_rank(uint32_t rank, uint32_t first_variable) {
  Numbers numbers;
  for (size_t i = 0; i < kSlices; ++i) {
    numbers.given[i] = number(rank, i);
    numbers.slices[i] = sized<parallax_slice_t>();
    numbers.slices[i].variable = first_variable + variable_of(i);
    numbers.slices[i].values = &numbers.given[i];
  }
  return numbers;
}

// A row of each variable by its first slice, and another, or the same, by its second.
void give_rows(Numbers* numbers) {
  for (size_t i = 0; i < kSlices; ++i) {
    numbers->ids[i] =
        static_cast<int64_t>(second(i) ? (variable_of(i) / 2) % kRows : variable_of(i) % kRows);
    numbers->slices[i].form = PARALLAX_FORM_ROWS;
    numbers->slices[i].ids = &numbers->ids[i];
    numbers->slices[i].row_count = 1;
  }
}

// Given every rank's slices, expect each row pulled to be the sum of what was pushed for it.
void expect_pushed_is_pulled(Job& job, uint64_t step, const Numbers& pushed, uint32_t rank) {
  Numbers pulled = of_rank(rank, 0);
  give_rows(&pulled);
  for (size_t i = 0; i < kSlices; ++i) pulled.slices[i].values = &pulled.got[i];
  job.pull(step, pulled.slices.data(), kSlices).wait();
  size_t wrong = 0;
  for (size_t i = 0; i < kSlices; ++i) {
    const size_t other = second(i) ? i - kVariables : i + kVariables;
    float want = number(0, i) + number(1, i);
    if (pushed.ids[i] == pushed.ids[other]) want += number(0, other) + number(1, other);
    if (pulled.got[i] != want) ++wrong;
  }
  EXPECT_EQ(wrong, 0u) << "rank " << rank;
}

TEST(Slices, AsManyAsACallTakes) {
  const auto two_hosts = [](uint32_t rank, parallax_options_t& options) {
    options.host = testkit::left_or_right(rank);
  };
  const auto body = [](uint32_t rank, Job& job) {
    register_all(job, "managed", PARALLAX_RULE_SUM, kRows, kRows);
    register_all(job, "held", PARALLAX_RULE_NONE, 1, 0);
    job.commit();
    const uint64_t step = job.step_begin();
    Numbers pushed = of_rank(rank, 0);
    give_rows(&pushed);
    Request push = job.push(step, pushed.slices.data(), kSlices);
    Numbers reduced = of_rank(rank, kVariables);
    for (size_t i = 0; i < kSlices; ++i) reduced.slices[i].into = &reduced.got[i];
    job.reduce(step, reduced.slices.data(), kSlices).wait();
    size_t wrong = 0;
    for (size_t i = 0; i < kSlices; ++i) {
      const size_t first = variable_of(i);
      float want = 0;
      for (uint32_t each = 0; each < kWorld; ++each) {
        want += number(each, first) + number(each, first + kVariables);
      }
      if (reduced.got[i] != want || reduced.given[i] != number(rank, i)) ++wrong;
    }
    EXPECT_EQ(wrong, 0u) << "rank " << rank;
    push.wait();
    job.step_end(step, sized<parallax_step_end_options_t>()).wait();
    const uint64_t next = job.step_begin();
    expect_pushed_is_pulled(job, next, pushed, rank);
    job.step_end(next, sized<parallax_step_end_options_t>()).wait();
  };
  testkit::on_ranks(kWorld, body, two_hosts);
}

// Given one variable that all slices of a pull name, with rows that others have named before,
// slices of no rows and padding: expect each to be given the rows that it names.
TEST(Slices, AllOfOneVariable) {
  constexpr uint64_t kTableRows = 1000, kWidth = 2;
  constexpr uint32_t kCountMax = 5;
  const auto body = [](uint32_t rank, Job& job) {
    auto variable = sized<parallax_variable_t>();
    variable.name = "table";
    variable.rows = kTableRows;
    variable.row_elements = kWidth;
    variable.rows_max = kSlices * kCountMax;
    variable.rule = PARALLAX_RULE_SUM;
    const uint32_t table = job.register_variable(variable);
    job.commit();
    std::vector<float> values(kTableRows * kWidth);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    auto rows = sized<parallax_rows_t>();
    rows.variable = table;
    rows.row_count = kTableRows;
    rows.values = values.data();
    if (rank == 0) job.write(rows).wait();
    job.barrier().wait();

    const uint64_t step = job.step_begin();
    std::vector<std::vector<int64_t>> ids(kSlices);
    std::vector<std::vector<float>> got(kSlices);
    std::vector<parallax_slice_t> slices(kSlices, sized<parallax_slice_t>());
    for (size_t i = 0; i < kSlices; ++i) {
      for (size_t j = 0; j < i % (kCountMax + 1); ++j) {
        ids[i].push_back(j == 3 ? -1 : static_cast<int64_t>((i * 7 + j % 3) % kTableRows));
      }
      got[i].assign(ids[i].size() * kWidth, -1);
      slices[i].variable = table;
      slices[i].form = PARALLAX_FORM_ROWS;
      slices[i].ids = ids[i].data();
      slices[i].row_count = ids[i].size();
      slices[i].values = got[i].data();
    }
    job.pull(step, slices.data(), kSlices).wait();
    size_t wrong = 0;
    for (size_t i = 0; i < kSlices; ++i) {
      for (size_t j = 0; j < got[i].size(); ++j) {
        const int64_t id = ids[i][j / kWidth];
        const auto first = static_cast<float>(id * static_cast<int64_t>(kWidth));
        if (got[i][j] != (id < 0 ? 0 : first + static_cast<float>(j % kWidth))) ++wrong;
      }
    }
    EXPECT_EQ(wrong, 0u);
    job.step_end(step, sized<parallax_step_end_options_t>()).wait();
  };
  testkit::on_ranks(kWorld, body);
}

TEST(Slices, OneMoreIsRefused) {
  Job job(sized<parallax_options_t>());
  register_all(job, "held", PARALLAX_RULE_NONE, 1, 0);
  job.commit();
  const uint64_t step = job.step_begin();
  Numbers reduced = of_rank(0, 0);
  reduced.slices.push_back(reduced.slices.back());
  try {
    job.reduce(step, reduced.slices.data(), reduced.slices.size());
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), PARALLAX_INVALID) << error.what();
    EXPECT_STREQ(error.info().field, "count");
  }
}

}  // namespace
}  // namespace parallax
