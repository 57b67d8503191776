// SPDX-License-Identifier: Apache-2.0
#include "group/vote.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "base/seeded_random.h"

namespace parallax {
namespace {

using Bytes = std::array<std::byte, kVoteBytesMax>;
constexpr uint32_t kVoters = 64;

Vote vote_of(uint32_t rank, float rate = 0.5f, float clip = 0) {
  Vote vote;
  vote.any = true;
  vote.contributors = 1;
  vote.scalars = {std::bit_cast<uint32_t>(rate), std::bit_cast<uint32_t>(clip), rank};
  return vote;
}

TEST(Vote, MergesWhatRanksSay) {
  Vote total;
  for (uint32_t rank = 0; rank < 5; ++rank) {
    Vote vote = vote_of(rank);
    vote.contributors = rank == 2 ? 0 : 1;
    vote.found_inf = rank == 4 ? 1 : 0;
    vote.norm_kinds = 1u << (rank % 3);
    vote.norms[rank % 3].add(0.1 * rank);
    vote.counts_first = 64;
    vote.counts_size = 2;
    vote.counts[1] = {rank, 2 * rank, 3 * rank};
    total.merge(vote);
  }
  EXPECT_EQ(total.contributors, 4u);
  EXPECT_EQ(total.found_inf, 1u);
  EXPECT_FALSE(total.disagree);
  EXPECT_EQ(total.norm_kinds, 7u);
  EXPECT_EQ(total.norms[0].value(), 0.1 * 3);
  EXPECT_EQ(total.norms[1].value(), 0.1 * 1 + 0.1 * 4);
  EXPECT_EQ(total.counts[1].touched, 10u);
  EXPECT_EQ(total.counts[1].union_rows, 20u);
  EXPECT_EQ(total.counts[1].pulled, 30u);
  EXPECT_EQ(total.counts[0].touched, 0u);
}

// Whoever disagrees, in whatever order votes are merged, two ranks that differ are named.
TEST(Vote, DisagreementNamesTwoThatDiffer) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SeededRandom random(seed);
    const auto odd = static_cast<uint32_t>(random.below(6));
    const bool by_clip = random.chance(50);
    std::vector<Vote> votes;
    for (uint32_t rank = 0; rank < 6; ++rank) {
      const bool differs = rank == odd;
      votes.push_back(
          vote_of(rank, differs && !by_clip ? 0.25f : 0.5f, differs && by_clip ? 1.0f : 0));
    }
    while (votes.size() > 1) {
      const size_t from = random.below(votes.size() - 1) + 1;
      const size_t to = random.below(from);
      votes[to].merge(votes[from]);
      votes.erase(votes.begin() + static_cast<ptrdiff_t>(from));
    }
    ASSERT_TRUE(votes[0].disagree);
    ASSERT_FALSE(votes[0].scalars.same_as(votes[0].other)) << "seed " << seed;
    ASSERT_TRUE(votes[0].scalars.rank == odd || votes[0].other.rank == odd);
    ASSERT_EQ(votes[0].contributors, 6u);
  }
}

TEST(Vote, AnotherNumberOfRatesIsADisagreement) {
  Vote vote = vote_of(0);
  Vote other = vote_of(1);
  other.scalars.rates_count = 2;
  vote.merge(other);
  EXPECT_TRUE(vote.disagree);
}

TEST(Vote, SignedZerosAreDifferentBits) {
  Vote vote = vote_of(0, 0.0f);
  vote.merge(vote_of(1, -0.0f));
  EXPECT_TRUE(vote.disagree);
}

// Expect tables to be left out that no rank gives; a rank that says nothing gives all.
TEST(Vote, LeavesOutWhatAllLeaveOut) {
  Vote merged;
  for (const uint32_t rank : {0u, 1u}) {
    Vote vote = vote_of(rank);
    vote.left_out.add(5);
    vote.left_out.add(rank);
    merged.merge(vote);
  }
  EXPECT_TRUE(merged.left_out.has(5));
  EXPECT_FALSE(merged.left_out.has(0) || merged.left_out.has(1));
  merged.merge(vote_of(2));
  EXPECT_FALSE(merged.left_out.any());
  merged.clear();
  merged.merge(vote_of(2));
  Vote late = vote_of(0);
  late.left_out.add(5);
  merged.merge(late);
  EXPECT_FALSE(merged.left_out.any());
}

