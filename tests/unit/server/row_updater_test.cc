// SPDX-License-Identifier: Apache-2.0
// Rows by a rule where they lie, beside the rule itself on rows of their own.
#include "server/row_updater.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

constexpr uint64_t kRows = 9, kWidth = 5;

std::vector<float> drawn(SeededRandom& random, uint64_t count) {
  std::vector<float> numbers(count);
  for (float& number : numbers) number = static_cast<float>(random.unit() + 0.5);
  return numbers;
}

// Given some rows of a table, by a rule with a state for each element, with one for each row, and
// with none, and gradients that end in their number of ranks or do not: expect what the rule makes
// of each row, and the others left alone.
TEST(RowUpdater, RowsAreUpdatedWhereTheyLie) {
  struct Case {
    uint32_t rule;
    uint64_t state_width;
  };
  for (const Case& each : {Case{PARALLAX_RULE_SGD, 0}, Case{PARALLAX_RULE_ADAGRAD, kWidth},
                           Case{PARALLAX_RULE_ROWWISE_ADAGRAD, 1}}) {
    for (const bool counted : {false, true}) {
      SeededRandom random(each.rule + 1);
      std::vector<float> values = drawn(random, kRows * kWidth);
      std::vector<float> states = drawn(random, kRows * each.state_width);
      std::vector<float> expected_values = values, expected_states = states;
      const UpdateArguments with = {
          .rule = each.rule, .learning_rate = 0.25, .weight_decay = 0.5, .epsilon = 0.125};
      with_rule<float>(with, [&](const auto& rule) {
        PlainValues<float> plain = {values.data()};
        const Decay<float> decay(with);
        float* const state = states.empty() ? nullptr : states.data();
        const RowUpdater<float, PlainValues<float>, std::decay_t<decltype(rule)>> updater = {
            rule, decay, 0.5, &plain, {state, nullptr}, kWidth, each.state_width, counted};
        for (const uint64_t row : {8u, 0u, 3u}) {
          std::vector<float> gradient = drawn(random, kWidth);
          if (counted) gradient.push_back(2);
          updater.prefetch(row);
          updater.update(row, gradient.data(), [row] { return row * kWidth; });
          float* const expected =
              expected_states.empty() ? nullptr : &expected_states[row * each.state_width];
          update_row(rule, decay,
                     RowParts<float>{&expected_values[row * kWidth], expected, nullptr,
                                     gradient.data(), kWidth},
                     counted ? 0.25f : 0.5f);
        }
      });
      EXPECT_EQ(values, expected_values) << each.rule << ", counted " << counted;
      EXPECT_EQ(states, expected_states) << each.rule << ", counted " << counted;
    }
  }
}

}  // namespace
}  // namespace parallax
