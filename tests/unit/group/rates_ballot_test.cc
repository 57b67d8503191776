// SPDX-License-Identifier: Apache-2.0
// What ranks say of groups of rates, merged in any tree: the same as from all of them at once.
#include "group/rates_ballot.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

using Parts = std::vector<std::vector<std::byte>>;
constexpr uint32_t kSpeakers = 64;

Parts parts_of(const RatesBallot& ballot) {
  Parts parts;
  ballot.for_each_part(
      [&](std::span<const std::byte> part) { parts.emplace_back(part.begin(), part.end()); });
  return parts;
}

StepRates some_rates(uint32_t count) {
  StepRates rates = {.count = count};
  for (uint32_t group = 0; group < count; ++group) {
    rates.groups[group] = {.learning_rate = 0.5f * static_cast<float>(group), .clip_norm = 1};
  }
  return rates;
}

TEST(RatesBallot, SaysNothingOfAStepWithoutRates) {
  RatesBallot ballot;
  ballot.reserve(0, 0);
  EXPECT_TRUE(parts_of(ballot).empty());
}

// Given ranks with every group and kind there may be, merged in random trees by their parts, expect
// exact sums: the same bits as one ballot that all were added to; and all parts small enough.
TEST(RatesBallot, TreesOfPartsAddUpExactly) {
  constexpr uint32_t kRanks = 7;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SeededRandom random(seed);
    const auto groups = static_cast<uint32_t>(random.chance(30) ? kRatesMax : random.between(1, 9));
    const StepRates rates = some_rates(groups);
    std::vector<RatesBallot> ballots(kRanks + 1);
    for (RatesBallot& ballot : ballots) {
      for (uint32_t group = kRatesMax; group-- > 0;) {
        for (uint32_t kind = 0; kind < kReductionKinds; ++kind) ballot.reserve(group, kind);
      }
    }
    RatesBallot& all = ballots[kRanks];
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ballots[rank].say(rates, rank);
      for (uint32_t group = 0; group < groups; ++group) {
        for (uint32_t kind = 0; kind < kReductionKinds; ++kind) {
          const double term = random.unit() * (random.chance(50) ? 1e-200 : 1e200);
          ballots[rank].norm(group, kind).add(term);
          all.norm(group, kind).add(term);
        }
      }
    }
    std::vector<uint32_t> left = {0, 1, 2, 3, 4, 5, 6};
    while (left.size() > 1) {
      const size_t from = random.below(left.size() - 1) + 1;
      const size_t to = random.below(from);
      for (const auto& part : parts_of(ballots[left[from]])) {
        ASSERT_LE(part.size(), kVoteBytesMax);
        ASSERT_TRUE(ballots[left[to]].merge_part(part, kSpeakers));
      }
      left.erase(left.begin() + static_cast<ptrdiff_t>(from));
    }
    EXPECT_EQ(ballots[0].differing().any, 0u);
    for (uint32_t group = 0; group < groups; ++group) {
      for (uint32_t kind = 0; kind < kReductionKinds; ++kind) {
        ASSERT_EQ(ballots[0].squared_norm(group, kind), all.squared_norm(group, kind));
      }
    }
    ballots[0].clear();
    EXPECT_EQ(ballots[0].squared_norm(0, 0), 0);
    EXPECT_TRUE(parts_of(ballots[0]).empty());
  }
}

// Given one rank of many that says another learning rate, expect it to be named whatever the order
// in which ballots meet, and the difference to travel on.
TEST(RatesBallot, ADifferenceNamesTwoRanksInAnyTree) {
  constexpr uint32_t kRanks = 6;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SeededRandom random(seed);
    const auto odd = static_cast<uint32_t>(random.below(kRanks));
    std::vector<RatesBallot> ballots(kRanks);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      StepRates rates = some_rates(3);
      if (rank == odd) rates.groups[2].weight_decay = 0.25f;
      ballots[rank].say(rates, rank);
    }
    while (ballots.size() > 1) {
      const size_t from = random.below(ballots.size() - 1) + 1;
      const size_t to = random.below(from);
      for (const auto& part : parts_of(ballots[from])) {
        ASSERT_TRUE(ballots[to].merge_part(part, kSpeakers));
      }
      ballots.erase(ballots.begin() + static_cast<ptrdiff_t>(from));
    }
    const RatesDifference& found = ballots[0].differing();
    ASSERT_EQ(found.any, 1u) << "seed " << seed;
    EXPECT_EQ(found.group, 2u);
    EXPECT_STREQ(kRatesFields[found.field], "weight_decay");
    EXPECT_TRUE((found.first_rank == odd) != (found.second_rank == odd)) << "seed " << seed;
    EXPECT_NE(found.first_bits, found.second_bits);
  }
}

TEST(RatesBallot, RefusesPartsThatARankOfThisJobDoesNotSend) {
  RatesBallot ballot;
  ballot.reserve(1, PARALLAX_SUM);
  RatesBallot other;
  other.reserve(1, PARALLAX_SUM);
  other.reserve(2, PARALLAX_SUM);
  StepRates rates = some_rates(3);
  other.say(rates, 5);
  other.norm(1, PARALLAX_SUM).add(4);
  Parts parts = parts_of(other);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_TRUE(ballot.merge_part(parts[0], kSpeakers));
  EXPECT_TRUE(ballot.merge_part(parts[1], kSpeakers));
  EXPECT_EQ(ballot.squared_norm(1, PARALLAX_SUM), 4);
  for (const auto& part : parts) {
    for (size_t bytes = 0; bytes < part.size(); ++bytes) {
      ASSERT_FALSE(ballot.merge_part(std::span(part).first(bytes), kSpeakers)) << bytes;
    }
    std::vector<std::byte> longer = part;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(ballot.merge_part(longer, kSpeakers));
    longer = part;
    longer[0] = std::byte{9};  // of no kind
    EXPECT_FALSE(ballot.merge_part(longer, kSpeakers));
  }
  // A difference in a group that there is not.
  std::vector<std::byte> wrong = parts[0];
  constexpr size_t kGroup = 16 + sizeof(uint32_t);
  wrong[kGroup] = std::byte{kRatesMax};
  EXPECT_FALSE(ballot.merge_part(wrong, kSpeakers));
  // Ranks that the job has not, of the sender's and of a difference.
  EXPECT_TRUE(ballot.merge_part(parts[0], 6));
  EXPECT_FALSE(ballot.merge_part(parts[0], 5)) << "rank 5 says it";
  StepRates more = rates;
  more.groups[1].weight_decay += 1;
  RatesBallot differing;
  differing.say(rates, 1);
  differing.say(more, 7);
  EXPECT_TRUE(ballot.merge_part(parts_of(differing)[0], 8));
  EXPECT_FALSE(ballot.merge_part(parts_of(differing)[0], 7));
  // A norm of a pair that the registry has not.
  other.norm(2, PARALLAX_SUM).add(1);
  EXPECT_FALSE(ballot.merge_part(parts_of(other)[1], kSpeakers));
}

}  // namespace
}  // namespace parallax
