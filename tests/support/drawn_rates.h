// SPDX-License-Identifier: Apache-2.0
// Rates by group for a random step: every combination of decay, sign and clip, and none of each.
#ifndef PARALLAX_TESTS_SUPPORT_DRAWN_RATES_H_
#define PARALLAX_TESTS_SUPPORT_DRAWN_RATES_H_

#include <vector>

#include "base/seeded_random.h"
#include "parallax/parallax.h"

namespace parallax::testkit {

// `clips`: of some groups the gradients are clipped. `descends`: weights shrink and go down the
// gradient, so that an error grows no faster than it does without rates.
inline std::vector<parallax_rates_t> draw_rates(SeededRandom random, uint32_t groups,
                                                bool clips = true, bool descends = false) {
  std::vector<parallax_rates_t> rates(groups);
  for (parallax_rates_t& each : rates) {
    each.size = sizeof each;
    each.learning_rate = random.chance(10) ? 0.0f : static_cast<float>(0.01 + random.unit());
    each.decoupled = random.chance(40) || descends ? 1 : 0;
    if (random.chance(60)) each.weight_decay = static_cast<float>(0.2 * random.unit());
    each.maximize = random.chance(30) && !descends ? 1 : 0;
    const auto clip = static_cast<float>(0.1 + 5 * random.unit());
    if (random.chance(50) && clips) each.clip_norm = clip;
  }
  return rates;
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_DRAWN_RATES_H_
