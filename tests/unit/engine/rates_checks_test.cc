// SPDX-License-Identifier: Apache-2.0
#include "engine/rates_checks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "support/registries.h"
#include "support/words.h"

namespace parallax::testkit {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A managed variable whose rates are group 1, and a framework-held one.
const Registry& registry() {
  std::vector<Variable> variables(2);
  variables[0].name = "table";
  variables[0].rule = PARALLAX_RULE_SGD;
  variables[0].rates = 1;
  variables[1].name = "held";
  static const std::unique_ptr<Registry> both = registry_of(variables);
  return *both;
}

parallax_step_end_options_t options_of(const std::vector<parallax_rates_t>& rates) {
  parallax_step_end_options_t options = {};
  options.size = sizeof options;
  options.rates = rates.data();
  options.rates_count = static_cast<uint32_t>(rates.size());
  return options;
}

std::vector<parallax_rates_t> two_groups() {
  parallax_rates_t rates = {};
  rates.size = sizeof rates;
  rates.learning_rate = 0.5f;
  return {rates, rates};
}

TEST(RatesChecks, TakeWhatIsGiven) {
  std::vector<parallax_rates_t> given = two_groups();
  given[1].weight_decay = 0.25f;
  given[1].decoupled = 1;
  given[1].maximize = 1;
  given[1].clip_norm = 2;
  StepRates rates;
  ASSERT_TRUE(check_rates(options_of(given), registry(), &rates).ok());
  ASSERT_EQ(rates.count, 2u);
  EXPECT_EQ(rates.groups[0].learning_rate, 0.5f);
  EXPECT_EQ(rates.groups[1].weight_decay, 0.25f);
  EXPECT_EQ(rates.groups[1].decoupled, 1u);
  EXPECT_EQ(rates.groups[1].maximize, 1u);
  EXPECT_EQ(rates.groups[1].clip_norm, 2);
}

TEST(RatesChecks, WithoutRatesOneLearningRateIsForAll) {
  parallax_step_end_options_t options = {};
  options.learning_rate = 0.5f;
  StepRates rates = {.count = 7};
  EXPECT_TRUE(check_rates(options, registry(), &rates).ok());
  EXPECT_EQ(rates.count, 0u);
  options.learning_rate = -1;
  EXPECT_TRUE(has(check_rates(options, registry(), &rates), "step_end: learning_rate must be"));
  options.learning_rate = 1;
  options.clip_norm = kNan;
  EXPECT_TRUE(has(check_rates(options, registry(), &rates), "0 means no clipping"));
}

TEST(RatesChecks, RefuseAndNameTheField) {
  const auto refused = [](auto adjust) {
    std::vector<parallax_rates_t> given = two_groups();
    parallax_step_end_options_t options = options_of(given);
    adjust(given[1], options);
    StepRates rates;
    const Status status = check_rates(options, registry(), &rates);
    EXPECT_EQ(status.code(), PARALLAX_INVALID);
    EXPECT_EQ(rates.count, 0u);
    return status.message();
  };
  using Given = parallax_rates_t;
  using Options = parallax_step_end_options_t;
  const std::string group = "step_end: rates[1].";
  EXPECT_EQ(refused([](Given& each, Options&) { each.learning_rate = -1; }),
            group + "learning_rate must be finite and not negative");
  EXPECT_EQ(refused([](Given& each, Options&) { each.weight_decay = kNan; }),
            group + "weight_decay must be finite and not negative");
  EXPECT_EQ(refused([](Given& each, Options&) { each.clip_norm = HUGE_VALF; }),
            group + "clip_norm must be finite and not negative; 0 means no clipping");
  EXPECT_EQ(refused([](Given& each, Options&) { each.decoupled = 2; }),
            group + "decoupled must be 0 or 1");
  EXPECT_EQ(refused([](Given& each, Options&) { each.maximize = 2; }),
            group + "maximize must be 0 or 1");
  EXPECT_EQ(refused([](Given&, Options& options) { options.rates = nullptr; }),
            "step_end: rates is null, but rates_count is 2");
  EXPECT_EQ(refused([](Given&, Options& options) { options.rates_count = 65; }),
            "step_end: rates_count is 65; at most 64 groups");
  EXPECT_EQ(refused([](Given&, Options& options) { options.learning_rate = 1; }),
            "step_end: learning_rate is given beside rates, each of which has its own; leave it 0");
  EXPECT_EQ(refused([](Given&, Options& options) { options.rates_count = 1; }),
            "step_end: rates_count is 1, but the rates of variable 'table' are group 1");
}

}  // namespace
}  // namespace parallax::testkit
