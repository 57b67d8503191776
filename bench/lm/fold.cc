// SPDX-License-Identifier: Apache-2.0
#include "fold.h"

#include <algorithm>
#include <cmath>

namespace lm {
namespace {

constexpr size_t kNormRun = 256;           // elements of one run of the norm
constexpr float kAdagradEpsilon = 1e-10F;  // the default of parallax.h

void add_norm_runs(const float* sum, size_t count, ExactDoubleSum* total) {
  for (size_t first = 0; first < count; first += kNormRun) {
    double run = 0;
    for (size_t i = first; i < std::min(count, first + kNormRun); ++i) {
      run += static_cast<double>(sum[i]) * static_cast<double>(sum[i]);
    }
    total->add(run);
  }
}

}  // namespace

void RowSum::add(int64_t id, const float* row, size_t elements) {
  const auto [found, fresh] = index_.try_emplace(id, ids_.size());
  if (fresh) {
    ids_.push_back(id);
    values_.resize(values_.size() + elements, 0.0F);
  }
  float* sum = values_.data() + found->second * elements;
  for (size_t i = 0; i < elements; ++i) sum[i] += row[i];
}

void RowSum::add(const RowSum& other, size_t elements) {
  for (size_t i = 0; i < other.ids_.size(); ++i) {
    add(other.ids_[i], other.values_.data() + i * elements, elements);
  }
}

GradientSum rank_sum(const VariableSpecs& specs, const Batch& batch, const Tensors& gradients) {
  GradientSum sum;
  for (size_t v = 0; v < specs.size(); ++v) {
    const size_t elements = specs[v].row_elements;
    if (!specs[v].sparse()) {
      sum.dense[v] = gradients[v];
      continue;
    }
    const std::vector<int64_t>& ids = batch.ids(v);
    for (size_t i = 0; i < ids.size(); ++i) {
      sum.rows[v].add(ids[i], gradients[v].data() + i * elements, elements);
    }
  }
  return sum;
}

void add_sum(const VariableSpecs& specs, const GradientSum& from, GradientSum* into) {
  for (size_t v = 0; v < specs.size(); ++v) {
    if (specs[v].sparse()) {
      into->rows[v].add(from.rows[v], specs[v].row_elements);
      continue;
    }
    into->dense[v].resize(from.dense[v].size(), 0.0F);
    for (size_t i = 0; i < from.dense[v].size(); ++i) into->dense[v][i] += from.dense[v][i];
  }
}

void ExactDoubleSum::add(double term) {
  size_t kept = 0;
  for (double partial : partials_) {
    if (std::fabs(term) < std::fabs(partial)) std::swap(term, partial);
    const double high = term + partial;
    const double low = partial - (high - term);
    if (low != 0) partials_[kept++] = low;
    term = high;
  }
  partials_.resize(kept);
  partials_.push_back(term);
}

double ExactDoubleSum::value() const {
  if (partials_.empty()) return 0;
  size_t i = partials_.size() - 1;
  double high = partials_[i];
  double low = 0;
  while (i > 0) {
    const double larger = high;
    const double smaller = partials_[--i];
    high = larger + smaller;
    low = smaller - (high - larger);
    if (low != 0) break;
  }
  // Half-way cases: what lies below decides, when it has the sign of the remainder.
  if (i > 0 && ((low < 0 && partials_[i - 1] < 0) || (low > 0 && partials_[i - 1] > 0))) {
    const double twice = low * 2;
    const double rounded = high + twice;
    if (twice == rounded - high) high = rounded;
  }
  return high;
}

void update(Rule rule, std::span<const float> sum, const UpdateRates& rates, float* values,
            float* state) {
  for (size_t i = 0; i < sum.size(); ++i) {
    const float g = sum[i] * rates.scale;
    if (rule == Rule::kSgd) {
      values[i] -= rates.learning_rate * g;
      continue;
    }
    state[i] += g * g;
    values[i] -= rates.learning_rate * g / (std::sqrt(state[i]) + kAdagradEpsilon);
  }
}

Parameters::Parameters(const Experiment& experiment, const VariableSpecs& specs)
    : experiment_(experiment), specs_(specs) {
  for (size_t v = 0; v < specs_.size(); ++v) {
    const VariableSpec& spec = specs_[v];
    values_[v].resize(spec.elements());
    for (uint64_t row = 0; row < spec.rows; ++row) {
      for (uint64_t column = 0; column < spec.row_elements; ++column) {
        values_[v][row * spec.row_elements + column] = initial_value(spec, row, column);
      }
    }
    if (experiment_.rule == Rule::kAdagrad) {
      accumulators_[v].assign(spec.elements(), static_cast<float>(experiment_.initial_accumulator));
    }
  }
}

Tensors Parameters::gather(const Batch& batch) const {
  Tensors gathered;
  for (size_t v = 0; v < specs_.size(); ++v) {
    if (!specs_[v].sparse()) {
      gathered[v] = values_[v];
      continue;
    }
    const size_t elements = specs_[v].row_elements;
    for (int64_t id : batch.ids(v)) {
      const float* row = values_[v].data() + static_cast<size_t>(id) * elements;
      gathered[v].insert(gathered[v].end(), row, row + elements);
    }
  }
  return gathered;
}

double Parameters::mean_factor() const {
  // Every rank contributes to every step of this bench, so both means divide by the world.
  return experiment_.reduction == Reduction::kSum ? 1.0 : 1.0 / experiment_.world;
}

// parallax.h's norm, for variables that all share one reduction: the two other terms are zero.
double Parameters::norm(const GradientSum& sum) const {
  ExactDoubleSum squares;
  for (size_t v = 0; v < specs_.size(); ++v) {
    if (!specs_[v].sparse()) {
      add_norm_runs(sum.dense[v].data(), sum.dense[v].size(), &squares);
      continue;
    }
    const size_t elements = specs_[v].row_elements;
    for (size_t i = 0; i < sum.rows[v].ids().size(); ++i) {
      add_norm_runs(sum.rows[v].values().data() + i * elements, elements, &squares);
    }
  }
  const double factor = mean_factor();
  return std::sqrt(factor * factor * squares.value());
}

double Parameters::apply(const GradientSum& sum, uint64_t step) {
  double norm_value = 0;
  double clip_factor = 1;
  if (experiment_.clip_norm > 0) {
    norm_value = norm(sum);
    // The limit crosses the C ABI as a float.
    const double limit = static_cast<double>(static_cast<float>(experiment_.clip_norm));
    clip_factor = std::min(1.0, limit / (norm_value + 1e-6));
  }
  const UpdateRates rates = {.scale = static_cast<float>(mean_factor() * clip_factor),
                             .learning_rate = experiment_.learning_rate_at(step)};
  const auto update_from = [&](size_t v, size_t first, std::span<const float> gradient) {
    float* const state = experiment_.rule == Rule::kSgd ? nullptr : accumulators_[v].data() + first;
    update(experiment_.rule, gradient, rates, values_[v].data() + first, state);
  };
  for (size_t v = 0; v < specs_.size(); ++v) {
    if (!specs_[v].sparse()) {
      update_from(v, 0, sum.dense[v]);
      continue;
    }
    const size_t elements = specs_[v].row_elements;
    for (size_t i = 0; i < sum.rows[v].ids().size(); ++i) {
      update_from(v, static_cast<size_t>(sum.rows[v].ids()[i]) * elements,
                  {sum.rows[v].values().data() + i * elements, elements});
    }
  }
  return norm_value;
}

}  // namespace lm
