// SPDX-License-Identifier: Apache-2.0
// Rounds of all ranks along the tree: nobody is answered before the last has joined, whatever order
// reports arrive in, and what does not belong to the round is refused.
#include "collectives/tree_sync.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

HostMap draw_hosts(SeededRandom& random, uint32_t world) {
  const uint64_t hosts = 1 + random.below(world);
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < world; ++rank)
    names.push_back(std::to_string(random.below(hosts)));
  return map_hosts(names);
}

// All ranks, and the messages between them in any order.
class Rounds {
 public:
  Rounds(const HostMap& hosts, SeededRandom& random) : random_(random) {
    for (uint32_t rank = 0; rank < hosts.host_of.size(); ++rank) ranks_.emplace_back(hosts, rank);
  }

  // One move by chance: a rank joins, or a message arrives.
  void move() {
    const auto world = static_cast<uint32_t>(ranks_.size());
    if (messages_.empty() || random_.chance(30)) {
      const auto rank = static_cast<uint32_t>(random_.below(world));
      if (ranks_[rank].joined()) return;
      ranks_[rank].join();
      ++joined_;
      report(rank);
      return;
    }
    const size_t at = random_.below(messages_.size());
    const Message message = messages_[at];
    messages_.erase(messages_.begin() + static_cast<ptrdiff_t>(at));
    if (message.answer) return answer(message.to);
    ASSERT_TRUE(ranks_[message.to].arrive(message.from, message.round));
    EXPECT_FALSE(ranks_[message.to].arrive(message.from, message.round)) << "it came twice";
    report(message.to);
  }
  uint64_t finished() const { return finished_; }

 private:
  struct Message {
    bool answer;
    uint32_t from, to;
    uint64_t round;
  };

  void report(uint32_t rank) {
    TreeSync& tree = ranks_[rank];
    if (!tree.take_complete()) return;
    EXPECT_TRUE(tree.missing_children().empty());
    EXPECT_FALSE(tree.take_complete()) << "it is told once";
    if (!tree.is_root()) {
      messages_.push_back({false, rank, tree.parent(), tree.round()});
      return;
    }
    ASSERT_EQ(joined_, ranks_.size() * tree.round()) << "somebody has not joined";
    ++finished_;
    answer(rank);
  }
  void answer(uint32_t rank) {
    TreeSync& tree = ranks_[rank];
    for (const uint32_t child : tree.children()) messages_.push_back({true, rank, child, 0});
    const uint64_t round = tree.round();
    tree.answered();
    EXPECT_EQ(tree.round(), round + 1);
    EXPECT_FALSE(tree.joined() || tree.reported() || tree.any_arrived());
    EXPECT_EQ(tree.missing_children(), tree.children());
  }

  SeededRandom& random_;
  std::vector<TreeSync> ranks_;
  std::vector<Message> messages_;
  uint64_t joined_ = 0;    // over all rounds
  uint64_t finished_ = 0;  // rounds
};

// Given worlds of up to 64 ranks on any hosts, expect round after round to end, each once all
// ranks have joined it, also where a child reports for the next one before its parent joins.
TEST(TreeSync, NobodyIsAnsweredBeforeTheLastJoins) {
  for (uint32_t world = 1; world <= 64; ++world) {
    SCOPED_TRACE("seed " + std::to_string(world));
    SeededRandom random(world);
    const HostMap hosts = draw_hosts(random, world);
    Rounds rounds(hosts, random);
    for (int moves = 0; rounds.finished() < 4 && !testing::Test::HasFailure(); ++moves) {
      ASSERT_LT(moves, 100'000);
      rounds.move();
    }
  }
}

// Given a rank with children, expect reports of others and of other rounds to be refused, and
// to change nothing.
TEST(TreeSync, WhatDoesNotBelongToTheRoundIsRefused) {
  const HostMap hosts = map_hosts(std::vector<std::string>{"a", "a", "b", "b"});
  TreeSync tree(hosts, 0);
  ASSERT_TRUE(tree.is_root());
  ASSERT_EQ(tree.children(), (std::vector<uint32_t>{2, 1}));
  for (const uint32_t stranger : {0u, 3u, 4u, UINT32_MAX}) {
    EXPECT_FALSE(tree.arrive(stranger, 1)) << stranger;
    EXPECT_FALSE(tree.has_arrived(stranger));
  }
  for (const uint64_t round : {uint64_t{0}, uint64_t{2}, UINT64_MAX}) {
    EXPECT_FALSE(tree.arrive(2, round)) << round;
  }
  EXPECT_FALSE(tree.any_arrived());
  EXPECT_EQ(tree.missing_children(), tree.children());
  // It is complete with both and this rank, whoever comes last.
  EXPECT_TRUE(tree.arrive(2, 1));
  EXPECT_TRUE(tree.has_arrived(2) && tree.any_arrived());
  EXPECT_EQ(tree.missing_children(), std::vector<uint32_t>{1});
  tree.join();
  EXPECT_FALSE(tree.take_complete());
  EXPECT_TRUE(tree.arrive(1, 1));
  EXPECT_TRUE(tree.take_complete() && tree.reported());
}

// Given a tree that becomes another one between rounds, expect its children, and no others, to be
// waited for.
TEST(TreeSync, ATreeMayBecomeAnother) {
  const HostMap hosts = map_hosts(std::vector<std::string>{"a", "a", "b"});
  TreeSync sync(hosts, 0);
  sync.hang(kNoRank, {1});
  EXPECT_TRUE(sync.is_root());
  EXPECT_EQ(sync.missing_children(), std::vector<uint32_t>{1});
  EXPECT_FALSE(sync.arrive(2, 1));
  sync.join();
  EXPECT_FALSE(sync.take_complete());
  EXPECT_TRUE(sync.arrive(1, 1));
  EXPECT_TRUE(sync.take_complete());
  sync.answered();
  sync.hang(2, {});
  EXPECT_EQ(sync.parent(), 2u);
  sync.join();
  EXPECT_TRUE(sync.take_complete());
}

}  // namespace
}  // namespace parallax
