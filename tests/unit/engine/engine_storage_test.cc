// SPDX-License-Identifier: Apache-2.0
// Values that are kept narrower than they are updated, with every rule, in every placement and
// layout, against the naive program, bit for bit: so whoever holds a row rounds it alike, by
// chance too. A failure prints its seed.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "support/sanitizers.h"
#include "support/script.h"
#include "transport/shm/ring.h"

namespace parallax::testkit::engine_storage {
namespace {

constexpr uint32_t kFloatRules[] = {PARALLAX_RULE_SGD,      PARALLAX_RULE_ADAGRAD,
                                    PARALLAX_RULE_ADAM,     PARALLAX_RULE_ROWWISE_ADAGRAD,
                                    PARALLAX_RULE_MOMENTUM, PARALLAX_RULE_SUM,
                                    PARALLAX_RULE_FTRL};
constexpr uint32_t kDtypes[] = {PARALLAX_F32, PARALLAX_BF16, PARALLAX_F16};
constexpr uint32_t kReductions[] = {PARALLAX_SUM, PARALLAX_MEAN_WORLD, PARALLAX_MEAN_ROW};
constexpr uint32_t kRatesGroups = 2;

const std::vector<std::vector<uint32_t>>& few_layouts() {
  static const std::vector<std::vector<uint32_t>> all = {
      {0}, {0, 0, 0}, {0, 1, 0}, {0, 0, 1, 1}, {0, 1, 2, 3, 4, 5, 6}};
  return all;
}

// A rule each way: kept in either type, rounded either way, with rows and dense.
class KeptNarrow {
 public:
  KeptNarrow() {
    for (const uint32_t rule : kFloatRules) {
      for (const uint32_t stored : {PARALLAX_BF16, PARALLAX_F16}) {
        for (const uint32_t rounding :
             {PARALLAX_ROUNDING_NEAREST_EVEN, PARALLAX_ROUNDING_STOCHASTIC}) {
          add(rule, stored, rounding, true);
          if (rule != PARALLAX_RULE_ROWWISE_ADAGRAD) add(rule, stored, rounding, false);
        }
      }
    }
  }
  const std::vector<parallax_variable_t>& variables() const { return variables_; }

 private:
  void add(uint32_t rule, uint32_t stored, uint32_t rounding, bool ids) {
    const auto index = static_cast<uint32_t>(variables_.size());
    names_.push_back(std::string(kRules[rule].name) + " in " + dtype_name(stored) +
                     (ids ? " rows " : " dense ") + std::to_string(rounding));
    const char* name = names_.back().c_str();
    const auto named = static_cast<parallax_rule_t>(rule);
    // Narrow rows, and those that vectors round; dense ones of several pieces.
    const uint64_t width = index % 7 == 0 ? 130 : 1 + index % 6;
    parallax_variable_t variable =
        ids ? sparse_variable(name, 19 + index, width, index % 3 == 0 ? 80 : 9, named)
            : dense_variable(name, 3 + index, index % 5 == 0 ? 401 : 1 + index * 3 % 40, named);
    variable.dtype = kDtypes[index % std::size(kDtypes)];
    variable.storage_dtype = PARALLAX_AS(stored);
    variable.rounding = rounding;
    variable.reduction = ids ? kReductions[index % 3] : kReductions[index % 2];
    variable.init_seed = index / 3;
    set_initial(&variable, index);
    if (rule == PARALLAX_RULE_MOMENTUM) variable.momentum = 0.9;
    if (rule == PARALLAX_RULE_FTRL) variable.l2 = 0.125;
    variable.accumulate = index / 2 % 2;
    variable.rates = index % kRatesGroups;
    variables_.push_back(variable);
  }

