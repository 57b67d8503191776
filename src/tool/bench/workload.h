// SPDX-License-Identifier: Apache-2.0
// Workload: what every rank gives in a step, and what must come out of it. Elements are small whole
// numbers that depend on rank, row and column, so that a sum is exact in every type and shows an
// element that is missing, doubled or in the wrong place. Values; any thread.
#ifndef PARALLAX_TOOL_BENCH_WORKLOAD_H_
#define PARALLAX_TOOL_BENCH_WORKLOAD_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace parallax::tool::bench {

inline constexpr uint64_t kPeriod = 7;
// Operations of one step give the same rows, and columns shifted by their number, so that one's
// result is not another's.
inline double element_of(uint32_t rank, uint64_t row, uint64_t column) {
  return static_cast<double>(1 + (rank * 5 + row * 3 + column) % kPeriod);
}

// Writes what `rank` gives for elements of a dense variable, of which the first is number `shift`.
struct DenseFill {
  uint32_t dtype = 0, rank = 0;
  uint64_t count = 0, shift = 0;
};
void fill_dense(const DenseFill& fill, std::byte* values);

// Writes `sign` x what `rank` gives for the rows `ids`, from column `shift` on.
struct RowsFill {
  uint32_t dtype = 0, rank = 0;
  std::span<const int64_t> ids;
  uint64_t width = 1, shift = 0;
  double sign = 1;
};
void fill_rows(const RowsFill& fill, std::byte* values);

// The union of all ranks' rows, ascending, and how often each rank gives each.
class RowUnion {
 public:
  explicit RowUnion(const std::vector<std::vector<int64_t>>& ids_of_ranks);
  size_t size() const { return ids_.size(); }
  int64_t id(size_t index) const { return ids_[index]; }
  // Of an id that some rank gives.
  size_t index_of(int64_t id) const;
  // The exact sum over ranks and repeated ids.
  double sum(size_t index, uint64_t column) const;
  // A bound on any of them.
  double largest_sum() const;
  uint64_t distinct_of(uint32_t rank) const { return distinct_[rank]; }

 private:
  size_t world_;
  std::vector<int64_t> ids_;
  std::vector<uint32_t> counts_;  // index x rank
  std::vector<uint64_t> distinct_;
};

// The sum over ranks of a dense element.
class DenseSum {
 public:
  explicit DenseSum(uint32_t world);
  double operator()(uint64_t element) const { return sums_[element % kPeriod]; }

 private:
  double sums_[kPeriod] = {};
};

}  // namespace parallax::tool::bench

#endif  // PARALLAX_TOOL_BENCH_WORKLOAD_H_
