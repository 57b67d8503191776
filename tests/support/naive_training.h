// SPDX-License-Identifier: Apache-2.0
// NaiveTraining: what a job must compute, by one process over plain dense arrays that sums every
// gradient once, in the documented order: ranks of a host in order, then hosts in order, from +0.
// It links nothing of the library but the header's types. Numbers are kept in double, which holds
// every value of every dtype (i64 up to 2^53), and rounded to what they are summed in after every
// operation. One thread.
#ifndef PARALLAX_TESTS_SUPPORT_NAIVE_TRAINING_H_
#define PARALLAX_TESTS_SUPPORT_NAIVE_TRAINING_H_

#include <cstdint>
#include <set>
#include <vector>

#include "parallax/parallax.h"

namespace parallax::testkit {

// What one rank contributes to one variable in one step.
struct Contribution {
  bool contributed = false;
  bool dense = false;        // of a variable with ids: every row, before those of ids,
  bool rows_first = false;   // or behind them
  bool rows = true;          // of a variable with ids: those of ids
  std::vector<int64_t> ids;  // with ids: one per row of values; -1 is padding
  uint32_t dtype = 0;        // of the values
  std::vector<double> values;
  std::vector<double> dense_values;
};

struct StepEnd {
  float learning_rate = 0;
  float clip_norm = 0;
  bool found_inf = false;
  uint32_t contributors = 0;
  std::vector<parallax_rates_t> rates = {};  // none: learning_rate for all
};

// The nearest number of a dtype, ties to even.
double rounded(uint32_t dtype, double value);
// Of F16 or BF16: the one farther from zero, of those that the value lies between, with the
// probability of its distance from the nearer; `fraction`, in [0, 1), is chance.
double rounded_by_chance(uint32_t dtype, double value, double fraction);

class NaiveTraining {
 public:
  // `ranks_of`: the ranks of each host, in the order of hosts.
  NaiveTraining(std::vector<parallax_variable_t> variables,
                std::vector<std::vector<uint32_t>> ranks_of);

  // The sum of one variable's contributions (by rank), and the rows that anybody gave, with the
  // number of ranks that did.
  std::vector<double> sum_of(uint32_t variable,
                             const std::vector<Contribution>& contributions) const;
  std::vector<uint32_t> ranks_of_rows(uint32_t variable,
                                      const std::vector<Contribution>& contributions) const;
  // What a reduce gives back: the sum, or the mean where it is that of the world or of the row.
  std::vector<double> reduced(uint32_t variable,
                              const std::vector<Contribution>& contributions) const;

  // Ends a step; contributions[variable][rank].
  void commit(const std::vector<std::vector<Contribution>>& contributions, const StepEnd& end);
  const std::vector<double>& value(uint32_t variable) const { return values_[variable]; }
  // Of the last commit.
  double gradient_norm() const { return gradient_norm_; }
  double clip_scale() const { return clip_scale_; }

 private:
  bool managed(uint32_t variable) const { return variables_[variable].rule != PARALLAX_RULE_NONE; }
  double mean_factor(uint32_t reduction, uint32_t contributors) const;
  parallax_rates_t rates_of(uint32_t variable) const;
  // The squared norm of those variables whose group clips its own gradients, of one group; or of
  // the others (group: rates' size).
  double squared_norm(const std::vector<std::vector<double>>& sums,
                      const std::vector<std::vector<Contribution>>& contributions,
                      uint32_t group) const;
  void clip(const std::vector<std::vector<double>>& sums,
            const std::vector<std::vector<Contribution>>& contributions);
  template <typename T>
  std::vector<double> sum_as(uint32_t variable,
                             const std::vector<Contribution>& contributions) const;
  // What the owner gets of a host's sum. Variables that are rounded so are pushed in these jobs.
  double pushed(uint32_t variable, double value) const;
  // What is kept of a value of the variable, which has been updated so often.
  double stored(uint32_t variable, uint64_t row, uint64_t column, double value) const;
  template <typename T>
  void update_row(uint32_t variable, uint64_t row, const double* sum, T scale);
  template <typename T>
  struct Element {
    T value, first_state, second_state;
  };
  template <typename T>
  void update_by_ftrl(uint32_t variable, T g, T rate, Element<T>* element) const;
  template <typename T>
  void update_by_adam(uint32_t variable, T g, T epsilon, Element<T>* element) const;

  std::vector<parallax_variable_t> variables_;
  std::vector<std::vector<uint32_t>> ranks_of_;
  uint32_t world_ = 0;
  std::vector<std::vector<double>> values_, first_states_, second_states_;
  std::vector<uint64_t> updates_;
  StepEnd end_;  // of the step
  std::vector<double> group_scales_;
  double gradient_norm_ = 0;
  double clip_scale_ = 1;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_NAIVE_TRAINING_H_
