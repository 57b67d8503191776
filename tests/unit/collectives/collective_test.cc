// SPDX-License-Identifier: Apache-2.0
// What follows from a call's fields: elements, whose they are, and whether counts agree.
#include "collectives/collective.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

Collective of_kind(uint32_t kind, uint64_t count, uint32_t rank = 1, uint32_t world = 3) {
  Collective what;
  what.terms = {.count = count, .root = 2, .kind = static_cast<uint8_t>(kind)};
  what.rank = rank;
  what.world = world;
  static std::byte somewhere;
  what.recv = &somewhere;
  return what;
}

TEST(Collective, WhoGivesAndGetsWhat) {
  EXPECT_EQ(of_kind(PARALLAX_ALLREDUCE, 5).got(), (Range{0, 5}));
  EXPECT_EQ(of_kind(PARALLAX_REDUCE_SCATTER, 5).got(), (Range{5, 5}));
  EXPECT_EQ(of_kind(PARALLAX_ALLGATHER, 5).got(), (Range{0, 15}));
  EXPECT_EQ(of_kind(PARALLAX_ALLGATHER, 5).given_by(2), (Range{10, 5}));
  EXPECT_EQ(of_kind(PARALLAX_GATHER, 5).got(), Range());
  EXPECT_EQ(of_kind(PARALLAX_GATHER, 5, 2).got(), (Range{0, 15}));
  EXPECT_EQ(of_kind(PARALLAX_REDUCE, 5).got(), Range());
  EXPECT_EQ(of_kind(PARALLAX_BROADCAST, 5).got(), (Range{0, 5}));
  EXPECT_EQ(of_kind(PARALLAX_BROADCAST, 5).given_by(1), Range());
  EXPECT_EQ(of_kind(PARALLAX_BROADCAST, 5).given_by(2), (Range{0, 5}));
  Collective v = of_kind(PARALLAX_ALLGATHERV, 9);
  v.recv_counts = {4, 0, 5};
  EXPECT_EQ(v.given_by(2), (Range{4, 5}));
  Collective none = of_kind(PARALLAX_BROADCAST, 5, 2);
  none.recv = nullptr;  // the root may do without
  EXPECT_EQ(none.got(), Range());
}

TEST(Collective, FewNumbersAreFused) {
  EXPECT_TRUE(of_kind(PARALLAX_ALLREDUCE, kFusedBytesMax / 4).terms.fused(3));
  EXPECT_FALSE(of_kind(PARALLAX_ALLREDUCE, kFusedBytesMax / 4 + 1).terms.fused(3));
  EXPECT_FALSE(of_kind(PARALLAX_ALLGATHER, kFusedBytesMax / 4 / 2).terms.fused(3));
  EXPECT_FALSE(of_kind(PARALLAX_ALLTOALLV, 0).terms.fused(3));
  // Of what a peer says: no product wraps.
  EXPECT_FALSE(of_kind(PARALLAX_ALLGATHER, 1ull << 40).terms.fused(1u << 24));
  Collective narrow = of_kind(PARALLAX_ALLREDUCE, kFusedBytesMax / 4 + 1);
  narrow.terms.dtype = PARALLAX_F16;  // summed in float
  EXPECT_FALSE(narrow.terms.fused(3));
  narrow.terms.kind = PARALLAX_BROADCAST;
  EXPECT_TRUE(narrow.terms.fused(3));
}

TEST(Collective, CountsAgreeOrDoNot) {
  SeededRandom random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const auto world = static_cast<uint32_t>(1 + random.below(6));
    std::vector<Collective> all;
    for (uint32_t rank = 0; rank < world; ++rank) {
      all.push_back(of_kind(PARALLAX_ALLTOALLV, 0, rank, world));
      all.back().send_counts.resize(world);
      all.back().recv_counts.resize(world);
    }
    for (uint32_t from = 0; from < world; ++from) {
      for (uint32_t to = 0; to < world; ++to) {
        all[from].send_counts[to] = all[to].recv_counts[from] = random.below(3);
      }
    }
    const auto differ = [&all] {
      uint64_t sent = 0, expected = 0;
      for (const Collective& each : all) {
        sent += counts_sent(each);
        expected += counts_expected(each);
      }
      return sent != expected;
    };
    EXPECT_FALSE(differ());
    ++all[random.below(world)].send_counts[random.below(world)];
    EXPECT_TRUE(differ());
  }
  EXPECT_NE(digest_of({1, 2}), digest_of({2, 1}));
}

}  // namespace
}  // namespace parallax
