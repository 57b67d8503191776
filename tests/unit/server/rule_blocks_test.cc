// SPDX-License-Identifier: Apache-2.0
// Blocks of rows for the caller's own rule: in place and gathered, ascending, bounded, and stopped.
#include "server/rule_blocks.h"

#include <gtest/gtest.h>

#include <array>
#include <cfenv>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace parallax {
namespace {

using Rule = std::function<int(const parallax_rule_block_t&)>;

int call(void* context, const parallax_rule_block_t* block) {
  return (*static_cast<Rule*>(context))(*block);
}

class RuleBlocksTest : public testing::Test {
 protected:
  static constexpr uint64_t kRows = 1000;

  void make(uint64_t width, std::array<uint32_t, kStatesMax> states, uint64_t rows = kRows) {
    variable_.name = "own";
    variable_.rows = rows;
    variable_.row_elements = width;
    variable_.rule = PARALLAX_RULE_CALLBACK;
    variable_.own_rule = {.apply = call, .context = &rule_, .state_elements = states};
    blocks_ = std::make_unique<RuleBlocks>(variable_);
    Arena measure;
    blocks_->lay_out(measure);
    arena_ = std::make_unique<Arena>();
    ASSERT_TRUE(arena_->reserve(measure.used_bytes()).ok());
    blocks_->lay_out(*arena_);
    const uint64_t widths[] = {width, states[0], states[1]};
    for (uint32_t array = 0; array < 3; ++array) {
      numbers_[array].assign(rows * widths[array], 0);
      for (size_t i = 0; i < numbers_[array].size(); ++i) {
        numbers_[array][i] = static_cast<float>(array * 1'000'000 + i);
      }
    }
    gradients_.assign(rows * width, 1);
    for (size_t i = 0; i < gradients_.size(); ++i) gradients_[i] = static_cast<float>(i);
  }

  void begin(const UpdateArguments& with) {
    std::array<std::span<std::byte>, 1 + kStatesMax> arrays;
    for (uint32_t array = 0; array < 3; ++array) {
      arrays[array] = std::as_writable_bytes(std::span(numbers_[array]));
    }
    blocks_->begin(with, false, arrays);
  }
  // The row lies where its place is; its gradient is that of its id.
  int add(int64_t id, uint64_t here) {
    const auto at = static_cast<size_t>(id) * variable_.row_elements;
    return blocks_->add(id, here, reinterpret_cast<const std::byte*>(&gradients_[at]));
  }

  Rule rule_;
  Variable variable_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<RuleBlocks> blocks_;
  std::vector<float> numbers_[3], gradients_;
};

// Given rows whose places are not in the order of their ids, expect ids ascending with the values,
// states and gradients that are theirs, and what the function writes back where they lie.
TEST_F(RuleBlocksTest, GatheredRowsAreTheirsAndGoBack) {
  make(2, {3, 1});
  rule_ = [&](const parallax_rule_block_t& block) {
    EXPECT_EQ(block.row_count, 3u);
    EXPECT_EQ(block.row_elements, 2u);
    EXPECT_EQ(block.variable, 7u);
    EXPECT_EQ(block.step, 5u);
    EXPECT_EQ(block.updates, 4u);
    EXPECT_EQ(block.dtype, uint32_t{PARALLAX_F32});
    EXPECT_EQ(block.learning_rate, 0.5);
    const int64_t ids[] = {2, 8, 9};
    const size_t places[] = {40, 11, 10};
    auto* values = static_cast<float*>(block.values);
    auto* first = static_cast<float*>(block.state[0]);
    auto* second = static_cast<float*>(block.state[1]);
    const auto* gradient = static_cast<const float*>(block.gradient);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(block.rows[i], ids[i]);
      EXPECT_EQ(values[2 * i + 1], static_cast<float>(places[i] * 2 + 1));
      EXPECT_EQ(first[3 * i + 2], static_cast<float>(1'000'000 + places[i] * 3 + 2));
      EXPECT_EQ(second[i], static_cast<float>(2'000'000 + places[i]));
      EXPECT_EQ(gradient[2 * i], static_cast<float>(ids[i] * 2) * 0.25f);
      values[2 * i + 1] = first[3 * i + 2] = second[i] = -static_cast<float>(ids[i]);
    }
    return 0;
  };
  begin({.variable = 7, .step = 5, .learning_rate = 0.5, .scale = 0.25, .updates = 4});
  EXPECT_EQ(add(9, 10), 0);
  EXPECT_EQ(add(8, 11), 0);
  EXPECT_EQ(add(2, 40), 0);
  EXPECT_EQ(blocks_->finish(), 0);
  EXPECT_EQ(numbers_[0][2 * 40 + 1], -2);
  EXPECT_EQ(numbers_[1][3 * 11 + 2], -8);
  EXPECT_EQ(numbers_[2][10], -9);
  EXPECT_EQ(numbers_[0][2 * 41], 82) << "a neighbour";
}

