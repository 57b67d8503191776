// SPDX-License-Identifier: Apache-2.0
// The update rules of parallax.h once more, and naively; shares nothing with the library's.
#include "tool/bench/rule_model.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/number.h"

namespace parallax::tool::bench {

namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.999;
constexpr double kEpsilonAdagrad = 1e-10, kEpsilonOthers = 1e-8;

// By squaring, as the library does, since pow() may round otherwise.
double power(double base, uint64_t exponent) {
  if (exponent == 0) return 1;
  const uint64_t top = uint64_t{1} << (std::bit_width(exponent) - 1);
  double square = base;
  for (uint64_t bit = 1; bit < top; bit *= 2) square *= square;
  return exponent == top ? square : power(base, exponent - top) * square;
}

}  // namespace

RuleModel::RuleModel(const RuleModelOptions& options, std::span<const int64_t> ids,
                     const RowUnion& all)
    : options_(options), all_(all), ids_(ids.begin(), ids.end()) {
  std::sort(ids_.begin(), ids_.end());
  ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  const size_t elements = ids_.size() * width();
  values_.resize(elements);
  const uint32_t rule = options_.rule;
  if (rule == PARALLAX_RULE_ROWWISE_ADAGRAD) first_.resize(ids_.size());
  const bool two = rule == PARALLAX_RULE_ADAM || rule == PARALLAX_RULE_FTRL;
  if (two || rule == PARALLAX_RULE_ADAGRAD || rule == PARALLAX_RULE_MOMENTUM) {
    first_.resize(elements);
  }
  if (two) second_.resize(elements);
}

size_t RuleModel::row_of(int64_t id) const {
  return static_cast<size_t>(std::lower_bound(ids_.begin(), ids_.end(), id) - ids_.begin());
}

void RuleModel::advance(uint64_t last) {
  while (steps_ < last) {
    ++steps_;
    with_sum_type(sum_type_of(options_.dtype),
                  [this](auto tag) { step<typename decltype(tag)::type>(steps_); });
  }
}

template <typename T>
void RuleModel::step(uint64_t number) {
  const T sign = number % 2 == 1 ? T{1} : T{-1};
  for (size_t row = 0; row < ids_.size(); ++row) update_row<T>(row, number, sign);
}

template <typename T>
void RuleModel::update_row(size_t row, uint64_t number, T sign) {
  const size_t index = all_.index_of(ids_[row]);
  const T scale = std::is_integral_v<T> ? T{1} : static_cast<T>(1 / options_.divisor);
  const auto gradient = [&](uint64_t column) {
    return static_cast<T>(sign * static_cast<T>(all_.sum(index, column + options_.shift)) * scale);
  };
  T row_state = 0;
  if (options_.rule == PARALLAX_RULE_ROWWISE_ADAGRAD) {
    double squares = 0;
    for (uint64_t column = 0; column < width(); ++column) {
      const double g = static_cast<double>(gradient(column));
      squares += g * g;
    }
    row_state =
        static_cast<T>(first_[row]) + static_cast<T>(squares / static_cast<double>(width()));
    first_[row] = static_cast<double>(row_state);
  }
  for (uint64_t column = 0; column < width(); ++column) {
    update_element<T>(gradient(column), row_state, row * width() + column, number);
  }
}

// `row_state`: ROWWISE_ADAGRAD's s.
template <typename T>
void RuleModel::update_element(T g, T row_state, size_t element, uint64_t number) {
  const T p = static_cast<T>(values_[element]);
  if constexpr (std::is_integral_v<T>) {
    values_[element] = static_cast<double>(p + g);
    return;
  } else {
    const T rate = kLearningRate;
    const auto state = [element](const std::vector<double>& states) {
      return static_cast<T>(states[element]);
    };
    switch (options_.rule) {
      case PARALLAX_RULE_SUM:
        values_[element] = p + g;
        break;
      case PARALLAX_RULE_SGD:
        values_[element] = p - rate * g;
        break;
      case PARALLAX_RULE_ADAGRAD: {
        const T s = state(first_) + g * g;
        first_[element] = s;
        values_[element] = p - rate * g / (std::sqrt(s) + static_cast<T>(kEpsilonAdagrad));
        break;
      }
      case PARALLAX_RULE_ROWWISE_ADAGRAD:
        values_[element] = p - rate * g / (std::sqrt(row_state) + static_cast<T>(kEpsilonOthers));
        break;
      case PARALLAX_RULE_MOMENTUM: {
        const T b = static_cast<T>(kMomentum) * state(first_) + g;
        first_[element] = b;
        values_[element] = p - rate * b;
        break;
      }
      case PARALLAX_RULE_FTRL: {
        const T a = std::sqrt(state(first_)), n = state(first_) + g * g, b = std::sqrt(n);
        const T z = state(second_) + (g - (b - a) / rate * p);
        first_[element] = n;
        second_[element] = z;
        if (b != 0) values_[element] = z == 0 ? T{0} : -z / (b / rate);
        break;
      }
      case PARALLAX_RULE_ADAM: {
        const T m = state(first_) + static_cast<T>(1 - kBeta1) * (g - state(first_));
        const T v = state(second_) + static_cast<T>(1 - kBeta2) * (g * g - state(second_));
        first_[element] = m;
        second_[element] = v;
        const double b1t = 1 - power(kBeta1, number), b2t = 1 - power(kBeta2, number);
        const T size = static_cast<T>(static_cast<double>(rate) * std::sqrt(b2t) / b1t);
        values_[element] = p - size * (m / (std::sqrt(v) + static_cast<T>(kEpsilonOthers)));
        break;
      }
      default:
        break;
    }
  }
}

}  // namespace parallax::tool::bench
