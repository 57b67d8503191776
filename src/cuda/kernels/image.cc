// SPDX-License-Identifier: Apache-2.0
// The image of the kernels, as bytes: what nvcc made of kernels.cu, or nothing where there was
// none.
#include "cuda/kernels/launcher.h"

#ifdef PARALLAX_KERNELS_COMPILED
// Aligned as the words that the driver reads it in.
extern "C" {
extern const unsigned char parallax_kernels_image[] __attribute__((aligned(16)));
}
#include "image_bytes.inc"
#endif

namespace parallax::kernels {

std::span<const unsigned char> image() {
#ifdef PARALLAX_KERNELS_COMPILED
  return {parallax_kernels_image, sizeof parallax_kernels_image};
#else
  return {};
#endif
}

}  // namespace parallax::kernels
