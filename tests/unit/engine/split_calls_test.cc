// SPDX-License-Identifier: Apache-2.0
#include "engine/split_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/seeded_random.h"
#include "unit/server/layouts.h"
#include "unit/server/section_network.h"

namespace parallax::testkit {
namespace {

using Ranks = std::vector<uint32_t>;

// The splits of each rank of a world, without engines.
class SplitWorld {
 public:
  struct Opened {
    uint32_t number;
    Ranks ranks;
  };

  SplitWorld(uint32_t world, uint64_t seed)
      : hosts_(host_map(numbers(world))), network_(world, seed) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      Rank& each = ranks_.emplace_back();
      each.requests = std::make_unique<RequestPool>(std::function<void()>());
      each.splits =
          std::make_unique<SplitCalls>(hosts_, rank, network_.outbox(rank), *each.requests);
      each.splits->set_maker(
          {.next_number = [&each, rank] { return ++each.given > 2 ? 0 : rank * 100 + each.given; },
           .open =
               [&each](uint32_t number, std::span<const uint32_t> ranks) {
                 each.opened.push_back({number, Ranks(ranks.begin(), ranks.end())});
                 return each.refuses;
               }});
    }
    network_.on_section([this](uint32_t to, uint32_t from, const Section& section) {
      return splits(to).on_section(from, section);
    });
  }

  static Ranks numbers(uint32_t world) {
    Ranks all(world);
    for (uint32_t i = 0; i < world; ++i) all[i] = i;
    return all;
  }
  SplitCalls& splits(uint32_t rank) { return *ranks_[rank].splits; }
  const std::vector<Opened>& opened(uint32_t rank) const { return ranks_[rank].opened; }
  void refuse(uint32_t rank, Status why) { ranks_[rank].refuses = std::move(why); }
  SectionNetwork& network() { return network_; }

  Request* split(uint32_t rank, const Ranks& ranks) {
    Request* request = nullptr;
    const Status posted = splits(rank).split(ranks, &request);
    EXPECT_TRUE(posted.ok()) << posted.message();
    return request;
  }
  // Until nothing moves; the failure of the last rank that had one.
  Status settle() {
    Status failure;
    bool moved = true;
    while (moved) {
      for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
        const Status advanced = splits(rank).advance();
        if (!advanced.ok()) failure = advanced;
      }
      moved = network_.move();
    }
    return failure;
  }

 private:
  struct Rank {
    std::unique_ptr<RequestPool> requests;
    std::unique_ptr<SplitCalls> splits;
    std::vector<Opened> opened;
    Status refuses;
    uint32_t given = 0;
  };

  const HostMap hosts_;
  SectionNetwork network_;
  std::deque<Rank> ranks_;
};

TEST(SplitCalls, AllOfTheListGetOneNumberAndTheOthersHearNothing) {
  for (const Ranks& ranks : {Ranks{2}, Ranks{4, 1}, Ranks{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                             Ranks{11, 3, 7, 0, 5, 9, 1}}) {
    SplitWorld world(12, 3);
    std::vector<Request*> requests;
    for (const uint32_t rank : ranks) requests.push_back(world.split(rank, ranks));
    ASSERT_TRUE(world.settle().ok());
    for (size_t i = 0; i < ranks.size(); ++i) {
      ASSERT_TRUE(requests[i]->done());
      EXPECT_EQ(requests[i]->part, ranks[0] * 100 + 1) << "the first of the list numbers it";
      ASSERT_EQ(world.opened(ranks[i]).size(), 1u);
      EXPECT_EQ(world.opened(ranks[i])[0].number, requests[i]->part);
      EXPECT_EQ(world.opened(ranks[i])[0].ranks, ranks);
    }
    for (uint32_t rank = 0; rank < 12; ++rank) {
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
        EXPECT_TRUE(world.opened(rank).empty());
      }
    }
  }
}