TEST_F(RuleBlocksTest, NeighboursAreGivenWhereTheyLie) {
  make(2, {1, 0});
  rule_ = [&](const parallax_rule_block_t& block) {
    EXPECT_EQ(block.values, &numbers_[0][2 * 10]);
    EXPECT_EQ(block.state[0], &numbers_[1][10]);
    EXPECT_EQ(block.state[1], nullptr);
    return 0;
  };
  begin({});
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(add(i + 100, 10 + static_cast<uint64_t>(i)), 0);
  EXPECT_EQ(blocks_->finish(), 0);
  EXPECT_EQ(add(5, 10), 0);  // one row alone
  EXPECT_EQ(blocks_->finish(), 0);
  EXPECT_EQ(blocks_->finish(), 0) << "nothing is left";
}

// Clips and the sign come before the function; decay of either kind is left to it, with the rates.
TEST_F(RuleBlocksTest, DecayIsTheRulesOwn) {
  make(1, {0, 0});
  std::vector<float> seen;
  parallax_rates_t rates = {};
  rule_ = [&](const parallax_rule_block_t& block) {
    seen = {static_cast<float*>(block.values)[0], static_cast<const float*>(block.gradient)[0]};
    rates = *block.rates;
    return 0;
  };
  begin({.learning_rate = 0.5, .weight_decay = 0.25, .maximize = true, .scale = 0.5});
  EXPECT_EQ(add(8, 4) + blocks_->finish(), 0);
  EXPECT_EQ(seen, (std::vector<float>{4, -4}));
  EXPECT_EQ(rates.size, sizeof rates);
  EXPECT_EQ(rates.learning_rate, 0.5f);
  EXPECT_EQ(rates.weight_decay, 0.25f);
  EXPECT_EQ(rates.decoupled, 0u);
  EXPECT_EQ(rates.maximize, 1u);
  EXPECT_EQ(rates.clip_norm, 0);
  begin({.learning_rate = 0.5, .weight_decay = 0.25, .decoupled = true, .clip_norm = 3});
  EXPECT_EQ(add(8, 4) + blocks_->finish(), 0);
  EXPECT_EQ(seen, (std::vector<float>{4, 8}));
  EXPECT_EQ(numbers_[0][4], 4);
  EXPECT_EQ(rates.decoupled, 1u);
  EXPECT_EQ(rates.clip_norm, 3);
}

// Wide rows come fewer at a time, one at least; narrow ones up to the bound.
TEST_F(RuleBlocksTest, ABlockHasABound) {
  const struct {
    uint64_t width;
    uint32_t state;
    uint64_t most;
  } cases[] = {{1, 0, 256}, {64, 64, 256}, {1024, 0, 32}, {16, 1 << 17, 1}};
  for (const auto& each : cases) {
    const uint64_t rows = 2 * each.most + 1;
    make(each.width, {each.state, 0}, rows);
    std::vector<uint64_t> counts;
    rule_ = [&](const parallax_rule_block_t& block) {
      counts.push_back(block.row_count);
      return 0;
    };
    begin({});
    for (uint64_t i = 0; i < rows; ++i) ASSERT_EQ(add(static_cast<int64_t>(i), i), 0);
    EXPECT_EQ(blocks_->finish(), 0);
    EXPECT_EQ(counts, (std::vector<uint64_t>{each.most, each.most, 1})) << each.width;
  }
}

// Given a rule that changes rounding and raises flags, expect neither to be there after it, and
// each block to begin with the default.
TEST_F(RuleBlocksTest, TheFloatEnvironmentIsAsBeforeIt) {
  make(1, {0, 0});
  int calls = 0;
  rule_ = [&](const parallax_rule_block_t&) {
    ++calls;
    EXPECT_EQ(std::fegetround(), FE_TONEAREST);
    EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), 0);
    std::fesetround(FE_UPWARD);
    std::feraiseexcept(FE_INVALID | FE_DIVBYZERO);
    return 0;
  };
  std::feclearexcept(FE_ALL_EXCEPT);
  for (uint64_t step = 1; step <= 2; ++step) {
    begin({.step = step});
    EXPECT_EQ(add(0, 0), 0);
    EXPECT_EQ(blocks_->finish(), 0);
    EXPECT_EQ(std::fegetround(), FE_TONEAREST);
    EXPECT_EQ(std::fetestexcept(FE_INVALID | FE_DIVBYZERO), 0);
    std::fesetround(FE_TONEAREST);
    std::feclearexcept(FE_ALL_EXCEPT);
  }
  EXPECT_EQ(calls, 2);
}

TEST_F(RuleBlocksTest, WhatItAnswersIsHandedOn) {
  make(1, {0, 0});
  int calls = 0;
  rule_ = [&](const parallax_rule_block_t&) { return ++calls == 2 ? -7 : 0; };
  begin({});
  int answer = 0;
  for (uint64_t i = 0; i < kRows && answer == 0; ++i) answer = add(static_cast<int64_t>(i), i);
  EXPECT_EQ(answer, -7);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace parallax
