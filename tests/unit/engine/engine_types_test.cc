// SPDX-License-Identifier: Apache-2.0
// Every dtype with every rule, reduction and pin, deterministic and not, against the naive program,
// bit for bit: so HYBRID, AR and PS train one model. Pulls and contributions in any dtype, ids of
// both widths, padding, micro-batches, rates by group, and, for tied variables, dense slices beside
// rows. A failure prints its seed.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>
#include <string>

#include "support/sanitizers.h"
#include "support/script.h"
#include "transport/shm/ring.h"

namespace parallax::testkit {
namespace {

constexpr uint32_t kDtypes[] = {PARALLAX_F32, PARALLAX_F64,  PARALLAX_F16,
                                PARALLAX_I32, PARALLAX_BF16, PARALLAX_I64};
constexpr uint32_t kFloatRules[] = {PARALLAX_RULE_SGD,      PARALLAX_RULE_ADAGRAD,
                                    PARALLAX_RULE_ADAM,     PARALLAX_RULE_ROWWISE_ADAGRAD,
                                    PARALLAX_RULE_MOMENTUM, PARALLAX_RULE_SUM,
                                    PARALLAX_RULE_FTRL};
constexpr uint32_t kReductions[] = {PARALLAX_SUM, PARALLAX_MEAN_WORLD, PARALLAX_MEAN_CONTRIBUTORS,
                                    PARALLAX_MEAN_ROW};

constexpr uint32_t kRatesGroups = 3;

const std::vector<std::vector<uint32_t>>& few_layouts() {
  static const std::vector<std::vector<uint32_t>> all = {
      {0}, {0, 1, 0}, {0, 0, 1, 1}, {0, 1, 1, 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 8}};
  return all;
}

// Every rule and reduction that a dtype has, with rows and dense, managed and held.
class Everything {
 public:
  explicit Everything(uint32_t dtype) {
    const bool floating = is_floating(dtype);
    for (const uint32_t reduction : kReductions) {
      if (!floating && reduction != PARALLAX_SUM) continue;
      add(dtype, PARALLAX_RULE_NONE, reduction, true);
      if (reduction != PARALLAX_MEAN_ROW) add(dtype, PARALLAX_RULE_NONE, reduction, false);
      for (const uint32_t rule : kFloatRules) {
        if (!floating && rule != PARALLAX_RULE_SUM) continue;
        add(dtype, rule, reduction, true);
        const bool rows_alone =
            reduction == PARALLAX_MEAN_ROW || rule == PARALLAX_RULE_ROWWISE_ADAGRAD;
        if (!rows_alone) add(dtype, rule, reduction, false);
      }
    }
  }
  const std::vector<parallax_variable_t>& variables() const { return variables_; }

 private:
  void add(uint32_t dtype, uint32_t rule, uint32_t reduction, bool ids) {
    const auto index = static_cast<uint32_t>(variables_.size());
    names_.push_back(std::string(dtype_name(dtype)) + (ids ? " rows " : " dense ") +
                     kRules[rule].name + " " + std::to_string(reduction));
    const char* name = names_.back().c_str();
    const auto named = static_cast<parallax_rule_t>(rule);
    // Every third can be given whole, every fourth is rare; widths are odd.
    const uint64_t width = 1 + index % 5;
    const uint64_t rows = index % 4 == 0 ? 200 : 17;
    parallax_variable_t variable =
        ids ? sparse_variable(name, rows, width, index % 3 == 0 ? 20 : 9, named)
            : dense_variable(name, 3 + index, 1 + index * 7 % 90, named);
    variable.dtype = dtype;
    variable.reduction = reduction;
    set_initial(&variable, index);
    variable.momentum = rule == PARALLAX_RULE_MOMENTUM ? 0.9 : 0;
    variable.nesterov = rule == PARALLAX_RULE_MOMENTUM && index % 2 == 1 ? 1 : 0;
    const bool squares = kRules[rule].keeps_squares;
    variable.initial_accumulator_value = squares && index % 2 == 1 ? 0.5f : 0;
    if (rule == PARALLAX_RULE_FTRL) {
      variable.l1 = index % 2 == 1 ? 0.25 : 0;
      variable.initial_accumulator_value = index % 2 == 1   ? 0.5f
                                           : index % 3 == 0 ? static_cast<float>(PARALLAX_ZERO)
                                                            : 0;
      variable.l2 = index % 5 == 0 ? 0 : 0.125;
      variable.l2_shrinkage = 0.1;
      variable.beta = index % 3 == 0 ? 0.5 : 0;
    }
    if (rule == PARALLAX_RULE_ADAM) variable.beta1 = index % 2 == 1 ? 0.5 : PARALLAX_ZERO;
    variable.accumulate = index / 2 % 2;
    if (rule != PARALLAX_RULE_NONE) variable.rates = index % kRatesGroups;
    variables_.push_back(variable);
  }

