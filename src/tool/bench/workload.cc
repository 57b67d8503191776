// SPDX-License-Identifier: Apache-2.0
// The elements that ranks give, and their exact sums.
#include "tool/bench/workload.h"

#include <algorithm>

#include "base/number.h"
#include "tool/bench/check.h"

namespace parallax::tool::bench {

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
