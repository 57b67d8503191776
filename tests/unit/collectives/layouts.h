// SPDX-License-Identifier: Apache-2.0
// Layouts: the hosts of a world of ranks that schedules are tried on. Tests only.
#ifndef PARALLAX_TESTS_UNIT_COLLECTIVES_LAYOUTS_H_
#define PARALLAX_TESTS_UNIT_COLLECTIVES_LAYOUTS_H_

#include <cstdint>
#include <vector>

#include "support/sanitizers.h"

namespace parallax::schedules {

// One host; a host each; eight and three to a host; interleaved; one host of many beside singles.
inline std::vector<std::vector<uint32_t>> layouts(uint32_t world) {
  std::vector<std::vector<uint32_t>> all(6, std::vector<uint32_t>(world));
  for (uint32_t rank = 0; rank < world; ++rank) {
    all[1][rank] = rank;
    all[2][rank] = rank / 8;
    all[3][rank] = rank / 3;
    all[4][rank] = rank % ((world + 3) / 4);
    all[5][rank] = rank < world / 2 ? 0 : rank - world / 2 + (world > 1 ? 1 : 0);
  }
  return all;
}

// Not all of them where each takes long.
inline bool skipped(uint32_t world) { return testkit::kBrief && world > 12 && world != 64; }

}  // namespace parallax::schedules

#endif  // PARALLAX_TESTS_UNIT_COLLECTIVES_LAYOUTS_H_
