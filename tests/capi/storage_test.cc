// SPDX-License-Identifier: Apache-2.0
// Values kept in 16 bits through the C ABI: what is pulled and read, and a checkpoint with which a
// job of other ranks goes on, bit for bit as if there had been one job.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/rank_threads.h"

namespace storage {
namespace {

using parallax::Error;
using parallax::Job;
using parallax::sized;

constexpr uint64_t kRows = 40, kColumns = 3, kGiven = 8;

struct Kept {
  const char* name;
  uint32_t rule, stored, rounding;
  bool ids;
};
constexpr Kept kVariables[] = {
    {"adam", PARALLAX_RULE_ADAM, PARALLAX_BF16, PARALLAX_ROUNDING_STOCHASTIC, true},
    {"dense adam", PARALLAX_RULE_ADAM, PARALLAX_F16, PARALLAX_ROUNDING_STOCHASTIC, false},
    {"sgd", PARALLAX_RULE_SGD, PARALLAX_BF16, PARALLAX_ROUNDING_STOCHASTIC, true},
    {"adagrad", PARALLAX_RULE_ADAGRAD, PARALLAX_BF16, PARALLAX_ROUNDING_NEAREST_EVEN, true}};
constexpr uint32_t kCount = std::size(kVariables);

void on_two_hosts(uint32_t world, parallax_plan_mode_t mode,
                  const std::function<void(uint32_t, Job&)>& body) {
  parallax::testkit::on_ranks(world, body, [&](uint32_t rank, parallax_options_t& options) {
    options.host = parallax::testkit::left_or_right(rank);
    options.plan_mode = mode;
    options.plan_after_steps = 2;
  });
}

void register_all(Job& job) {
  for (const Kept& each : kVariables) {
    auto variable = sized<parallax_variable_t>();
    variable.name = each.name;
    variable.rows = kRows;
    variable.row_elements = kColumns;
    variable.rows_max = each.ids ? kGiven : 0;
    variable.rule = each.rule;
    variable.init = PARALLAX_INIT_UNIFORM;
    variable.init_high = 1;
    variable.storage_dtype = PARALLAX_AS(each.stored);
    variable.rounding = each.rounding;
    job.register_variable(variable);
  }
  job.commit();
}

// One rank gives gradients, so that no sum depends on how many ranks there are.
void train(Job& job, uint32_t rank, int first, int end) {
  for (int done = first; done < end; ++done) {
    const uint64_t step = job.step_begin();
    std::vector<int64_t> ids(kGiven);
    std::vector<float> values(kRows * kColumns);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int64_t>((7 * static_cast<size_t>(done) + 5 * i) % kRows);
    }
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] =
          0.037f * static_cast<float>((i * 31 + static_cast<size_t>(done) * 17) % 101) - 1.7f;
    }
    std::vector<parallax_slice_t> slices;
    for (uint32_t variable = 0; variable < kCount; ++variable) {
      auto slice = sized<parallax_slice_t>();
      slice.variable = variable;
      slice.values = values.data();
      if (kVariables[variable].ids) {
        slice.form = PARALLAX_FORM_ROWS;
        slice.ids = ids.data();
        slice.row_count = ids.size();
      }
      slices.push_back(slice);
    }
    if (rank == 0) job.push(step, slices.data(), slices.size()).wait();
    auto options = sized<parallax_step_end_options_t>();
    options.learning_rate = 0.01f;
    options.absent = rank == 0 ? 0 : 1;
    job.step_end(step, options).wait();
  }
}

struct Rows {
  std::vector<float> values = std::vector<float>(kRows * kColumns);
  std::vector<float> state[2] = {values, values};
  uint64_t updates = 0;
  bool operator==(const Rows&) const = default;

