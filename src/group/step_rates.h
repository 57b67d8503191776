// SPDX-License-Identifier: Apache-2.0
// StepRates: what a caller says with step_end of each group of variables (parallax_rates_t), and
// RatesDifference: the first of it that two ranks say differently. Plain values; they travel as
// they lie in memory, since ranks prove equal byte order at the rendezvous.
#ifndef PARALLAX_GROUP_STEP_RATES_H_
#define PARALLAX_GROUP_STEP_RATES_H_

#include <array>
#include <cstdint>
#include <span>

#include "variable/variable.h"

namespace parallax {

struct Rates {
  float learning_rate = 0;
  float weight_decay = 0;
  uint32_t decoupled = 0;
  uint32_t maximize = 0;
  float clip_norm = 0;  // of the group's gradients; 0: no clipping
};

// The fields of Rates by name, in their order.
inline constexpr const char* kRatesFields[] = {"learning_rate", "weight_decay", "decoupled",
                                               "maximize", "clip_norm"};
inline constexpr uint32_t kRatesFieldCount = sizeof kRatesFields / sizeof kRatesFields[0];
// True if a field is a whole number, else it is a float.
constexpr bool is_count(uint32_t field) { return field == 2 || field == 3; }
static_assert(sizeof(Rates) == kRatesFieldCount * sizeof(uint32_t), "no padding");

struct StepRates {
  uint32_t count = 0;  // 0: one learning rate for all
  std::array<Rates, kRatesMax> groups = {};

  std::span<const Rates> given() const { return std::span(groups).first(count); }
  bool any_clip() const {
    for (const Rates& rates : given()) {
      if (rates.clip_norm > 0) return true;
    }
    return false;
  }
};

struct RatesDifference {
  uint32_t any = 0;  // 1: there is one
  uint32_t group = 0;
  uint32_t field = 0;  // of kRatesFields
  uint32_t first_rank = 0, second_rank = 0;
  uint32_t first_bits = 0, second_bits = 0;
  uint32_t reserved = 0;
};

// Of a peer: what it names is there, in a job of so many ranks.
inline bool names_a_field(const RatesDifference& difference, uint32_t world) {
  return difference.any <= 1 && difference.group < kRatesMax &&
         difference.field < kRatesFieldCount && difference.first_rank < world &&
         difference.second_rank < world;
}

// The first field, bit for bit, in which as many rates differ.
RatesDifference difference(std::span<const Rates> first, uint32_t first_rank,
                           std::span<const Rates> second, uint32_t second_rank);

}  // namespace parallax

#endif  // PARALLAX_GROUP_STEP_RATES_H_
