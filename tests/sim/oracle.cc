// SPDX-License-Identifier: Apache-2.0
// The naive training. Formulas are those of parallax.h.
#include "sim/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace parallax::simtest {
namespace {

constexpr double kUnit = 0x1p-24;       // rounding of one float operation
constexpr uint64_t kRunElements = 256;  // a run of the norm's sum
__extension__ typedef __float128 Wide;  // sums of doubles that do not round where it matters

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

float initial(const parallax_variable_t& variable, uint64_t row, uint64_t column) {
  if (variable.init == PARALLAX_INIT_CONSTANT) return variable.init_low;
  const uint64_t bits = mix(mix(variable.init_seed + 0x9e3779b97f4a7c15 * (row + 1)) + column);
  const float unit = static_cast<float>(bits >> 40) * 0x1p-24f;
  return variable.init_low + (variable.init_high - variable.init_low) * unit;
}

}  // namespace

Oracle::Oracle(const Scenario& scenario) : scenario_(scenario) {
  std::vector<Values> first(scenario.variables.size());
  for (uint32_t i = 0; i < first.size(); ++i) {
    const parallax_variable_t& variable = scenario.variables[i];
    if (!scenario.managed(i)) continue;
    for (uint64_t row = 0; row < variable.rows; ++row) {
      for (uint64_t column = 0; column < variable.row_elements; ++column) {
        first[i].value.push_back(initial(variable, row, column));
      }
    }
    first[i].state.assign(first[i].value.size(), variable.initial_accumulator_value);
    first[i].second.assign(first[i].value.size(), 0);
    first[i].bound.assign(first[i].value.size(), 0.0);
  }
  versions_.push_back(std::move(first));
}

// One rank's slice, its duplicates summed first, added to its host's sum.
void Oracle::add_contribution(const Contribution& contribution, uint32_t variable, Reduced* host,
                              std::vector<double>* magnitude, std::vector<uint32_t>* terms) const {
  const uint64_t width = scenario_.variables[variable].row_elements;
  const auto note = [&](uint64_t at, float value) {
    (*magnitude)[at] += std::fabs(static_cast<double>(value));
    ++(*terms)[at];
  };
  host->contributed = true;
  if (!scenario_.ids(variable)) {
    for (uint64_t at = 0; at < contribution.values.size(); ++at) {
      host->sum[at] += contribution.values[at];
      note(at, contribution.values[at]);
    }
    return;
  }
  std::map<int64_t, std::vector<float>> merged;
  for (size_t i = 0; i < contribution.ids.size(); ++i) {
    const float* row = &contribution.values[i * width];
    const auto [found, is_new] = merged.try_emplace(contribution.ids[i], width, 0.0f);
    for (uint64_t column = 0; column < width; ++column) {
      found->second[column] += row[column];
      note(static_cast<uint64_t>(contribution.ids[i]) * width + column, row[column]);
    }
  }
  for (const auto& [id, row] : merged) {
    host->rows.push_back(id);
    for (uint64_t column = 0; column < width; ++column) {
      host->sum[static_cast<uint64_t>(id) * width + column] += row[column];
    }
  }
}

Reduced Oracle::sum_of(uint64_t step, uint32_t variable) const {
  const uint64_t elements = scenario_.elements(variable);
  Reduced total;
  total.sum.assign(elements, 0.0f);
  std::vector<double> magnitude(elements, 0.0);
  std::vector<uint32_t> terms(elements, 0);
  uint32_t gave = 0;
  for (const std::vector<uint32_t>& ranks : scenario_.hosts.ranks_of) {
    Reduced host;
    host.sum.assign(elements, 0.0f);
    for (const uint32_t rank : ranks) {
      const Contribution contribution = scenario_.contribution(step, rank, variable);
      if (!contribution.contributed) continue;
      add_contribution(contribution, variable, &host, &magnitude, &terms);
      ++gave;
    }
    for (uint64_t at = 0; at < elements; ++at) total.sum[at] += host.sum[at];
    total.rows.insert(total.rows.end(), host.rows.begin(), host.rows.end());
    total.contributed |= host.contributed;
  }
  std::sort(total.rows.begin(), total.rows.end());
  total.rows.erase(std::unique(total.rows.begin(), total.rows.end()), total.rows.end());
  total.bound.resize(scenario_.bitwise() ? 0 : elements);
  for (uint64_t at = 0; at < total.bound.size(); ++at) {
    total.bound[at] = 2 * kUnit * terms[at] * magnitude[at];  // both orders may err
  }
  // Of a managed one the table divides, by those who were not absent.
  const bool held_mean = !scenario_.managed(variable) &&
                         scenario_.variables[variable].reduction == PARALLAX_MEAN_CONTRIBUTORS;
  if (!held_mean || gave == 0) return total;
  const auto factor = static_cast<float>(1.0 / gave);
  for (float& each : total.sum) each *= factor;
  for (uint64_t at = 0; at < total.bound.size(); ++at) {
    total.bound[at] = total.bound[at] * factor + kUnit * magnitude[at];
  }
  return total;
}

