// SPDX-License-Identifier: Apache-2.0
// Rejection-inversion. See zipf.h.
#include "tool/bench/zipf.h"

#include <algorithm>
#include <cmath>

namespace parallax::tool::bench {

namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

// splitmix64 (Steele et al. 2014).
uint64_t next_random(uint64_t* state) {
  uint64_t z = *state += kGolden;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

// The integral's exponent so close to 0 is a logarithm's.
constexpr double kNearlyZero = 1e-9;

}  // namespace

ZipfSampler::ZipfSampler(uint64_t rows, double exponent, uint64_t seed)
    : rows_(static_cast<double>(rows)), exponent_(exponent), state_(seed) {
  area_low_ = integral(1.5) - 1;
  area_high_ = integral(rows_ + 0.5);
  accept_ = 2 - inverse(integral(2.5) - std::pow(2, -exponent_));
}

double ZipfSampler::uniform() { return static_cast<double>(next_random(&state_) >> 11) * 0x1p-53; }

double ZipfSampler::integral(double x) const {
  const double power = 1 - exponent_;
  if (std::fabs(power) < kNearlyZero) return std::log(x);
  return std::expm1(power * std::log(x)) / power;
}

double ZipfSampler::inverse(double area) const {
  const double power = 1 - exponent_;
  if (std::fabs(power) < kNearlyZero) return std::exp(area);
  return std::exp(std::log1p(std::max(-1.0, area * power)) / power);
}

int64_t ZipfSampler::next() {
  for (;;) {
    const double area = area_high_ + uniform() * (area_low_ - area_high_);
    const double x = inverse(area);
    const double rank = std::clamp(std::floor(x + 0.5), 1.0, rows_);
    if (rank - x <= accept_ || area >= integral(rank + 0.5) - std::pow(rank, -exponent_)) {
      return static_cast<int64_t>(rank) - 1;
    }
  }
}

std::vector<int64_t> draw_ids(uint64_t rows, double exponent, uint64_t seed, uint32_t rank,
                              uint64_t count) {
  // Mixed twice: states that differ by a multiple of kGolden give the same numbers, shifted.
  uint64_t of_seed = seed;
  uint64_t of_rank = next_random(&of_seed) + rank;
  ZipfSampler sampler(rows, exponent, next_random(&of_rank));
  std::vector<int64_t> ids(count);
  for (int64_t& id : ids) id = sampler.next();
  return ids;
}

}  // namespace parallax::tool::bench