// Given calls at any time and messages in any order, expect no rank to be done before every rank
// has opened the part: a message of it would find nobody there.
TEST(SplitCalls, NobodyIsDoneBeforeAllHaveOpened) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SeededRandom random(seed);
    const uint32_t count = 2 + static_cast<uint32_t>(random.below(18));
    SplitWorld world(count, seed);
    const Ranks ranks = SplitWorld::numbers(count);
    std::vector<Request*> requests(count);
    Ranks left = ranks;
    bool all_done = false;
    while (!all_done) {
      if (!left.empty() && random.below(3) == 0) {
        const size_t which = random.below(left.size());
        requests[left[which]] = world.split(left[which], ranks);
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(which));
      }
      for (const uint32_t rank : ranks) ASSERT_TRUE(world.splits(rank).advance().ok());
      world.network().move();
      all_done = true;
      for (const uint32_t rank : ranks) {
        if (requests[rank] == nullptr || !requests[rank]->done()) {
          all_done = false;
          continue;
        }
        for (const uint32_t other : ranks) {
          ASSERT_EQ(world.opened(other).size(), 1u) << "seed " << seed;
        }
      }
    }
  }
}

TEST(SplitCalls, OneListTwiceAndOverlappingListsAreSplitsOfTheirOwn) {
  SplitWorld world(4, 5);
  const Ranks all = {0, 1, 2, 3}, some = {1, 2}, turned = {2, 1};
  std::vector<Request*> requests;
  // In different order on different ranks, but for those of one list.
  for (const uint32_t rank : all) {
    if (rank == 1) requests.push_back(world.split(1, some));
    requests.push_back(world.split(rank, all));
    if (rank == 2) requests.push_back(world.split(2, some));
    requests.push_back(world.split(rank, all));
    if (rank == 1 || rank == 2) requests.push_back(world.split(rank, turned));
  }
  ASSERT_TRUE(world.settle().ok());
  for (const Request* request : requests) EXPECT_TRUE(request->done());
  std::set<uint32_t> numbers;
  for (const SplitWorld::Opened& each : world.opened(1)) numbers.insert(each.number);
  EXPECT_EQ(numbers, (std::set<uint32_t>{1, 2, 101, 201}));
  for (const SplitWorld::Opened& each : world.opened(1)) {
    const auto found = std::find_if(world.opened(2).begin(), world.opened(2).end(),
                                    [&](const auto& its) { return its.number == each.number; });
    ASSERT_NE(found, world.opened(2).end());
    EXPECT_EQ(found->ranks, each.ranks);
  }
}

TEST(SplitCalls, WhatIsWrongWithAListIsSaid) {
  SplitWorld world(3, 1);
  Request* request = nullptr;
  const auto expect_refused = [&](const Ranks& ranks, const std::string& word) {
    const Status refused = world.splits(1).split(ranks, &request);
    EXPECT_EQ(refused.code(), PARALLAX_INVALID);
    EXPECT_EQ(refused.facts().field, "ranks");
    EXPECT_NE(refused.message().find(word), std::string::npos) << refused.message();
  };
  expect_refused({}, "not among");
  expect_refused({0, 2}, "not among");
  expect_refused({1, 3}, "ranks[1] is 3");
  expect_refused({1, 0, 1}, "ranks[2] is 1");
  EXPECT_EQ(request, nullptr);
}

TEST(SplitCalls, WhoHasNotCalledIsNamed) {
  SplitWorld world(6, 1);
  const Ranks all = SplitWorld::numbers(6);
  Request* root = world.split(0, all);
  Request* leaf = world.split(5, all);
  ASSERT_TRUE(world.settle().ok());
  EXPECT_EQ(world.splits(0).missing_ranks(*root), (Ranks{1, 2, 3, 4}));
  EXPECT_EQ(world.splits(5).missing_ranks(*leaf), (Ranks{1})) << "who is to answer it";
  world.splits(0).finish_all(Status(PARALLAX_ABORTED, "enough"));
  EXPECT_EQ(root->status.code(), PARALLAX_ABORTED);
}

// Given calls of some ranks, expect those below and above them in the tree to know that they are
// waited for, until they have called.
TEST(SplitCalls, WhoIsWaitedForKnows) {
  SplitWorld world(6, 1);
  const Ranks all = SplitWorld::numbers(6);
  const auto who = [&] {
    EXPECT_TRUE(world.settle().ok());
    Ranks found;
    for (const uint32_t rank : all) {
      if (world.splits(rank).awaited()) found.push_back(rank);
    }
    return found;
  };
  std::vector<Request*> requests = {world.split(0, all)};
  EXPECT_EQ(who(), (Ranks{1, 2, 3, 4})) << "5 is below 1, which has not called";
  requests.push_back(world.split(5, all));
  requests.push_back(world.split(2, all));
  EXPECT_EQ(who(), (Ranks{1, 3, 4}));
  for (const uint32_t rank : {1u, 3u, 4u}) requests.push_back(world.split(rank, all));
  EXPECT_EQ(who(), Ranks());
  for (const Request* request : requests) EXPECT_TRUE(request->done());
}

