// SPDX-License-Identifier: Apache-2.0
// Tables in the memory of devices: whole trainings beside the same ones with tables in host memory,
// bit for bit, over the double of the driver; and what is told where the device fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/double/control.h"
#include "cuda/module_ranks.h"
#include "parallax/parallax.hpp"

namespace cuda_double_test {
namespace {

constexpr uint64_t kRows = 61, kWidth = 5, kRowsMax = 24;
constexpr uint64_t kDenseRows = 301, kDenseWidth = 3;
constexpr int kSteps = 5;

struct Training {
  uint32_t rule = PARALLAX_RULE_SGD;
  uint32_t dtype = PARALLAX_F32;
  uint32_t reduction = PARALLAX_SUM;
  uint32_t world = 1;
  uint32_t deterministic = 0;
  uint32_t plan = PARALLAX_PLAN_AUTO;
  uint32_t init = PARALLAX_INIT_UNIFORM;
  uint64_t rows = kRows;
};

// Everything that the program sees, in its order.
using Trace = std::vector<float>;

uint32_t states_of(uint32_t rule) {
  return rule == PARALLAX_RULE_SGD ? 0 : rule == PARALLAX_RULE_ADAM ? 2 : 1;
}
uint32_t dense_rule(const Training& of) {
  return of.rule == PARALLAX_RULE_ROWWISE_ADAGRAD ? uint32_t{PARALLAX_RULE_ADAGRAD} : of.rule;
}

// Numbers of eighths, so that no order of summing rounds.
float gradient_at(uint32_t rank, int step, uint64_t i) {
  return static_cast<float>(static_cast<int>((rank * 7 + step * 5 + i * 3) % 17) - 8) / 8;
}

class Tables : public NcclJobs {
 protected:
  static void fill(const Training& of, bool on_device, const std::vector<float>& initial,
                   parallax_variable_t* variable) {
    variable->dtype = of.dtype;
    variable->init = of.init;
    variable->init_seed = 11;
    if (of.init == PARALLAX_INIT_UNIFORM) {
      variable->init_low = -1;
      variable->init_high = 1;
    } else {
      variable->initial = initial.data();
    }
    if (variable->rule == PARALLAX_RULE_MOMENTUM) {
      variable->momentum = 0.9;
      variable->nesterov = 1;
    }
    if (variable->rule == PARALLAX_RULE_ADAGRAD ||
        variable->rule == PARALLAX_RULE_ROWWISE_ADAGRAD) {
      variable->initial_accumulator_value = 0.5f;
    }
    variable->table_memory = on_device ? PARALLAX_MEMORY_CUDA : PARALLAX_MEMORY_HOST;
  }

  static void add(const Training& of, bool on_device, const std::vector<float>& initial,
                  parallax_job_t* job) {
    uint32_t id = 0;
    auto table = sized<parallax_variable_t>();
    table.name = "table";
    table.rows = of.rows;
    table.row_elements = kWidth;
    table.rows_max = kRowsMax;
    table.tag = PARALLAX_SPARSE;
    table.reduction = of.reduction;
    table.rule = of.rule;
    fill(of, on_device, initial, &table);
    check(parallax_register(job, &table, &id));
    auto dense = sized<parallax_variable_t>();
    dense.name = "dense";
    dense.rows = kDenseRows;
    dense.row_elements = kDenseWidth;
    dense.rates = 1;
    dense.reduction = of.reduction == PARALLAX_MEAN_ROW ? uint32_t{PARALLAX_SUM} : of.reduction;
    dense.rule = dense_rule(of);
    fill(of, on_device, initial, &dense);
    check(parallax_register(job, &dense, &id));
  }

  static std::vector<int64_t> ids_of(const DeviceRank& rank, int step, uint64_t rows) {
    std::vector<int64_t> ids(kRowsMax - rank.rank);
    for (uint64_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int64_t>((i * i + 3 * i * step + rank.rank * 5) % rows);
    }
    ids[3] = -1;
    return ids;
  }

  static parallax_slice_t rows(const std::vector<int64_t>& ids, std::vector<float>* values) {
    values->assign(ids.size() * kWidth, 0);
    auto slice = sized<parallax_slice_t>();
    slice.form = PARALLAX_FORM_ROWS;
    slice.ids = ids.data();
    slice.row_count = ids.size();
    slice.values = values->data();
    slice.as_dtype = PARALLAX_AS(PARALLAX_F32);
    return slice;
  }
  static parallax_slice_t dense(std::vector<float>* values) {
    values->assign(kDenseRows * kDenseWidth, 0);
    auto slice = sized<parallax_slice_t>();
    slice.variable = 1;
    slice.values = values->data();
    slice.as_dtype = PARALLAX_AS(PARALLAX_F32);
    return slice;
  }
  static void append(Trace* trace, const std::vector<float>& values) {
    trace->insert(trace->end(), values.begin(), values.end());
  }