const Reduced& Oracle::reduced(uint64_t step, uint32_t variable) {
  const auto found = reduced_.find({step, variable});
  if (found != reduced_.end()) return found->second;
  return reduced_[{step, variable}] = sum_of(step, variable);
}

double Oracle::mean_factor(uint32_t reduction, uint32_t contributors) const {
  if (reduction == PARALLAX_MEAN_WORLD) return 1.0 / scenario_.world;
  if (reduction == PARALLAX_MEAN_CONTRIBUTORS) return 1.0 / std::max(1u, contributors);
  return 1.0;
}

parallax_rates_t Oracle::rates_of(uint64_t step, uint32_t variable) const {
  const StepChoice choice = scenario_.step(step);
  if (!choice.rates.empty()) return choice.rates[scenario_.variables[variable].rates];
  parallax_rates_t rates = {};
  rates.learning_rate = choice.learning_rate;
  return rates;
}

// Squares of each kind of reduction are summed exactly, run by run, and rounded once.
double Oracle::squared_norm(uint64_t step, uint32_t contributors, uint32_t group) {
  double square = 0;
  for (uint32_t kind = 0; kind < 3; ++kind) {
    Wide exact = 0;
    for (uint32_t i = 0; i < scenario_.variables.size(); ++i) {
      const parallax_variable_t& variable = scenario_.variables[i];
      if (!scenario_.managed(i) || variable.reduction != kind) continue;
      if ((rates_of(step, i).clip_norm > 0 ? variable.rates : UINT32_MAX) != group) continue;
      const std::vector<float>& sum = reduced(step, i).sum;
      const uint64_t stride = scenario_.ids(i) ? variable.row_elements : sum.size();
      for (uint64_t row = 0; row < sum.size(); row += stride) {
        for (uint64_t at = 0; at < stride; at += kRunElements) {
          double run = 0;
          for (uint64_t j = at; j < std::min(stride, at + kRunElements); ++j) {
            const double value = sum[row + j];
            run += value * value;
          }
          exact += run;
        }
      }
    }
    const double factor = mean_factor(kind, contributors);
    square += factor * factor * static_cast<double>(exact);
  }
  return square;
}

// Groups first; the global norm is of what they have left.
void Oracle::clip(uint64_t step, StepOutcome* outcome) {
  const StepChoice choice = scenario_.step(step);
  const auto scale_of = [](float clip_norm, double norm) {
    return std::min(1.0, static_cast<double>(clip_norm) / (norm + 1e-6));
  };
  outcome->group_scales.assign(PARALLAX_RATES_MAX, 1.0);
  double square = squared_norm(step, outcome->contributors, UINT32_MAX);
  for (uint32_t group = 0; group < choice.rates.size(); ++group) {
    if (choice.rates[group].clip_norm == 0) continue;
    const double of_group = squared_norm(step, outcome->contributors, group);
    const double scale = scale_of(choice.rates[group].clip_norm, std::sqrt(of_group));
    outcome->group_scales[group] = scale;
    square += scale * scale * of_group;
  }
  if (choice.clip_norm == 0) return;
  outcome->gradient_norm = std::sqrt(square);
  outcome->clip_scale = scale_of(choice.clip_norm, outcome->gradient_norm);
}

const StepOutcome& Oracle::outcome(uint64_t step) {
  const auto found = outcomes_.find(step);
  if (found != outcomes_.end()) return found->second;
  const StepChoice choice = scenario_.step(step);
  StepOutcome& outcome = outcomes_[step];
  for (uint32_t rank = 0; rank < scenario_.world; ++rank) {
    outcome.contributors += choice.absent[rank] ? 0 : 1;
  }
  outcome.mismatch = choice.other_rate_rank != UINT32_MAX;
  outcome.committed = !outcome.mismatch && choice.found_inf_rank == UINT32_MAX;
  clip(step, &outcome);
  return outcome;
}

