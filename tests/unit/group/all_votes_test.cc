// SPDX-License-Identifier: Apache-2.0
// Votes to all on boards, and of hosts in messages, of ranks in one thread, over inproc. Of ranks
// in messages: step_pipeline_test.cc.
#include "group/all_votes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "support/host_map_of.h"
#include "support/outbox_world.h"
#include "world/view.h"

namespace parallax {
namespace {

struct VotesRank {
  VotesRank(const HostMap& hosts, uint32_t rank, Outbox& outbox, Voters voters)
      : group(first_view(hosts), rank, {}, outbox, compute), votes(group, outbox, ballots) {
    EXPECT_TRUE(group.add({}, 0).ok());
    votes.begin_at(1, voters);
  }
  bool on_section(uint32_t from, const Section& section) { return votes.take(from, section); }

  InlineCompute compute;
  Group group;
  Ballots ballots;
  AllVotes votes;
};

struct VotesWorld {
  explicit VotesWorld(const std::vector<uint32_t>& hosts, Voters voters = Voters::kRanks)
      : map(testkit::host_map(hosts)),
        ranks(static_cast<uint32_t>(hosts.size()), [this, voters](uint32_t rank, Outbox& outbox) {
          return std::make_unique<VotesRank>(map, rank, outbox, voters);
        }) {}
  VotesRank& operator[](uint32_t rank) { return ranks.at(rank); }

  // As StepPipeline does: its own joins in.
  void tell(uint32_t rank, uint64_t step, Vote vote, const StepRates& rates = {}) {
    vote.any = true;
    vote.scalars.rank = vote.pace.rank = rank;
    Ballot& ballot = ranks.at(rank).ballots[StepWindow::slot(step)];
    ballot.votes.merge(vote);
    if (rates.count > 0) ballot.rates.say(rates, rank);
    ranks.at(rank).votes.tell(vote, rates);
  }
  // What so many ranks of its host, the first of which it is, have said alike.
  void tell_of_host(uint32_t rank, uint64_t step, uint32_t contributors, const StepRates& rates) {
    Ballot& ballot = ranks.at(rank).ballots[StepWindow::slot(step)];
    Vote vote;
    vote.any = true;
    vote.contributors = contributors;
    vote.scalars.rank = vote.pace.rank = rank;
    vote.scalars.rates_count = rates.count;
    ballot.votes.merge(vote);
    if (rates.count > 0) ballot.rates.say(rates, rank);
    ranks.at(rank).votes.tell_of_host();
  }
  bool complete(uint32_t rank) {
    ranks.at(rank).group.entries().look();
    bool complete = false;
    const Status status = ranks.at(rank).votes.take_complete(&complete);
    EXPECT_TRUE(status.ok()) << status.message();
    return complete;
  }

  const HostMap map;
  testkit::OutboxWorld<VotesRank> ranks;
};

Vote said_vote(float learning_rate, bool gave = true, bool found_inf = false) {
  Vote vote;
  vote.contributors = gave ? 1 : 0;
  vote.found_inf = found_inf ? 1 : 0;
  vote.scalars.learning_rate_bits = std::bit_cast<uint32_t>(learning_rate);
  return vote;
}

// Given what each rank says, step for step, expect all to know it once all have said it, and not
// before; and nothing of it to be a message.
TEST(AllVotes, GoOnBoardsWhereAllHaveThem) {
  VotesWorld world({0, 0, 0});
  for (uint64_t step = 1; step <= 5; ++step) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      Vote vote = said_vote(0.5f, rank != 1, step == 3 && rank == 2);
      vote.pace.longest_us = {rank, 10 * rank, static_cast<uint32_t>(step)};
      for (size_t i = 0; i < kStepPhases; ++i) vote.pace.sum_us[i] = vote.pace.longest_us[i];
      world.tell(rank, step, vote);
      EXPECT_EQ(world.complete(rank), rank == 2);
    }
    EXPECT_TRUE(world.complete(0) && world.complete(1));
    for (uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_FALSE(world.complete(rank)) << "once in a round";
      Ballot& ballot = world[rank].ballots[StepWindow::slot(step)];
      EXPECT_EQ(ballot.votes.contributors, 2u);
      EXPECT_EQ(ballot.votes.found_inf, step == 3 ? 1u : 0u);
      EXPECT_FALSE(ballot.votes.disagree);
      EXPECT_EQ(ballot.votes.pace.rank, 2u) << "it took longest";
      EXPECT_EQ(ballot.votes.pace.sum_us[1], 30u);
      ballot.clear();
    }
  }
  world.ranks.settle();
  EXPECT_EQ(world.ranks.packed(SectionKind::kVote).sections, 0u);
}

