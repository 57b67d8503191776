// SPDX-License-Identifier: Apache-2.0
// Update rules, by the formulas of parallax.h, row by row: a table that says what each keeps, and
// the arithmetic. Built without FMA contraction, so that owner, mirror and a naive program get the
// same bits. Pure; any thread.
#ifndef PARALLAX_SERVER_UPDATE_RULES_H_
#define PARALLAX_SERVER_UPDATE_RULES_H_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/number.h"
#include "variable/variable.h"

namespace parallax {

// Everything that applying a step hands to a rule; in double, rounded once to the type of the
// value.
struct UpdateArguments {
  uint32_t rule = PARALLAX_RULE_SGD;
  double learning_rate = 0;
  double scale = 1;  // mean factor * clip factor
  double epsilon = 0;
  double beta1 = 0, beta2 = 0;
  double momentum = 0;
  bool nesterov = false;
  uint64_t updates = 1;  // ADAM: committed steps in which the variable got a gradient, this one
                         // counted
  bool sparse = true;    // ADAM: SparseAdam's formula, else Adam's
};

// base^exponent by squaring: the same bits on every machine, which pow() does not promise.
inline double power(double base, uint64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if ((exponent & 1) != 0) result *= base;
  }
  return result;
}

// One row: its value, state and gradient. What a rule does not keep is null.
template <typename T>
struct RowParts {
  T* __restrict value;
  T* __restrict state0;  // `count` elements; one for a rule with a state per row
  T* __restrict state1;
  const T* __restrict gradient;
  size_t count;
};

template <typename T>
class SgdRule {
 public:
  explicit SgdRule(const UpdateArguments& with) : rate_(static_cast<T>(with.learning_rate)) {}
  void apply(const RowParts<T>& row, T scale) const {
    update(row.value, row.gradient, row.count, scale);
  }

 private:
  // As parameters, since GCC forgets __restrict of members.
  void update(T* __restrict value, const T* __restrict gradient, size_t count, T scale) const {
    const T rate = rate_;
    for (size_t i = 0; i < count; ++i) value[i] -= rate * (gradient[i] * scale);
  }

  T rate_;
};

template <typename T>
class AdagradRule {
 public:
  explicit AdagradRule(const UpdateArguments& with)
      : rate_(static_cast<T>(with.learning_rate)), epsilon_(static_cast<T>(with.epsilon)) {}
  void apply(const RowParts<T>& row, T scale) const {
    update(row.value, row.state0, row.gradient, row.count, scale);
  }

 private:
  void update(T* __restrict value, T* __restrict state, const T* __restrict gradient, size_t count,
              T scale) const {
    const T rate = rate_, epsilon = epsilon_;
    for (size_t i = 0; i < count; ++i) {
      const T g = gradient[i] * scale;
      state[i] += g * g;
      value[i] -= rate * g / (std::sqrt(state[i]) + epsilon);
    }
  }

  T rate_, epsilon_;
};

template <typename T>
class RowwiseAdagradRule {
 public:
  explicit RowwiseAdagradRule(const UpdateArguments& with)
      : rate_(static_cast<T>(with.learning_rate)), epsilon_(static_cast<T>(with.epsilon)) {}
  void apply(const RowParts<T>& row, T scale) const {
    double squares = 0;
    for (size_t i = 0; i < row.count; ++i) {
      const double g = row.gradient[i] * scale;
      squares += g * g;
    }
    *row.state0 += static_cast<T>(squares / static_cast<double>(row.count));
    const T root = std::sqrt(*row.state0) + epsilon_;
    for (size_t i = 0; i < row.count; ++i) {
      row.value[i] -= rate_ * (row.gradient[i] * scale) / root;
    }
  }

 private:
  T rate_, epsilon_;
};

