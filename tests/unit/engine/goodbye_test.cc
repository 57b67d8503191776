// SPDX-License-Identifier: Apache-2.0
// Goodbyes of whole jobs over a network of sections, without engines: nobody leaves before every
// rank knows that all close, who is missed is named, and when a rank that is gone has left.
#include "engine/goodbye.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "unit/server/layouts.h"
#include "unit/server/section_network.h"

namespace parallax::testkit {
namespace {

// A window in step `begun`, of which so many have ended.
StepWindow window_at(uint64_t begun, uint64_t ended, uint64_t finished) {
  StepWindow window;
  while (window.begun() < begun) {
    window.begin();
    if (window.ended() < ended) window.end(window.begun());
    if (window.finished() < finished) {
      window.decide();
      window.finish();
    }
  }
  return window;
}

class Goodbyes {
 public:
  Goodbyes(const std::vector<uint32_t>& hosts, uint64_t seed)
      : hosts_(host_map(hosts)), network_(static_cast<uint32_t>(hosts.size()), seed) {
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      ranks_.push_back(std::make_unique<Rank>(hosts_, rank, network_.outbox(rank)));
    }
    network_.on_section([this](uint32_t to, uint32_t from, const Section& section) {
      const bool fits = take(*ranks_[to], from, section);
      ranks_[to]->goodbye.advance();
      return fits;
    });
  }

  uint32_t world() const { return static_cast<uint32_t>(ranks_.size()); }
  Goodbye& at(uint32_t rank) { return ranks_[rank]->goodbye; }
  Trees& trees(uint32_t rank) { return ranks_[rank]->trees; }
  SectionNetwork& network() { return network_; }
  void start(uint32_t rank, uint64_t ended) {
    at(rank).start(ended);
    at(rank).advance();
  }

 private:
  struct Rank {
    Rank(const HostMap& hosts, uint32_t rank, Outbox& outbox)
        : trees(hosts, rank, outbox), goodbye(rank, trees) {}
    Trees trees;
    Goodbye goodbye;
  };

  static bool take(Rank& rank, uint32_t from, const Section& section) {
    const auto kind = static_cast<TreeKind>(section.header.tag);
    return section.header.kind == SectionKind::kTreeUp
               ? rank.trees.take_report(from, section) &&
                     rank.goodbye.merge_report(kind, section.payload)
               : rank.trees.take_answer(from, section) &&
                     rank.goodbye.on_answer(kind, section.payload);
  }

