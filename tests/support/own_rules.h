// SPDX-License-Identifier: Apache-2.0
// Rules of a caller's own (PARALLAX_RULE_CALLBACK) that do what SGD, ADAGRAD and ADAM do, by the
// formulas of parallax.h, with their weight decay, and look at each block that they are given.
#ifndef PARALLAX_TESTS_SUPPORT_OWN_RULES_H_
#define PARALLAX_TESTS_SUPPORT_OWN_RULES_H_

#include <atomic>
#include <cmath>
#include <cstdint>

#include "parallax/parallax.h"

namespace parallax::testkit {

struct OwnRule {
  uint32_t rule = PARALLAX_RULE_SGD;
  double epsilon = 1e-10;
  double beta1 = 0.9, beta2 = 0.999;
  bool ids = true;  // ADAM: SparseAdam's formula
  // How often it was called, and with what that must not be.
  std::atomic<uint64_t> blocks{0}, rows{0}, wrong{0};
  std::atomic<uint64_t> rows_at_once{0};  // in the largest block

  // The description of a variable that has this rule by a function of the caller's, instead of the
  // library's own.
  parallax_variable_t in_place_of(parallax_variable_t variable) {
    rule = variable.rule;
    ids = variable.rows_max > 0;
    const bool adam = rule == PARALLAX_RULE_ADAM;
    // As the library has it: the default in double, a caller's own from float.
    if (variable.epsilon == 0) epsilon = adam ? 1e-8 : 1e-10;
    if (variable.epsilon != 0) epsilon = variable.epsilon;
    if (variable.beta1 != 0) beta1 = variable.beta1;
    if (variable.beta2 != 0) beta2 = variable.beta2;
    const auto width = static_cast<uint32_t>(variable.row_elements);
    if (rule != PARALLAX_RULE_SGD) variable.state_elements[0] = width;
    if (adam) variable.state_elements[1] = width;
    variable.epsilon = 0;
    variable.beta1 = variable.beta2 = 0;
    variable.rule = PARALLAX_RULE_CALLBACK;
    variable.rule_fn = apply;
    variable.rule_context = this;
    return variable;
  }

  static int apply(void* context, const parallax_rule_block_t* block) {
    auto& own = *static_cast<OwnRule*>(context);
    ++own.blocks;
    own.rows += block->row_count;
    if (block->row_count > own.rows_at_once) own.rows_at_once = block->row_count;
    bool right = block->size == sizeof *block && block->row_count > 0 && block->updates > 0 &&
                 block->updates <= block->step && block->rates != nullptr &&
                 block->rates->size == sizeof *block->rates &&
                 block->rates->learning_rate == block->learning_rate &&
                 (block->state[0] == nullptr) == (own.rule == PARALLAX_RULE_SGD) &&
                 (block->state[1] == nullptr) == (own.rule != PARALLAX_RULE_ADAM);
    for (uint64_t i = 1; i < block->row_count; ++i) {
      right = right && block->rows[i - 1] < block->rows[i];
    }
    if (!right) ++own.wrong;
    if (block->dtype == PARALLAX_F64) {
      own.update<double>(*block);
    } else {
      own.update<float>(*block);
    }
    return 0;
  }

 private:
  template <typename T>
  void update(const parallax_rule_block_t& block) const {
    T* value = static_cast<T*>(block.values);
    T* first = static_cast<T*>(block.state[0]);
    T* second = static_cast<T*>(block.state[1]);
    const T* gradient = static_cast<const T*>(block.gradient);
    const T rate = static_cast<T>(block.learning_rate);
    const T small = static_cast<T>(epsilon);
    double power1 = 1, power2 = 1;
    if (rule == PARALLAX_RULE_ADAM) {
      power1 = power(beta1, block.updates);
      power2 = power(beta2, block.updates);
    }
    const double root = std::sqrt(1 - power2);
    const T b1 = static_cast<T>(beta1), b2 = static_cast<T>(beta2);
    const T rest1 = static_cast<T>(1 - beta1), rest2 = static_cast<T>(1 - beta2);
    const T size = static_cast<T>(ids ? block.learning_rate * root / (1 - power1)
                                      : block.learning_rate / (1 - power1));
    const bool decoupled = block.rates->decoupled != 0;
    const double decay = block.rates->weight_decay;
    const T kept = decoupled ? static_cast<T>(1 - block.learning_rate * decay) : T{1};
    const T coupled = decoupled ? T{0} : static_cast<T>(decay);
    for (uint64_t i = 0; i < block.row_count * block.row_elements; ++i) {
      T g = gradient[i];
      if (kept != 1) value[i] *= kept;
      if (coupled != 0) g += coupled * value[i];
      if (rule == PARALLAX_RULE_SGD) {
        value[i] -= rate * g;
      } else if (rule == PARALLAX_RULE_ADAGRAD) {
        first[i] += g * g;
        value[i] -= rate * g / (std::sqrt(first[i]) + small);
      } else if (ids) {
        first[i] += rest1 * (g - first[i]);
        second[i] += rest2 * (g * g - second[i]);
        value[i] -= size * (first[i] / (std::sqrt(second[i]) + small));
      } else {
        first[i] = b1 * first[i] + rest1 * g;
        second[i] = b2 * second[i] + rest2 * (g * g);
        value[i] -= size * (first[i] / (std::sqrt(second[i]) / static_cast<T>(root) + small));
      }
    }
  }

  // By squaring, as any machine rounds it alike.
  static double power(double base, uint64_t exponent) {
    double result = 1;
    for (; exponent > 0; exponent >>= 1, base *= base) {
      if ((exponent & 1) != 0) result *= base;
    }
    return result;
  }
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_OWN_RULES_H_
