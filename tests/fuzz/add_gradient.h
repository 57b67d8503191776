// SPDX-License-Identifier: Apache-2.0
// A rule of the caller's own for fuzz_capi. Tests only.
#ifndef PARALLAX_TESTS_FUZZ_ADD_GRADIENT_H_
#define PARALLAX_TESTS_FUZZ_ADD_GRADIENT_H_

#include <cstdint>

#include "parallax/parallax.h"

namespace parallax::testkit {

// Adds the gradient, maybe on another thread; now and then it fails.
inline int add_gradient(void*, const parallax_rule_block_t* block) {
  const uint64_t count = block->row_count * block->row_elements;
  if (block->dtype == PARALLAX_F64) {
    for (uint64_t i = 0; i < count; ++i) {
      static_cast<double*>(block->values)[i] += static_cast<const double*>(block->gradient)[i];
    }
  } else {
    for (uint64_t i = 0; i < count; ++i) {
      static_cast<float*>(block->values)[i] += static_cast<const float*>(block->gradient)[i];
    }
  }
  for (uint64_t i = 0; i < block->row_count; ++i) {
    if (block->state[0] != nullptr) *static_cast<float*>(block->state[0]) = 1;
  }
  if (block->rates->size != sizeof *block->rates) return 2;
  return block->step % 8 == 7 ? 1 : 0;
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_FUZZ_ADD_GRADIENT_H_
