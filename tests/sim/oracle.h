// SPDX-License-Identifier: Apache-2.0
// Oracle: the same training by one process that sums every gradient once, over plain dense arrays.
// It shares no arithmetic with the library. For deterministic runs it sums in the documented order
// (parallax.h: ranks of a host in order, then hosts in order, from +0) and its results are exact to
// the bit; for others it carries a bound of the rounding error beside each value. One thread.
#ifndef PARALLAX_TESTS_SIM_ORACLE_H_
#define PARALLAX_TESTS_SIM_ORACLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/scenario.h"

namespace parallax::simtest {

// What a reduction must give: every element, a bound of its error, and which rows anybody gave.
struct Reduced {
  std::vector<float> sum;
  std::vector<double> bound;
  std::vector<int64_t> rows;  // ascending; variables with ids
  bool contributed = false;
};

struct StepOutcome {
  bool committed = false;
  bool mismatch = false;
  uint32_t contributors = 0;
  double gradient_norm = 0;
  double clip_scale = 1;
  std::vector<double> group_scales;  // of steps with rates
};

class Oracle {
 public:
  explicit Oracle(const Scenario& scenario);

  const Reduced& reduced(uint64_t step, uint32_t variable);
  const StepOutcome& outcome(uint64_t step);

  // The commits that values may be as of: all up to one of these.
  struct Commits {
    uint64_t first = 0, last = 0;
  };
  // "" if right, else what is wrong. Each row is as of one of the commits; dense values all are as
  // of one, or, of owners that each have applied what they have, each element.
  std::string check_rows(Commits commits, uint32_t variable, const std::vector<int64_t>& ids,
                         const float* values);
  std::string check_dense(Commits commits, uint32_t variable, const float* values, bool of_owners);
  std::string check_reduced_dense(uint64_t step, uint32_t variable, const float* values);
  std::string check_reduced_rows(uint64_t step, uint32_t variable, const std::vector<int64_t>& ids,
                                 const std::vector<float>& values);
  std::string check_outcome(uint64_t step, const parallax_step_info_t& info);

 private:
  struct Values {
    std::vector<float> value;
    std::vector<float> state, second;
    std::vector<double> bound;
    uint64_t updates = 0;
  };

  Reduced sum_of(uint64_t step, uint32_t variable) const;
  void add_contribution(const Contribution& contribution, uint32_t variable, Reduced* host,
                        std::vector<double>* magnitude, std::vector<uint32_t>* terms) const;
  parallax_rates_t rates_of(uint64_t step, uint32_t variable) const;
  // The squared norm of the variables whose group clips its own gradients, of one group; or of the
  // others (group: UINT32_MAX).
  double squared_norm(uint64_t step, uint32_t contributors, uint32_t group);
  void clip(uint64_t step, StepOutcome* outcome);
  double mean_factor(uint32_t reduction, uint32_t contributors) const;
  const std::vector<Values>& values_after(uint64_t step);
  void apply(uint64_t step, std::vector<Values>* values);
  // One element of a variable.
  struct Update {
    const parallax_variable_t& variable;
    const Reduced& gradient;
    parallax_rates_t rates;
    float scale;
  };
  void update(const Update& with, uint64_t at, Values* values) const;
  float adam_step(const Update& with, float g, uint64_t at, Values* values) const;
  std::string compare_after(Commits commits, uint32_t variable, uint64_t at, const float* got,
                            uint64_t count, const std::string& what);
  std::string compare(const float* got, const float* want, const double* bound, uint64_t count,
                      const std::string& what) const;

  const Scenario& scenario_;
  std::vector<std::vector<Values>> versions_;  // by step
  std::map<std::pair<uint64_t, uint32_t>, Reduced> reduced_;
  std::map<uint64_t, StepOutcome> outcomes_;
};

}  // namespace parallax::simtest

#endif  // PARALLAX_TESTS_SIM_ORACLE_H_
