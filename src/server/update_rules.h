// SPDX-License-Identifier: Apache-2.0
// Update rules, by the formulas of parallax.h, row by row: the arithmetic of each, and of the rates
// that all of them share (weight decay, the gradient's sign). Built without FMA contraction, so
// that owner, mirror and a naive program get the same bits. Pure; any thread.
#ifndef PARALLAX_SERVER_UPDATE_RULES_H_
#define PARALLAX_SERVER_UPDATE_RULES_H_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/number.h"
#include "base/vector_code.h"
#include "variable/tables_left_out.h"
#include "variable/variable.h"

namespace parallax {

// Everything that applying a step hands to a rule; in double, rounded once to the type of the
// value.
struct UpdateArguments {
  uint32_t rule = PARALLAX_RULE_SGD;
  uint32_t variable = 0;  // for the caller's own rule
  uint64_t step = 0;
  double learning_rate = 0;
  double weight_decay = 0;
  bool decoupled = false;  // weight decay shrinks the value, and is no part of the gradient
  bool maximize = false;   // the value goes up the gradient
  double clip_norm = 0;    // of the group, for the caller's own rule; in `scale` already
  double scale = 1;        // mean factor * clip factors
  double epsilon = 0;
  double beta1 = 0, beta2 = 0;
  double momentum = 0;
  bool nesterov = false;
  double l1 = 0, l2 = 0, l2_shrinkage = 0, beta = 0;
  // Of fused tables, for who counts their updates; null: none.
  const TablesLeftOut* left_out = nullptr;
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

// What a rule takes for its gradient: the reduced one by its scale, whose sign `maximize` turns;
// and with weight decay added to it. Two types, so that loops without decay do not read the value
// for it. A row that is read where the caller has it may hold -0, where a sum, which begins from
// +0, never does.
template <typename T>
struct ScaledGradient {
  T scale;
  T operator()(T gradient, T) const { return (T{0} + gradient) * scale; }
};

template <typename T>
struct DecayedGradient {
  T scale, decay;
  T operator()(T gradient, T value) const { return (T{0} + gradient) * scale + decay * value; }
};

template <typename T>
class SgdRule {
 public:
  static constexpr bool kIsShort = true;
  explicit SgdRule(const UpdateArguments& with) : rate_(static_cast<T>(with.learning_rate)) {}
  template <typename Gradient>
  void apply(const RowParts<T>& row, const Gradient& taken) const {
    update(row.value, row.gradient, row.count, taken);
  }

 private:
  // As parameters, since GCC forgets __restrict of members.
  template <typename Gradient>
  void update(T* __restrict value, const T* __restrict gradient, size_t count,
              const Gradient taken) const {
    const T rate = rate_;
    for (size_t i = 0; i < count; ++i) value[i] -= rate * taken(gradient[i], value[i]);
  }

  T rate_;
};

template <typename T>
class AdagradRule {
 public:
  static constexpr bool kIsShort = true;
  explicit AdagradRule(const UpdateArguments& with)
      : rate_(static_cast<T>(with.learning_rate)), epsilon_(static_cast<T>(with.epsilon)) {}
  template <typename Gradient>
  void apply(const RowParts<T>& row, const Gradient& taken) const {
    update(row.value, row.state0, row.gradient, row.count, taken);
  }

 private:
  template <typename Gradient>
  void update(T* __restrict value, T* __restrict state, const T* __restrict gradient, size_t count,
              const Gradient taken) const {
    const T rate = rate_, epsilon = epsilon_;
    for (size_t i = 0; i < count; ++i) {
      const T g = taken(gradient[i], value[i]);
      state[i] += g * g;
      value[i] -= rate * g / (std::sqrt(state[i]) + epsilon);
    }
  }

