// SPDX-License-Identifier: Apache-2.0
// Update rules: one step by hand, in numbers that are exact; and many against the formulas of
// parallax.h written down once more, element by element, bit for bit.
#include "server/update_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/seeded_random.h"
#include "support/vector_levels.h"

namespace parallax {
namespace {

constexpr uint32_t kRules[] = {
    PARALLAX_RULE_SGD, PARALLAX_RULE_ADAGRAD,         PARALLAX_RULE_ADAM, PARALLAX_RULE_MOMENTUM,
    PARALLAX_RULE_SUM, PARALLAX_RULE_ROWWISE_ADAGRAD, PARALLAX_RULE_FTRL};

// A row with all the states that a rule may keep.
template <typename T>
struct Row {
  std::vector<T> value, state0, state1, gradient;

  void apply(const UpdateArguments& with, T scale) {
    with_rule<T>(with, [&](const auto& rule) {
      const Decay<T> decay(with);
      const RowParts<T> parts = {value.data(), state0.data(), state1.data(), gradient.data(),
                                 value.size()};
      update_in_vectors(
          rule, [&] { update_row(rule, decay, parts, static_cast<T>(decay.sign) * scale); });
    });
  }
};

// Given a row of 1 and 2 with gradients of 3 and -4, expect what the formulas say on paper.
TEST(UpdateRules, OneStepByHand) {
  const auto after = [](UpdateArguments with, float scale, std::vector<float> state0) {
    Row<float> row = {{1, 2}, std::move(state0), {0, 0}, {3, -4}};
    row.apply(with, scale);
    std::vector<float> all = row.value;
    all.insert(all.end(), row.state0.begin(), row.state0.end());
    return all;
  };
  using Floats = std::vector<float>;
  // p -= lr g, with g = 6, -8.
  EXPECT_EQ(after({.rule = PARALLAX_RULE_SGD, .learning_rate = 0.5}, 2, {7, 7}),
            (Floats{-2, 6, 7, 7}));
  // s += g^2 to 25 and 16; p -= lr g / (sqrt(s) + eps) = 3 / 6 and -4 / 5.
  EXPECT_EQ(after({.rule = PARALLAX_RULE_ADAGRAD, .learning_rate = 1, .epsilon = 1}, 1, {16, 0}),
            (Floats{0.5f, 2 + 4.0f / 5, 25, 16}));
  // s += mean(g^2) = 12.5 to 16; p -= lr g / (4 + eps).
  EXPECT_EQ(
      after({.rule = PARALLAX_RULE_ROWWISE_ADAGRAD, .learning_rate = 2, .epsilon = 4}, 1, {3.5f}),
      (Floats{0.25f, 3, 16}));
  // b = 0.5 b + g = 4, -3; p -= lr b.
  UpdateArguments momentum = {.rule = PARALLAX_RULE_MOMENTUM, .learning_rate = 1, .momentum = 0.5};
  EXPECT_EQ(after(momentum, 1, {2, 2}), (Floats{-3, 5, 4, -3}));
  // The same; p -= lr (g + 0.5 b).
  momentum.nesterov = true;
  EXPECT_EQ(after(momentum, 1, {2, 2}), (Floats{-4, 7.5f, 4, -3}));
  // n += g^2 to 16 and 25; z += g - (4 - sqrt(7)) / 2, and so on; beyond l1 the rest over
  // sqrt(n) / lr + 2 l2 + beta / lr, within it 0.
  const UpdateArguments ftrl = {
      .rule = PARALLAX_RULE_FTRL, .learning_rate = 2, .l1 = 0.5, .l2 = 1, .beta = 4};
  EXPECT_EQ(after(ftrl, 1, {16, 9}),
            (Floats{(0.5f - 2.5f) / (2.5f + 2 + 2), (-0.5f + 6) / (2.5f + 2 + 2), 25, 25}));
  EXPECT_EQ(after({.rule = PARALLAX_RULE_FTRL, .learning_rate = 2, .l1 = 9}, 1, {16, 9}),
            (Floats{0, 0, 25, 25}));
  EXPECT_EQ(after({.rule = PARALLAX_RULE_FTRL}, 1, {16, 9}), (Floats{1, 2, 16, 9}))
      << "a learning rate of 0";
  // n stays 0 and nothing else is added to it: p is left alone, whatever z is. With l2 it is not.
  Row<float> unknown = {{1, 2}, {0, 0}, {0, 3}, {0, 0}};
  unknown.apply({.rule = PARALLAX_RULE_FTRL, .learning_rate = 2}, 1);
  EXPECT_EQ(unknown.value, (Floats{1, 2}));
  unknown.apply({.rule = PARALLAX_RULE_FTRL, .learning_rate = 2, .l2 = 0.25}, 1);
  EXPECT_EQ(unknown.value, (Floats{0, -6}));
  // p += g; the learning rate is not used.
  EXPECT_EQ(after({.rule = PARALLAX_RULE_SUM, .learning_rate = 9}, 0.5, {7, 7}),
            (Floats{2.5f, 0, 7, 7}));
  // The first step of either Adam goes by the learning rate against the gradient's sign.
  for (const bool sparse : {true, false}) {
    const UpdateArguments adam = {.rule = PARALLAX_RULE_ADAM,
                                  .learning_rate = 0.25,
                                  .beta1 = 0.5,
                                  .beta2 = 0.75,
                                  .sparse = sparse};
    EXPECT_EQ(after(adam, 1, {0, 0}), (Floats{0.75f, 2.25f, 1.5f, -2})) << sparse;
  }
}

// The gradient as a rule takes it, and the value before it does, by the formulas of parallax.h.
template <typename T>
T naive_gradient(const UpdateArguments& with, T g, T p) {
  if (with.rule == PARALLAX_RULE_SUM) return g;
  if (with.maximize) g = -g;
  if (with.weight_decay != 0 && !with.decoupled) g = g + static_cast<T>(with.weight_decay) * p;
  return g;
}

template <typename T>
T naive_decay(const UpdateArguments& with, T p) {
  if (with.rule == PARALLAX_RULE_SUM || !with.decoupled || with.weight_decay == 0) return p;
  return p * static_cast<T>(1 - with.learning_rate * with.weight_decay);
}

// One element by the formulas of parallax.h; `squares` is the mean of the row's.
template <typename T>
void naive_update(const UpdateArguments& with, T g, double squares, T* p, T* s, T* v) {
  const T rate = static_cast<T>(with.learning_rate), epsilon = static_cast<T>(with.epsilon);
  const T momentum = static_cast<T>(with.momentum);
  const double c1 = 1 - power(with.beta1, with.updates);
  const double root2 = std::sqrt(1 - power(with.beta2, with.updates));
  const T rest1 = static_cast<T>(1 - with.beta1), rest2 = static_cast<T>(1 - with.beta2);
  switch (with.rule) {
    case PARALLAX_RULE_SGD:
      *p = *p - rate * g;
      return;
    case PARALLAX_RULE_ADAGRAD:
      *s = *s + g * g;
      *p = *p - rate * g / (std::sqrt(*s) + epsilon);
      return;
    case PARALLAX_RULE_ROWWISE_ADAGRAD:
      *p = *p - rate * g / (std::sqrt(static_cast<T>(*s + static_cast<T>(squares))) + epsilon);
      return;
    case PARALLAX_RULE_MOMENTUM:
      *s = momentum * *s + g;
      *p = *p - rate * (with.nesterov ? g + momentum * *s : *s);
      return;
    case PARALLAX_RULE_SUM:
      *p = *p + g;
      return;
    case PARALLAX_RULE_FTRL: {
      // As tf.keras.optimizers.Ftrl writes it.
      const T new_accumulator = *s + g * g;
      const T grad_to_use = g + static_cast<T>(2 * with.l2_shrinkage) * *p;
      *v = *v + (grad_to_use - (std::sqrt(new_accumulator) - std::sqrt(*s)) / rate * *p);
      const double l2 = with.l2 + with.beta / (2.0 * with.learning_rate);
      const T quadratic = std::sqrt(new_accumulator) / rate + static_cast<T>(2 * l2);
      const T l1 = static_cast<T>(with.l1);
      const T clipped = std::min(std::max(*v, -l1), l1);
      *p = (clipped - *v) / quadratic;
      *s = new_accumulator;
      return;
    }
    default:
      break;
  }
  if (with.sparse) {
    *s = *s + rest1 * (g - *s);
    *v = *v + rest2 * (g * g - *v);
    *p = *p - static_cast<T>(with.learning_rate * root2 / c1) * (*s / (std::sqrt(*v) + epsilon));
  } else {
    *s = static_cast<T>(with.beta1) * *s + rest1 * g;
    *v = static_cast<T>(with.beta2) * *v + rest2 * (g * g);
    *p = *p - static_cast<T>(with.learning_rate / c1) *
                  (*s / (std::sqrt(*v) / static_cast<T>(root2) + epsilon));
  }
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <typename T>
void expect_the_formulas(uint32_t rule, uint64_t seed) {
  SeededRandom random(seed);
  const size_t count = 1 + random.below(140);
  const auto draw = [&] { return static_cast<T>(random.unit() * 8 - 4); };
  Row<T> row = {std::vector<T>(count), std::vector<T>(count), std::vector<T>(count),
                std::vector<T>(count)};
  for (T& value : row.value) value = draw();
  UpdateArguments with = {.rule = rule,
                          .learning_rate = random.unit(),
                          .weight_decay = random.chance(50) ? random.unit() : 0,
                          .decoupled = random.chance(50),
                          .maximize = random.chance(50),
                          .epsilon = 1e-8,
                          .beta1 = 0.9,
                          .beta2 = 0.999,
                          .momentum = 0.9,
                          .nesterov = random.chance(50),
                          .l1 = random.chance(50) ? random.unit() : 0,
                          .l2 = random.unit(),
                          .l2_shrinkage = random.chance(50) ? random.unit() : 0,
                          .beta = random.chance(50) ? random.unit() : 0,
                          .sparse = random.chance(50)};
  Row<T> naive = row;
  for (with.updates = 1; with.updates <= 20; ++with.updates) {
    const T scale = static_cast<T>(random.unit());
    double squares = 0;
    for (size_t i = 0; i < count; ++i) {
      row.gradient[i] = draw();
      naive.value[i] = naive_decay(with, naive.value[i]);
      naive.gradient[i] = naive_gradient(with, row.gradient[i] * scale, naive.value[i]);
      const double g = naive.gradient[i];
      squares += g * g;
    }
    squares /= static_cast<double>(count);
    row.apply(with, scale);
    for (size_t i = 0; i < count; ++i) {
      const bool rowwise = rule == PARALLAX_RULE_ROWWISE_ADAGRAD;
      naive_update(with, naive.gradient[i], squares, &naive.value[i],
                   &naive.state0[rowwise ? 0 : i], &naive.state1[i]);
    }
    if (rule == PARALLAX_RULE_ROWWISE_ADAGRAD) naive.state0[0] += static_cast<T>(squares);
    ASSERT_TRUE(same_bits(row.value, naive.value)) << "step " << with.updates;
    ASSERT_TRUE(same_bits(row.state0, naive.state0)) << "step " << with.updates;
    ASSERT_TRUE(same_bits(row.state1, naive.state1)) << "step " << with.updates;
  }
}

// Given a value of 8, a gradient of 3 and a learning rate of 1/2, expect what weight decay of 1/4
// and maximize do on paper: added to the gradient, or taken from the value before; and nothing of a
// sum.
TEST(UpdateRules, RatesByHand) {
  const auto after = [](uint32_t rule, bool decoupled, bool maximize) {
    Row<float> row = {{8}, {0}, {0}, {3}};
    row.apply({.rule = rule,
               .learning_rate = 0.5,
               .weight_decay = 0.25,
               .decoupled = decoupled,
               .maximize = maximize},
              2);
    return row.value[0];
  };
  EXPECT_EQ(after(PARALLAX_RULE_SGD, false, false), 8 - 0.5f * (6 + 2));
  EXPECT_EQ(after(PARALLAX_RULE_SGD, false, true), 8 - 0.5f * (-6 + 2));
  EXPECT_EQ(after(PARALLAX_RULE_SGD, true, false), 8 * 0.875f - 0.5f * 6);
  EXPECT_EQ(after(PARALLAX_RULE_SGD, true, true), 8 * 0.875f + 0.5f * 6);
  // Adagrad's steps go by the sign of the gradient, which decay is part of, or not.
  EXPECT_EQ(after(PARALLAX_RULE_ADAGRAD, false, true), 8 + 0.5f);
  EXPECT_EQ(after(PARALLAX_RULE_ADAGRAD, true, false), 7 - 0.5f);
  for (const bool decoupled : {false, true}) {
    EXPECT_EQ(after(PARALLAX_RULE_SUM, decoupled, true), 14);
  }
}

// Given rows of any width and 20 steps, expect values and states that agree bit for bit, at each
// level of vector code: owner, mirror and a naive program must.
TEST(UpdateRules, AgreeWithTheFormulasBitForBit) {
  testkit::at_each_vector_level([] {
    for (const uint32_t rule : kRules) {
      for (uint64_t seed = 1; seed <= 20; ++seed) {
        SCOPED_TRACE("rule " + std::to_string(rule) + ", seed " + std::to_string(seed));
        expect_the_formulas<float>(rule, seed);
        expect_the_formulas<double>(rule, seed);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

// Given integers, expect SUM whatever rule is named, without a scale, and to wrap.
TEST(UpdateRules, IntegersAreSummed) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  for (const uint32_t rule : kRules) {
    Row<int32_t> row = {{kMost, -5}, {}, {}, {1, 7}};
    row.apply({.rule = rule, .learning_rate = 3}, 1);
    EXPECT_EQ(row.value, (std::vector<int32_t>{std::numeric_limits<int32_t>::min(), 2}));
  }
}

// Given a row without elements, or gradients that are none, expect nothing to be written
// elsewhere and what is NaN to stay NaN.
TEST(UpdateRules, EdgesOfARow) {
  for (const uint32_t rule : kRules) {
    Row<float> row = {{1, 2, 3}, {4, 4, 4}, {5, 5, 5}, {NAN, NAN, NAN}};
    const UpdateArguments with = {
        .rule = rule, .learning_rate = 1, .epsilon = 1, .beta1 = 0.9, .beta2 = 0.9};
    with_rule<float>(with, [&](const auto& update) {
      update_row(update, Decay<float>(with),
                 RowParts<float>{row.value.data() + 1, row.state0.data() + 1, row.state1.data() + 1,
                                 row.gradient.data() + 1, 1},
                 1.0F);
    });
    EXPECT_TRUE(row.value[0] == 1 && std::isnan(row.value[1]) && row.value[2] == 3) << rule;
    EXPECT_TRUE(row.state0[0] == 4 && row.state0[2] == 4) << rule;
    EXPECT_TRUE(row.state1[0] == 5 && row.state1[2] == 5) << rule;
  }
}

// Given powers that double holds, expect them; the others as near as squaring comes.
TEST(UpdateRules, PowerBySquaring) {
  EXPECT_EQ(power(0.3, 0), 1);
  EXPECT_EQ(power(0.3, 1), 0.3);
  EXPECT_EQ(power(3, 33), 5559060566555523.0);
  EXPECT_EQ(power(0.5, 1000), 0x1p-1000);
  EXPECT_EQ(power(0.5, UINT64_MAX), 0);
  EXPECT_EQ(power(0, 5), 0);
  for (const double base : {0.9, 0.99, 0.999, 1.0}) {
    double naive = 1;
    for (uint64_t exponent = 0; exponent < 3000; ++exponent, naive *= base) {
      ASSERT_NEAR(power(base, exponent), naive, 1e-12 * naive) << base << "^" << exponent;
    }
  }
}

}  // namespace
}  // namespace parallax
