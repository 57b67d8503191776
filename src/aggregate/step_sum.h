// SPDX-License-Identifier: Apache-2.0
// StepSum: what one rank contributed of a variable in several slices of a step (micro-batches, or
// tied use in one call), copied and added up in their order, by the kernels of RowCoalescer: as if
// all had come in one slice. Rows lie in the order in which they came first. Reserved at commit, or
// by the first call with several slices; adding allocates nothing. Engine's owner only.
#ifndef PARALLAX_AGGREGATE_STEP_SUM_H_
#define PARALLAX_AGGREGATE_STEP_SUM_H_

#include <cstdint>
#include <span>

#include "aggregate/row_coalescer.h"
#include "aggregate/row_index.h"
#include "base/arena.h"
#include "base/status.h"
#include "variable/variable.h"

namespace parallax {

class StepSum {
 public:
  explicit StepSum(const Variable& variable);
  StepSum(const StepSum&) = delete;
  StepSum& operator=(const StepSum&) = delete;

  size_t needed_bytes() const;
  Status reserve();  // LIMIT
  const Arena& arena() const { return arena_; }

  // Starts the sum of a step.
  void clear(uint64_t step);
  uint64_t step() const { return step_; }

  // With row ids. True if the distinct rows of the slices, with those here, are not too many; one
  // slice alone never is. Changes nothing that can be seen.
  [[nodiscard]] bool fits(std::span<const RowSlice> slices);
  void add_rows(const RowSlice& slice);  // that fits
  RowSlice rows() const;

  // Without row ids: all elements.
  void add_dense(const RowValues& values);
  RowValues dense() const { return {values_.data(), dtype_of(sum_)}; }

 private:
  const uint64_t row_elements_;
  const uint64_t rows_max_;  // rows that can differ; 0 without ids
  const uint64_t elements_;  // room for sums
  const SumType sum_;
  uint64_t step_ = 0;
  bool started_ = false;  // without ids: something was added
  Arena arena_;
  RowIndex index_;          // row -> slot
  std::span<int64_t> ids_;  // by slot
  std::span<std::byte> values_;
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_STEP_SUM_H_
