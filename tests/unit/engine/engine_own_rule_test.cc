// SPDX-License-Identifier: Apache-2.0
// A caller's own rule in whole jobs: one that does what a rule of the library does ends at the same
// bits, under every plan and through changes of it; states of other widths than the value travel
// with their rows; and a function that fails ends the job by name.
#include <gtest/gtest.h>

#include <deque>

#include "support/drawn_rates.h"
#include "support/engine_world.h"
#include "support/numbers.h"
#include "support/own_rules.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kOwnRows = 60;
constexpr uint64_t kOwnWidth = 3;

// Without row ids wide enough that several owners have some.
std::vector<parallax_variable_t> library_variables() {
  std::vector<parallax_variable_t> all = {
      sparse_variable("sgd", kOwnRows, kOwnWidth, 40, PARALLAX_RULE_SGD),
      sparse_variable("adagrad", kOwnRows, kOwnWidth, 40, PARALLAX_RULE_ADAGRAD),
      sparse_variable("adam", kOwnRows, kOwnWidth, 40, PARALLAX_RULE_ADAM),
      dense_variable("dense adam", 700, kOwnWidth, PARALLAX_RULE_ADAM),
      dense_variable("dense adagrad", 9, 300, PARALLAX_RULE_ADAGRAD)};
  all[0].dtype = PARALLAX_F64;
  all[2].dtype = PARALLAX_BF16;
  all[1].reduction = PARALLAX_MEAN_ROW;
  all[1].initial_accumulator_value = 0.5f;
  all[2].reduction = PARALLAX_MEAN_CONTRIBUTORS;
  all[3].beta1 = 0.8;
  all[4].epsilon = 1e-3f;
  for (uint32_t i = 0; i < all.size(); ++i) {
    all[i].init = PARALLAX_INIT_UNIFORM;
    all[i].init_high = 1;
    all[i].init_seed = i;
    all[i].rates = i % 3;
  }
  return all;
}

// Gradients of a step, as multiples that every order of summing adds up to the same bits.
struct DrawnPushes {
  DrawnPushes(SeededRandom random, const std::vector<parallax_variable_t>& variables) {
    for (uint32_t i = 0; i < variables.size(); ++i) {
      if (random.chance(25)) continue;
      const bool ids = variables[i].rows_max > 0;
      const uint64_t rows = ids ? random.below(variables[i].rows_max + 1) : variables[i].rows;
      auto& of = this->ids.emplace_back();
      for (uint64_t row = 0; ids && row < rows; ++row) {
        of.push_back(static_cast<int64_t>(random.below(kOwnRows)));
      }
      auto& drawn = values.emplace_back(rows * variables[i].row_elements + 1);
      for (float& value : drawn) value = static_cast<float>(random.between(-64, 64)) / 64;
      parallax_slice_t slice = ids ? rows_slice(i, of, drawn.data()) : dense_slice(i, drawn.data());
      slice.as_dtype = PARALLAX_AS(PARALLAX_F32);
      slices.push_back(slice);
    }
  }
  std::deque<std::vector<int64_t>> ids;
  std::deque<std::vector<float>> values;
  std::vector<parallax_slice_t> slices;
};

// The same drawn training of any job; what fails is told.
void train_own(EngineWorld& world, const std::vector<parallax_variable_t>& variables,
               uint64_t steps, uint64_t seed) {
  for (uint64_t i = 1; i <= steps; ++i) {
    const SeededRandom random = SeededRandom(seed).fork(i);
    uint64_t step = 0;
    std::deque<DrawnPushes> drawn;
    std::vector<Request*> pushes(world.size());
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(world.engine(rank).step_calls().begin(&step).ok());
      const DrawnPushes& of = drawn.emplace_back(random.fork(rank), variables);
      const Status pushed = world.engine(rank).step_calls().push(step, of.slices, &pushes[rank]);
      ASSERT_TRUE(pushed.ok()) << pushed.message();
    }
    const std::vector<parallax_rates_t> rates = draw_rates(random.fork(99), 3);
    parallax_step_end_options_t end = {};
    end.size = sizeof end;
    end.rates = rates.data();
    end.rates_count = 3;
    end.clip_norm = 4;
    for (const Status& status : world.everywhere([&](uint32_t rank, Request**request) {
           return world.engine(rank).step_calls().end(step, end, request);
         })) {
      ASSERT_TRUE(status.ok()) << status.message();
    }
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(pushes[rank]->done() && world.engine(rank).release(pushes[rank]).ok());
    }
  }
}

