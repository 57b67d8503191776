// SPDX-License-Identifier: Apache-2.0
// Row ids by Zipf's law, the elements that ranks give, and their exact sums.
#include "tool/bench/workload.h"

#include <algorithm>
#include <cmath>

#include "base/number.h"
#include "tool/bench/check.h"

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

void fill_dense(const DenseFill& fill, std::byte* values) {
  with_dtype(fill.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (uint64_t i = 0; i < fill.count; ++i) {
      store<T>(element_of(fill.rank, i + fill.shift, 0), values + i * sizeof(T));
    }
  });
}

void fill_rows(const RowsFill& fill, std::byte* values) {
  with_dtype(fill.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (const int64_t id : fill.ids) {
      const uint64_t row = static_cast<uint64_t>(id);
      for (uint64_t i = 0; i < fill.width; ++i, values += sizeof(T)) {
        store<T>(fill.sign * element_of(fill.rank, row, i + fill.shift), values);
      }
    }
  });
}

RowUnion::RowUnion(const std::vector<std::vector<int64_t>>& ids_of_ranks)
    : world_(ids_of_ranks.size()), distinct_(ids_of_ranks.size(), 0) {
  for (const auto& ids : ids_of_ranks) ids_.insert(ids_.end(), ids.begin(), ids.end());
  std::sort(ids_.begin(), ids_.end());
  ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  counts_.resize(ids_.size() * world_);
  for (size_t rank = 0; rank < world_; ++rank) {
    for (const int64_t id : ids_of_ranks[rank]) {
      if (counts_[index_of(id) * world_ + rank]++ == 0) ++distinct_[rank];
    }
  }
}

size_t RowUnion::index_of(int64_t id) const {
  return static_cast<size_t>(std::lower_bound(ids_.begin(), ids_.end(), id) - ids_.begin());
}

double RowUnion::sum(size_t index, uint64_t column) const {
  double sum = 0;
  for (uint32_t rank = 0; rank < world_; ++rank) {
    sum += counts_[index * world_ + rank] *
           element_of(rank, static_cast<uint64_t>(ids_[index]), column);
  }
  return sum;
}

double RowUnion::largest_sum() const {
  uint64_t most = 0;
  for (size_t index = 0; index < ids_.size(); ++index) {
    uint64_t times = 0;
    for (size_t rank = 0; rank < world_; ++rank) times += counts_[index * world_ + rank];
    most = std::max(most, times);
  }
  return static_cast<double>(most * kPeriod);
}

DenseSum::DenseSum(uint32_t world) {
  for (uint64_t i = 0; i < kPeriod; ++i) {
    for (uint32_t rank = 0; rank < world; ++rank) sums_[i] += element_of(rank, i, 0);
  }
}

}  // namespace parallax::tool::bench
