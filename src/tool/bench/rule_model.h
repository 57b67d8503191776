// SPDX-License-Identifier: Apache-2.0
// RuleModel: what a rank's rows of a managed variable must be after each step, by the formulas of
// parallax.h written naively, one element after the other, in the type that the library keeps them
// in. Gradients are exact sums of whole numbers, so values are equal bit for bit. One thread.
#ifndef PARALLAX_TOOL_BENCH_RULE_MODEL_H_
#define PARALLAX_TOOL_BENCH_RULE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tool/bench/workload.h"

namespace parallax::tool::bench {

// What the bench registers and passes, too.
inline constexpr float kLearningRate = 0.25F;
inline constexpr double kMomentum = 0.5;

struct RuleModelOptions {
  uint32_t rule = 0;  // parallax_rule_t
  uint32_t dtype = 0;
  uint64_t width = 1;
  double divisor = 1;  // of the sum over ranks
  uint64_t shift = 0;  // of the columns that are given
};

class RuleModel {
 public:
  // `ids`: the rows that are asked for, in any order; `all`, which is kept, has every one of them.
  RuleModel(const RuleModelOptions& options, std::span<const int64_t> ids, const RowUnion& all);

  // Steps 1 .. `last` are committed: in odd ones each rank gave its rows, in even ones their
  // negatives.
  void advance(uint64_t last);

  size_t row_of(int64_t id) const;
  double value(size_t row, uint64_t column) const { return values_[row * width() + column]; }

 private:
  template <typename T>
  void step(uint64_t number);
  template <typename T>
  void update_row(size_t row, uint64_t number, T sign);
  template <typename T>
  void update_element(T g, T row_state, size_t element, uint64_t number);
  uint64_t width() const { return options_.width; }

  RuleModelOptions options_;
  const RowUnion& all_;
  std::vector<int64_t> ids_;                     // ascending, distinct
  std::vector<double> values_, first_, second_;  // numbers of the kept type
  uint64_t steps_ = 0;
};

}  // namespace parallax::tool::bench

#endif  // PARALLAX_TOOL_BENCH_RULE_MODEL_H_
