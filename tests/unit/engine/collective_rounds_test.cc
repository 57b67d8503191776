// SPDX-License-Identifier: Apache-2.0
// Reports and answers between ranks without engines: what is held for a rank that is behind, what a
// peer may not send, and what a close leaves out. Whole collectives: engine_collective_test.cc.
#include "engine/collective_rounds.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "support/collective_case.h"
#include "support/host_map_of.h"
#include "support/words.h"
#include "unit/server/section_network.h"

namespace parallax::testkit::rounds {
namespace {

// Ranks 0 to 3 on hosts of their own: 1 to 3 are children of 0.
class RoundsWorld {
 public:
  static constexpr uint32_t kSize = 4;

  struct Rank {
    Rank(const HostMap& hosts, uint32_t rank, Outbox& outbox)
        : columns(hosts, rank),
          trees(hosts, rank, outbox),
          rounds({columns, trees, outbox, requests, false}) {}
    RequestPool requests{{}};
    Columns columns;
    Trees trees;
    CollectiveRounds rounds;
  };

  RoundsWorld() {
    for (uint32_t rank = 0; rank < kSize; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(hosts_, rank, network_.outbox(rank)));
    }
    network_.on_section([this](uint32_t to, uint32_t from, const Section& section) {
      const bool fits = ranks_[to]->rounds.on_section(from, section);
      ranks_[to]->rounds.advance();
      return fits;
    });
    network_.on_packed([this](uint32_t rank) { ranks_[rank]->rounds.advance(); });
  }

  Rank& operator[](uint32_t rank) { return *ranks_[rank]; }
  SectionNetwork& network() { return network_; }
  Request* post(const CollectiveCase& of, uint32_t rank) {
    CollectiveBuffers& buffers =
        *buffers_.emplace_back(std::make_unique<CollectiveBuffers>(of, rank));
    Request* request = nullptr;
    EXPECT_TRUE(ranks_[rank]->rounds.post(buffers.collective(), of.tag, &request).ok());
    ranks_[rank]->rounds.advance();
    return request;
  }
  // A report of `of` as from that child, numbered `number` (or of that tag).
  bool report(uint32_t from, uint64_t number, bool tagged, const CollectiveCase& of) {
    CollectiveBuffers buffers(of, from);
    const Collective what = buffers.collective(number);
    const CollectiveReport head = {.terms = what.terms, .mismatch = {}};
    std::vector<std::byte> bytes(sizeof head + what.terms.fused_bytes(kSize));
    std::memcpy(bytes.data(), &head, sizeof head);
    return take(from, SectionKind::kCollectiveReport, number, tagged ? 1 : 0, bytes);
  }
  bool take(uint32_t from, SectionKind kind, uint64_t number, uint32_t tag,
            std::span<const std::byte> payload) {
    const OwnedSection section({.kind = kind, .tag = tag, .step = number}, payload);
    return ranks_[0]->rounds.on_section(from, section.view());
  }

