// SPDX-License-Identifier: Apache-2.0
// Widths that rows are tried at: of one number, on both sides of what vectors and the kernels of
// known widths hold, and as wide as embeddings become.
#ifndef PARALLAX_TESTS_SUPPORT_ROW_WIDTHS_H_
#define PARALLAX_TESTS_SUPPORT_ROW_WIDTHS_H_

#include <cstdint>

namespace parallax::testkit {

inline constexpr uint32_t kRowWidths[] = {1,  3,  7,  8,  15,  16,   17,   31,  32,
                                          33, 63, 64, 65, 511, 1000, 4095, 4096};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_ROW_WIDTHS_H_