struct KeptRows {
  std::vector<double> values, first, second;
  uint64_t updates = 0;
  bool operator==(const KeptRows&) const = default;
};

Status call_own(EngineWorld& world, uint32_t rank, const parallax_rows_t& rows, bool write) {
  Request* request = nullptr;
  const Status posted = world.engine(rank).row_calls().post(rows, write, &request);
  if (!posted.ok()) return posted;
  if (!world.run_until_done({&request, 1})) return internal("it does not end");
  const Status status = request->status;
  EXPECT_TRUE(world.engine(rank).release(request).ok());
  return status;
}

struct OwnBuffers {
  OwnBuffers(const parallax_variable_t& of, uint64_t first_row, uint64_t row_count,
             uint64_t states[2])
      : dtype(of.dtype == PARALLAX_F64 ? PARALLAX_F64 : PARALLAX_F32),
        values(dtype, row_count * of.row_elements),
        first(dtype, row_count * states[0]),
        second(dtype, row_count * states[1]) {
    rows.size = sizeof rows;
    rows.first_row = first_row;
    rows.row_count = row_count;
    rows.values = values.data();
    if (states[0] > 0) rows.state[0] = first.data();
    if (states[1] > 0) rows.state[1] = second.data();
    rows.updates = &updates;
  }
  uint32_t dtype;
  Numbers values, first, second;
  uint64_t updates = 0;
  parallax_rows_t rows = {};
};

KeptRows read_own(EngineWorld& world, uint32_t variable, const parallax_variable_t& of,
                  std::array<uint64_t, 2> states, uint64_t first_row, uint64_t row_count) {
  OwnBuffers buffers(of, first_row, row_count, states.data());
  buffers.rows.variable = variable;
  const Status status = call_own(world, world.size() - 1, buffers.rows, false);
  EXPECT_TRUE(status.ok()) << status.message();
  return {buffers.values.all(), buffers.first.all(), buffers.second.all(), buffers.updates};
}

struct OwnShape {
  std::vector<uint32_t> hosts;
  parallax_plan_mode_t mode;
};
const OwnShape kOwnShapes[] = {{{0}, PARALLAX_PLAN_HYBRID},
                               {{0, 0, 1}, PARALLAX_PLAN_PS},
                               {{0, 1, 2}, PARALLAX_PLAN_AR},
                               {{0, 1, 1}, PARALLAX_PLAN_AUTO},
                               {{0, 1, 2, 2}, PARALLAX_PLAN_AUTO}};

TEST(EngineOwnRule, WhatALibrarysRuleDoesEndsAtItsBits) {
  const std::vector<parallax_variable_t> library = library_variables();
  for (const OwnShape& shape : kOwnShapes) {
    std::deque<OwnRule> rules(library.size());
    std::vector<parallax_variable_t> own;
    for (uint32_t i = 0; i < library.size(); ++i) own.push_back(rules[i].in_place_of(library[i]));
    const WorldOptions options = {.hosts = shape.hosts,
                                  .plan_mode = shape.mode,
                                  .plan_after_steps = 2,
                                  .deterministic = shape.hosts.size() > 3,
                                  .message_bytes_max = 4096,
                                  .late_jobs = true};
    EngineWorld first(options), second(options);
    for (const Status& status : first.commit(library)) ASSERT_TRUE(status.ok());
    for (const Status& status : second.commit(own)) ASSERT_TRUE(status.ok()) << status.message();
    train_own(first, library, 7, 5);
    train_own(second, library, 7, 5);
    for (uint32_t i = 0; i < library.size(); ++i) {
      const uint64_t width = library[i].row_elements;
      const uint32_t rule = library[i].rule;
      const std::array<uint64_t, 2> states = {rule == PARALLAX_RULE_SGD ? 0 : width,
                                              rule == PARALLAX_RULE_ADAM ? width : 0};
      const KeptRows want = read_own(first, i, library[i], states, 0, library[i].rows);
      EXPECT_EQ(read_own(second, i, library[i], states, 0, library[i].rows), want)
          << library[i].name << " of " << shape.hosts.size() << " ranks, mode " << shape.mode;
      EXPECT_GT(rules[i].rows, 0u);
      EXPECT_EQ(rules[i].wrong, 0u) << library[i].name;
    }
    if (HasFailure()) return;
  }
}