// Given callers whose time is up, expect nobody to be waited for any more.
TEST(SplitCalls, WhoLeavesWaitsForNobody) {
  SplitWorld world(6, 1);
  const Ranks all = SplitWorld::numbers(6);
  Request* root = world.split(0, all);
  Request* leaf = world.split(5, all);
  ASSERT_TRUE(world.settle().ok());
  EXPECT_TRUE(world.splits(1).awaited());
  world.splits(0).leave(*root);
  ASSERT_TRUE(world.settle().ok());
  EXPECT_TRUE(world.splits(1).awaited()) << "by 5, which is below it";
  for (const uint32_t rank : {2u, 3u, 4u}) EXPECT_FALSE(world.splits(rank).awaited());
  world.splits(5).leave(*leaf);
  ASSERT_TRUE(world.settle().ok());
  EXPECT_FALSE(world.splits(1).awaited());
  EXPECT_FALSE(root->done() || leaf->done());
}

// Given a caller whose time is up and one below it that calls after that, expect the first to hold
// nothing against those above it, and to know that it is waited for.
TEST(SplitCalls, WhoLeftIsWaitedForAgain) {
  SplitWorld world(6, 1);
  const Ranks all = SplitWorld::numbers(6);
  Request* early = world.split(1, all);
  ASSERT_TRUE(world.settle().ok());
  world.splits(1).leave(*early);
  ASSERT_TRUE(world.settle().ok());
  EXPECT_FALSE(world.splits(5).awaited());
  Request* late = world.split(5, all);
  ASSERT_TRUE(world.settle().ok());
  EXPECT_TRUE(world.splits(1).awaited());
  EXPECT_FALSE(world.splits(0).awaited()) << "1 has gone, so nobody above it is waited for";
  world.splits(5).leave(*late);
  ASSERT_TRUE(world.settle().ok());
  for (uint32_t rank = 0; rank < 6; ++rank) EXPECT_FALSE(world.splits(rank).awaited()) << rank;
}

// Given a caller whose time is up, expect that those who call later get no part without it, and
// that it hears of them.
TEST(SplitCalls, NoPartWithoutWhoLeft) {
  for (const uint32_t first : {0u, 1u}) {
    SplitWorld world(2, 1);
    const Ranks both = SplitWorld::numbers(2);
    Request* left = world.split(first, both);
    ASSERT_TRUE(world.settle().ok());
    world.splits(first).leave(*left);
    ASSERT_TRUE(world.settle().ok());
    Request* later = world.split(1 - first, both);
    ASSERT_TRUE(world.settle().ok());
    EXPECT_FALSE(left->done() || later->done()) << "first is " << first;
    EXPECT_TRUE(world.splits(first).awaited()) << "first is " << first;
  }
}

TEST(SplitCalls, APartThatCannotBeOpenedOrNumberedIsALimit) {
  SplitWorld world(2, 1);
  world.refuse(1, limit("no memory"));
  world.split(0, {0, 1});
  world.split(1, {0, 1});
  EXPECT_EQ(world.settle().message(), "no memory");
}

// Given a first rank that has no number left, expect that this split alone fails, on all its ranks.
TEST(SplitCalls, WithoutANumberOnlyTheSplitFails) {
  SplitWorld world(7, 1);
  const Ranks all = SplitWorld::numbers(7);
  for (int i = 0; i < 3; ++i) {
    std::vector<Request*> requests;
    for (const uint32_t rank : all) requests.push_back(world.split(rank, all));
    ASSERT_TRUE(world.settle().ok());
    for (const Request* request : requests) {
      ASSERT_TRUE(request->done());
      EXPECT_EQ(request->status.code(), i < 2 ? PARALLAX_OK : PARALLAX_LIMIT);
    }
  }
  for (const uint32_t rank : all) EXPECT_EQ(world.opened(rank).size(), 2u);
}

// ---- garbage

class SplitGarbage : public testing::Test {
 protected:
  static Section section(SectionKind kind, uint8_t round, uint64_t digest, uint32_t number = 0) {
    Section made;
    made.header.kind = kind;
    made.header.part = round;
    made.header.step = digest;
    made.header.tag = number;
    return made;
  }
  // The digest of the list that rank 0 and its children split by, as it travels.
  uint64_t digest_of_all() {
    world_.network().on_section([this](uint32_t, uint32_t, const Section& section) {
      digest_ = section.header.step;
      return true;
    });
    world_.split(1, all_);
    EXPECT_TRUE(world_.settle().ok());
    return digest_;
  }