void Oracle::apply(uint64_t step, std::vector<Values>* values) {
  const StepOutcome& outcome = this->outcome(step);
  if (!outcome.committed) return;
  for (uint32_t i = 0; i < scenario_.variables.size(); ++i) {
    const parallax_variable_t& variable = scenario_.variables[i];
    const Reduced& gradient = reduced(step, i);
    if (!scenario_.managed(i) || !gradient.contributed) continue;
    const double mean = mean_factor(variable.reduction, outcome.contributors);
    const auto scale =
        static_cast<float>(mean * outcome.group_scales[variable.rates] * outcome.clip_scale);
    const Update with = {variable, gradient, rates_of(step, i), scale};
    ++(*values)[i].updates;
    const uint64_t width = variable.row_elements;
    const uint64_t rows = scenario_.ids(i) ? gradient.rows.size() : variable.rows;
    // Of rows that nobody gave, nothing is touched.
    for (uint64_t j = 0; j < rows; ++j) {
      const uint64_t row = scenario_.ids(i) ? static_cast<uint64_t>(gradient.rows[j]) : j;
      for (uint64_t at = row * width; at < (row + 1) * width; ++at) {
        update(with, at, &(*values)[i]);
      }
    }
  }
}

// By what beta1, beta2 and epsilon are where they are not said; of a variable with ids.
float Oracle::adam_step(const Update& with, float g, uint64_t at, Values* values) const {
  const auto to_the_t = [values](double base) {
    double power = 1;
    for (uint64_t i = values->updates; i > 0; i >>= 1, base *= base) power *= i % 2 == 1 ? base : 1;
    return power;
  };
  float& m = values->state[at];
  float& v = values->second[at];
  m += static_cast<float>(1 - 0.9) * (g - m);
  v += static_cast<float>(1 - 0.999) * (g * g - v);
  const double root2 = std::sqrt(1 - to_the_t(0.999));
  const double rate = with.rates.learning_rate * root2 / (1 - to_the_t(0.9));
  return static_cast<float>(rate) * (m / (std::sqrt(v) + 1e-8f));
}

void Oracle::update(const Update& with, uint64_t at, Values* values) const {
  const parallax_rates_t& rates = with.rates;
  const Reduced& gradient = with.gradient;
  const float epsilon = with.variable.epsilon == 0 ? 1e-10f : with.variable.epsilon;
  float& p = values->value[at];
  float g = gradient.sum[at] * with.scale;
  if (rates.maximize != 0) g = -g;
  if (rates.weight_decay != 0 && rates.decoupled != 0) {
    const double lost = static_cast<double>(rates.learning_rate) * double{rates.weight_decay};
    if (!scenario_.bitwise()) values->bound[at] += 4 * kUnit * std::fabs(static_cast<double>(p));
    p *= static_cast<float>(1 - lost);
  } else if (rates.weight_decay != 0) {
    g += rates.weight_decay * p;
  }
  float update = rates.learning_rate * g;
  if (with.variable.rule == PARALLAX_RULE_ADAGRAD) {
    values->state[at] += g * g;
    update = rates.learning_rate * g / (std::sqrt(values->state[at]) + epsilon);
  }
  if (with.variable.rule == PARALLAX_RULE_ADAM) update = adam_step(with, g, at, values);
  p -= update;
  if (scenario_.bitwise()) return;
  // Terms are positive, so relative errors add up: of the sum (and through state and clipping twice
  // more), of the update's few operations, of the subtraction.
  const double relative =
      gradient.sum[at] == 0 ? 0 : gradient.bound[at] / static_cast<double>(gradient.sum[at]);
  values->bound[at] += std::fabs(static_cast<double>(update)) * (4 * relative + 32 * kUnit) +
                       4 * kUnit * std::fabs(static_cast<double>(p));
}

const std::vector<Oracle::Values>& Oracle::values_after(uint64_t step) {
  while (versions_.size() <= step) {
    std::vector<Values> next = versions_.back();
    apply(versions_.size(), &next);
    versions_.push_back(std::move(next));
  }
  return versions_[step];
}

// ---- checks

