// SPDX-License-Identifier: Apache-2.0
// Rounds with their messages: every rank gets the root's answer once all have reported, the rounds
// of different kinds do not touch each other, and what a rank may not send is refused.
#include "group/trees.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "unit/server/layouts.h"
#include "unit/server/section_network.h"

namespace parallax::testkit {
namespace {

std::span<const std::byte> as_bytes_of(const uint64_t& number) {
  return std::as_bytes(std::span(&number, 1));
}

// Ranks that add up a number of each: the sum goes up, and the root's goes down.
class SummingRanks {
 public:
  SummingRanks(const std::vector<uint32_t>& hosts, uint64_t seed)
      : hosts_(host_map(hosts)), network_(static_cast<uint32_t>(hosts.size()), seed) {
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      ranks_.push_back(std::make_unique<Rank>(hosts_, rank, network_.outbox(rank)));
    }
    network_.on_section([this](uint32_t to, uint32_t from, const Section& section) {
      return take(to, from, section);
    });
  }

  uint32_t world() const { return static_cast<uint32_t>(ranks_.size()); }
  SectionNetwork& network() { return network_; }
  Trees& trees(uint32_t rank) { return ranks_[rank]->trees; }

  void join(uint32_t rank, TreeKind kind, uint64_t number) {
    ranks_[rank]->sums[static_cast<size_t>(kind)] += number;
    ranks_[rank]->trees[kind].join();
    advance(rank);
  }
  const std::vector<uint64_t>& answers(uint32_t rank, TreeKind kind) const {
    return ranks_[rank]->answers[static_cast<size_t>(kind)];
  }

 private:
  struct Rank {
    Rank(const HostMap& hosts, uint32_t rank, Outbox& outbox) : trees(hosts, rank, outbox) {}
    Trees trees;
    uint64_t sums[kTreeKinds] = {};
    std::vector<uint64_t> answers[kTreeKinds];
  };

  static uint64_t number_of(const Section& section) {
    uint64_t number = 0;
    if (section.payload.size() == sizeof number) {
      std::memcpy(&number, section.payload.data(), sizeof number);
    }
    return number;
  }

  bool take(uint32_t to, uint32_t from, const Section& section) {
    Rank& rank = *ranks_[to];
    if (section.header.kind == SectionKind::kTreeUp) {
      if (!rank.trees.take_report(from, section)) return false;
      rank.sums[section.header.tag] += number_of(section);
    } else {
      if (!rank.trees.take_answer(from, section)) return false;
      rank.answers[section.header.tag].push_back(number_of(section));
    }
    advance(to);
    return true;
  }

  void advance(uint32_t at) {
    Rank& rank = *ranks_[at];
    for (uint32_t i = 0; i < kTreeKinds; ++i) {
      const auto kind = static_cast<TreeKind>(i);
      if (!rank.trees[kind].take_complete()) continue;
      const uint64_t sum = std::exchange(rank.sums[i], 0);
      if (rank.trees.pass_on(kind, as_bytes_of(sum))) rank.answers[i].push_back(sum);
    }
  }

  const HostMap hosts_;
  SectionNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST(Trees, EveryRankGetsTheAnswerOnceAllHaveReported) {
  for (const auto& hosts : layouts()) {
    SummingRanks ranks(hosts, hosts.size());
    for (uint64_t round = 1; round <= 3; ++round) {
      uint64_t sum = 0;
      for (uint32_t rank = ranks.world(); rank-- > 0;) {
        for (uint32_t other = 0; other < ranks.world(); ++other) {
          ASSERT_EQ(ranks.answers(other, TreeKind::kVote).size(), round - 1);
        }
        ranks.join(rank, TreeKind::kVote, rank + round);
        sum += rank + round;
        ranks.network().settle();
      }
      for (uint32_t rank = 0; rank < ranks.world(); ++rank) {
        ASSERT_EQ(ranks.answers(rank, TreeKind::kVote).size(), round);
        EXPECT_EQ(ranks.answers(rank, TreeKind::kVote).back(), sum) << "rank " << rank;
        EXPECT_EQ(ranks.trees(rank)[TreeKind::kVote].round(), round + 1);
      }
    }
    EXPECT_TRUE(ranks.network().refusals().empty()) << told(ranks.network().refusals());
  }
}

// Given rounds of all kinds at a time, in any order of messages.
TEST(Trees, KindsDoNotTouchEachOther) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SummingRanks ranks({0, 0, 1, 1, 1, 2}, seed);
    uint64_t sums[kTreeKinds] = {};
    for (uint32_t rank = 0; rank < ranks.world(); ++rank) {
      for (uint32_t kind = 0; kind < kTreeKinds; ++kind) {
        ranks.join(rank, static_cast<TreeKind>(kind), 100 * kind + rank);
        sums[kind] += 100 * kind + rank;
      }
    }
    ranks.network().settle();
    for (uint32_t rank = 0; rank < ranks.world(); ++rank) {
      for (uint32_t kind = 0; kind < kTreeKinds; ++kind) {
        EXPECT_EQ(ranks.answers(rank, static_cast<TreeKind>(kind)),
                  std::vector<uint64_t>{sums[kind]});
      }
    }
    EXPECT_TRUE(ranks.network().refusals().empty()) << told(ranks.network().refusals());
  }
}

