// SPDX-License-Identifier: Apache-2.0
// CostTerms: what a rank says at commit of what its machine and links take, where the commit has
// variables that could go one way or another; in the answer the constants that all ranks go by. A
// plain value with an encoding, a block of a CommitReport's.
//
// Ranks' measurements become one by their geometric mean: a rank that was held up while it measured
// counts as any other, and a link ten times as slow in one place makes all a little slower.
#ifndef PARALLAX_ENGINE_COST_TERMS_H_
#define PARALLAX_ENGINE_COST_TERMS_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "planner/constants.h"

namespace parallax {

struct CostTerms {
  // Of one constant: by ranks that measured it.
  struct Samples {
    double log_sum = 0;
    uint64_t count = 0;
  };

  bool wanted = false;  // else the rest says nothing
  bool agreed = false;  // `constants` are the job's
  std::array<Samples, kConstantCount> samples = {};
  CostConstants constants;

  // Of 0 as of 1: a link that takes no time to notice.
  void measured(size_t row, uint64_t value) {
    samples[row].log_sum +=
        std::log(static_cast<double>(std::clamp<uint64_t>(value, 1, kConstantMax)));
    ++samples[row].count;
  }

  void encode(std::string* out) const {
    const auto add = [out](const auto& value) {
      out->append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    add(static_cast<uint64_t>(agreed));
    for (size_t row = 0; row < kConstantCount; ++row) {
      add(samples[row].log_sum);
      add(samples[row].count);
      add(constant(constants, row));
    }
  }

  // A peer's, of so many ranks. *in goes on behind it.
  bool decode(std::span<const std::byte>* in, uint32_t world) {
    const auto take = [in](auto* value) {
      if (in->size() < sizeof *value) return false;
      std::memcpy(value, in->data(), sizeof *value);
      *in = in->subspan(sizeof *value);
      return true;
    };
    uint64_t flag = 0;
    if (!take(&flag) || flag > 1) return false;
    wanted = true;
    agreed = flag != 0;
    for (size_t row = 0; row < kConstantCount; ++row) {
      uint64_t& value = kConstantRows[row].of(constants);
      if (!take(&samples[row].log_sum) || !take(&samples[row].count) || !take(&value)) return false;
      const double sum = samples[row].log_sum;
      const double most = std::log(static_cast<double>(kConstantMax)) * world;
      // Written so that NaN fails too.
      if (!(sum >= 0 && sum <= most * (1 + 1e-9)) || samples[row].count > world) return false;
      if (value > kConstantMax) return false;
    }
    return true;
  }

  void merge(const CostTerms& other) {
    wanted = wanted || other.wanted;
    for (size_t row = 0; row < kConstantCount; ++row) {
      samples[row].log_sum += other.samples[row].log_sum;
      samples[row].count += other.samples[row].count;
    }
  }

  // The root's: what ranks measured, what nobody did by the standard, what the setting gives.
  void agree(const CostSetting& setting) {
    agreed = true;
    constants = {};
    for (size_t row = 0; row < kConstantCount; ++row) {
      if (samples[row].count == 0) continue;
      const double mean = samples[row].log_sum / static_cast<double>(samples[row].count);
      kConstantRows[row].of(constants) =
          std::min<uint64_t>(kConstantMax, static_cast<uint64_t>(std::llround(std::exp(mean))));
    }
    constants = setting.over(constants);
  }
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_COST_TERMS_H_
