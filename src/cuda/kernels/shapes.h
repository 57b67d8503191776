// SPDX-License-Identifier: Apache-2.0
// Shapes that kernels and those who launch them agree on.
#ifndef PARALLAX_CUDA_KERNELS_SHAPES_H_
#define PARALLAX_CUDA_KERNELS_SHAPES_H_

#include <cstdint>

namespace parallax::kernels {

inline constexpr uint32_t kBlockThreads = 256;
inline constexpr uint32_t kTileRows = 1024;
inline constexpr uint32_t kDigitBits = 7;
inline constexpr uint32_t kDigits = 1u << kDigitBits;

// Rows of one id from which on blocks share them, each some neighbouring packs (numbers.h).
inline constexpr uint32_t kLongRows = 64;
inline constexpr uint32_t kSlicePacks = 4;

// Which of the ranks that are summed in order come last of their host's: a bit each.
inline constexpr uint32_t kSumRanksMax = 4096;
struct HostEnds {
  uint64_t bits[kSumRanksMax / 64];
};

// What a rule computes with: numbers of the step, rounded as the rules of the host round them.
struct RuleNumbers {
  float rate = 0;
  float scale = 1;    // of the gradient, with its sign
  float coupled = 0;  // weight decay that is part of the gradient; 0: none
  float kept = 1;     // weight decay that is not: what the value is multiplied by; 1: none
  float epsilon = 0;
  float momentum = 0;
  float beta1 = 0, beta2 = 0, rest1 = 0, rest2 = 0, root2 = 0, size = 0;
  uint32_t nesterov = 0;
  uint32_t sparse = 1;
};

}  // namespace parallax::kernels

#endif  // PARALLAX_CUDA_KERNELS_SHAPES_H_
