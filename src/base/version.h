// SPDX-License-Identifier: Apache-2.0
// The version of this code: the header's numbers, as the C ABI, the rendezvous and the log say it.
#ifndef PARALLAX_BASE_VERSION_H_
#define PARALLAX_BASE_VERSION_H_

#include <cstdint>

#include "parallax/parallax.h"

namespace parallax {

inline constexpr uint32_t kVersion =
    PARALLAX_VERSION_MAJOR * 10000 + PARALLAX_VERSION_MINOR * 100 + PARALLAX_VERSION_PATCH;

#define PARALLAX_TEXT_OF(x) #x
#define PARALLAX_TEXT(x) PARALLAX_TEXT_OF(x)
inline constexpr const char* kVersionText = PARALLAX_TEXT(PARALLAX_VERSION_MAJOR) "." PARALLAX_TEXT(
    PARALLAX_VERSION_MINOR) "." PARALLAX_TEXT(PARALLAX_VERSION_PATCH);
#undef PARALLAX_TEXT
#undef PARALLAX_TEXT_OF

}  // namespace parallax

#endif  // PARALLAX_BASE_VERSION_H_
