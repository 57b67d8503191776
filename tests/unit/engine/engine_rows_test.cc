// SPDX-License-Identifier: Apache-2.0
// Rows with their optimizer state, out in chunks and in again: into another job of another shape
// and plan, which then goes on as if it had trained all along.
#include <gtest/gtest.h>

#include <numeric>

#include "support/engine_world.h"
#include "support/naive_training.h"
#include "support/numbers.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kRows = 3000;  // several portions
constexpr uint64_t kWidth = 3;

std::vector<parallax_variable_t> variables() {
  std::vector<parallax_variable_t> all = {
      sparse_variable("adam", kRows, kWidth, 50, PARALLAX_RULE_ADAM),
      sparse_variable("rowwise", kRows, kWidth, 50, PARALLAX_RULE_ROWWISE_ADAGRAD),
      dense_variable("dense", kRows, kWidth, PARALLAX_RULE_ADAM),
      sparse_variable("sgd", kRows, kWidth, 50, PARALLAX_RULE_SGD)};
  all[0].dtype = PARALLAX_BF16;
  all[1].dtype = PARALLAX_F64;
  for (parallax_variable_t& each : all) {
    each.init = PARALLAX_INIT_UNIFORM;
    each.init_high = 1;
    each.init_seed = 3;
  }
  return all;
}

struct Parts {
  Parts(uint32_t variable, uint64_t count)
      : values(dtype(variable), count * kWidth),
        first(dtype(variable), count * (variable == 1 ? 1 : kWidth)),
        second(dtype(variable), count * kWidth) {}
  static uint32_t dtype(uint32_t variable) {
    return variable == 1 ? uint32_t{PARALLAX_F64} : uint32_t{PARALLAX_F32};
  }
  parallax_rows_t rows(uint32_t variable, uint64_t first_row, uint64_t count) {
    parallax_rows_t rows = {};
    rows.size = sizeof rows;
    rows.variable = variable;
    rows.first_row = first_row;
    rows.row_count = count;
    rows.values = values.data();
    const uint32_t states = kRules[variables()[variable].rule].element_states +
                            kRules[variables()[variable].rule].row_states;
    if (states > 0) rows.state[0] = first.data();
    if (states > 1) rows.state[1] = second.data();
    rows.updates = &updates;
    return rows;
  }
  Numbers values, first, second;
  uint64_t updates = 0;
};

Status call(EngineWorld& world, uint32_t rank, const parallax_rows_t& rows, bool write) {
  Request* request = nullptr;
  const Status posted = world.engine(rank).row_calls().post(rows, write, &request);
  if (!posted.ok()) return posted;
  if (!world.run_until_done({&request, 1})) {
    return world.engine(rank).reports().missing(*request);
  }
  const Status status = request->status;
  EXPECT_TRUE(world.engine(rank).release(request).ok());
  return status;
}

void train(EngineWorld& world, uint64_t seed, int steps) {
  SeededRandom random(seed);
  for (int i = 0; i < steps; ++i) {
    std::vector<int64_t> ids(40);
    for (int64_t& id : ids) id = static_cast<int64_t>(random.below(kRows));
    std::vector<std::vector<float>> gradients;
    std::vector<double> drawn(kRows * kWidth);
    for (double& g : drawn) g = static_cast<double>(random.between(-64, 64)) / 64;
    uint64_t step = 0;
    // Rank 0 gives all: jobs of other shapes then sum the same.
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(world.engine(rank).step_calls().begin(&step).ok());
    }
    std::deque<Numbers> buffers;
    std::vector<parallax_slice_t> slices;
    for (uint32_t variable = 0; variable < 4; ++variable) {
      const bool dense = variable == 2;
      buffers.emplace_back(Parts::dtype(variable), std::span<const double>(drawn).first(
                                                       dense ? drawn.size() : ids.size() * kWidth));
      parallax_slice_t slice =
          dense ? dense_slice(variable, nullptr) : rows_slice(variable, ids, nullptr);
      slice.values = buffers.back().data();
      slice.as_dtype = PARALLAX_AS(Parts::dtype(variable));
      slices.push_back(slice);
    }
    Request* push = nullptr;
    ASSERT_TRUE(world.engine(0).step_calls().push(step, slices, &push).ok());
    parallax_step_end_options_t end = {};
    end.size = sizeof end;
    end.learning_rate = 0.125f;
    for (const Status& status : world.everywhere([&](uint32_t rank, Request**request) {
           return world.engine(rank).step_calls().end(step, end, request);
         })) {
      ASSERT_TRUE(status.ok()) << status.message();
    }
    ASSERT_TRUE(push->done() && world.engine(0).release(push).ok());
  }
}