// Counts a row's updates in its first state, and writes its id into the second, which is wider
// than the value or narrower.
int note_rows(void* context, const parallax_rule_block_t* block) {
  const uint64_t* widths = static_cast<const uint64_t*>(context);
  auto* first = static_cast<float*>(block->state[0]);
  auto* second = static_cast<float*>(block->state[1]);
  for (uint64_t row = 0; row < block->row_count; ++row) {
    for (uint64_t i = 0; i < widths[0]; ++i) first[row * widths[0] + i] += 1;
    for (uint64_t i = 0; i < widths[1]; ++i) {
      second[row * widths[1] + i] = static_cast<float>(block->rows[row]);
    }
    static_cast<float*>(block->values)[row * block->row_elements] += 2;
  }
  return 0;
}

std::vector<parallax_variable_t> noted_variables(std::array<uint64_t, 2>* widths) {
  std::vector<parallax_variable_t> all = {
      sparse_variable("rows", kOwnRows, kOwnWidth, 60, PARALLAX_RULE_CALLBACK),
      dense_variable("wide rows", 7, 300, PARALLAX_RULE_CALLBACK),
      dense_variable("dense", 1000, kOwnWidth, PARALLAX_RULE_CALLBACK)};
  for (parallax_variable_t& each : all) {
    each.rule_fn = note_rows;
    each.rule_context = widths->data();
    each.state_elements[0] = static_cast<uint32_t>((*widths)[0]);
    each.state_elements[1] = static_cast<uint32_t>((*widths)[1]);
    each.initial_accumulator_value = 10;
  }
  return all;
}

// Every row is given once a step: what is in a row is then a function of its id and of the steps.
class EngineOwnStates : public testing::TestWithParam<std::array<uint64_t, 2>> {
 protected:
  static WorldOptions options(const OwnShape& shape) {
    return {.hosts = shape.hosts,
            .plan_mode = shape.mode,
            .plan_after_steps = 2,
            .message_bytes_max = 4096};
  }

  static void step_all(EngineWorld& world) {
    std::vector<int64_t> ids(kOwnRows);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
    std::vector<float> values(3000, 1.0f);
    uint64_t step = 0;
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(world.engine(rank).step_calls().begin(&step).ok());
    }
    const std::vector<parallax_slice_t> slices = {rows_slice(0, ids, values.data()),
                                                  dense_slice(1, values.data()),
                                                  dense_slice(2, values.data())};
    Request* push = nullptr;
    ASSERT_TRUE(world.engine(0).step_calls().push(step, slices, &push).ok());
    for (const Status& status : world.everywhere([&](uint32_t rank, Request**request) {
           return world.engine(rank).step_calls().end(step, end_options(0.5f), request);
         })) {
      ASSERT_TRUE(status.ok()) << status.message();
    }
    ASSERT_TRUE(world.engine(0).release(push).ok());
  }

  // All that is read, in chunks.
  void expect_after(EngineWorld& world, double steps) {
    for (uint32_t variable = 0; variable < variables_.size(); ++variable) {
      const parallax_variable_t& of = variables_[variable];
      for (uint64_t row = 0; row < of.rows; row += 41) {
        const uint64_t count = std::min<uint64_t>(41, of.rows - row);
        const KeptRows kept = read_own(world, variable, of, widths_, row, count);
        for (uint64_t i = 0; i < count; ++i) {
          ASSERT_EQ(kept.values[i * of.row_elements], 2 * steps);
          for (uint64_t j = 0; j < widths_[0]; ++j) {
            ASSERT_EQ(kept.first[i * widths_[0] + j], 10 + steps) << of.name << " row " << row + i;
          }
          for (uint64_t j = 0; j < widths_[1]; ++j) {
            ASSERT_EQ(kept.second[i * widths_[1] + j], static_cast<double>(row + i)) << of.name;
          }
        }
      }
    }
  }

  // Chunk by chunk.
  void copy(EngineWorld& from, EngineWorld& to) {
    for (uint32_t variable = 0; variable < variables_.size(); ++variable) {
      const parallax_variable_t& of = variables_[variable];
      for (uint64_t row = 0; row < of.rows; row += 100) {
        OwnBuffers chunk(of, row, std::min<uint64_t>(100, of.rows - row), widths_.data());
        chunk.rows.variable = variable;
        ASSERT_TRUE(call_own(from, 0, chunk.rows, false).ok());
        const Status written = call_own(to, to.size() - 1, chunk.rows, true);
        ASSERT_TRUE(written.ok()) << written.message();
      }
    }
  }

  std::array<uint64_t, 2> widths_ = GetParam();
  const std::vector<parallax_variable_t> variables_ = noted_variables(&widths_);
};