  // Each kind of initial values in turn. What is multiplied later stays away from zero.
  void set_initial(parallax_variable_t* variable, uint32_t index) {
    const bool floating = is_floating(variable->dtype);
    if (variable->rule == PARALLAX_RULE_NONE) return;
    variable->init = (floating ? index : index % 2 * 4 + index / 2 % 2) % 6;
    if (!floating && variable->init == PARALLAX_INIT_UNIFORM) variable->init = 0;
    variable->init_seed = index;
    if (variable->init <= PARALLAX_INIT_UNIFORM) variable->init_low = 2;
    if (variable->init == PARALLAX_INIT_UNIFORM) variable->init_high = 3;
    if (variable->init == PARALLAX_INIT_NORMAL ||
        variable->init == PARALLAX_INIT_TRUNCATED_NORMAL) {
      variable->init_mean = 2.5f;
      variable->init_std = 0.25f;
    }
    if (variable->init < PARALLAX_INIT_BUFFER) return;
    with_sum_type(sum_type_of(variable->dtype), [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::vector<std::byte>& bytes =
          initial_.emplace_back(variable->rows * variable->row_elements * sizeof(T));
      for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
        const T value = static_cast<T>(2 + static_cast<double>(i % 64) / 64);
        std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
      }
      variable->initial = bytes.data();
    });
  }

