// SPDX-License-Identifier: Apache-2.0
// The oracle's arithmetic: what libparallax promises, computed the slow and plain way. Nothing here
// is shared with the library. Single-threaded.
//
// The order of the deterministic mode: per rank, rows of one id are summed in order of appearance;
// per host, its ranks in order; then the hosts in order of their first rank. Every sum starts from
// +0 and rounds each addition to float.
#ifndef BENCH_LM_FOLD_H_
#define BENCH_LM_FOLD_H_

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "experiment.h"
#include "model.h"

namespace lm {

// Rows by id, in order of first appearance.
class RowSum {
 public:
  void add(int64_t id, const float* row, size_t elements);
  void add(const RowSum& other, size_t elements);

  const std::vector<int64_t>& ids() const { return ids_; }
  const std::vector<float>& values() const { return values_; }

 private:
  std::unordered_map<int64_t, size_t> index_;
  std::vector<int64_t> ids_;
  std::vector<float> values_;
};

// The gradient of every variable: dense ones whole, sparse ones by row.
struct GradientSum {
  Tensors dense;
  std::array<RowSum, kVariableCount> rows;
};

// One rank's slices, duplicates summed.
GradientSum rank_sum(const VariableSpecs& specs, const Batch& batch, const Tensors& gradients);
// *into += from, from +0 where *into has nothing yet.
void add_sum(const VariableSpecs& specs, const GradientSum& from, GradientSum* into);

// The sum of doubles, rounded once (Shewchuk 1997, as in Python's math.fsum).
class ExactDoubleSum {
 public:
  void add(double term);
  double value() const;

 private:
  std::vector<double> partials_;
};

// What a reduced gradient is multiplied by, and the learning rate.
struct UpdateRates {
  float scale, learning_rate;
};
// Updates values by a sum of their gradients, and the optimizer's state, which SGD has none of.
void update(Rule rule, std::span<const float> sum, const UpdateRates& rates, float* values,
            float* state);

// The values and the optimizer's state of one process that holds everything.
class Parameters {
 public:
  Parameters(const Experiment& experiment, const VariableSpecs& specs);

  // The rows and tensors that a batch needs.
  Tensors gather(const Batch& batch) const;
  const Tensors& values() const { return values_; }

  // One committed step. Returns the norm of the reduced gradient before clipping.
  double apply(const GradientSum& sum, uint64_t step);

 private:
  double mean_factor() const;
  double norm(const GradientSum& sum) const;
  const Experiment& experiment_;
  const VariableSpecs& specs_;
  Tensors values_;
  Tensors accumulators_;
};

}  // namespace lm

#endif  // BENCH_LM_FOLD_H_