// Everything of a job as one rank reads it, in chunks of odd sizes.
std::vector<Parts> read_all(EngineWorld& world, uint32_t rank) {
  std::vector<Parts> all;
  for (uint32_t variable = 0; variable < 4; ++variable) {
    Parts& whole = all.emplace_back(variable, kRows);
    for (uint64_t row = 0; row < kRows;) {
      const uint64_t count = std::min<uint64_t>(kRows - row, 1 + row * 3);
      Parts chunk(variable, count);
      const Status status = call(world, rank, chunk.rows(variable, row, count), false);
      EXPECT_TRUE(status.ok()) << status.message();
      for (uint64_t i = 0; i < count * kWidth; ++i) {
        whole.values.set(row * kWidth + i, chunk.values[i]);
        whole.second.set(row * kWidth + i, chunk.second[i]);
      }
      const uint64_t width = variable == 1 ? 1 : kWidth;
      for (uint64_t i = 0; i < count * width; ++i) {
        whole.first.set(row * width + i, chunk.first[i]);
      }
      whole.updates = chunk.updates;
      row += count;
    }
  }
  return all;
}

void expect_same(const std::vector<Parts>& a, const std::vector<Parts>& b) {
  for (size_t variable = 0; variable < a.size(); ++variable) {
    EXPECT_EQ(a[variable].values.all(), b[variable].values.all()) << variable;
    EXPECT_EQ(a[variable].first.all(), b[variable].first.all()) << variable;
    EXPECT_EQ(a[variable].second.all(), b[variable].second.all()) << variable;
    EXPECT_EQ(a[variable].updates, b[variable].updates) << variable;
  }
}

struct Shape {
  std::vector<uint32_t> hosts;
  parallax_plan_mode_t mode;
};

TEST(EngineRows, AJobGoesOnInAnotherShapeAsIfItHadTrainedThere) {
  const Shape shapes[] = {
      {{0, 0, 1}, PARALLAX_PLAN_PS}, {{0, 1, 1, 1}, PARALLAX_PLAN_AR}, {{0}, PARALLAX_PLAN_HYBRID}};
  for (const Shape& from : shapes) {
    EngineWorld first({.hosts = from.hosts, .plan_mode = from.mode, .message_bytes_max = 4096});
    for (const Status& status : first.commit(variables())) ASSERT_TRUE(status.ok());
    train(first, 1, 3);
    std::vector<Parts> saved = read_all(first, first.size() - 1);
    EXPECT_EQ(saved[0].updates, 3u);
    train(first, 2, 2);
    const std::vector<Parts> later = read_all(first, 0);
    for (const Shape& to : shapes) {
      EngineWorld second({.hosts = to.hosts, .plan_mode = to.mode, .message_bytes_max = 4096});
      for (const Status& status : second.commit(variables())) ASSERT_TRUE(status.ok());
      for (uint32_t variable = 0; variable < 4; ++variable) {
        const Status written =
            call(second, second.size() - 1, saved[variable].rows(variable, 0, kRows), true);
        ASSERT_TRUE(written.ok()) << written.message();
      }
      expect_same(read_all(second, 0), saved);
      train(second, 2, 2);
      expect_same(read_all(second, 0), later);
      if (HasFailure()) return;
    }
  }
}