  std::deque<std::string> names_;  // what the variables' names point into
  std::deque<std::vector<std::byte>> initial_;
  std::vector<parallax_variable_t> variables_;
};

struct Sweep {
  parallax_plan_mode_t mode;
  bool deterministic;
};

class EngineTypes : public testing::TestWithParam<Sweep> {};

TEST_P(EngineTypes, AgreesWithTheNaiveProgram) {
  const char* given = std::getenv("PARALLAX_SEED");
  uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10)
                                   : 100 * (2u * GetParam().mode + GetParam().deterministic);
  for (const uint32_t dtype : kDtypes) {
    const Everything everything(dtype);
    for (int round = 0; round < (kBrief ? 1 : 2); ++round, ++seed) {
      ScriptOptions options;
      options.world.hosts = few_layouts()[seed % few_layouts().size()];
      options.world.plan_mode = GetParam().mode;
      options.world.deterministic = GetParam().deterministic;
      options.world.seed = seed;
      options.world.plan_after_steps = 2;
      options.world.message_bytes_max = round == 0 ? 4096 : kInprocMessageBytesMax;
      options.world.late_jobs = round == 0;
      options.exact_numbers = !GetParam().deterministic;
      options.clip = round == 0;
      options.tied_percent = round == 0 ? 0 : 25;
      options.pipelined = round == 0;
      options.rates = round == 0 ? kRatesGroups : 0;
      options.steps = 7;
      options.variables = everything.variables();
      Script script(options);
      EXPECT_EQ(script.play(), "") << dtype_name(dtype) << ", PARALLAX_SEED=" << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Pins, EngineTypes,
    testing::Values(Sweep{PARALLAX_PLAN_AUTO, false}, Sweep{PARALLAX_PLAN_AUTO, true},
                    Sweep{PARALLAX_PLAN_HYBRID, true}, Sweep{PARALLAX_PLAN_PS, false},
                    Sweep{PARALLAX_PLAN_PS, true}, Sweep{PARALLAX_PLAN_AR, false},
                    Sweep{PARALLAX_PLAN_AR, true}),
    [](const auto& info) {
      return mode_name(info.param.mode) + (info.param.deterministic ? "_deterministic" : "");
    });

void run_step(EngineWorld& world,
              const std::function<Status(uint32_t rank, uint64_t step, Request** request)>& call,
              bool absent = false) {
  uint64_t step = 0;
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    ASSERT_TRUE(world.engine(rank).step_calls().begin(&step).ok());
  }
  for (const Status& status : world.everywhere(
           [&](uint32_t rank, Request**request) { return call(rank, step, request); })) {
    ASSERT_TRUE(status.ok()) << status.message();
  }
  parallax_step_end_options_t options = end_options(1);
  options.absent = absent ? 1 : 0;
  for (const Status& status : world.everywhere([&](uint32_t rank, Request**request) {
         return world.engine(rank).step_calls().end(step, options, request);
       })) {
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

std::vector<float> pull_rows(EngineWorld& world, const std::vector<int64_t>& ids, uint64_t width) {
  std::vector<std::vector<float>> values(world.size(), std::vector<float>(ids.size() * width));
  run_step(
      world,
      [&](uint32_t rank, uint64_t step, Request** request) {
        const parallax_slice_t slice = rows_slice(0, ids, values[rank].data());
        return world.engine(rank).step_calls().pull(step, {&slice, 1}, request);
      },
      true);
  for (const auto& each : values) EXPECT_EQ(each, values[0]);
  return values[0];
}

// The widest row of the header, with its count, in one message of every transport.
constexpr size_t kWidestRowBytes =
    sizeof(MessageHeader) + sizeof(SectionHeader) + sizeof(uint32_t) + (4096 + 1) * sizeof(double);
static_assert(kWidestRowBytes <= kInprocMessageBytesMax && kWidestRowBytes <= kShmMessageBytesMax);

// Rows from one element to the widest that every transport takes.
TEST(EngineWidths, FromOneElementTo4096) {
  uint64_t seed = 7000;
  for (const uint32_t dtype : {PARALLAX_F64, PARALLAX_F16, PARALLAX_I64}) {
    std::vector<parallax_variable_t> variables;
    std::deque<std::string> names;
    for (const uint64_t width : {1, 2, 7, 8, 31, 64, 255, 256, 257, 1000, 1024, 2047, 4095, 4096}) {
      names.push_back("width " + std::to_string(width));
      const bool managed = variables.size() % 2 == 0;
      variables.push_back(sparse_variable(names.back().c_str(), 9, width, 6,
                                          managed ? PARALLAX_RULE_SUM : PARALLAX_RULE_NONE));
      variables.back().dtype = dtype;
      if (is_floating(dtype)) variables.back().reduction = PARALLAX_MEAN_ROW;
      variables.back().accumulate = variables.size() % 3 == 0 ? 1 : 0;
    }
    for (const auto mode : {PARALLAX_PLAN_PS, PARALLAX_PLAN_AR}) {
      ScriptOptions options;
      options.world.hosts = {0, 0, 1};
      options.world.plan_mode = mode;
      options.world.plan_after_steps = 2;
      options.world.seed = ++seed;
      options.clip = false;
      options.steps = 4;
      options.density_percent = 100;
      options.variables = variables;
      Script script(options);
      EXPECT_EQ(script.play(), "") << dtype_name(dtype) << ", seed " << seed;
    }
  }
}

// Ids and elements beyond what 31 and 32 bits hold.
TEST(EngineSizes, RowsUpToTwoToTheThirtyTwo) {
  constexpr uint64_t kMost = UINT32_MAX;
  EngineWorld world({.hosts = {0, 1}, .plan_mode = PARALLAX_PLAN_PS});
  const parallax_variable_t huge = sparse_variable("huge", kMost, 2, 8, PARALLAX_RULE_SUM);
  for (const Status& status : world.commit({&huge, 1})) {
    // Only the system may refuse so much; a bound of ours may not.
    if (status.message().find("of address space") != std::string::npos) {
      GTEST_SKIP() << "this machine gives too little: " << status.message();
    }
    ASSERT_TRUE(status.ok()) << status.message();
  }
  const std::vector<int64_t> ids = {kMost - 1, 0, int64_t{1} << 31, kMost / 2, kMost - 1};
  std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  run_step(world, [&](uint32_t rank, uint64_t step, Request** request) {
    const parallax_slice_t slice = rows_slice(0, ids, values.data());
    return world.engine(rank).step_calls().push(step, {&slice, rank == 0 ? size_t{1} : 0}, request);
  });
  EXPECT_EQ(pull_rows(world, ids, 2), (std::vector<float>{10, 12, 3, 4, 5, 6, 7, 8, 10, 12}));
  std::vector<float> got(8);
  parallax_rows_t rows = {};
  rows.size = sizeof rows;
  rows.first_row = kMost - 4;
  rows.row_count = 4;
  rows.values = got.data();
  Request* request = nullptr;
  ASSERT_TRUE(world.engine(1).row_calls().post(rows, false, &request).ok());
  ASSERT_TRUE(world.run_until_done({&request, 1}));
  EXPECT_TRUE(request->status.ok() && world.engine(1).release(request).ok());
  EXPECT_EQ(got, (std::vector<float>{0, 0, 0, 0, 0, 0, 10, 12}));
}

// Both at one rank, one at another: summed, and from the next steps on made dense.
TEST(EngineTied, BothFormsAreSummedAndItIsDenseFromThenOn) {
  for (const auto mode :
       {PARALLAX_PLAN_AUTO, PARALLAX_PLAN_HYBRID, PARALLAX_PLAN_AR, PARALLAX_PLAN_PS}) {
    EngineWorld world({.hosts = {0, 1}, .plan_mode = mode, .plan_after_steps = 1000});
    const parallax_variable_t tied = sparse_variable("tied", 4, 2, 4, PARALLAX_RULE_SGD);
    for (const Status& status : world.commit({&tied, 1})) ASSERT_TRUE(status.ok());
    const std::vector<int64_t> ids = {2, 0};
    std::vector<float> rows = {10, 20, 30, 40};
    std::vector<float> whole = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int step = 0; step < 3; ++step) {
      run_step(world, [&](uint32_t rank, uint64_t number, Request** request) {
        const parallax_slice_t both[] = {rows_slice(0, ids, rows.data()),
                                         dense_slice(0, whole.data())};
        return world.engine(rank).step_calls().push(number, {both, rank == 0 ? size_t{2} : 1},
                                                    request);
      });
    }
    const std::vector<float> got = pull_rows(world, {0, 1, 2, 3}, 2);
    const std::vector<float> want = {-183, -246, -9, -12, -75, -138, -21, -24};
    EXPECT_EQ(got, want) << mode_name(mode);
    const bool sharded = mode == PARALLAX_PLAN_PS;
    EXPECT_EQ(world.engine(1).group().plan()[0].method,
              sharded ? Method::kPushPull : Method::kMadeDense);
    EXPECT_EQ(world.engine(0).group().plan(), world.engine(1).group().plan());
    if (!sharded) {
      EXPECT_NE(world.engine(1).reports().plan_json().find("dense from then on"),
                std::string::npos);
    }
  }
}

// Many pulls at one version, one push of all micro-batches' rows, as if it had been one batch. And
// a step of pulls alone, with every rank absent, changes nothing: an evaluation.
TEST(EngineMicroBatches, OneAccumulatedPushIsOneBatch) {
  const parallax_variable_t table = sparse_variable("table", 9, 1, 6, PARALLAX_RULE_ADAM);
  const std::vector<int64_t> every = {0, 1, 2, 3, 4, 5};
  std::vector<std::vector<float>> results;
  for (const bool micro : {true, false}) {
    EngineWorld world({.hosts = {0, 1}});
    for (const Status& status : world.commit({&table, 1})) ASSERT_TRUE(status.ok());
    const std::vector<int64_t> parts = {1, 5, 1, 5, 3};  // of two micro-batches
    std::vector<float> part_gradients = {1, 2, 4, 8, 16};
    const std::vector<int64_t> merged = {1, 3, 5};
    std::vector<float> merged_gradients = {5, 16, 10};
    for (int step = 0; step < 3; ++step) {
      uint64_t number = 0;
      std::vector<std::vector<float>> early(2, std::vector<float>(5)), late = early;
      for (uint32_t rank = 0; rank < 2; ++rank) {
        ASSERT_TRUE(world.engine(rank).step_calls().begin(&number).ok());
      }
      for (auto* values : {&early, &late}) {
        for (const Status& status : world.everywhere([&](uint32_t rank, Request**request) {
               const parallax_slice_t slice = rows_slice(0, parts, (*values)[rank].data());
               return world.engine(rank).step_calls().pull(number, {&slice, 1}, request);
             })) {
          ASSERT_TRUE(status.ok()) << status.message();
        }
      }
      EXPECT_EQ(early, late) << "one version";
      for (const Status& status : world.everywhere([&](uint32_t rank, Request**request) {
             const parallax_slice_t slice = micro ? rows_slice(0, parts, part_gradients.data())
                                                  : rows_slice(0, merged, merged_gradients.data());
             return world.engine(rank).step_calls().push(number, {&slice, 1}, request);
           })) {
        ASSERT_TRUE(status.ok()) << status.message();
      }
      const parallax_step_end_options_t end = end_options(0.25f);
      for (const Status& status : world.everywhere([&](uint32_t rank, Request**request) {
             return world.engine(rank).step_calls().end(number, end, request);
           })) {
        ASSERT_TRUE(status.ok()) << status.message();
      }
    }
    results.push_back(pull_rows(world, every, 1));
    EXPECT_EQ(pull_rows(world, every, 1), results.back()) << "an evaluation changed something";
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_NE(results[0][1], 0.0f);
  EXPECT_EQ(results[0][0], 0.0f);
}

TEST(EngineNonfinite, IsRefusedWhereTheVariableSaysSo) {
  EngineWorld world({.hosts = {0}});
  parallax_variable_t variables[] = {sparse_variable("strict", 9, 2, 4, PARALLAX_RULE_SGD),
                                     sparse_variable("lenient", 9, 2, 4, PARALLAX_RULE_SGD)};
  variables[0].refuse_nonfinite = 1;
  for (const Status& status : world.commit(variables)) ASSERT_TRUE(status.ok());
  uint64_t step = 0;
  ASSERT_TRUE(world.engine(0).step_calls().begin(&step).ok());
  const std::vector<int64_t> ids = {4, 8};
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values = {1, 2, 3, bad};
    const parallax_slice_t strict = rows_slice(0, ids, values.data());
    Request* request = nullptr;
    const Status refused = world.engine(0).step_calls().push(step, {&strict, 1}, &request);
    EXPECT_EQ(refused.code(), PARALLAX_INVALID);
    for (const char* word : {"'strict'", "row 1", "id 8", "column 1", "refuse_nonfinite"}) {
      EXPECT_NE(refused.message().find(word), std::string::npos) << refused.message();
    }
  }
  std::vector<float> good = {1, 2, 3, 4};
  std::vector<float> infinite = {1, 2, 3, INFINITY};
  const parallax_slice_t slices[] = {rows_slice(0, ids, good.data()),
                                     rows_slice(1, ids, infinite.data())};
  for (const Status& status : world.everywhere([&](uint32_t, Request** request) {
         return world.engine(0).step_calls().push(step, slices, request);
       })) {
    EXPECT_TRUE(status.ok()) << status.message() << ": refused was not given, and inf passes";
  }
  const parallax_step_end_options_t end = end_options(1);
  for (const Status& status : world.everywhere([&](uint32_t, Request** request) {
         return world.engine(0).step_calls().end(step, end, request);
       })) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
  ASSERT_TRUE(world.engine(0).step_calls().begin(&step).ok());
  std::vector<float> values(4);
  for (const Status& status : world.everywhere([&](uint32_t, Request** request) {
         const parallax_slice_t slice = rows_slice(1, ids, values.data());
         return world.engine(0).step_calls().pull(step, {&slice, 1}, request);
       })) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(values[3], -INFINITY);
}

// One rank's NaN and infinity reach the elements they were given for, on every rank, and no other.
TEST(EngineNonfinite, PassesThrough) {
  for (const auto mode : {PARALLAX_PLAN_HYBRID, PARALLAX_PLAN_PS, PARALLAX_PLAN_AR}) {
    for (const bool deterministic : {false, true}) {
      EngineWorld world({.hosts = {0, 0, 1}, .plan_mode = mode, .deterministic = deterministic});
      const parallax_variable_t variables[] = {sparse_variable("rows", 9, 2, 4, PARALLAX_RULE_SGD),
                                               dense_variable("dense", 2, 2, PARALLAX_RULE_SGD)};
      for (const Status& status : world.commit(variables)) ASSERT_TRUE(status.ok());
      const std::vector<int64_t> ids = {4, 8};
      uint64_t step = 0;
      std::vector<std::vector<float>> values(world.size(), {1, 1, 1, 1});
      values[1] = {NAN, 1, 1, INFINITY};
      const auto each = [&](auto call) {
        for (const Status& status : world.everywhere(call)) {
          ASSERT_TRUE(status.ok()) << status.message();
        }
      };
      const auto slices_of = [&](uint32_t rank) {
        return std::array<parallax_slice_t, 2>{rows_slice(0, ids, values[rank].data()),
                                               dense_slice(1, values[rank].data())};
      };
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        ASSERT_TRUE(world.engine(rank).step_calls().begin(&step).ok());
      }
      each([&](uint32_t rank, Request** request) {
        return world.engine(rank).step_calls().push(step, slices_of(rank), request);
      });
      each([&](uint32_t rank, Request** request) {
        return world.engine(rank).step_calls().end(step, end_options(1), request);
      });
      for (const uint32_t variable : {0u, 1u}) {
        each([&](uint32_t rank, Request** request) {
          const auto slices = slices_of(rank);
          return world.engine(rank).step_calls().pull(0, {&slices[variable], 1}, request);
        });
        for (const std::vector<float>& got : values) {
          EXPECT_TRUE(std::isnan(got[0])) << mode_name(mode) << variable;
          EXPECT_EQ(std::vector<float>(got.begin() + 1, got.end()),
                    (std::vector<float>{-3, -3, -INFINITY}))
              << mode_name(mode) << variable;
        }
      }
    }
  }
}

TEST(EngineCommit, ARowThatFitsNoMessageIsRefusedByName) {
  EngineWorld world({.hosts = {0, 1}, .message_bytes_max = 4096});
  parallax_variable_t fits = sparse_variable("fits", 9, (4096 - 16 - 32 - 4) / 8, 4);
  fits.dtype = PARALLAX_F64;
  parallax_variable_t wide = sparse_variable("wide", 9, fits.row_elements + 1, 4);
  wide.dtype = PARALLAX_F64;
  const parallax_variable_t both[] = {fits, wide};
  for (const Status& status : world.commit(both)) {
    EXPECT_EQ(status.code(), PARALLAX_LIMIT);
    EXPECT_NE(status.message().find("'wide'"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("4100"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace parallax::testkit