  static void pull(const DeviceRank& rank, uint64_t step, const std::vector<int64_t>& ids,
                   Trace* trace) {
    std::vector<float> of_rows, of_dense;
    const std::array<parallax_slice_t, 2> slices = {rows(ids, &of_rows), dense(&of_dense)};
    parallax_request_t* request = nullptr;
    check(parallax_pull(rank.job, step, slices.data(), slices.size(), &request));
    rank.finish({request});
    append(trace, of_rows);
    append(trace, of_dense);
  }

  static void train(const DeviceRank& rank, const Training& of, int step, Trace* trace) {
    const uint64_t number = rank.begin();
    const std::vector<int64_t> ids = ids_of(rank, step, of.rows);
    pull(rank, number, ids, trace);
    std::vector<float> of_rows, of_dense;
    const std::array<parallax_slice_t, 2> slices = {rows(ids, &of_rows), dense(&of_dense)};
    for (uint64_t i = 0; i < of_rows.size(); ++i) of_rows[i] = gradient_at(rank.rank, step, i);
    for (uint64_t i = 0; i < of_dense.size(); ++i) of_dense[i] = gradient_at(rank.rank, step, i);
    // One rank gives no rows in one step, and only one variable in another.
    const size_t given = step == 2 && rank.rank == 1 ? 1 : 2;
    parallax_request_t* pushed = nullptr;
    check(parallax_push(rank.job, number, slices.data(), given, &pushed));
    std::array<parallax_rates_t, 2> rates = {sized<parallax_rates_t>(), sized<parallax_rates_t>()};
    rates[0].learning_rate = 0.05f;
    rates[0].weight_decay = step == 1 ? 0.01f : 0;
    rates[0].maximize = step == 4 ? 1 : 0;
    rates[1].learning_rate = 0.1f;
    rates[1].weight_decay = 0.02f;
    rates[1].decoupled = 1;
    rates[1].clip_norm = step == 2 ? 3.0f : 0;
    auto options = sized<parallax_step_end_options_t>();
    options.rates = rates.data();
    options.rates_count = 2;
    options.clip_norm = step >= 3 ? 2.5f : 0;
    options.found_inf = step == 3 && rank.rank == 0 ? 1 : 0;
    parallax_request_t* ended = nullptr;
    check(parallax_step_end(rank.job, number, &options, &ended));
    rank.finish({pushed, ended});
  }

  // All rows with their states, in chunks; and whether what is read can be written elsewhere.
  static void read(const DeviceRank& rank, const Training& of, uint32_t variable, bool write,
                   Trace* trace) {
    const bool table = variable == 0;
    const uint64_t all = table ? of.rows : kDenseRows, width = table ? kWidth : kDenseWidth;
    const uint32_t rule = table ? of.rule : dense_rule(of);
    const uint64_t most = std::max<uint64_t>(20, all / 8);
    for (uint64_t first = 0; first < all; first += most) {
      auto chunk = sized<parallax_rows_t>();
      uint64_t updates = 0;
      chunk.variable = variable;
      chunk.first_row = first;
      chunk.row_count = std::min(most, all - first);
      std::vector<float> values(chunk.row_count * width);
      std::array<std::vector<float>, 2> states;
      chunk.values = values.data();
      for (uint32_t i = 0; i < states_of(rule); ++i) {
        states[i].resize(rule == PARALLAX_RULE_ROWWISE_ADAGRAD ? chunk.row_count : values.size());
        chunk.state[i] = states[i].data();
      }
      chunk.updates = &updates;
      parallax_request_t* request = nullptr;
      check(parallax_read(rank.job, &chunk, &request));
      rank.finish({request});
      append(trace, values);
      for (const std::vector<float>& state : states) append(trace, state);
      trace->push_back(static_cast<float>(updates));
      if (!write) continue;
      // The same rows, halved; states are left as they are.
      for (float& each : values) each /= 2;
      chunk.state[0] = chunk.state[1] = nullptr;
      check(parallax_write(rank.job, &chunk, &request));
      rank.finish({request});
    }
  }

  static void barrier(const DeviceRank& rank) {
    parallax_request_t* request = nullptr;
    check(parallax_barrier(rank.job, &request));
    rank.finish({request});
  }