TEST(EngineRows, WhatIsWrongIsNamed) {
  EngineWorld world({.hosts = {0, 1}, .plan_mode = PARALLAX_PLAN_PS});
  std::vector<parallax_variable_t> all = variables();
  all.push_back(dense_variable("held", 4, 4));
  for (const Status& status : world.commit(all)) ASSERT_TRUE(status.ok());
  Parts parts(3, 10);
  const auto refused = [&](const parallax_rows_t& rows, parallax_status_t code, const char* word) {
    const Status status = call(world, 0, rows, false);
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  };
  parallax_rows_t rows = parts.rows(3, 0, 10);
  rows.reserved = 1;
  refused(rows, PARALLAX_UNSUPPORTED, "reserved is 1");
  rows.reserved = 0;
  rows.variable = 9;
  refused(rows, PARALLAX_INVALID, "variable is 9");
  rows.variable = 4;
  refused(rows, PARALLAX_INVALID, "'held': it is framework-held");
  refused(parts.rows(3, kRows - 3, 4), PARALLAX_INVALID, "'sgd'");
  refused(parts.rows(3, UINT64_MAX, 4), PARALLAX_INVALID, "rows");
  refused(parts.rows(3, 0, 0), PARALLAX_INVALID, "at least one row");
  rows = parts.rows(3, 0, 10);
  rows.state[0] = parts.first.data();
  refused(rows, PARALLAX_INVALID, "state[0] is given, but rule SGD");
  rows = parts.rows(3, 0, 10);
  rows.values = reinterpret_cast<char*>(rows.values) + 1;
  refused(rows, PARALLAX_INVALID, "aligned to 4");
  uint64_t step = 0;
  ASSERT_TRUE(world.engine(1).step_calls().begin(&step).ok());
  const Status taken = call(world, 0, parts.rows(3, 0, 10), true);
  EXPECT_EQ(taken.code(), PARALLAX_STATE);
  EXPECT_NE(taken.message().find("rank 1 was in a step"), std::string::npos) << taken.message();
  EXPECT_TRUE(call(world, 0, parts.rows(3, 0, 10), false).ok()) << "reading harms nobody";
  ASSERT_TRUE(world.engine(0).step_calls().begin(&step).ok());
  refused(parts.rows(3, 0, 10), PARALLAX_STATE, "step 1 is not over");
}

// Rank 0 is out of its step before the others, and writes at once: into a holder that leaves its
// own between two portions.
TEST(EngineRows, AWriteIsWholeOrRefused) {
  uint32_t whole = 0, refused = 0;
  // One of some 200 is whole.
  for (uint64_t seed = 1; seed <= 150 || (whole == 0 && seed <= 3000); ++seed) {
    EngineWorld world({.hosts = {0, 1, 2},
                       .plan_mode = PARALLAX_PLAN_PS,
                       .seed = seed,
                       .message_bytes_max = 4096,
                       .slow_percent = 60});
    for (const Status& status : world.commit(variables())) ASSERT_TRUE(status.ok());
    std::vector<Request*> ends(world.size());
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      uint64_t step = 0;
      ASSERT_TRUE(world.engine(rank).step_calls().begin(&step).ok());
      parallax_step_end_options_t end = {};
      end.size = sizeof end;
      ASSERT_TRUE(world.engine(rank).step_calls().end(step, end, &ends[rank]).ok());
    }
    ASSERT_TRUE(world.run_until([&] { return ends[0]->done(); }));
    Parts parts(3, kRows);
    for (uint64_t i = 0; i < kRows * kWidth; ++i) parts.values.set(i, static_cast<double>(i));
    const Status written = call(world, 0, parts.rows(3, 0, kRows), true);
    if (written.ok()) {
      ++whole;
      Parts read(3, kRows);
      ASSERT_TRUE(call(world, 0, read.rows(3, 0, kRows), false).ok());
      ASSERT_EQ(read.values.all(), parts.values.all()) << "seed " << seed;
    } else {
      ++refused;
      ASSERT_EQ(written.code(), PARALLAX_STATE) << written.message();
    }
    ASSERT_TRUE(world.run_until_done(ends));
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_TRUE(world.engine(rank).release(ends[rank]).ok());
    }
  }
  EXPECT_GT(whole, 0u);
  EXPECT_GT(refused, 0u);
}

Status evaluate(EngineWorld& world, uint32_t rank, const parallax_slice_t& slice) {
  Request* request = nullptr;
  const Status posted = world.engine(rank).step_calls().pull(0, {&slice, 1}, &request);
  if (!posted.ok()) return posted;
  if (!world.run_until_done({&request, 1})) {
    return world.engine(rank).reports().missing(*request);
  }
  const Status status = request->status;
  EXPECT_TRUE(world.engine(rank).release(request).ok());
  return status;
}

// What read gives of these rows, rounded; zeros for padding.
std::vector<double> want_of(const Parts& whole, const std::vector<int64_t>& ids, uint32_t dtype) {
  std::vector<double> want;
  for (const int64_t id : ids) {
    for (uint64_t column = 0; column < kWidth; ++column) {
      const uint64_t at = static_cast<uint64_t>(id) * kWidth + column;
      want.push_back(id < 0 ? 0 : rounded(dtype, whole.values[at]));
    }
  }
  return want;
}

