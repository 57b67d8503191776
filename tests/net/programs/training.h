// SPDX-License-Identifier: Apache-2.0
// What the training program trains, and the naive oracle it checks itself against. Every gradient
// is a pure function of (seed, variable, rank, step), so each rank can compute all of them, sum
// them in the stated order and apply the update rules of parallax.h to a plain array. Shares no
// code with the library. One thread.
#ifndef PARALLAX_TESTS_NET_PROGRAMS_TRAINING_H_
#define PARALLAX_TESTS_NET_PROGRAMS_TRAINING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "parallax/parallax.h"

namespace training {

struct Spec {
  const char* name;
  uint64_t rows, width;
  uint32_t tag, reduction, rule;
  uint64_t rows_max;  // 0: dense
  float accumulator;
  bool managed() const { return rule != PARALLAX_RULE_NONE; }
  bool ids() const { return rows_max > 0; }
};

constexpr float kInitLow = -0.5F;
constexpr float kInitHigh = 0.5F;

// `scale` widens rows, to move more bytes. "hot" is touched nearly whole in every step, so that
// AUTO changes its place once it was measured.
inline std::vector<Spec> make_specs(uint64_t scale) {
  constexpr uint32_t kNone = PARALLAX_RULE_NONE, kSgd = PARALLAX_RULE_SGD,
                     kAdagrad = PARALLAX_RULE_ADAGRAD;
  return {
      {"embedding", 400, 16 * scale, PARALLAX_SPARSE, PARALLAX_SUM, kSgd, 48, 0},
      {"softmax", 300, 8 * scale, PARALLAX_AUTO, PARALLAX_MEAN_WORLD, kAdagrad, 32, 0.1F},
      {"hot", 24, 8, PARALLAX_SPARSE, PARALLAX_MEAN_CONTRIBUTORS, kAdagrad, 40, 0.1F},
      {"hidden", 40, 32 * scale, PARALLAX_DENSE, PARALLAX_MEAN_CONTRIBUTORS, kSgd, 0, 0},
      {"bias", 1, 70, PARALLAX_AUTO, PARALLAX_SUM, kAdagrad, 0, 0.1F},
      {"held_dense", 20, 10, PARALLAX_DENSE, PARALLAX_SUM, kNone, 0, 0},
      {"held_rows", 200, 4, PARALLAX_SPARSE, PARALLAX_SUM, kNone, 24, 0},
  };
}

struct Config {
  uint64_t seed = 1;
  std::vector<uint32_t> host_of;  // by rank; hosts are numbered by their lowest rank
  uint64_t scale = 1;
  bool dyadic = false;  // gradients whose sums are exact in any order
  uint32_t world() const { return static_cast<uint32_t>(host_of.size()); }
  uint32_t hosts() const { return *std::max_element(host_of.begin(), host_of.end()) + 1; }
};

inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// A stream of bits for one (seed, variable, rank, step).
class Bits {
 public:
  Bits(uint64_t seed, uint64_t variable, uint64_t rank, uint64_t step)
      : state_(mix(mix(mix(mix(seed + 1) + variable) + rank) + step)) {}
  uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  float gradient(bool dyadic) {
    const double value = 2 * unit() - 1;
    if (!dyadic) return static_cast<float>(value);
    return static_cast<float>(std::ceil(value * 64)) / 64;
  }

 private:
  uint64_t state_;
};

// What a rank brings for one variable in one step.
struct Slice {
  bool contributed = false;
  std::vector<int64_t> ids;    // with duplicates
  std::vector<int64_t> pulls;  // a superset of ids
  std::vector<float> values;
};

// One rank has no batch in every fourth step.
inline bool is_absent(const Config& config, uint32_t rank, uint64_t step) {
  return config.world() > 1 && step % 4 == 2 && step / 4 % config.world() == rank;
}
inline bool found_inf(const Config& config, uint32_t rank, uint64_t step) {
  return step % 5 == 3 && step % config.world() == rank;
}
inline bool is_discarded(uint64_t step) { return step % 5 == 3; }
inline float learning_rate(uint64_t step) { return 0.1F / (1 + 0.01F * static_cast<float>(step)); }
inline float clip_norm(uint64_t step) { return step % 2 == 0 ? 3.0F : 0.0F; }

inline Slice make_slice(const Config& config, const Spec& spec, uint32_t variable, uint32_t rank,
                        uint64_t step) {
  Bits bits(config.seed, variable, rank, step);
  Slice slice;
  const bool left_out = bits.next() % 11 == 0;  // nobody must push everything
  slice.contributed = !is_absent(config, rank, step) && !left_out;
  uint64_t count = spec.rows;
  if (spec.ids()) {
    count = bits.next() % (spec.rows_max + 1);
    for (uint64_t i = 0; i < spec.rows_max; ++i) {
      const double skewed = bits.unit() * bits.unit();
      slice.pulls.push_back(static_cast<int64_t>(skewed * static_cast<double>(spec.rows)));
    }
    slice.ids.assign(slice.pulls.begin(), slice.pulls.begin() + static_cast<ptrdiff_t>(count));
  }
  slice.values.resize(count * spec.width);
  for (float& value : slice.values) value = bits.gradient(config.dyadic);
  return slice;
}

// A sum in the making: rows start from +0 at their first addend.
struct Sum {
  std::vector<float> values;
  std::vector<uint8_t> touched;  // by row
  explicit Sum(const Spec& spec) : values(spec.rows * spec.width), touched(spec.rows) {}
  void add_row(const Spec& spec, uint64_t row, const float* addend) {
    float* sum = &values[row * spec.width];
    for (uint64_t i = 0; i < spec.width; ++i) {
      sum[i] = (touched[row] == 0 ? 0.0F : sum[i]) + addend[i];
    }
    touched[row] = 1;
  }
  void add(const Spec& spec, const Sum& other) {
    for (uint64_t row = 0; row < spec.rows; ++row) {
      if (other.touched[row] != 0) add_row(spec, row, &other.values[row * spec.width]);
    }
  }
};

// Ranks of a host in order, then hosts in order.
inline Sum reduce(const Config& config, const Spec& spec, uint32_t variable, uint64_t step) {
  Sum all(spec);
  for (uint32_t host = 0; host < config.hosts(); ++host) {
    Sum of_host(spec);
    for (uint32_t rank = 0; rank < config.world(); ++rank) {
      if (config.host_of[rank] != host) continue;
      const Slice slice = make_slice(config, spec, variable, rank, step);
      if (!slice.contributed) continue;
      Sum merged(spec);
      const uint64_t count = spec.ids() ? slice.ids.size() : spec.rows;
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t row = spec.ids() ? static_cast<uint64_t>(slice.ids[i]) : i;
        merged.add_row(spec, row, &slice.values[i * spec.width]);
      }
      of_host.add(spec, merged);
    }
    all.add(spec, of_host);
  }
  return all;
}