template <typename T>
class MomentumRule {
 public:
  explicit MomentumRule(const UpdateArguments& with)
      : rate_(static_cast<T>(with.learning_rate)),
        momentum_(static_cast<T>(with.momentum)),
        nesterov_(with.nesterov) {}
  void apply(const RowParts<T>& row, T scale) const {
    for (size_t i = 0; i < row.count; ++i) {
      const T g = row.gradient[i] * scale;
      row.state0[i] = momentum_ * row.state0[i] + g;
      row.value[i] -= rate_ * (nesterov_ ? g + momentum_ * row.state0[i] : row.state0[i]);
    }
  }

 private:
  T rate_, momentum_;
  bool nesterov_;
};

template <typename T>
class AdamRule {
 public:
  explicit AdamRule(const UpdateArguments& with)
      : epsilon_(static_cast<T>(with.epsilon)),
        beta1_(static_cast<T>(with.beta1)),
        beta2_(static_cast<T>(with.beta2)),
        rest1_(static_cast<T>(1 - with.beta1)),
        rest2_(static_cast<T>(1 - with.beta2)),
        sparse_(with.sparse) {
    const double correction1 = 1 - power(with.beta1, with.updates);
    const double root2 = std::sqrt(1 - power(with.beta2, with.updates));
    root2_ = static_cast<T>(root2);
    size_ =
        static_cast<T>((sparse_ ? with.learning_rate * root2 : with.learning_rate) / correction1);
  }
  void apply(const RowParts<T>& row, T scale) const {
    sparse_ ? apply_sparse(row, scale) : apply_dense(row, scale);
  }

 private:
  void apply_sparse(const RowParts<T>& row, T scale) const {
    for (size_t i = 0; i < row.count; ++i) {
      const T g = row.gradient[i] * scale;
      row.state0[i] += rest1_ * (g - row.state0[i]);
      row.state1[i] += rest2_ * (g * g - row.state1[i]);
      row.value[i] -= size_ * (row.state0[i] / (std::sqrt(row.state1[i]) + epsilon_));
    }
  }
  void apply_dense(const RowParts<T>& row, T scale) const {
    for (size_t i = 0; i < row.count; ++i) {
      const T g = row.gradient[i] * scale;
      row.state0[i] = beta1_ * row.state0[i] + rest1_ * g;
      row.state1[i] = beta2_ * row.state1[i] + rest2_ * (g * g);
      row.value[i] -= size_ * (row.state0[i] / (std::sqrt(row.state1[i]) / root2_ + epsilon_));
    }
  }

  T epsilon_, beta1_, beta2_, rest1_, rest2_, root2_, size_;
  bool sparse_;
};

template <typename T>
class SumRule {
 public:
  explicit SumRule(const UpdateArguments&) {}
  void apply(const RowParts<T>& row, T scale) const {
    for (size_t i = 0; i < row.count; ++i) {
      if constexpr (std::is_integral_v<T>) {
        row.value[i] = plus(row.value[i], row.gradient[i]);  // an integer has no scale but 1
      } else {
        row.value[i] += row.gradient[i] * scale;
      }
    }
  }
};

// Calls visit(rule) with the rule of T that the arguments name. Integers have SUM alone.
template <typename T, typename Visit>
void with_rule(const UpdateArguments& with, Visit visit) {
  if constexpr (std::is_integral_v<T>) {
    visit(SumRule<T>(with));
  } else {
    switch (with.rule) {
      case PARALLAX_RULE_SGD:
        return visit(SgdRule<T>(with));
      case PARALLAX_RULE_ADAGRAD:
        return visit(AdagradRule<T>(with));
      case PARALLAX_RULE_ADAM:
        return visit(AdamRule<T>(with));
      case PARALLAX_RULE_MOMENTUM:
        return visit(MomentumRule<T>(with));
      case PARALLAX_RULE_ROWWISE_ADAGRAD:
        return visit(RowwiseAdagradRule<T>(with));
      default:
        return visit(SumRule<T>(with));
    }
  }
}

}  // namespace parallax

#endif  // PARALLAX_SERVER_UPDATE_RULES_H_