TEST(EngineEvaluation, OneRankPullsAloneBetweenSteps) {
  std::vector<parallax_variable_t> all = variables();
  all[1].rows_max = 4000;
  std::vector<int64_t> every(kRows);
  std::iota(every.begin(), every.end(), 0);
  for (const auto mode : {PARALLAX_PLAN_PS, PARALLAX_PLAN_AR, PARALLAX_PLAN_HYBRID}) {
    EngineWorld world({.hosts = {0, 0, 1}, .plan_mode = mode, .message_bytes_max = 4096});
    for (const Status& status : world.commit(all)) ASSERT_TRUE(status.ok());
    train(world, 4, 3);
    const std::vector<Parts> saved = read_all(world, 0);
    for (const uint32_t rank : {0u, 2u}) {
      for (const uint32_t dtype : {PARALLAX_F32, PARALLAX_F64, PARALLAX_F16, PARALLAX_BF16}) {
        for (const uint64_t count : {0, 1, 50, 4000}) {
          std::vector<int64_t> ids(count);
          for (int64_t& id : ids) id = static_cast<int64_t>(world.random().below(kRows + 1)) - 1;
          Numbers got(dtype, count * kWidth, -77);
          parallax_slice_t slice = rows_slice(count > 50 ? 1 : 0, ids, nullptr);
          slice.values = got.data();
          slice.as_dtype = PARALLAX_AS(dtype);
          const Status status = evaluate(world, rank, slice);
          ASSERT_TRUE(status.ok()) << status.message();
          ASSERT_EQ(got.all(), want_of(saved[slice.variable], ids, dtype)) << mode_name(mode);
        }
        // All rows: of a variable with ids, where rows_max allows it, and of one without.
        for (const uint32_t variable : {1u, 2u}) {
          Numbers got(dtype, kRows * kWidth, -77);
          parallax_slice_t slice = dense_slice(variable, nullptr);
          slice.values = got.data();
          slice.as_dtype = PARALLAX_AS(dtype);
          ASSERT_TRUE(evaluate(world, rank, slice).ok());
          ASSERT_EQ(got.all(), want_of(saved[variable], every, dtype)) << mode_name(mode);
        }
      }
    }
    expect_same(read_all(world, 1), saved);
    train(world, 5, 1);
  }
}

TEST(EngineEvaluation, ManyAtOnceAndNoneInAStep) {
  EngineWorld world({.hosts = {0, 1}, .plan_mode = PARALLAX_PLAN_PS, .slow_percent = 30});
  std::vector<parallax_variable_t> all = variables();
  all.push_back(dense_variable("held", 4, 4));
  for (const Status& status : world.commit(all)) ASSERT_TRUE(status.ok());
  const std::vector<int64_t> ids = {1, 2999, 1};
  std::vector<float> values(9), whole(kRows * kWidth);
  parallax_slice_t slices[] = {rows_slice(0, ids, values.data()), dense_slice(2, whole.data())};
  slices[0].as_dtype = PARALLAX_AS(PARALLAX_F32);
  Parts parts(3, 10);
  std::vector<Request*> requests(6);
  for (uint32_t i = 0; i < 6; ++i) {
    const Status posted =
        i % 3 == 2 ? world.engine(i % 2).row_calls().post(parts.rows(3, 0, 10), false, &requests[i])
                   : world.engine(i % 2).step_calls().pull(0, slices, &requests[i]);
    ASSERT_TRUE(posted.ok()) << posted.message();
  }
  uint64_t step = 0;
  EXPECT_EQ(world.engine(0).step_calls().begin(&step).code(), PARALLAX_STATE);
  ASSERT_TRUE(world.run_until_done(requests));
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(requests[i]->status.ok());
    EXPECT_TRUE(world.engine(i % 2).release(requests[i]).ok());
  }
  EXPECT_TRUE(std::equal(values.begin(), values.begin() + 3, values.begin() + 6));
  EXPECT_NE(values[0], values[3]);
  const auto refused = [&](const parallax_slice_t& slice, parallax_status_t code,
                           const char* word) {
    const Status status = evaluate(world, 0, slice);
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  };
  std::vector<float> held(16);
  refused(dense_slice(4, held.data()), PARALLAX_INVALID, "'held' is framework-held");
  const std::vector<int64_t> beyond = {1, 3000};
  refused(rows_slice(0, beyond, values.data()), PARALLAX_INVALID, "ids[1] is 3000");
  ASSERT_TRUE(world.engine(1).step_calls().begin(&step).ok());
  EXPECT_TRUE(evaluate(world, 0, slices[0]).ok()) << "another rank has begun";
  ASSERT_TRUE(world.engine(0).step_calls().begin(&step).ok());
  refused(slices[0], PARALLAX_STATE, "step 1 is not over");
}

