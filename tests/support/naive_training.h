// SPDX-License-Identifier: Apache-2.0
// NaiveTraining: what a job must compute, by one process over plain dense arrays that sums every
// gradient once, in the documented order: ranks of a host in order, then hosts in order, from +0.
// It links nothing of the library but the header's types. One thread.
#ifndef PARALLAX_TESTS_SUPPORT_NAIVE_TRAINING_H_
#define PARALLAX_TESTS_SUPPORT_NAIVE_TRAINING_H_

#include <cstdint>
#include <set>
#include <vector>

#include "parallax/parallax.h"

namespace parallax::testkit {

// What one rank gives for one variable in one step.
struct Gift {
  bool given = false;
  std::vector<int64_t> ids;  // with ids: one per row of values
  std::vector<float> values;
};

struct StepEnd {
  float learning_rate = 0;
  float clip_norm = 0;
  bool found_inf = false;
  uint32_t contributors = 0;
};

class NaiveTraining {
 public:
  // `ranks_of`: the ranks of each host, in the order of hosts.
  NaiveTraining(std::vector<parallax_variable_t> variables,
                std::vector<std::vector<uint32_t>> ranks_of);

  // The sum of one variable's gifts (by rank), and the rows that anybody gave.
  std::vector<float> fold(uint32_t variable, const std::vector<Gift>& gifts) const;
  static std::set<int64_t> rows_given(const std::vector<Gift>& gifts);

  // Ends a step; gifts[variable][rank].
  void commit(const std::vector<std::vector<Gift>>& gifts, const StepEnd& end);
  const std::vector<float>& value(uint32_t variable) const { return values_[variable]; }
  // Of the last commit.
  double gradient_norm() const { return gradient_norm_; }
  double clip_scale() const { return clip_scale_; }

 private:
  bool managed(uint32_t variable) const { return variables_[variable].rule != PARALLAX_RULE_NONE; }
  double mean_factor(uint32_t reduction, uint32_t contributors) const;
  double norm(const std::vector<std::vector<float>>& sums, uint32_t contributors) const;

  std::vector<parallax_variable_t> variables_;
  std::vector<std::vector<uint32_t>> ranks_of_;
  uint32_t world_ = 0;
  std::vector<std::vector<float>> values_, states_;
  double gradient_norm_ = 0;
  double clip_scale_ = 1;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_NAIVE_TRAINING_H_
