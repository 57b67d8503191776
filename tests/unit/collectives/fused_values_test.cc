// SPDX-License-Identifier: Apache-2.0
// Numbers that travel with reports: put together along any tree, they are what one process makes of
// them, and each rank takes its part.
#include "collectives/fused_values.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/collective_case.h"

namespace parallax::testkit {
namespace {

TEST(FusedValues, AreWhatOneProcessMakesOfThem) {
  constexpr uint32_t kWorld = 4;
  for (uint32_t kind = PARALLAX_ALLREDUCE; kind <= PARALLAX_GATHER; ++kind) {
    for (uint32_t dtype = 0; dtype < kDtypeCount; ++dtype) {
      for (uint32_t op = 0; op <= PARALLAX_OP_XOR; ++op) {
        CollectiveCase of = {.world = kWorld, .kind = kind, .dtype = dtype, .op = op};
        if (!of.takes_op() || kind == PARALLAX_ALLTOALLV) continue;
        of.root = 2;
        of.count = 5;
        of.draw_counts(5);
        std::vector<CollectiveBuffers> buffers;
        std::vector<Collective> calls(kWorld);
        std::vector<FusedValues> values;
        buffers.reserve(kWorld);  // calls point into them
        for (uint32_t rank = 0; rank < kWorld; ++rank) {
          buffers.emplace_back(of, rank);
          calls[rank] = buffers.back().collective();
          values.emplace_back(calls[rank]);
          ASSERT_EQ(values.back().bytes().size(), calls[rank].terms.fused_bytes(kWorld));
        }
        // 3 under 1, 1 and 2 under 0.
        values[1].add(calls[1], values[3].bytes());
        values[0].add(calls[0], values[1].bytes());
        values[0].add(calls[0], values[2].bytes());
        for (uint32_t rank = 0; rank < kWorld; ++rank) {
          if (rank > 0) values[rank].assign(values[0].bytes());
          values[rank].give(calls[rank]);
          EXPECT_EQ(buffers[rank].check(), "");
        }
      }
    }
  }
}

TEST(FusedValues, OfALargeCollectiveThereAreNone) {
  CollectiveBuffers buffers({.world = 1, .count = 1000}, 0);
  EXPECT_TRUE(FusedValues(buffers.collective()).bytes().empty());
}

}  // namespace
}  // namespace parallax::testkit
