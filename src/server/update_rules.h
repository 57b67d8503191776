// SPDX-License-Identifier: Apache-2.0
// Update rules, by the formulas of parallax.h, element by element. Built without FMA contraction,
// so that owner, mirror and a naive program get the same bits.
#ifndef PARALLAX_SERVER_UPDATE_RULES_H_
#define PARALLAX_SERVER_UPDATE_RULES_H_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "parallax/parallax.h"

namespace parallax {

struct UpdateArguments {
  uint32_t rule = PARALLAX_RULE_SGD;
  float learning_rate = 0;
  float scale = 1;
  float epsilon = 0;
};

// `state` is unused where the rule has none.
inline void apply_rule(const UpdateArguments& with, float* __restrict value,
                       float* __restrict state, const float* __restrict gradient, size_t count) {
  const float rate = with.learning_rate;
  const float scale = with.scale;
  if (with.rule == PARALLAX_RULE_SGD) {
    for (size_t i = 0; i < count; ++i) value[i] -= rate * (gradient[i] * scale);
    return;
  }
  const float epsilon = with.epsilon;
  for (size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * scale;
    state[i] += g * g;
    value[i] -= rate * g / (std::sqrt(state[i]) + epsilon);
  }
}

}  // namespace parallax

#endif  // PARALLAX_SERVER_UPDATE_RULES_H_