 private:
  const HostMap hosts_ = host_map({0, 1, 2, 3});
  SectionNetwork network_{kSize, 1};
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::unique_ptr<CollectiveBuffers>> buffers_;
};

const CollectiveCase kPlain = {.world = RoundsWorld::kSize, .count = 2};

TEST(CollectiveRounds, ARankThatIsBehindHoldsOneReportForEachCall) {
  RoundsWorld world;
  for (uint64_t number = 0; number < PARALLAX_REQUESTS_MAX; ++number) {
    ASSERT_TRUE(world.report(1, number, false, kPlain));
  }
  EXPECT_FALSE(world.report(1, PARALLAX_REQUESTS_MAX, false, kPlain)) << "more than it can have";
  EXPECT_TRUE(world.report(2, 0, false, kPlain)) << "each child has its own";
  EXPECT_TRUE(world[0].rounds.said());
}

TEST(CollectiveRounds, WhatMayNotBeReported) {
  RoundsWorld world;
  EXPECT_FALSE(world.take(1, SectionKind::kCollectiveReport, 0, 2, {})) << "no such tag";
  EXPECT_FALSE(world.take(1, SectionKind::kCollectiveReport, 0, 0, {})) << "nothing";
  EXPECT_FALSE(world.report(1, 0, true, kPlain)) << "tag 0 is none";
  EXPECT_TRUE(world.report(1, 0, false, kPlain));
  EXPECT_FALSE(world.report(1, 0, false, kPlain)) << "twice";
  // Rank 0 is nobody's child; an answer comes from a parent, data of a collective of this rank.
  EXPECT_FALSE(world.report(0, 0, false, kPlain));
  EXPECT_FALSE(world.take(1, SectionKind::kCollectiveAnswer, 0, 0, {}));
  EXPECT_FALSE(world.take(1, SectionKind::kCollectiveGather, 0, 0, {}));
  EXPECT_FALSE(world.take(1, SectionKind::kCollectiveCounts, 0, 0, {}));
  world.post(kPlain, 0);
  EXPECT_FALSE(world.take(1, SectionKind::kCollectiveAnswer, 0, 0, {}));
  EXPECT_FALSE(world.take(1, SectionKind::kCollectiveGather, 0, 0, {})) << "before all have called";
  EXPECT_TRUE(world.report(2, 0, false, kPlain));
  EXPECT_TRUE(world.report(3, 0, false, kPlain));
  EXPECT_FALSE(world.report(1, 0, false, kPlain)) << "it is over";
  EXPECT_TRUE(world.report(1, 5, true, kPlain));
  EXPECT_FALSE(world.report(1, 5, true, kPlain)) << "one ahead at most";
}

// A child that is through with a tag reports the next of it while this rank still moves the last.
TEST(CollectiveRounds, TheNextOfATagIsHeldWhileTheLastMoves) {
  RoundsWorld world;
  CollectiveCase large = kPlain;
  large.count = 5000;
  large.tag = 9;
  world.network().hold(0);  // what rank 0 sends stays with it
  Request* first = world.post(large, 0);
  for (uint32_t child = 1; child < RoundsWorld::kSize; ++child) world.post(large, child);
  world.network().settle();
  EXPECT_FALSE(first->done());
  ASSERT_TRUE(world.report(1, 9, true, large));
  EXPECT_FALSE(world.report(1, 9, true, large));
  EXPECT_FALSE(first->done());
  // Of no tag there is no next one.
  large.tag = 0;
  for (uint32_t rank = 0; rank < RoundsWorld::kSize; ++rank) world.post(large, rank);
  world.network().settle();
  EXPECT_FALSE(world.report(1, 0, false, large));
}

// Whoever sends of a collective knows that all agree: no answer may then say otherwise, for what it
// ends may still be sent on.
TEST(CollectiveRounds, NoMismatchComesAfterNumbers) {
  RoundsWorld world;
  CollectiveCase large = kPlain;
  large.kind = PARALLAX_BROADCAST;
  large.count = 5000;
  const Request* request = world.post(large, 1);
  const auto answer = [&world](const CollectiveAnswer& given) {
    const OwnedSection section({.kind = SectionKind::kCollectiveAnswer},
                               std::as_bytes(std::span(&given, 1)));
    return world[1].rounds.on_section(0, section.view());
  };
  const std::vector<std::byte> numbers(256 * sizeof(float));
  const OwnedSection part(
      {.kind = SectionKind::kCollectiveGather, .encoding = Encoding::kDense, .count = 256},
      numbers);
  ASSERT_TRUE(world[1].rounds.on_section(0, part.view()));
  EXPECT_FALSE(answer({.mismatch = {.field = CollectiveField::kOp, .ranks = {0, 1}}}));
  EXPECT_FALSE(request->done());
}

// Nor does a call that a rank was refused itself come to pass there.
TEST(CollectiveRounds, WhatWasRefusedIsNotAnsweredOtherwise) {
  RoundsWorld world;
  Status why = invalid("collective: wrong");
  EXPECT_EQ(world[1].rounds.refuse(0, std::move(why).about_field("root")).code(), PARALLAX_INVALID);
  EXPECT_FALSE(world[1].rounds.said()) << "the next pass says it";
  world[1].rounds.advance();
  EXPECT_TRUE(world[1].rounds.said());
  const CollectiveAnswer given = {};
  const OwnedSection section({.kind = SectionKind::kCollectiveAnswer},
                             std::as_bytes(std::span(&given, 1)));
  EXPECT_FALSE(world[1].rounds.on_section(0, section.view()));
}

TEST(CollectiveRounds, CloseComesAfterWhatIsNotSaid) {
  RoundsWorld world;
  CollectiveCase tagged = kPlain;
  tagged.tag = 3;
  EXPECT_TRUE(world[1].rounds.said());
  world.post(tagged, 1);
  EXPECT_TRUE(world[1].rounds.said()) << "a leaf says it at once";
  world.post(tagged, 1);
  EXPECT_FALSE(world[1].rounds.said()) << "the second waits behind the first";
  world.post(tagged, 0);
  EXPECT_FALSE(world[0].rounds.said());
}

TEST(CollectiveRounds, WhoClosesInsteadIsNamed) {
  RoundsWorld world;
  ASSERT_TRUE(world.report(2, 0, false, kPlain));
  EXPECT_TRUE(world[0].rounds.check_leaving(false).ok());
  const Status left_out = world[0].rounds.check_leaving(true);
  EXPECT_EQ(left_out.code(), PARALLAX_PEER_LOST);
  EXPECT_TRUE(has(left_out, "rank 0")) << left_out.message();
  EXPECT_TRUE(has(left_out, "closed the job before collective 0")) << left_out.message();
  world.post(kPlain, 0);
  EXPECT_TRUE(world[0].rounds.check_leaving(false).ok());
  ASSERT_TRUE(world[0].trees[TreeKind::kClose].arrive(2, 1));
  EXPECT_TRUE(world[0].rounds.check_leaving(false).ok()) << "it had called";
  ASSERT_TRUE(world[0].trees[TreeKind::kClose].arrive(3, 1));
  EXPECT_TRUE(has(world[0].rounds.check_leaving(false), "rank 3"));
}

TEST(CollectiveRounds, AllEndWithTheJob) {
  RoundsWorld world;
  CollectiveCase large = kPlain;
  large.count = 5000;
  std::vector<Request*> requests = {world.post(kPlain, 0), world.post(large, 0)};
  for (Request* request : requests) EXPECT_FALSE(request->done());
  world[0].rounds.finish_all({PARALLAX_ABORTED, "over"});
  for (Request* request : requests) EXPECT_EQ(request->status.code(), PARALLAX_ABORTED);
}

}  // namespace
}  // namespace parallax::testkit::rounds