  SplitWorld world_{3, 1};
  const Ranks all_ = {0, 1, 2};
  uint64_t digest_ = 0;
};

TEST_F(SplitGarbage, ReportsOfNoChildRepeatsAndLaterRoundsAreRefused) {
  const uint64_t digest = digest_of_all();
  world_.split(0, all_);
  SplitCalls& root = world_.splits(0);
  EXPECT_FALSE(root.on_section(0, section(SectionKind::kSplitUp, 0, digest)));
  EXPECT_FALSE(root.on_section(1, section(SectionKind::kSplitUp, 1, digest)));
  EXPECT_FALSE(root.on_section(1, section(SectionKind::kSplitUp, 2, digest)));
  EXPECT_TRUE(root.on_section(1, section(SectionKind::kSplitUp, 0, digest)));
  EXPECT_FALSE(root.on_section(1, section(SectionKind::kSplitUp, 0, digest)));
}

TEST_F(SplitGarbage, AnswersThatNobodyWaitsForAreRefused) {
  const uint64_t digest = digest_of_all();
  SplitCalls& child = world_.splits(1);  // it has told its parent that it has called
  EXPECT_FALSE(child.on_section(0, section(SectionKind::kSplitDown, 0, digest + 1, 7)));
  EXPECT_FALSE(child.on_section(2, section(SectionKind::kSplitDown, 0, digest, 7)));
  EXPECT_FALSE(child.on_section(0, section(SectionKind::kSplitDown, 1, digest, 7)));
  EXPECT_TRUE(child.on_section(0, section(SectionKind::kSplitDown, 0, digest, 7)));
  EXPECT_FALSE(child.on_section(0, section(SectionKind::kSplitDown, 0, digest, 7)));
  ASSERT_TRUE(world_.settle().ok());
  EXPECT_FALSE(child.on_section(0, section(SectionKind::kSplitDown, 1, digest, 8)));
  EXPECT_TRUE(child.on_section(0, section(SectionKind::kSplitDown, 1, digest, 7)));
}

TEST_F(SplitGarbage, WaitsOfNoParentAreRefused) {
  const uint64_t digest = digest_of_all();
  SplitCalls& child = world_.splits(1);
  EXPECT_TRUE(child.on_section(0, section(SectionKind::kSplitDown, 2, digest))) << "it has called";
  EXPECT_FALSE(child.awaited());
  EXPECT_FALSE(child.on_section(2, section(SectionKind::kSplitDown, 2, digest)));
  EXPECT_FALSE(child.on_section(0, section(SectionKind::kSplitDown, 2, digest, 1))) << "no number";
  EXPECT_FALSE(child.on_section(0, section(SectionKind::kSplitDown, 4, digest)));
  EXPECT_FALSE(child.on_section(0, section(SectionKind::kSplitDown, 3, digest, 1))) << "no number";
  ASSERT_TRUE(child.on_section(0, section(SectionKind::kSplitDown, 0, digest, 7)));
  EXPECT_FALSE(child.on_section(0, section(SectionKind::kSplitDown, 2, digest)))
      << "it is answered";
  SplitCalls& root = world_.splits(0);
  world_.split(0, all_);
  EXPECT_FALSE(root.on_section(1, section(SectionKind::kSplitDown, 2, digest)))
      << "nobody is above";
  EXPECT_TRUE(world_.splits(2).on_section(0, section(SectionKind::kSplitDown, 2, digest)));
  EXPECT_TRUE(world_.splits(2).awaited());
}

TEST_F(SplitGarbage, EarlyReportsAreKeptAFewForEachRank) {
  SplitCalls& root = world_.splits(0);
  for (uint32_t i = 0; i < SplitCalls::kEarlyMax; ++i) {
    EXPECT_TRUE(root.on_section(1, section(SectionKind::kSplitUp, 0, i)));
  }
  EXPECT_FALSE(root.on_section(1, section(SectionKind::kSplitUp, 0, 9999)));
  EXPECT_TRUE(root.on_section(2, section(SectionKind::kSplitUp, 0, 9999)));
}

}  // namespace
}  // namespace parallax::testkit