// More ids than the variable has rows: every call takes them, with row ids of both widths, rows
// given more than once and padding; each owner is asked for a row as often as it is named.
TEST(EngineEvaluation, MoreIdsThanRows) {
  constexpr uint64_t kFew = 4, kIds = 1200;  // three portions
  for (const std::vector<uint32_t>& hosts :
       {std::vector<uint32_t>{0}, {0, 0}, {0, 1, 1}, {0, 1, 2, 2, 3}}) {
    for (const auto mode : {PARALLAX_PLAN_PS, PARALLAX_PLAN_AR, PARALLAX_PLAN_HYBRID}) {
      SCOPED_TRACE(std::to_string(hosts.size()) + " ranks, " + mode_name(mode));
      EngineWorld world({.hosts = hosts, .plan_mode = mode, .message_bytes_max = 4096});
      std::vector<parallax_variable_t> all = {
          sparse_variable("few", kFew, kWidth, kIds, PARALLAX_RULE_SGD)};
      all[0].init = PARALLAX_INIT_UNIFORM;
      all[0].init_high = 1;
      for (const Status& status : world.commit(all)) ASSERT_TRUE(status.ok());
      const uint32_t rank = world.size() - 1;
      std::vector<float> whole(kFew * kWidth);
      ASSERT_TRUE(evaluate(world, rank, dense_slice(0, whole.data())).ok());
      for (const uint64_t count : {kFew, kFew + 1, uint64_t{513}, kIds}) {
        std::vector<int64_t> ids(count);
        for (int64_t& id : ids) id = static_cast<int64_t>(world.random().below(kFew + 1)) - 1;
        ids.back() = 3;
        const std::vector<int32_t> narrow(ids.begin(), ids.end());
        std::vector<float> want, got(count * kWidth), pulled(count * kWidth);
        for (const int64_t id : ids) {
          for (uint64_t column = 0; column < kWidth; ++column) {
            want.push_back(id < 0 ? 0 : whole[static_cast<uint64_t>(id) * kWidth + column]);
          }
        }
        parallax_slice_t slice = rows_slice(0, ids, got.data());
        const Status status = evaluate(world, rank, slice);
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(got, want);
        slice.ids = nullptr;
        slice.ids_i32 = narrow.data();
        slice.values = pulled.data();
        ASSERT_TRUE(evaluate(world, rank, slice).ok());
        ASSERT_EQ(pulled, want);
        // The same in a step, by all; the push changes nothing.
        std::fill(pulled.begin(), pulled.end(), 0.0f);
        std::vector<float> zeros(count * kWidth);
        const parallax_slice_t pushed = rows_slice(0, ids, zeros.data());
        std::vector<Request*> requests;
        for (uint32_t each = 0; each < world.size(); ++each) {
          Engine& engine = world.engine(each);
          uint64_t step = 0;
          ASSERT_TRUE(engine.step_calls().begin(&step).ok());
          ASSERT_TRUE(engine.step_calls().pull(step, {&slice, 1}, &requests.emplace_back()).ok());
          ASSERT_TRUE(engine.step_calls().push(step, {&pushed, 1}, &requests.emplace_back()).ok());
          ASSERT_TRUE(engine.step_calls().end(step, {}, &requests.emplace_back()).ok());
        }
        ASSERT_TRUE(world.run_until_done(requests));
        for (size_t i = 0; i < requests.size(); ++i) {
          ASSERT_TRUE(requests[i]->status.ok()) << requests[i]->status.message();
          ASSERT_TRUE(world.engine(static_cast<uint32_t>(i / 3)).release(requests[i]).ok());
        }
        ASSERT_EQ(pulled, want);
      }
    }
  }
}

TEST(EngineRows, NoStepBeginsBeforeTheyAreThere) {
  EngineWorld world({.hosts = {0, 1}, .plan_mode = PARALLAX_PLAN_PS});
  for (const Status& status : world.commit(variables())) ASSERT_TRUE(status.ok());
  Parts parts(0, 10);
  Request* request = nullptr;
  ASSERT_TRUE(world.engine(0).row_calls().post(parts.rows(0, 0, 10), false, &request).ok());
  uint64_t step = 0;
  EXPECT_EQ(world.engine(0).step_calls().begin(&step).code(), PARALLAX_STATE);
  ASSERT_TRUE(world.run_until_done({&request, 1}));
  EXPECT_TRUE(world.engine(0).release(request).ok());
  EXPECT_TRUE(world.engine(0).step_calls().begin(&step).ok());
}

}  // namespace
}  // namespace parallax::testkit