TEST_P(EngineOwnStates, GoWithTheirRowsFromPlanToPlanAndJobToJob) {
  for (const OwnShape& from : kOwnShapes) {
    EngineWorld first(options(from));
    for (const Status& status : first.commit(variables_)) ASSERT_TRUE(status.ok());
    for (int i = 0; i < 5; ++i) step_all(first);
    expect_after(first, 5);
    EngineWorld second(options(from.mode == PARALLAX_PLAN_PS ? kOwnShapes[2] : kOwnShapes[1]));
    for (const Status& status : second.commit(variables_)) ASSERT_TRUE(status.ok());
    copy(first, second);
    step_all(second);
    expect_after(second, 6);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, EngineOwnStates,
                         testing::Values(std::array<uint64_t, 2>{1, 5},
                                         std::array<uint64_t, 2>{17, 1},
                                         std::array<uint64_t, 2>{2, 0}));

TEST(EngineOwnRule, AnAnswerThatIsNotZeroEndsTheJobByName) {
  for (const auto mode : {PARALLAX_PLAN_PS, PARALLAX_PLAN_AR}) {
    EngineWorld world({.hosts = {0, 1}, .plan_mode = mode});
    parallax_variable_t variable = dense_variable("mine", 300, 2, PARALLAX_RULE_CALLBACK);
    variable.rule_fn = [](void*, const parallax_rule_block_t* block) {
      return block->step == 2 ? 42 : 0;
    };
    for (const Status& status : world.commit({&variable, 1})) ASSERT_TRUE(status.ok());
    for (int i = 1; i <= 2; ++i) {
      uint64_t step = 0;
      std::vector<float> values(600, 1.0f);
      const parallax_slice_t slice = dense_slice(0, values.data());
      std::vector<Request*> pushes(world.size());
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        ASSERT_TRUE(world.engine(rank).step_calls().begin(&step).ok());
        ASSERT_TRUE(world.engine(rank).step_calls().push(step, {&slice, 1}, &pushes[rank]).ok());
      }
      for (const Status& status : world.everywhere([&](uint32_t rank, Request**request) {
             return world.engine(rank).step_calls().end(step, end_options(0.5f), request);
           })) {
        if (i == 1) {
          ASSERT_TRUE(status.ok()) << status.message();
          continue;
        }
        EXPECT_EQ(status.code(), PARALLAX_ABORTED);
        EXPECT_NE(status.message().find("step 2: the rule_fn of variable 'mine' answered 42"),
                  std::string::npos)
            << status.message();
        EXPECT_EQ(status.facts().variable, 0u);
        EXPECT_EQ(status.facts().step, 2u);
        EXPECT_EQ(status.facts().field, "rule_fn");
      }
    }
  }
}

}  // namespace
}  // namespace parallax::testkit
