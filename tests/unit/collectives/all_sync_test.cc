// SPDX-License-Identifier: Apache-2.0
// Rounds in which every rank tells every other: each ends at a rank once all have told, whatever
// order they tell in, and what does not belong to one is refused.
#include "collectives/all_sync.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

// Given ranks that tell and hear in any order, expect every round to end everywhere once all have
// told in it, no rank more than one ahead, and no word taken twice.
TEST(AllSync, EndsOnceAllHaveTold) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SeededRandom random(seed);
    const auto world = static_cast<uint32_t>(1 + random.below(6));
    std::vector<AllSync> ranks;
    for (uint32_t rank = 0; rank < world; ++rank) ranks.emplace_back(world, rank);
    std::vector<std::deque<uint64_t>> links(size_t{world} *
                                            world);  // rounds told, from * world + to
    std::vector<uint64_t> told(world);
    for (int move = 0; move < 3000; ++move) {
      const auto rank = static_cast<uint32_t>(random.below(world));
      AllSync& at = ranks[rank];
      if (random.chance(40)) {
        if (at.joined()) continue;
        at.join();
        told[rank] = at.round();
        for (uint32_t to = 0; to < world; ++to) {
          if (to != rank) links[size_t{rank} * world + to].push_back(at.round());
        }
      } else {
        const auto from = static_cast<uint32_t>(random.below(world));
        std::deque<uint64_t>& link = links[size_t{from} * world + rank];
        if (link.empty()) continue;
        EXPECT_TRUE(at.awaits(from, link.front()));
        ASSERT_TRUE(at.arrive(from, link.front()));
        EXPECT_GE(at.told_in(), link.front());
        EXPECT_FALSE(at.arrive(from, link.front())) << "it came twice";
        link.pop_front();
      }
      const uint64_t round = at.round();
      const bool missing = !at.missing().empty();
      const bool complete = at.take_complete();
      EXPECT_FALSE(complete && missing);
      EXPECT_EQ(at.round(), round + (complete ? 1 : 0));
      if (!complete) continue;
      for (uint32_t other = 0; other < world; ++other) ASSERT_GE(told[other], round);
    }
    for (const AllSync& at : ranks) EXPECT_GT(at.round(), 10u) << "seed " << seed;
  }
}

// Given words of other rounds, of this rank and of none, expect each refused, and who is missing
// named.
TEST(AllSync, RefusesWhatDoesNotBelong) {
  AllSync sync(3, 1);
  EXPECT_EQ(sync.told_in(), 0u);
  EXPECT_FALSE(sync.arrive(1, 1)) << "its own";
  EXPECT_FALSE(sync.arrive(3, 1)) << "no rank";
  EXPECT_FALSE(sync.arrive(0, 0));
  EXPECT_FALSE(sync.arrive(0, 3)) << "nobody is two rounds ahead";
  EXPECT_TRUE(sync.arrive(0, 1));
  EXPECT_TRUE(sync.arrive(0, 2));
  EXPECT_EQ(sync.told_in(), 2u);
  EXPECT_EQ(sync.missing(), std::vector<uint32_t>{2});
  sync.join();
  EXPECT_FALSE(sync.take_complete());
  EXPECT_TRUE(sync.arrive(2, 1));
  EXPECT_TRUE(sync.take_complete());
  EXPECT_FALSE(sync.joined());
  EXPECT_FALSE(sync.arrive(0, 2)) << "it told already";
  EXPECT_FALSE(sync.arrive(0, 1)) << "it is over";
  EXPECT_EQ(sync.missing(), std::vector<uint32_t>{2});
}

// Given rounds of another way before, expect them counted.
TEST(AllSync, BeginsWhereItIsTold) {
  AllSync sync(2, 0);
  sync.begin_at(7);
  EXPECT_FALSE(sync.arrive(1, 1));
  EXPECT_TRUE(sync.arrive(1, 7));
  sync.join();
  EXPECT_TRUE(sync.take_complete());
  EXPECT_EQ(sync.round(), 8u);
}

}  // namespace
}  // namespace parallax