// Given hosts of several ranks, expect the first of each to know what all have said once all hosts
// have told, whatever order they tell in and however early: each vote counts once. Nobody else is a
// voter.
TEST(AllVotes, OfHostsThoseWhoAreFirstTellEachOther) {
  const std::vector<uint32_t> firsts = {0, 2, 3};
  for (const bool same : {true, false}) {
    VotesWorld world({0, 0, 1, 2, 2, 2}, Voters::kHosts);
    const auto rates_of = [same](uint32_t rank, uint64_t step) {
      StepRates rates;
      rates.count = 2;
      rates.groups[1].weight_decay = same || rank != 2 || step == 1 ? 0.25f : 0.5f;
      return rates;
    };
    for (const uint32_t rank : {1u, 4u, 5u}) EXPECT_FALSE(world[rank].votes.is_voter());
    for (uint64_t step = 1; step <= 4; ++step) {
      uint32_t told = 0;
      for (size_t i = 0; i < firsts.size(); ++i) {
        // Another one of them is the last to tell in each step.
        const uint32_t rank = firsts[(i + step) % firsts.size()];
        world.tell_of_host(rank, step, rank + 1, rates_of(rank, step));
        told += rank + 1;
        world.ranks.settle();
        EXPECT_EQ(world.complete(rank), i + 1 == firsts.size());
        if (i == 0) {
          EXPECT_EQ(world[firsts[(step + 1) % 3]].votes.told_in(), step);
        }
      }
      for (const uint32_t rank : firsts) {
        EXPECT_EQ(world.complete(rank), rank != firsts[(step + 2) % 3]) << rank;
        Ballot& ballot = world[rank].ballots[StepWindow::slot(step)];
        EXPECT_EQ(ballot.votes.contributors, told);
        EXPECT_FALSE(ballot.votes.disagree);
        EXPECT_EQ(ballot.rates.differing().any != 0, !same && step > 1);
        ballot.clear();
      }
    }
    EXPECT_EQ(world[3].votes.missing(), (std::vector<uint32_t>{0, 2}));
    Section vote;
    vote.header = {.kind = SectionKind::kVote, .tag = kNoVariable, .step = 5};
    EXPECT_FALSE(world[0].votes.take(1, vote)) << "of a rank that is none";
    EXPECT_FALSE(world[1].votes.take(2, vote)) << "to a rank that is none";
  }
}

// Given numbers that differ, of the step or of a group of rates, expect every rank to find both
// ranks of it.
TEST(AllVotes, WhatDiffersIsSeenByAll) {
  for (const bool by_group : {false, true}) {
    VotesWorld world({0, 0, 0, 0});
    for (uint32_t rank = 0; rank < 4; ++rank) {
      StepRates rates;
      rates.count = by_group ? kRatesMax : 0;
      rates.groups[kRatesMax - 1].weight_decay = rank == 2 ? 0.5f : 0.25f;
      Vote vote = said_vote(!by_group && rank == 2 ? 2 : 1);
      vote.scalars.rates_count = rates.count;
      world.tell(rank, 1, vote, rates);
    }
    for (uint32_t rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(world.complete(rank));
      const Ballot& ballot = world[rank].ballots[StepWindow::slot(1)];
      if (by_group) {
        const RatesDifference& difference = ballot.rates.differing();
        EXPECT_EQ(difference.group, kRatesMax - 1);
        EXPECT_TRUE((difference.first_rank == 2) != (difference.second_rank == 2));
      } else {
        EXPECT_TRUE(ballot.votes.disagree);
        EXPECT_TRUE((ballot.votes.scalars.rank == 2) != (ballot.votes.other.rank == 2));
      }
    }
  }
}

// Given ranks that have voted on this step or the next, expect it to be known without a vote of
// this rank's.
TEST(AllVotes, WhoHasVotedIsSeenByWhoHasNot) {
  VotesWorld world({0, 0, 0});
  EXPECT_EQ(world[0].votes.told_in(), 0u);
  EXPECT_EQ(world[0].votes.missing(), (std::vector<uint32_t>{1, 2}));
  world.tell(2, 1, said_vote(1));
  EXPECT_EQ(world[0].votes.told_in(), 1u);
  EXPECT_EQ(world[0].votes.missing(), std::vector<uint32_t>{1});
  EXPECT_FALSE(world.complete(0));
  world.tell(0, 1, said_vote(1));
  world.tell(1, 1, said_vote(1));
  EXPECT_TRUE(world.complete(1));
  world[1].ballots[StepWindow::slot(1)].clear();
  world.tell(1, 2, said_vote(1));
  EXPECT_EQ(world[0].votes.told_in(), 2u);
  // That rank 1 is in the next step changes nothing of this one.
  EXPECT_TRUE(world.complete(0));
  EXPECT_EQ(world[0].ballots[StepWindow::slot(1)].votes.contributors, 3u);
}

// Given bytes that are no vote of ours, expect their writer to be named, and no message to count
// where votes are on boards.
TEST(AllVotes, WhatIsNoVoteNamesItsWriter) {
  struct Wrong {
    size_t at;
    uint32_t word;
  };
  // Contributors, found-inf; rates that are announced and not there, that are there and not
  // announced, and longer than there is room for.
  for (const Wrong& wrong :
       {Wrong{12, 2}, Wrong{16, 2}, Wrong{8, 1}, Wrong{32, 40}, Wrong{32, UINT32_MAX}}) {
    VotesWorld world({0, 0});
    world.tell(1, 1, said_vote(1));
    const EntryPlace place = world[1].group.entries().reserve_votes(1);
    std::memcpy(world[1].group.entries().own(place, 1) + wrong.at, &wrong.word, sizeof wrong.word);
    world.tell(0, 1, said_vote(1));
    bool complete = false;
    const Status status = world[0].votes.take_complete(&complete);
    EXPECT_EQ(status.code(), PARALLAX_INTERNAL) << wrong.at;
    EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
    EXPECT_FALSE(complete);
    Section section;
    section.header.kind = SectionKind::kVote;
    section.header.step = 1;
    EXPECT_FALSE(world[1].votes.take(0, section));
  }
}

// Given several hosts, expect messages.
TEST(AllVotes, GoInMessagesElsewhere) {
  VotesWorld world({0, 0, 1});
  for (uint32_t rank = 0; rank < 3; ++rank) world.tell(rank, 1, said_vote(1));
  EXPECT_FALSE(world.complete(0));
  world.ranks.settle();
  EXPECT_EQ(world.ranks.packed(SectionKind::kVote).sections, 6u);
  for (uint32_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(world.complete(rank));
}

}  // namespace
}  // namespace parallax