class Oracle {
 public:
  explicit Oracle(Config config) : config_(std::move(config)), specs_(make_specs(config_.scale)) {
    for (uint32_t variable = 0; variable < specs_.size(); ++variable) {
      const Spec& spec = specs_[variable];
      std::vector<float> values(spec.rows * spec.width);
      for (uint64_t i = 0; i < values.size(); ++i) {
        values[i] = spec.managed() ? initial(variable, i / spec.width, i % spec.width) : 0;
      }
      values_.push_back(std::move(values));
      state_.emplace_back(spec.rows * spec.width, spec.accumulator);
    }
  }

  const Config& config() const { return config_; }
  const std::vector<Spec>& specs() const { return specs_; }
  uint64_t init_seed(uint32_t variable) const { return config_.seed * 100 + variable; }
  const float* row(uint32_t variable, uint64_t row) const {
    return &values_[variable][row * specs_[variable].width];
  }

  uint32_t contributors(uint64_t step) const {
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < config_.world(); ++rank) {
      count += is_absent(config_, rank, step) ? 0 : 1;
    }
    return count;
  }

  // Sums the step, and gives the norm that clipping goes by.
  double begin(uint64_t step) {
    sums_.clear();
    double square = 0;
    for (uint32_t variable = 0; variable < specs_.size(); ++variable) {
      sums_.push_back(reduce(config_, specs_[variable], variable, step));
      if (!specs_[variable].managed()) continue;
      double squares = 0;
      for (const float value : sums_[variable].values) squares += double{value} * double{value};
      const double scale = factor(specs_[variable], step);
      square += scale * scale * squares;
    }
    return std::sqrt(square);
  }
  const Sum& sum(uint32_t variable) const { return sums_[variable]; }

  // What begin() summed is committed, by the formulas of parallax.h.
  void commit(uint64_t step, double clip_scale) {
    const float rate = learning_rate(step);
    for (uint32_t variable = 0; variable < specs_.size(); ++variable) {
      const Spec& spec = specs_[variable];
      if (!spec.managed()) continue;
      const float scale = static_cast<float>(factor(spec, step) * clip_scale);
      for (uint64_t i = 0; i < spec.rows * spec.width; ++i) {
        if (sums_[variable].touched[i / spec.width] == 0) continue;
        const float gradient = sums_[variable].values[i] * scale;
        float& value = values_[variable][i];
        float& state = state_[variable][i];
        if (spec.rule == PARALLAX_RULE_SGD) {
          value -= rate * gradient;
        } else {
          state += gradient * gradient;
          value -= rate * gradient / (std::sqrt(state) + 1e-10F);
        }
      }
    }
  }

 private:
  double factor(const Spec& spec, uint64_t step) const {
    if (spec.reduction == PARALLAX_SUM) return 1;
    const uint32_t ranks =
        spec.reduction == PARALLAX_MEAN_WORLD ? config_.world() : contributors(step);
    return 1.0 / ranks;
  }

  // PARALLAX_INIT_UNIFORM.
  float initial(uint32_t variable, uint64_t row, uint64_t column) const {
    const uint64_t bits = mix(mix(init_seed(variable) + 0x9e3779b97f4a7c15 * (row + 1)) + column);
    const float unit = static_cast<float>(bits >> 40) * 0x1p-24F;
    return kInitLow + (kInitHigh - kInitLow) * unit;
  }

  const Config config_;
  const std::vector<Spec> specs_;
  std::vector<std::vector<float>> values_, state_;
  std::vector<Sum> sums_;
};

}  // namespace training

#endif  // PARALLAX_TESTS_NET_PROGRAMS_TRAINING_H_
