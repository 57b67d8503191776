// SPDX-License-Identifier: Apache-2.0
// The formulas of parallax.h, written down once more. See naive_training.h.
#include "support/naive_training.h"

#include <algorithm>
#include <cmath>

#include "base/number.h"
#include "variable/initial_value.h"

namespace parallax::testkit {

namespace {

// Holds every sum of squares that a test makes, exactly.
__extension__ typedef __float128 Wide;

double first_value(const parallax_variable_t& variable, uint64_t row, uint64_t column) {
  if (variable.initial != nullptr) {
    // In the type it is kept in, which the narrow ones are not.
    const uint64_t at = row * variable.row_elements + column;
    return with_sum_type(sum_type_of(variable.dtype), [&](auto tag) {
      return static_cast<double>(
          static_cast<const typename decltype(tag)::type*>(variable.initial)[at]);
    });
  }
  // The formulas are held by the vectors of initial_value_test.cc.
  Variable seeded;
  seeded.init = variable.init;
  seeded.init_low = variable.init_low;
  seeded.init_high = variable.init_high;
  seeded.init_seed = variable.init_seed;
  seeded.init_mean = variable.init_mean;
  seeded.init_std = variable.init_std;
  const double value = initial_value(seeded, row, column);
  return variable.dtype == PARALLAX_F64 ? value : static_cast<float>(value);
}

bool is_integer(uint32_t dtype) { return dtype == PARALLAX_I32 || dtype == PARALLAX_I64; }
bool is_double(uint32_t dtype) { return dtype == PARALLAX_F64; }

// Integers wrap: added as unsigned numbers.
float add(float a, float b) { return a + b; }
double add(double a, double b) { return a + b; }
int32_t add(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
int64_t add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

// Of 16 bits: the step between numbers as large as this one, and what is too large.
double unit_of(uint32_t dtype, double value) {
  const int digits = dtype == PARALLAX_F16 ? 11 : 8;
  const int least = dtype == PARALLAX_F16 ? -14 : -126;
  int exponent = 0;
  std::frexp(value, &exponent);  // in [2^(exponent - 1), 2^exponent)
  return std::ldexp(1.0, std::max(exponent - 1, least) - digits + 1);
}
double beyond(uint32_t dtype) { return std::ldexp(1.0, dtype == PARALLAX_F16 ? 16 : 128); }

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

double rounded(uint32_t dtype, double value) {
  if (dtype == PARALLAX_F32) return static_cast<float>(value);
  if (dtype != PARALLAX_F16 && dtype != PARALLAX_BF16) return value;
  if (!std::isfinite(value) || value == 0) return value;
  const double unit = unit_of(dtype, value);
  const double near = std::nearbyint(value / unit) * unit;
  return std::fabs(near) >= beyond(dtype) ? std::copysign(HUGE_VAL, value) : near;
}

double rounded_by_chance(uint32_t dtype, double value, double fraction) {
  if (!std::isfinite(value) || value == 0) return rounded(dtype, value);
  const double unit = unit_of(dtype, value);
  const double steps = std::fabs(value) / unit;
  const double below = std::floor(steps);
  if ((steps > below ? below + 1 : below) * unit >= beyond(dtype)) return rounded(dtype, value);
  return std::copysign((fraction < steps - below ? below + 1 : below) * unit, value);
}

NaiveTraining::NaiveTraining(std::vector<parallax_variable_t> variables,
                             std::vector<std::vector<uint32_t>> ranks_of)
    : variables_(std::move(variables)), ranks_of_(std::move(ranks_of)) {
  for (const auto& ranks : ranks_of_) world_ += static_cast<uint32_t>(ranks.size());
  for (const parallax_variable_t& variable : variables_) {
    std::vector<double>& value = values_.emplace_back();
    for (uint64_t row = 0; row < variable.rows; ++row) {
      for (uint64_t column = 0; column < variable.row_elements; ++column) {
        const double first = first_value(variable, row, column);
        value.push_back(variable.storage_dtype == 0 ? first
                                                    : rounded(variable.storage_dtype - 1, first));
      }
    }
    const bool squares = variable.rule == PARALLAX_RULE_ADAGRAD ||
                         variable.rule == PARALLAX_RULE_ROWWISE_ADAGRAD ||
                         variable.rule == PARALLAX_RULE_FTRL;
    double first = squares ? double{variable.initial_accumulator_value} : 0.0;
    if (variable.rule == PARALLAX_RULE_FTRL)
      first = first == 0 ? double{0.1f} : std::max(first, 0.0);
    first_states_.emplace_back(value.size(), first);
    second_states_.emplace_back(value.size(), 0.0);
    updates_.push_back(0);
  }
}

template <typename T>
std::vector<double> NaiveTraining::sum_as(uint32_t variable,
                                          const std::vector<Contribution>& contributions) const {
  const parallax_variable_t& shape = variables_[variable];
  const uint64_t width = shape.row_elements;
  std::vector<T> sum(shape.rows * width, T{0});
  for (const auto& ranks : ranks_of_) {
    std::vector<T> host(sum.size(), T{0});
    for (const uint32_t rank : ranks) {
      const Contribution& contribution = contributions[rank];
      if (!contribution.contributed) continue;
      std::vector<T> own(sum.size(), T{0});
      const std::vector<double>& dense =
          shape.rows_max == 0 ? contribution.values : contribution.dense_values;
      const auto add_dense = [&] {
        for (size_t at = 0; at < dense.size(); ++at)
          own[at] = add(own[at], static_cast<T>(dense[at]));
      };
      if (!contribution.rows_first) add_dense();
      for (size_t i = 0; i < contribution.ids.size(); ++i) {
        if (contribution.ids[i] < 0) continue;
        for (uint64_t column = 0; column < width; ++column) {
          T& to = own[static_cast<uint64_t>(contribution.ids[i]) * width + column];
          to = add(to, static_cast<T>(contribution.values[i * width + column]));
        }
      }
      if (contribution.rows_first) add_dense();
      for (size_t at = 0; at < sum.size(); ++at) host[at] = add(host[at], own[at]);
    }
    for (size_t at = 0; at < sum.size(); ++at) {
      sum[at] = add(sum[at], static_cast<T>(pushed(variable, static_cast<double>(host[at]))));
    }
  }
  return {sum.begin(), sum.end()};
}

std::vector<double> NaiveTraining::sum_of(uint32_t variable,
                                          const std::vector<Contribution>& contributions) const {
  switch (variables_[variable].dtype) {
    case PARALLAX_F64:
      return sum_as<double>(variable, contributions);
    case PARALLAX_I32:
      return sum_as<int32_t>(variable, contributions);
    case PARALLAX_I64:
      return sum_as<int64_t>(variable, contributions);
    default:
      return sum_as<float>(variable, contributions);
  }
}

std::vector<uint32_t> NaiveTraining::ranks_of_rows(
    uint32_t variable, const std::vector<Contribution>& contributions) const {
  std::vector<uint32_t> ranks(variables_[variable].rows, 0);
  for (const Contribution& contribution : contributions) {
    if (!contribution.contributed) continue;
    const bool every_row = contribution.dense || variables_[variable].rows_max == 0;
    const std::set<int64_t> rows(contribution.ids.begin(), contribution.ids.end());
    for (uint64_t row = 0; row < ranks.size(); ++row) {
      ranks[row] += every_row || rows.count(static_cast<int64_t>(row)) != 0 ? 1 : 0;
    }
  }
  return ranks;
}

std::vector<double> NaiveTraining::reduced(uint32_t variable,
                                           const std::vector<Contribution>& contributions) const {
  const parallax_variable_t& shape = variables_[variable];
  std::vector<double> sum = sum_of(variable, contributions);
  if (shape.reduction == PARALLAX_SUM) return sum;
  const std::vector<uint32_t> ranks = ranks_of_rows(variable, contributions);
  const auto gave = std::count_if(contributions.begin(), contributions.end(),
                                  [](const Contribution& each) { return each.contributed; });
  for (size_t at = 0; at < sum.size(); ++at) {
    const uint32_t count = ranks[at / shape.row_elements];
    const double factor =
        1.0 / (shape.reduction == PARALLAX_MEAN_ROW            ? std::max(1u, count)
               : shape.reduction == PARALLAX_MEAN_CONTRIBUTORS ? static_cast<double>(gave)
                                                               : world_);
    sum[at] = is_double(shape.dtype) ? sum[at] * factor
                                     : static_cast<float>(sum[at]) * static_cast<float>(factor);
  }
  return sum;
}

double NaiveTraining::mean_factor(uint32_t reduction, uint32_t contributors) const {
  if (reduction == PARALLAX_MEAN_WORLD) return 1.0 / world_;
  if (reduction == PARALLAX_MEAN_CONTRIBUTORS) return 1.0 / std::max(1u, contributors);
  return 1.0;
}

parallax_rates_t NaiveTraining::rates_of(uint32_t variable) const {
  if (!end_.rates.empty()) return end_.rates[variables_[variable].rates];
  parallax_rates_t rates = {};
  rates.learning_rate = end_.learning_rate;
  return rates;
}

// Runs of 256 in double (of doubles: single squares, exactly), runs of one kind of reduction
// exactly, one rounding for each kind. Means of rows count as sums of what they are.
double NaiveTraining::squared_norm(const std::vector<std::vector<double>>& sums,
                                   const std::vector<std::vector<Contribution>>& contributions,
                                   uint32_t group) const {
  constexpr uint64_t kRun = 256;
  Wide exact[4] = {};
  for (uint32_t variable = 0; variable < variables_.size(); ++variable) {
    const parallax_variable_t& shape = variables_[variable];
    if (!managed(variable) || is_integer(shape.dtype)) continue;
    const uint32_t counted_with =
        rates_of(variable).clip_norm > 0 ? shape.rates : static_cast<uint32_t>(end_.rates.size());
    if (counted_with != group) continue;
    const bool row_mean = shape.reduction == PARALLAX_MEAN_ROW;
    Wide& kind = exact[row_mean ? uint32_t{PARALLAX_SUM} : shape.reduction];
    const std::vector<uint32_t> ranks = ranks_of_rows(variable, contributions[variable]);
    const std::vector<double>& sum = sums[variable];
    const uint64_t stride = shape.rows_max > 0 ? shape.row_elements : sum.size();
    for (uint64_t at = 0; at < sum.size();) {
      const uint64_t end = std::min((at / stride + 1) * stride, at + kRun);
      const double divisor = row_mean ? std::max(1u, ranks[at / shape.row_elements]) : 1;
      double run = 0;
      for (; at < end; ++at) {
        if (is_double(shape.dtype)) {
          const double mean = sum[at] / divisor;
          kind += static_cast<Wide>(mean) * static_cast<Wide>(mean);
        } else {
          run += sum[at] * sum[at];
        }
      }
      kind += run / (divisor * divisor);
    }
  }
  double square = 0;
  for (const uint32_t kind : {PARALLAX_SUM, PARALLAX_MEAN_WORLD, PARALLAX_MEAN_CONTRIBUTORS}) {
    const double factor = mean_factor(kind, end_.contributors);
    square += factor * factor * static_cast<double>(exact[kind]);
  }
  return square;
}

// Groups first; the global norm is of what they have left.
void NaiveTraining::clip(const std::vector<std::vector<double>>& sums,
                         const std::vector<std::vector<Contribution>>& contributions) {
  const auto scale_of = [](float clip_norm, double norm) {
    return std::min(1.0, static_cast<double>(clip_norm) / (norm + 1e-6));
  };
  const auto groups = static_cast<uint32_t>(end_.rates.size());
  group_scales_.assign(std::max(1u, groups), 1.0);
  gradient_norm_ = 0;
  clip_scale_ = 1;
  double square = squared_norm(sums, contributions, groups);
  for (uint32_t group = 0; group < groups; ++group) {
    if (end_.rates[group].clip_norm == 0) continue;
    const double of_group = squared_norm(sums, contributions, group);
    const double scale = scale_of(end_.rates[group].clip_norm, std::sqrt(of_group));
    group_scales_[group] = scale;
    square += scale * scale * of_group;
  }
  if (end_.clip_norm == 0) return;
  gradient_norm_ = std::sqrt(square);
  clip_scale_ = scale_of(end_.clip_norm, gradient_norm_);
}

// One element by Adam's formulas of parallax.h: those of rows where ids are declared. Powers by
// squaring, as there.
template <typename T>
void NaiveTraining::update_by_adam(uint32_t variable, T g, T epsilon, Element<T>* element) const {
  const parallax_variable_t& shape = variables_[variable];
  const auto power = [](double base, uint64_t exponent) {
    double result = 1;
    for (; exponent > 0; exponent >>= 1, base *= base) result *= exponent % 2 == 1 ? base : 1.0;
    return result;
  };
  const double beta1 = shape.beta1 == 0 ? 0.9 : std::max(shape.beta1, 0.0);
  const double beta2 = shape.beta2 == 0 ? 0.999 : std::max(shape.beta2, 0.0);
  const double correction1 = 1 - power(beta1, updates_[variable]);
  const double root2 = std::sqrt(1 - power(beta2, updates_[variable]));
  const T rest1 = static_cast<T>(1 - beta1);
  const T rest2 = static_cast<T>(1 - beta2);
  const double rate = rates_of(variable).learning_rate;
  auto& [p, s, v] = *element;
  if (shape.rows_max > 0) {
    s += rest1 * (g - s);
    v += rest2 * (g * g - v);
    p -= static_cast<T>(rate * root2 / correction1) * (s / (std::sqrt(v) + epsilon));
  } else {
    s = static_cast<T>(beta1) * s + rest1 * g;
    v = static_cast<T>(beta2) * v + rest2 * (g * g);
    p -=
        static_cast<T>(rate / correction1) * (s / (std::sqrt(v) / static_cast<T>(root2) + epsilon));
  }
}

template <typename T>
void NaiveTraining::update_by_ftrl(uint32_t variable, T g, T rate, Element<T>* element) const {
  const parallax_variable_t& shape = variables_[variable];
  auto& [p, n, z] = *element;
  if (rate == 0) return;
  const T a = std::sqrt(n);
  n += g * g;
  const T b = std::sqrt(n);
  z += (g + static_cast<T>(2 * shape.l2_shrinkage) * p) - (b - a) / rate * p;
  const double wide_rate = rates_of(variable).learning_rate;
  const T least = static_cast<T>(2 * (shape.l2 + shape.beta / (2 * wide_rate)));
  const T l1 = static_cast<T>(shape.l1);
  const T d = b / rate + least;
  if (d != 0) p = std::fabs(z) <= l1 ? T{0} : ((z > 0 ? l1 : -l1) - z) / d;
}

double NaiveTraining::pushed(uint32_t variable, double value) const {
  const uint32_t wire = variables_[variable].wire_dtype;
  return wire == 0 || ranks_of_.size() == 1 ? value : rounded(wire - 1, value);
}

double NaiveTraining::stored(uint32_t variable, uint64_t row, uint64_t column, double value) const {
  const parallax_variable_t& shape = variables_[variable];
  if (shape.storage_dtype == 0) return value;
  const uint32_t dtype = shape.storage_dtype - 1;
  if (shape.rounding == PARALLAX_ROUNDING_NEAREST_EVEN) return rounded(dtype, value);
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
  uint64_t seed = mix(shape.init_seed);
  for (const char* each = shape.name; *each != 0; ++each) {
    seed = mix(seed + static_cast<unsigned char>(*each) + kStep);
  }
  seed = mix(seed + kStep * updates_[variable]);
  const uint64_t bits = mix(mix(seed + kStep * (row + 1)) + column);
  return rounded_by_chance(dtype, value, std::ldexp(static_cast<double>(bits >> 32), -32));
}

// One row by the formulas of parallax.h.
template <typename T>
void NaiveTraining::update_row(uint32_t variable, uint64_t row, const double* sum, T scale) {
  const parallax_variable_t& shape = variables_[variable];
  const uint64_t width = shape.row_elements;
  const parallax_rates_t rates = rates_of(variable);
  const auto rate = static_cast<T>(rates.learning_rate);
  const bool decays = rates.weight_decay != 0 && shape.rule != PARALLAX_RULE_SUM;
  const double decay = rates.weight_decay;
  // The value as it is before the update, and the gradient that the rule takes.
  const auto before = [&](uint64_t column) {
    const T p = static_cast<T>(values_[variable][row * width + column]);
    if (!decays || rates.decoupled == 0) return p;
    return p * static_cast<T>(1 - static_cast<double>(rates.learning_rate) * decay);
  };
  const auto gradient = [&](uint64_t column) {
    T g = static_cast<T>(sum[column]) * scale;
    if (rates.maximize != 0 && shape.rule != PARALLAX_RULE_SUM) g = -g;
    if (decays && rates.decoupled == 0) g = g + static_cast<T>(decay) * before(column);
    return g;
  };
  const auto epsilon_or = [&](double other) {
    return static_cast<T>(shape.epsilon == 0 ? other : double{shape.epsilon});
  };
  double squares = 0;
  for (uint64_t column = 0; column < width; ++column) {
    const double g = gradient(column);
    squares += g * g;
  }
  T row_state = static_cast<T>(first_states_[variable][row * width]);
  row_state += static_cast<T>(squares / static_cast<double>(width));
  for (uint64_t column = 0; column < width; ++column) {
    const size_t at = row * width + column;
    const T g = gradient(column);
    Element<T> element = {before(column), static_cast<T>(first_states_[variable][at]),
                          static_cast<T>(second_states_[variable][at])};
    auto& [p, s, v] = element;
    if (shape.rule == PARALLAX_RULE_SGD) {
      p -= rate * g;
    } else if (shape.rule == PARALLAX_RULE_ADAGRAD) {
      s += g * g;
      p -= rate * g / (std::sqrt(s) + epsilon_or(1e-10));
    } else if (shape.rule == PARALLAX_RULE_ROWWISE_ADAGRAD) {
      s = row_state;
      p -= rate * g / (std::sqrt(s) + epsilon_or(1e-8));
    } else if (shape.rule == PARALLAX_RULE_MOMENTUM) {
      const T momentum = static_cast<T>(shape.momentum);
      s = momentum * s + g;
      p -= rate * (shape.nesterov != 0 ? g + momentum * s : s);
    } else if (shape.rule == PARALLAX_RULE_SUM) {
      p += g;
    } else if (shape.rule == PARALLAX_RULE_FTRL) {
      update_by_ftrl(variable, g, rate, &element);
    } else {
      update_by_adam(variable, g, epsilon_or(1e-8), &element);
    }
    values_[variable][at] = stored(variable, row, column, p);
    first_states_[variable][at] = s;
    second_states_[variable][at] = v;
  }
}

void NaiveTraining::commit(const std::vector<std::vector<Contribution>>& contributions,
                           const StepEnd& end) {
  std::vector<std::vector<double>> sums;
  for (uint32_t variable = 0; variable < variables_.size(); ++variable) {
    sums.push_back(sum_of(variable, contributions[variable]));
  }
  end_ = end;
  clip(sums, contributions);
  if (end.found_inf) return;
  for (uint32_t variable = 0; variable < variables_.size(); ++variable) {
    const parallax_variable_t& shape = variables_[variable];
    const auto given = [](const Contribution& contribution) { return contribution.contributed; };
    const std::vector<Contribution>& mine = contributions[variable];
    if (!managed(variable) || std::none_of(mine.begin(), mine.end(), given)) continue;
    ++updates_[variable];
    const std::vector<uint32_t> ranks = ranks_of_rows(variable, mine);
    for (uint64_t row = 0; row < shape.rows; ++row) {
      if (ranks[row] == 0) continue;
      const double* sum = &sums[variable][row * shape.row_elements];
      const double mean = shape.reduction == PARALLAX_MEAN_ROW
                              ? 1.0 / ranks[row]
                              : mean_factor(shape.reduction, end.contributors);
      const double group_scale = group_scales_[end.rates.empty() ? 0 : shape.rates];
      const double scale = mean * group_scale * clip_scale_;
      if (is_integer(shape.dtype)) {
        for (uint64_t column = 0; column < shape.row_elements; ++column) {
          double& value = values_[variable][row * shape.row_elements + column];
          value = shape.dtype == PARALLAX_I32
                      ? add(static_cast<int32_t>(value), static_cast<int32_t>(sum[column]))
                      : static_cast<double>(
                            add(static_cast<int64_t>(value), static_cast<int64_t>(sum[column])));
        }
      } else if (is_double(shape.dtype)) {
        update_row<double>(variable, row, sum, scale);
      } else {
        update_row<float>(variable, row, sum, static_cast<float>(scale));
      }
    }
  }
}

}  // namespace parallax::testkit