  parallax_rows_t of(uint32_t variable) {
    auto rows = sized<parallax_rows_t>();
    rows.variable = variable;
    rows.row_count = kRows;
    rows.values = values.data();
    const uint32_t rule = kVariables[variable].rule;
    const int states = rule == PARALLAX_RULE_ADAM ? 2 : rule == PARALLAX_RULE_ADAGRAD ? 1 : 0;
    for (int i = 0; i < states; ++i) rows.state[i] = state[i].data();
    rows.updates = &updates;
    return rows;
  }
};

std::vector<Rows> read_all(Job& job) {
  std::vector<Rows> all(kCount);
  for (uint32_t variable = 0; variable < kCount; ++variable) {
    job.read(all[variable].of(variable)).wait();
  }
  return all;
}

bool is_bf16(float value) { return (std::bit_cast<uint32_t>(value) & 0xffff) == 0; }

// Given a job that is broken off, and its rows written into one of other ranks and another plan:
// expect the bits of a job that was never broken off.
TEST(Storage, ACheckpointGoesOnElsewhere) {
  std::vector<Rows> whole, half, again, rest;
  on_two_hosts(3, PARALLAX_PLAN_PS, [&](uint32_t rank, Job& job) {
    register_all(job);
    train(job, rank, 0, 10);
    if (rank == 0) whole = read_all(job);
    job.barrier().wait();
  });
  on_two_hosts(3, PARALLAX_PLAN_PS, [&](uint32_t rank, Job& job) {
    register_all(job);
    train(job, rank, 0, 6);
    if (rank == 1) half = read_all(job);
    job.barrier().wait();
  });
  ASSERT_EQ(half.size(), kCount);
  for (const auto mode : {PARALLAX_PLAN_AR, PARALLAX_PLAN_PS, PARALLAX_PLAN_AUTO}) {
    on_two_hosts(2, mode, [&](uint32_t rank, Job& job) {
      register_all(job);
      job.barrier().wait();
      for (uint32_t variable = 0; rank == 1 && variable < kCount; ++variable) {
        job.write(half[variable].of(variable)).wait();
      }
      job.barrier().wait();
      if (rank == 0) again = read_all(job);
      job.barrier().wait();
      train(job, rank, 6, 10);
      if (rank == 1) rest = read_all(job);
      job.barrier().wait();
    });
    EXPECT_EQ(again, half) << mode << ": what was written is not what is read";
    EXPECT_EQ(rest, whole) << mode;
  }
}

// What is read is of the type that is kept; what is written is rounded to it; and pulls in any
// type are of that.
TEST(Storage, WhatIsGivenIsRounded) {
  for (const auto mode : {PARALLAX_PLAN_PS, PARALLAX_PLAN_AR}) {
    on_two_hosts(2, mode, [&](uint32_t rank, Job& job) {
      register_all(job);
      train(job, rank, 0, 3);
      constexpr uint32_t kSgd = 2;
      Rows rows;
      const float wide = 1.00390625f + 0x1p-12f;  // nearer to 1 + 2^-7 than to 1
      if (rank == 0) {
        job.read(rows.of(kSgd)).wait();
        for (const float value : rows.values) EXPECT_TRUE(is_bf16(value)) << value;
        rows.values.assign(rows.values.size(), wide);
      }
      job.barrier().wait();
      if (rank == 0) job.write(rows.of(kSgd)).wait();
      job.barrier().wait();
      std::vector<int64_t> ids = {3, 39, 3, -1};
      std::vector<double> values(ids.size() * kColumns, -1);
      auto slice = sized<parallax_slice_t>();
      slice.variable = kSgd;
      slice.form = PARALLAX_FORM_ROWS;
      slice.ids = ids.data();
      slice.row_count = ids.size();
      slice.values = values.data();
      slice.as_dtype = PARALLAX_AS(PARALLAX_F64);
      job.pull(0, &slice, 1).wait();
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(values[i], i < 3 * kColumns ? 1.0078125 : 0) << i;
      }
      job.barrier().wait();
    });
  }
}

}  // namespace
}  // namespace storage