  void set_initial(parallax_variable_t* variable, uint32_t index) {
    constexpr uint32_t kInits[] = {PARALLAX_INIT_UNIFORM, PARALLAX_INIT_BUFFER,
                                   PARALLAX_INIT_CONSTANT, PARALLAX_INIT_BROADCAST,
                                   PARALLAX_INIT_TRUNCATED_NORMAL};
    variable->init = kInits[index % std::size(kInits)];
    if (variable->init <= PARALLAX_INIT_UNIFORM) variable->init_low = 2.003f;
    if (variable->init == PARALLAX_INIT_UNIFORM) variable->init_high = 3;
    if (variable->init == PARALLAX_INIT_TRUNCATED_NORMAL) {
      variable->init_mean = 2.5f;
      variable->init_std = 0.25f;
    }
    if (variable->init < PARALLAX_INIT_BUFFER) return;
    // Of more bits than are kept.
    std::vector<float>& values = initial_.emplace_back(variable->rows * variable->row_elements);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 2 + 0.0137f * static_cast<float>(i % 71);
    }
    variable->initial = values.data();
  }

  std::deque<std::string> names_;
  std::deque<std::vector<float>> initial_;
  std::vector<parallax_variable_t> variables_;
};

struct Sweep {
  parallax_plan_mode_t mode;
  bool deterministic;
};

class EngineStorage : public testing::TestWithParam<Sweep> {};

TEST_P(EngineStorage, AgreesWithTheNaiveProgram) {
  const KeptNarrow kept;
  uint64_t seed = 7000 + 100 * (2u * GetParam().mode + GetParam().deterministic);
  for (int round = 0; round < (kBrief ? 2 : 5); ++round, ++seed) {
    ScriptOptions options;
    options.world.hosts = few_layouts()[static_cast<size_t>(round) % few_layouts().size()];
    options.world.plan_mode = GetParam().mode;
    options.world.deterministic = GetParam().deterministic;
    options.world.seed = seed;
    options.world.plan_after_steps = 2;
    options.world.message_bytes_max = round % 2 == 0 ? 4096 : kInprocMessageBytesMax;
    options.world.late_jobs = round % 2 == 0;
    options.exact_numbers = !GetParam().deterministic;
    options.tied_percent = round % 2 == 0 ? 0 : 25;
    options.pipelined = round % 2 == 0;
    options.rates = round % 2 == 0 ? kRatesGroups : 0;
    options.steps = 6;
    options.variables = kept.variables();
    Script script(options);
    EXPECT_EQ(script.play(), "") << "seed " << seed << ", layout " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Pins, EngineStorage,
    testing::Values(Sweep{PARALLAX_PLAN_AUTO, false}, Sweep{PARALLAX_PLAN_AUTO, true},
                    Sweep{PARALLAX_PLAN_PS, false}, Sweep{PARALLAX_PLAN_PS, true},
                    Sweep{PARALLAX_PLAN_AR, true}),
    [](const auto& info) {
      return mode_name(info.param.mode) + (info.param.deterministic ? "_deterministic" : "");
    });

// Ranks that name other types, or other roundings, are told which.
TEST(EngineStorageCommit, RanksMustKeepAlike) {
  parallax_variable_t wide = sparse_variable("table", 9, 2, 4, PARALLAX_RULE_SGD);
  parallax_variable_t narrow = wide;
  narrow.storage_dtype = PARALLAX_AS(PARALLAX_BF16);
  parallax_variable_t by_chance = narrow;
  by_chance.rounding = PARALLAX_ROUNDING_STOCHASTIC;
  const struct {
    parallax_variable_t first, second;
    const char* sentence;
  } cases[] = {
      {wide, narrow, "field storage_dtype: rank 0 has F32, rank 1 has BF16"},
      {narrow, by_chance, "field rounding: rank 0 has NEAREST_EVEN, rank 1 has STOCHASTIC"}};
  for (const auto& each : cases) {
    Variable first, second;
    ASSERT_TRUE(make_variable(each.first, &first).ok());
    ASSERT_TRUE(make_variable(each.second, &second).ok());
    const Variable* of_first[] = {&first};
    const Variable* of_second[] = {&second};
    const RegistryDifference difference =
        compare_registries(encode_registry(of_first), of_second, "rank 0", "rank 1");
    EXPECT_NE(difference.sentence.find(each.sentence), std::string::npos) << difference.sentence;
  }
}

}  // namespace
}  // namespace parallax::testkit::engine_storage
