// SPDX-License-Identifier: Apache-2.0
// The formulas of parallax.h, written down once more. See naive_training.h.
#include "support/naive_training.h"

#include <algorithm>
#include <cmath>

namespace parallax::testkit {

namespace {

// Holds every sum of squares that a test makes, exactly.
__extension__ typedef __float128 Wide;

uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

float first_value(const parallax_variable_t& variable, uint64_t row, uint64_t column) {
  if (variable.init == PARALLAX_INIT_CONSTANT) return variable.init_low;
  const uint64_t bits = mixed(mixed(variable.init_seed + 0x9e3779b97f4a7c15u * (row + 1)) + column);
  const float unit = std::ldexp(static_cast<float>(bits >> 40), -24);
  return variable.init_low + (variable.init_high - variable.init_low) * unit;
}

}  // namespace

NaiveTraining::NaiveTraining(std::vector<parallax_variable_t> variables,
                             std::vector<std::vector<uint32_t>> ranks_of)
    : variables_(std::move(variables)), ranks_of_(std::move(ranks_of)) {
  for (const auto& ranks : ranks_of_) world_ += static_cast<uint32_t>(ranks.size());
  for (const parallax_variable_t& variable : variables_) {
    std::vector<float>& value = values_.emplace_back();
    for (uint64_t row = 0; row < variable.rows; ++row) {
      for (uint64_t column = 0; column < variable.row_elements; ++column) {
        value.push_back(first_value(variable, row, column));
      }
    }
    states_.emplace_back(value.size(), variable.initial_accumulator_value);
  }
}

std::vector<float> NaiveTraining::fold(uint32_t variable, const std::vector<Gift>& gifts) const {
  const parallax_variable_t& shape = variables_[variable];
  const uint64_t width = shape.row_elements;
  std::vector<float> sum(shape.rows * width, 0.0f);
  for (const auto& ranks : ranks_of_) {
    std::vector<float> host(sum.size(), 0.0f);
    for (const uint32_t rank : ranks) {
      const Gift& gift = gifts[rank];
      std::vector<float> own(sum.size(), 0.0f);
      if (shape.rows_max == 0 && gift.given) own = gift.values;
      for (size_t i = 0; i < gift.ids.size(); ++i) {
        for (uint64_t column = 0; column < width; ++column) {
          own[static_cast<uint64_t>(gift.ids[i]) * width + column] +=
              gift.values[i * width + column];
        }
      }
      for (size_t at = 0; at < sum.size(); ++at) host[at] += own[at];
    }
    for (size_t at = 0; at < sum.size(); ++at) sum[at] += host[at];
  }
  return sum;
}

std::set<int64_t> NaiveTraining::rows_given(const std::vector<Gift>& gifts) {
  std::set<int64_t> rows;
  for (const Gift& gift : gifts) rows.insert(gift.ids.begin(), gift.ids.end());
  return rows;
}

double NaiveTraining::mean_factor(uint32_t reduction, uint32_t contributors) const {
  if (reduction == PARALLAX_MEAN_WORLD) return 1.0 / world_;
  if (reduction == PARALLAX_MEAN_CONTRIBUTORS) return 1.0 / std::max(1u, contributors);
  return 1.0;
}

// Runs of 256 in double, runs of one kind of reduction exactly, one rounding for each kind.
double NaiveTraining::norm(const std::vector<std::vector<float>>& sums,
                           uint32_t contributors) const {
  constexpr uint64_t kRun = 256;
  double square = 0;
  for (const uint32_t kind : {PARALLAX_SUM, PARALLAX_MEAN_WORLD, PARALLAX_MEAN_CONTRIBUTORS}) {
    Wide exact = 0;
    for (uint32_t variable = 0; variable < variables_.size(); ++variable) {
      if (!managed(variable) || variables_[variable].reduction != kind) continue;
      const std::vector<float>& sum = sums[variable];
      const uint64_t stride =
          variables_[variable].rows_max > 0 ? variables_[variable].row_elements : sum.size();
      for (uint64_t at = 0; at < sum.size();) {
        const uint64_t end = std::min((at / stride + 1) * stride, at + kRun);
        double run = 0;
        for (; at < end; ++at) run += static_cast<double>(sum[at]) * static_cast<double>(sum[at]);
        exact += run;
      }
    }
    const double factor = mean_factor(kind, contributors);
    square += factor * factor * static_cast<double>(exact);
  }
  return std::sqrt(square);
}

void NaiveTraining::commit(const std::vector<std::vector<Gift>>& gifts, const StepEnd& end) {
  std::vector<std::vector<float>> sums;
  for (uint32_t variable = 0; variable < variables_.size(); ++variable) {
    sums.push_back(fold(variable, gifts[variable]));
  }
  gradient_norm_ = end.clip_norm > 0 ? norm(sums, end.contributors) : 0;
  clip_scale_ = 1;
  if (end.clip_norm > 0) {
    clip_scale_ = std::min(1.0, static_cast<double>(end.clip_norm) / (gradient_norm_ + 1e-6));
  }
  if (end.found_inf) return;
  for (uint32_t variable = 0; variable < variables_.size(); ++variable) {
    if (!managed(variable)) continue;
    const parallax_variable_t& shape = variables_[variable];
    const auto scale =
        static_cast<float>(mean_factor(shape.reduction, end.contributors) * clip_scale_);
    const float epsilon = shape.epsilon == 0 ? 1e-10f : shape.epsilon;
    for (size_t at = 0; at < sums[variable].size(); ++at) {
      const float g = sums[variable][at] * scale;
      float& value = values_[variable][at];
      float& state = states_[variable][at];
      if (shape.rule == PARALLAX_RULE_SGD) {
        value -= end.learning_rate * g;
      } else {
        state += g * g;
        value -= end.learning_rate * g / (std::sqrt(state) + epsilon);
      }
    }
  }
}

}  // namespace parallax::testkit