TEST(Vote, ComesBackFromItsEncoding) {
  SeededRandom random(1);
  for (int round = 0; round < 300; ++round) {
    Vote vote = vote_of(static_cast<uint32_t>(random.below(kVoters)));
    vote.contributors = static_cast<uint32_t>(random.next());
    vote.found_inf = static_cast<uint32_t>(random.below(3));
    vote.disagree = random.chance(50);
    vote.other = {7, 8, 9, 10};
    vote.norm_kinds = static_cast<uint32_t>(random.below(8));
    for (uint32_t kind = 0; kind < kReductionKinds; ++kind) {
      if ((vote.norm_kinds >> kind & 1) != 0) vote.norms[kind].add(random.unit() * 1e300);
    }
    vote.pace = {{static_cast<uint32_t>(random.next()), 2, 3},
                 static_cast<uint32_t>(random.below(kVoters)),
                 {random.next(), 5, 6}};
    for (uint64_t i = random.below(4); i > 0; --i) {
      vote.left_out.add(static_cast<uint32_t>(random.below(PARALLAX_VARIABLES_MAX)));
    }
    vote.counts_first = static_cast<uint32_t>(random.below(9)) * kCountsPerVote;
    vote.counts_size = static_cast<uint32_t>(random.below(kCountsPerVote + 1));
    for (uint32_t i = 0; i < vote.counts_size; ++i)
      vote.counts[i] = {random.next(), i, random.next()};
    Bytes bytes;
    const size_t used = encode_vote(vote, bytes);
    ASSERT_LE(used, kVoteBytesMax);
    Vote back;
    back.contributors = 99;  // decoding starts afresh
    ASSERT_TRUE(decode_vote(std::span(bytes).first(used), kVoters, &back));
    Bytes again;
    ASSERT_EQ(encode_vote(back, again), used);
    ASSERT_EQ(std::memcmp(bytes.data(), again.data(), used), 0);
    ASSERT_EQ(back.contributors, vote.contributors);
    ASSERT_EQ(back.norms[0].value(), vote.norms[0].value());
    ASSERT_EQ(back.disagree, vote.disagree);
    ASSERT_EQ(back.pace, vote.pace);
    for (size_t cut = 0; cut < used; cut += 1 + random.below(40)) {
      ASSERT_FALSE(decode_vote(std::span(bytes).first(cut), kVoters, &back)) << cut;
    }
    ASSERT_TRUE(used == bytes.size() ||
                !decode_vote(std::span(bytes).first(used + 1), kVoters, &back));
  }
}

TEST(Vote, TheLargestFits) {
  Vote vote = vote_of(1);
  vote.norm_kinds = 7;
  vote.counts_size = kCountsPerVote;
  vote.left_out.add(PARALLAX_VARIABLES_MAX - 1);
  Bytes bytes;
  EXPECT_LE(encode_vote(vote, bytes), kVoteBytesMax);
  Decision decision;
  decision.entry_count = kEntriesPerDecision;
  decision.group_scales.fill(0.5);
  decision.left_out.add(PARALLAX_VARIABLES_MAX - 1);
  EXPECT_LE(encode_decision(decision, bytes), kVoteBytesMax);
}

TEST(Decision, ComesBackFromItsEncoding) {
  Decision decision;
  decision.outcome = Outcome::kMismatch;
  decision.contributors = 5;
  decision.gradient_norm = 1.0 / 3;
  decision.clip_scale = 0.7;
  decision.group_scales[3] = 0.25;
  decision.group_scales[63] = NAN;
  decision.first = {1, 2, 3};
  decision.second = {4, 5, 6};
  decision.difference = {1, 7, 2, 8, 9, 10, 11, 0};
  decision.late = {3, StepPhase::kStepEnd, 200, 14};
  decision.settled = true;
  decision.entry_count = 2;
  decision.entries[1] = {41, {Placement::kSharded, Method::kPushPull}, 1, 2, 3};
  Bytes bytes;
  const size_t used = encode_decision(decision, bytes);
  Decision back;
  ASSERT_TRUE(decode_decision(std::span(bytes).first(used), kVoters, &back));
  EXPECT_EQ(back.outcome, Outcome::kMismatch);
  EXPECT_EQ(back.contributors, 5u);
  EXPECT_EQ(back.gradient_norm, 1.0 / 3);
  EXPECT_EQ(back.clip_scale, 0.7);
  EXPECT_EQ(back.second.rank, 6u);
  EXPECT_EQ(back.group_scales[3], 0.25);
  EXPECT_EQ(back.group_scales[4], 1);
  EXPECT_TRUE(std::isnan(back.group_scales[63]));
  EXPECT_EQ(back.difference.group, 7u);
  EXPECT_EQ(back.difference.second_bits, 11u);
  EXPECT_EQ(back.late, decision.late);
  EXPECT_TRUE(back.settled);
  ASSERT_EQ(back.entry_count, 2u);
  EXPECT_EQ(back.entries[1].variable, 41u);
  EXPECT_EQ(back.entries[1].plan, decision.entries[1].plan);
  EXPECT_EQ(back.entries[1].union_rows, 2);
  for (size_t cut = 0; cut < used; ++cut) {
    EXPECT_FALSE(decode_decision(std::span(bytes).first(cut), kVoters, &back));
  }
  EXPECT_FALSE(decode_decision(std::span(bytes).first(used + 1), kVoters, &back));
}