std::string Oracle::compare(const float* got, const float* want, const double* bound,
                            uint64_t count, const std::string& what) const {
  for (uint64_t i = 0; i < count; ++i) {
    const bool right =
        scenario_.bitwise()
            ? std::memcmp(&got[i], &want[i], sizeof(float)) == 0
            : std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])) <= bound[i];
    if (right) continue;
    char text[160];
    std::snprintf(text, sizeof text, " element %llu is %.9g (%a), should be %.9g (%a)",
                  static_cast<unsigned long long>(i), static_cast<double>(got[i]),
                  static_cast<double>(got[i]), static_cast<double>(want[i]),
                  static_cast<double>(want[i]));
    return what + text;
  }
  return "";
}

// The last of them is told of.
std::string Oracle::compare_after(Commits commits, uint32_t variable, uint64_t at, const float* got,
                                  uint64_t count, const std::string& what) {
  std::string wrong;
  for (uint64_t step = commits.last + 1; step-- > commits.first;) {
    const Values& mine = values_after(step)[variable];
    std::string differs = compare(
        got, &mine.value[at], &mine.bound[at], count,
        "value after step " + std::to_string(step) + " of " + scenario_.names[variable] + what);
    if (differs.empty()) return "";
    if (step == commits.last) wrong = std::move(differs);
  }
  if (commits.first < commits.last) {
    wrong += ", or as after an earlier one from " + std::to_string(commits.first) + " on";
  }
  return wrong;
}

std::string Oracle::check_rows(Commits commits, uint32_t variable, const std::vector<int64_t>& ids,
                               const float* values) {
  const uint64_t width = scenario_.variables[variable].row_elements;
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint64_t at = static_cast<uint64_t>(ids[i]) * width;
    std::string wrong = compare_after(commits, variable, at, values + i * width, width,
                                      " row " + std::to_string(ids[i]));
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string Oracle::check_dense(Commits commits, uint32_t variable, const float* values,
                                bool of_owners) {
  const uint64_t elements = scenario_.elements(variable);
  if (!of_owners) return compare_after(commits, variable, 0, values, elements, "");
  for (uint64_t at = 0; at < elements; ++at) {
    std::string wrong = compare_after(commits, variable, at, values + at, 1,
                                      ", from element " + std::to_string(at) + " on,");
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string Oracle::check_reduced_dense(uint64_t step, uint32_t variable, const float* values) {
  const Reduced& want = reduced(step, variable);
  return compare(values, want.sum.data(), want.bound.data(), want.sum.size(),
                 "reduce of step " + std::to_string(step) + " of " + scenario_.names[variable]);
}

std::string Oracle::check_reduced_rows(uint64_t step, uint32_t variable,
                                       const std::vector<int64_t>& ids,
                                       const std::vector<float>& values) {
  const Reduced& want = reduced(step, variable);
  const uint64_t width = scenario_.variables[variable].row_elements;
  const std::string what =
      "reduce of step " + std::to_string(step) + " of " + scenario_.names[variable];
  if (ids != want.rows) {
    return what + ": " + std::to_string(ids.size()) + " rows, should be the union of " +
           std::to_string(want.rows.size());
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint64_t at = static_cast<uint64_t>(ids[i]) * width;
    const double* bound = want.bound.empty() ? nullptr : &want.bound[at];
    const std::string wrong = compare(&values[i * width], &want.sum[at], bound, width,
                                      what + " row " + std::to_string(ids[i]));
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string Oracle::check_outcome(uint64_t step, const parallax_step_info_t& info) {
  const StepOutcome& want = outcome(step);
  const auto near = [this](double got, double wanted) {
    return scenario_.bitwise() ? got == wanted
                               : std::fabs(got - wanted) <= 1e-4 * std::fabs(wanted) + 1e-12;
  };
  if (info.step == step && (info.committed != 0) == want.committed &&
      info.contributors == want.contributors && near(info.gradient_norm, want.gradient_norm) &&
      near(info.clip_scale, want.clip_scale)) {
    return "";
  }
  char text[256];
  std::snprintf(text, sizeof text,
                "step_end of %llu: step %llu committed %u contributors %u norm %a scale %a; should "
                "be committed %d contributors %u norm %a scale %a",
                static_cast<unsigned long long>(step), static_cast<unsigned long long>(info.step),
                info.committed, info.contributors, info.gradient_norm, info.clip_scale,
                want.committed ? 1 : 0, want.contributors, want.gradient_norm, want.clip_scale);
  return text;
}

}  // namespace parallax::simtest
