// SPDX-License-Identifier: Apache-2.0
// Layouts: which ranks share a host, in the shapes that matter to who asks whom.
#ifndef PARALLAX_TESTS_UNIT_SERVER_LAYOUTS_H_
#define PARALLAX_TESTS_UNIT_SERVER_LAYOUTS_H_

#include <cstdint>
#include <vector>

#include "support/host_map_of.h"

namespace parallax::testkit {

// One host, a host each, even, uneven, and in no order.
inline const std::vector<std::vector<uint32_t>>& layouts() {
  static const std::vector<std::vector<uint32_t>> all = {{0},
                                                         {0, 0},
                                                         {0, 1},
                                                         {0, 0, 0},
                                                         {0, 1, 2},
                                                         {0, 0, 1, 1},
                                                         {0, 1, 1, 1},
                                                         {0, 0, 0, 1, 1},
                                                         {0, 1, 0, 1},
                                                         {0, 1, 2, 0, 1},
                                                         {0, 0, 1, 1, 2},
                                                         {0, 0, 0, 0, 0, 0, 0, 0},
                                                         {0, 1, 2, 3, 4, 5, 6, 7},
                                                         {0, 0, 1, 1, 2, 2, 3, 3},
                                                         {0, 0, 0, 0, 0, 1, 1}};
  return all;
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_SERVER_LAYOUTS_H_