  // What every rank sees of a training.
  static std::vector<Trace> run(const Training& of, bool on_device) {
    std::vector<Trace> traces(of.world);
    std::vector<float> initial(std::max(of.rows * kWidth, kDenseRows * kDenseWidth));
    for (size_t i = 0; i < initial.size(); ++i) initial[i] = static_cast<float>(i % 97) / 64;
    NcclJobs::run(
        of.world, [&](DeviceRank& rank) { add(of, on_device, initial, rank.job); },
        [&](DeviceRank& rank) {
          Trace* const trace = &traces[rank.rank];
          for (int step = 1; step <= kSteps; ++step) train(rank, of, step, trace);
          pull(rank, 0, ids_of(rank, 9, of.rows), trace);  // an evaluation
          for (uint32_t variable = 0; variable < 2; ++variable) {
            read(rank, of, variable, false, trace);
          }
          barrier(rank);
          if (rank.rank == of.world - 1) {
            for (uint32_t variable = 0; variable < 2; ++variable) {
              read(rank, of, variable, true, trace);
            }
          }
          barrier(rank);
          train(rank, of, kSteps + 1, trace);
          pull(rank, 0, ids_of(rank, 4, of.rows), trace);
        },
        [&](parallax_options_t* options) {
          options->deterministic = of.deterministic;
          options->plan_mode = of.plan;
        });
    return traces;
  }

  static void expect_same(const Training& of) {
    SCOPED_TRACE("rule " + std::to_string(of.rule) + ", dtype " + std::to_string(of.dtype) +
                 ", reduction " + std::to_string(of.reduction) + ", world " +
                 std::to_string(of.world) + ", deterministic " + std::to_string(of.deterministic) +
                 ", plan " + std::to_string(of.plan) + ", init " + std::to_string(of.init));
    const std::vector<Trace> host = run(of, false), device = run(of, true);
    for (uint32_t rank = 0; rank < of.world; ++rank) {
      ASSERT_EQ(host[rank].size(), device[rank].size());
      ASSERT_GT(host[rank].size(), 1000u);
      for (size_t i = 0; i < host[rank].size(); ++i) {
        ASSERT_EQ(std::memcmp(&host[rank][i], &device[rank][i], sizeof(float)), 0)
            << "rank " << rank << ", number " << i << ": " << host[rank][i] << " in host memory, "
            << device[rank][i] << " on the device";
      }
    }
  }
};

constexpr uint32_t kRules[] = {PARALLAX_RULE_SGD, PARALLAX_RULE_MOMENTUM, PARALLAX_RULE_ADAGRAD,
                               PARALLAX_RULE_ROWWISE_ADAGRAD, PARALLAX_RULE_ADAM};

// Given a training of every rule with its tables on devices, sharded, expect to the bit what the
// same one with tables in host memory shows: pulls, evaluations, checkpoints, after writes too.
TEST_F(Tables, EveryRuleHasTheBitsOfTheHost) {
  for (const uint32_t rule : kRules) {
    for (const uint32_t world : {1, 2}) {
      cuda_double_set_delay(rule + 1, 50);
      expect_same({.rule = rule, .world = world, .deterministic = world == 2 ? 1u : 0u});
    }
  }
  EXPECT_EQ(cuda_double_pageable_copies(), 0u) << "all copies are to and from pinned memory";
}

TEST_F(Tables, EveryDtypeAndReduction) {
  for (const uint32_t dtype : {PARALLAX_F32, PARALLAX_F16, PARALLAX_BF16}) {
    expect_same({.rule = PARALLAX_RULE_ADAM, .dtype = dtype, .world = 3});
    expect_same({.rule = PARALLAX_RULE_ADAGRAD,
                 .dtype = dtype,
                 .reduction = PARALLAX_MEAN_ROW,
                 .world = 2});
  }
  expect_same({.rule = PARALLAX_RULE_MOMENTUM, .reduction = PARALLAX_MEAN_WORLD, .world = 4});
}

// Mirrors: every rank's device has the whole.
TEST_F(Tables, Mirrored) {
  for (const uint32_t rule : {PARALLAX_RULE_SGD, PARALLAX_RULE_ROWWISE_ADAGRAD}) {
    expect_same({.rule = rule, .world = 2, .plan = PARALLAX_PLAN_AR});
  }
  expect_same({.rule = PARALLAX_RULE_ADAM,
               .reduction = PARALLAX_MEAN_ROW,
               .world = 3,
               .deterministic = 1,
               .plan = PARALLAX_PLAN_AR});
  expect_same({.rule = PARALLAX_RULE_ADAGRAD, .world = 2, .plan = PARALLAX_PLAN_PS});
}

TEST_F(Tables, InitialValuesOfTheCallers) {
  for (const uint32_t init : {PARALLAX_INIT_BUFFER, PARALLAX_INIT_BROADCAST}) {
    for (const uint32_t plan : {PARALLAX_PLAN_PS, PARALLAX_PLAN_AR}) {
      expect_same({.world = 2, .plan = plan, .init = init});
    }
  }
}

// Given a table of more than a piece, which a broadcast cuts within rows, expect the same.
TEST_F(Tables, LargerThanAPiece) {
  expect_same({.rule = PARALLAX_RULE_ADAGRAD,
               .world = 2,
               .init = PARALLAX_INIT_BROADCAST,
               .rows = 120'000});
}

}  // namespace
}  // namespace cuda_double_test