SectionHeader header_of(SectionKind kind, uint32_t tag, uint64_t round) {
  SectionHeader header;
  header.kind = kind;
  header.tag = tag;
  header.step = round;
  return header;
}

// Rank 0 is the root, and ranks 1 and 2 its children.
TEST(Trees, RefuseReportsThatAreNotDue) {
  SummingRanks ranks({0, 0, 0}, 1);
  Trees& trees = ranks.trees(0);
  const auto vote = static_cast<uint32_t>(TreeKind::kVote);
  const auto report = [&](uint32_t tag, uint64_t round) {
    return Section{header_of(SectionKind::kTreeUp, tag, round), {}};
  };
  EXPECT_FALSE(trees.take_report(1, report(kTreeKinds, 1))) << "of no kind";
  EXPECT_FALSE(trees.take_report(1, report(vote, 2))) << "of another round";
  EXPECT_FALSE(trees.take_report(0, report(vote, 1))) << "from no child";
  EXPECT_TRUE(trees.take_report(1, report(vote, 1)));
  EXPECT_FALSE(trees.take_report(1, report(vote, 1))) << "a second time";
}

TEST(Trees, RefuseAnswersThatAreNotDue) {
  SummingRanks ranks({0, 0, 0}, 1);
  Trees& trees = ranks.trees(1);
  const auto vote = static_cast<uint32_t>(TreeKind::kVote);
  const auto answer = [&](uint32_t tag, uint64_t round) {
    return Section{header_of(SectionKind::kTreeDown, tag, round), {}};
  };
  EXPECT_FALSE(trees.take_answer(0, answer(vote, 1))) << "nothing was reported";
  ranks.join(1, TreeKind::kVote, 1);
  EXPECT_FALSE(trees.take_answer(0, answer(kTreeKinds, 1))) << "of no kind";
  EXPECT_FALSE(trees.take_answer(2, answer(vote, 1))) << "not from the parent";
  EXPECT_FALSE(trees.take_answer(0, answer(vote, 2))) << "of another round";
  EXPECT_TRUE(trees.take_answer(0, answer(vote, 1)));
  EXPECT_FALSE(trees.take_answer(0, answer(vote, 1))) << "a second time";
}

// Pieces of a report come ahead of it, from a child of the round alone, and do not report.
TEST(Trees, PartsComeAheadOfTheirReport) {
  SummingRanks ranks({0, 1}, 1);
  Section part;
  part.header.kind = SectionKind::kTreeUp;
  part.header.part = 1;
  part.header.tag = static_cast<uint32_t>(TreeKind::kVote);
  part.header.step = 1;
  const Trees& root = ranks.trees(0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(root.take_part(1, part));
  EXPECT_FALSE(root.take_part(0, part)) << "no child";
  EXPECT_FALSE(ranks.trees(1).take_part(0, part)) << "the parent";
  part.header.step = 2;
  EXPECT_FALSE(root.take_part(1, part)) << "another round";
  part.header.step = 1;
  part.header.tag = kTreeKinds;
  EXPECT_FALSE(root.take_part(1, part)) << "of no kind";
  part.header.tag = static_cast<uint32_t>(TreeKind::kVote);
  ranks.join(1, TreeKind::kVote, 5);
  ranks.network().settle();
  EXPECT_FALSE(root.take_part(1, part)) << "it has reported";
}

}  // namespace
}  // namespace parallax::testkit