// Ranks are a peer's numbers, and stand in sentences: those that the job has not are refused.
TEST(Vote, NamesRanksOfTheJobAlone) {
  const auto refused = [](auto change) {
    Vote vote = vote_of(3);
    vote.pace.rank = 3;
    Bytes bytes;
    Vote back;
    size_t used = encode_vote(vote, bytes);
    EXPECT_TRUE(decode_vote(std::span(bytes).first(used), 4, &back));
    EXPECT_FALSE(decode_vote(std::span(bytes).first(used), 3, &back));
    change(&vote);
    used = encode_vote(vote, bytes);
    return !decode_vote(std::span(bytes).first(used), 4, &back);
  };
  EXPECT_TRUE(refused([](Vote* vote) { vote->scalars.rank = 4; }));
  EXPECT_TRUE(refused([](Vote* vote) { vote->other.rank = 4; }));
  EXPECT_TRUE(refused([](Vote* vote) { vote->pace.rank = 4; }));
}

TEST(Decision, NamesRanksOfTheJobAlone) {
  const auto refused = [](auto change) {
    Decision decision, back;
    Bytes bytes;
    size_t used = encode_decision(decision, bytes);
    EXPECT_TRUE(decode_decision(std::span(bytes).first(used), 4, &back));
    change(&decision);
    used = encode_decision(decision, bytes);
    return !decode_decision(std::span(bytes).first(used), 4, &back);
  };
  EXPECT_TRUE(refused([](Decision* decision) { decision->first.rank = 4; }));
  EXPECT_TRUE(refused([](Decision* decision) { decision->second.rank = 4; }));
  EXPECT_TRUE(refused([](Decision* decision) { decision->late.rank = UINT32_MAX; }));
  EXPECT_TRUE(refused([](Decision* decision) { decision->difference.first_rank = 4; }));
  EXPECT_TRUE(refused([](Decision* decision) { decision->difference.second_rank = 4; }));
}

TEST(Decision, GarbageIsRefusedOrHarmless) {
  SeededRandom random(2);
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes;
    Decision decision;
    decision.entry_count = static_cast<uint32_t>(random.below(5));
    Vote vote = vote_of(3);
    vote.pace.rank = 3;
    vote.norm_kinds = static_cast<uint32_t>(random.below(8));
    if (random.chance(50)) vote.left_out.add(static_cast<uint32_t>(random.below(300)));
    decision.left_out = vote.left_out;
    const bool a_vote = random.chance(50);
    size_t used = a_vote ? encode_vote(vote, bytes) : encode_decision(decision, bytes);
    for (uint64_t i = random.below(5); i > 0; --i) {
      bytes[random.below(used)] = static_cast<std::byte>(random.next());
    }
    used = random.chance(20) ? random.below(used + 9) : used;
    const std::vector<std::byte> exact(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(used));
    Vote got_vote;
    Decision got;
    if (decode_vote(exact, kVoters, &got_vote)) {
      EXPECT_LE(got_vote.counts_size, kCountsPerVote);
      Vote total = vote_of(1);
      total.merge(got_vote);
    }
    if (decode_decision(exact, kVoters, &got)) {
      EXPECT_LE(got.entry_count, kEntriesPerDecision);
      EXPECT_LE(static_cast<uint32_t>(got.outcome), static_cast<uint32_t>(Outcome::kMismatch));
      for (uint32_t i = 0; i < got.entry_count; ++i) {
        EXPECT_LE(static_cast<int>(got.entries[i].plan.method),
                  static_cast<int>(Method::kPushPull));
      }
    }
  }
}

}  // namespace
}  // namespace parallax