  T rate_, epsilon_;
};

template <typename T>
class RowwiseAdagradRule {
 public:
  static constexpr bool kSumsInOrder = true;
  explicit RowwiseAdagradRule(const UpdateArguments& with)
      : rate_(static_cast<T>(with.learning_rate)), epsilon_(static_cast<T>(with.epsilon)) {}
  template <typename Gradient>
  void apply(const RowParts<T>& row, const Gradient& taken) const {
    double squares = 0;
    for (size_t i = 0; i < row.count; ++i) {
      const double g = taken(row.gradient[i], row.value[i]);
      squares += g * g;
    }
    *row.state0 += static_cast<T>(squares / static_cast<double>(row.count));
    const T root = std::sqrt(*row.state0) + epsilon_;
    for (size_t i = 0; i < row.count; ++i) {
      row.value[i] -= rate_ * taken(row.gradient[i], row.value[i]) / root;
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
  template <typename Gradient>
  void apply(const RowParts<T>& row, const Gradient& taken) const {
    const auto of_buffer = [](T, T buffer) { return buffer; };
    const auto by_nesterov = [momentum = momentum_](T g, T buffer) {
      return g + momentum * buffer;
    };
    if (nesterov_) {
      update(row.value, row.state0, row.gradient, row.count, taken, by_nesterov);
    } else {
      update(row.value, row.state0, row.gradient, row.count, taken, of_buffer);
    }
  }

 private:
  template <typename Gradient, typename Step>
  void update(T* __restrict value, T* __restrict state, const T* __restrict gradient, size_t count,
              const Gradient taken, const Step step) const {
    const T rate = rate_, momentum = momentum_;
    for (size_t i = 0; i < count; ++i) {
      const T g = taken(gradient[i], value[i]);
      state[i] = momentum * state[i] + g;
      value[i] -= rate * step(g, state[i]);
    }
  }

  T rate_, momentum_;
  bool nesterov_;
};

// What ADAM makes of its t.
struct AdamTime {
  uint64_t updates = 0;
  double correction1 = 0, root2 = 0;

  static AdamTime of(const UpdateArguments& with, uint64_t updates) {
    return {updates, 1 - power(with.beta1, updates), std::sqrt(1 - power(with.beta2, updates))};
  }
};

template <typename T>
class AdamRule {
 public:
  explicit AdamRule(const UpdateArguments& with)
      : AdamRule(with, AdamTime::of(with, with.updates)) {}
  AdamRule(const UpdateArguments& with, const AdamTime& time)
      : epsilon_(static_cast<T>(with.epsilon)),
        beta1_(static_cast<T>(with.beta1)),
        beta2_(static_cast<T>(with.beta2)),
        rest1_(static_cast<T>(1 - with.beta1)),
        rest2_(static_cast<T>(1 - with.beta2)),
        root2_(static_cast<T>(time.root2)),
        size_(static_cast<T>((with.sparse ? with.learning_rate * time.root2 : with.learning_rate) /
                             time.correction1)),
        sparse_(with.sparse) {}
  template <typename Gradient>
  void apply(const RowParts<T>& row, const Gradient& taken) const {
    if (sparse_) {
      update_sparse(row.value, row.state0, row.state1, row.gradient, row.count, taken);
    } else {
      update_dense(row.value, row.state0, row.state1, row.gradient, row.count, taken);
    }
  }

 private:
  template <typename Gradient>
  void update_sparse(T* __restrict value, T* __restrict first, T* __restrict second,
                     const T* __restrict gradient, size_t count, const Gradient taken) const {
    const T epsilon = epsilon_, rest1 = rest1_, rest2 = rest2_, size = size_;
    for (size_t i = 0; i < count; ++i) {
      const T g = taken(gradient[i], value[i]);
      first[i] += rest1 * (g - first[i]);
      second[i] += rest2 * (g * g - second[i]);
      value[i] -= size * (first[i] / (std::sqrt(second[i]) + epsilon));
    }
  }
  template <typename Gradient>
  void update_dense(T* __restrict value, T* __restrict first, T* __restrict second,
                    const T* __restrict gradient, size_t count, const Gradient taken) const {
    const T epsilon = epsilon_, beta1 = beta1_, beta2 = beta2_, rest1 = rest1_, rest2 = rest2_;
    const T root2 = root2_, size = size_;
    for (size_t i = 0; i < count; ++i) {
      const T g = taken(gradient[i], value[i]);
      first[i] = beta1 * first[i] + rest1 * g;
      second[i] = beta2 * second[i] + rest2 * (g * g);
      value[i] -= size * (first[i] / (std::sqrt(second[i]) / root2 + epsilon));
    }
  }

  T epsilon_, beta1_, beta2_, rest1_, rest2_, root2_, size_;
  bool sparse_;
};

template <typename T>
class FtrlRule {
 public:
  explicit FtrlRule(const UpdateArguments& with)
      : rate_(static_cast<T>(with.learning_rate)),
        l1_(static_cast<T>(with.l1)),
        shrinkage_(static_cast<T>(2 * with.l2_shrinkage)),
        least_(static_cast<T>(2 * (with.l2 + with.beta / (2 * with.learning_rate)))) {}
  template <typename Gradient>
  void apply(const RowParts<T>& row, const Gradient& taken) const {
    // Which divides by nothing.
    if (rate_ == 0) return;
    update(row.value, row.state0, row.state1, row.gradient, row.count, taken);
  }

 private:
  template <typename Gradient>
  void update(T* __restrict value, T* __restrict squares, T* __restrict linear,
              const T* __restrict gradient, size_t count, const Gradient taken) const {
    const T rate = rate_, l1 = l1_, shrinkage = shrinkage_, least = least_;
    for (size_t i = 0; i < count; ++i) {
      const T p = value[i];
      const T g = taken(gradient[i], p);
      const T before = std::sqrt(squares[i]);
      squares[i] += g * g;
      const T after = std::sqrt(squares[i]);
      linear[i] += (g + shrinkage * p) - (after - before) / rate * p;
      const T z = linear[i];
      const T beyond = (z > 0 ? l1 : -l1) - z;
      const T divisor = after / rate + least;
      // Nothing was learned of it yet.
      if (divisor == 0) continue;
      value[i] = std::fabs(z) <= l1 ? T{0} : beyond / divisor;
    }
  }

  T rate_, l1_, shrinkage_, least_;
};

template <typename T>
class SumRule {
 public:
  explicit SumRule(const UpdateArguments&) {}
  template <typename Gradient>
  void apply(const RowParts<T>& row, const Gradient& taken) const {
    for (size_t i = 0; i < row.count; ++i) {
      if constexpr (std::is_integral_v<T>) {
        row.value[i] = plus(row.value[i], row.gradient[i]);  // an integer has no scale but 1
      } else {
        row.value[i] += taken(row.gradient[i], row.value[i]);
      }
    }
  }
};

// Calls visit(rule) with the rule of T that the arguments name. Integers have SUM alone.
template <typename T, typename Visit>
void with_rule(const UpdateArguments& with, const Visit& visit) {
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
      case PARALLAX_RULE_FTRL:
        return visit(FtrlRule<T>(with));
      default:
        return visit(SumRule<T>(with));
    }
  }
}

// What the rates of a step do beside the rule, rounded once to the type of the value.
template <typename T>
struct Decay {
  explicit Decay(const UpdateArguments& with) {
    // A sum is no descent: it has no rates.
    if (with.rule == PARALLAX_RULE_SUM || std::is_integral_v<T>) return;
    sign = with.maximize ? -1 : 1;
    if (!with.decoupled) coupled = static_cast<T>(with.weight_decay);
    if (with.decoupled) kept = static_cast<T>(1 - with.learning_rate * with.weight_decay);
  }
  T coupled = 0;    // of the value, added to the gradient
  T kept = 1;       // of the value, before the update
  double sign = 1;  // of the gradient
};

// One row by its rates and its rule; `scale` has the sign.
template <typename T, typename Rule>
void update_row(const Rule& rule, const Decay<T>& decay, const RowParts<T>& row, T scale) {
  if (decay.kept != 1) {
    T* const value = row.value;
    for (size_t i = 0; i < row.count; ++i) value[i] *= decay.kept;
  }
  if (decay.coupled != 0) {
    rule.apply(row, DecayedGradient<T>{scale, decay.coupled});
  } else {
    rule.apply(row, ScaledGradient<T>{scale});
  }
}

// Calls loop(), which updates rows by `rule`, in vectors: a call for all rows, since one for each
// costs more than it gains where they are short.
template <typename Rule, typename Loop>
void update_in_vectors(const Rule&, const Loop& loop) {
  // Its sum goes on in index order, which wider vectors only have to be taken apart for.
  if constexpr (requires { Rule::kSumsInOrder; }) {
    loop();
  } else {
    in_vectors(loop);
  }
}

}  // namespace parallax

#endif  // PARALLAX_SERVER_UPDATE_RULES_H_