  const HostMap hosts_;
  SectionNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST(Goodbye, NobodyLeavesBeforeEveryRankKnowsThatAllClose) {
  for (const auto& hosts : layouts()) {
    Goodbyes goodbyes(hosts, hosts.size());
    for (uint32_t rank = goodbyes.world(); rank-- > 1;) goodbyes.start(rank, 3);
    goodbyes.network().settle();
    for (uint32_t rank = 0; rank < goodbyes.world(); ++rank) {
      EXPECT_FALSE(goodbyes.at(rank).all_closing()) << "rank 0 has not closed";
    }
    goodbyes.start(0, 3);
    while (goodbyes.network().move()) {
      bool all_know = true;
      bool some_leave = false;
      for (uint32_t rank = 0; rank < goodbyes.world(); ++rank) {
        all_know = all_know && goodbyes.at(rank).all_closing();
        some_leave = some_leave || goodbyes.at(rank).confirmed();
      }
      ASSERT_TRUE(all_know || !some_leave);
    }
    for (uint32_t rank = 0; rank < goodbyes.world(); ++rank) {
      EXPECT_TRUE(goodbyes.at(rank).all_closing() && goodbyes.at(rank).confirmed());
    }
    EXPECT_TRUE(goodbyes.network().refusals().empty()) << told(goodbyes.network().refusals());
  }
}

// Rank 0 is the root of the tree, and ranks 1 and 2 its children.
TEST(Goodbye, WhoClosesIsMissedInTheStepThatOthersEnded) {
  Goodbyes goodbyes({0, 0, 0}, 1);
  goodbyes.start(2, 4);
  goodbyes.network().settle();
  Goodbye& root = goodbyes.at(0);
  EXPECT_EQ(root.missed(false, window_at(4, 4, 4), 0).before, "") << "nobody waits for step 5 yet";
  EXPECT_EQ(root.missed(false, window_at(5, 4, 4), 0).before, "") << "it began, and has not ended";
  const Goodbye::Leaver leaver = root.missed(false, window_at(5, 5, 4), 0);
  EXPECT_EQ(leaver.rank, 2u);
  EXPECT_EQ(leaver.before, "before ending step 5");
  EXPECT_EQ(root.missed(true, StepWindow(), 0).before, "before its commit");
  EXPECT_EQ(root.missed(true, StepWindow(), 0).rank, 2u);
}

// Given two that close, it is the one that ended fewer steps that others may wait for.
TEST(Goodbye, TheOneThatEndedFewestStepsIsNamed) {
  for (const uint32_t first : {1u, 2u}) {
    Goodbyes goodbyes({0, 0, 0}, 1);
    goodbyes.start(first, first == 1 ? 6 : 5);
    goodbyes.network().settle();
    goodbyes.start(3 - first, first == 1 ? 5 : 6);
    goodbyes.network().settle();
    const Goodbye::Leaver leaver = goodbyes.at(0).missed(false, window_at(6, 6, 5), 0);
    EXPECT_EQ(leaver.rank, 2u);
    EXPECT_EQ(leaver.before, "before ending step 6");
  }
}

// A rank that closes itself is missed by what others have said.
TEST(Goodbye, WhoClosesFindsThatOthersWaitForIt) {
  const auto report = [](TreeKind kind) {
    SectionHeader header;
    header.kind = SectionKind::kTreeUp;
    header.tag = static_cast<uint32_t>(kind);
    header.step = 1;
    return Section{header, {}};
  };
  Goodbyes goodbyes({0, 0, 0}, 1);
  goodbyes.start(0, 0);
  EXPECT_EQ(goodbyes.at(0).missed(false, StepWindow(), 0).before, "");
  EXPECT_EQ(goodbyes.at(0).missed(false, StepWindow(), 1).before, "before ending step 1");
  EXPECT_EQ(goodbyes.at(0).missed(false, StepWindow(), 1).rank, 0u);
  EXPECT_EQ(goodbyes.at(0).missed(false, window_at(1, 1, 0), 1).before, "") << "it ended that step";
  ASSERT_TRUE(goodbyes.trees(0).take_report(2, report(TreeKind::kCommit)));
  EXPECT_EQ(goodbyes.at(0).missed(false, StepWindow(), 0).before, "before its commit");
}

// Given a rank between steps, above one that closes and one that commits again.
TEST(Goodbye, WhoNeitherClosesNorCommitsSeesThatOthersWait) {
  Goodbyes goodbyes({0, 0, 0}, 1);
  goodbyes.start(2, 4);
  goodbyes.network().settle();
  EXPECT_EQ(goodbyes.at(0).missed(false, window_at(4, 4, 4), 0).before, "");
  SectionHeader header;
  header.kind = SectionKind::kTreeUp;
  header.tag = static_cast<uint32_t>(TreeKind::kCommit);
  header.step = 1;
  ASSERT_TRUE(goodbyes.trees(0).take_report(1, {header, {}}));
  const Goodbye::Leaver leaver = goodbyes.at(0).missed(false, window_at(4, 4, 4), 0);
  EXPECT_EQ(leaver.rank, 2u);
  EXPECT_EQ(leaver.before, "before its commit");
}

TEST(Goodbye, NobodyIsMissedOnceAllClose) {
  Goodbyes goodbyes({0, 0}, 1);
  goodbyes.start(0, 1);
  goodbyes.start(1, 1);
  goodbyes.network().settle();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(goodbyes.at(rank).missed(false, window_at(2, 2, 1), 0).before, "");
  }
}

TEST(Goodbye, AGoneRankIsLostUntilEitherSaidGoodbye) {
  Goodbyes goodbyes({0, 0, 0}, 1);
  Goodbye& root = goodbyes.at(0);
  Goodbye& child = goodbyes.at(1);
  EXPECT_FALSE(root.may_have_left(1));
  for (uint32_t rank = 0; rank < 3; ++rank) goodbyes.start(rank, 0);
  EXPECT_FALSE(child.may_have_left(0)) << "it called close, and knows of nobody else";
  // Until the child has said that it knows that all close.
  while (!goodbyes.trees(1)[TreeKind::kCloseConfirm].reported()) {
    ASSERT_TRUE(goodbyes.network().move());
  }
  EXPECT_TRUE(child.may_have_left(0));
  EXPECT_TRUE(child.waits_for(0)) << "the root's answer is missing";
  EXPECT_FALSE(child.waits_for(2));
  child.take_leaving_as_answer();
  EXPECT_TRUE(child.confirmed());
  EXPECT_FALSE(child.waits_for(0));
  goodbyes.network().settle();
  EXPECT_TRUE(root.may_have_left(1) && root.may_have_left(2));
  EXPECT_FALSE(root.waits_for(1)) << "the root waits for reports, not for an answer";
}

TEST(Goodbye, RefusesPayloadsOfAnotherSize) {
  Goodbyes goodbyes({0, 0}, 1);
  const std::byte bytes[3] = {};
  EXPECT_FALSE(goodbyes.at(0).merge_report(TreeKind::kClose, bytes));
  EXPECT_FALSE(goodbyes.at(0).merge_report(TreeKind::kCloseConfirm, bytes));
  EXPECT_FALSE(goodbyes.at(1).on_answer(TreeKind::kClose, bytes));
}

}  // namespace
}  // namespace parallax::testkit
