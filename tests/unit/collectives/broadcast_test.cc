// SPDX-License-Identifier: Apache-2.0
// Broadcasts between outboxes over inproc, without an engine: bytes reach everyone, wait for who
// has no buffer yet, and what a peer should not have sent is refused and changes nothing.
#include "collectives/broadcast.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/seeded_random.h"
#include "support/outbox_world.h"
#include "support/words.h"

namespace parallax {
namespace {

using testkit::has;

class BroadcastWorld {
 public:
  explicit BroadcastWorld(const std::vector<std::string>& host_names)
      : hosts_(map_hosts(host_names)),
        ranks_(static_cast<uint32_t>(host_names.size()), [this](uint32_t rank, Outbox& outbox) {
          return std::make_unique<Broadcast>(hosts_, rank, outbox);
        }) {}

  uint32_t size() const { return ranks_.size(); }
  const HostMap& hosts() const { return hosts_; }
  Broadcast& at(uint32_t rank) { return ranks_.at(rank); }
  void pass(uint32_t rank) { ranks_.pass(rank); }
  void settle() { ranks_.settle(); }
  uint64_t refused_count() const { return ranks_.refused_count(); }
  // That one packed, or all did.
  uint64_t data_bytes(uint32_t rank) const {
    return ranks_.packed(rank, SectionKind::kBroadcastData).payload_bytes;
  }
  uint64_t data_bytes() const { return ranks_.packed(SectionKind::kBroadcastData).payload_bytes; }

 private:
  const HostMap hosts_;
  testkit::OutboxWorld<Broadcast> ranks_;
};

// Given broadcasts from any roots, of nothing up to many messages, that ranks join in any
// order, expect the root's bytes everywhere, and each link of the tree to carry them once.
TEST(Broadcast, EveryRankGetsTheRootsBytes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    BroadcastWorld world(testkit::draw_hosts(random, 24));
    uint64_t moved_bytes = 0;
    for (int round = 0; round < 4; ++round) {
      const auto root = static_cast<uint32_t>(random.below(world.size()));
      const size_t bytes = random.chance(30) ? random.below(2) : random.below(200'000);
      std::vector<std::vector<std::byte>> buffers(world.size(), std::vector<std::byte>(bytes));
      for (std::byte& byte : buffers[root]) byte = static_cast<std::byte>(random.next());
      std::vector<uint32_t> order;
      for (uint32_t i = 0; i < world.size(); ++i) {
        order.insert(order.begin() + static_cast<ptrdiff_t>(random.below(i + 1)), i);
      }
      for (const uint32_t rank : order) {
        world.at(rank).start(root, buffers[rank].data(), bytes);
        for (uint64_t i = random.below(8); i > 0; --i) {
          world.pass(static_cast<uint32_t>(random.below(world.size())));
        }
      }
      world.settle();
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        ASSERT_TRUE(world.at(rank).finished()) << "rank " << rank;
        EXPECT_TRUE(world.at(rank).missing_ranks().empty());
        EXPECT_EQ(world.at(rank).mismatch(), "");
        world.at(rank).finish();
        EXPECT_FALSE(world.at(rank).active());
        ASSERT_EQ(buffers[rank], buffers[root]) << "rank " << rank;
      }
      moved_bytes += bytes * (world.size() - 1);
    }
    EXPECT_EQ(world.refused_count(), 0u);
    EXPECT_EQ(world.data_bytes(), moved_bytes);
  }
}

// Given a rank that has not joined, expect no byte to be sent to it, those that wait for it
// to say so, and the others to have theirs.
TEST(Broadcast, WhoHasNoBufferIsWaitedFor) {
  BroadcastWorld world({"a", "b", "c"});
  std::array<std::array<std::byte, 100>, 3> buffers = {};
  buffers[0].fill(std::byte{7});
  world.at(0).start(0, buffers[0].data(), 100);
  world.at(1).start(0, buffers[1].data(), 100);
  world.settle();
  EXPECT_TRUE(world.at(1).finished());
  EXPECT_EQ(buffers[1], buffers[0]);
  EXPECT_FALSE(world.at(0).finished());
  EXPECT_EQ(world.at(0).missing_ranks(), std::vector<uint32_t>{2});
  EXPECT_EQ(world.data_bytes(0), 100u);
  world.at(2).start(0, buffers[2].data(), 100);
  EXPECT_EQ(world.at(2).missing_ranks(), std::vector<uint32_t>{0});
  world.settle();
  EXPECT_TRUE(world.at(0).finished() && world.at(2).finished());
  EXPECT_EQ(buffers[2], buffers[0]);
}

// Given a rank that says another size, or another root, expect one that hears it to name
// both.
TEST(Broadcast, WhoDisagreesIsNamed) {
  for (const bool root_differs : {false, true}) {
    BroadcastWorld world({"a", "b", "c"});
    std::array<std::array<std::byte, 8>, 3> buffers = {};
    for (const uint32_t rank : {0u, 1u, 2u}) {
      const bool odd = rank == 2;
      world.at(rank).start(odd && root_differs ? 1 : 0, buffers[rank].data(),
                           odd && !root_differs ? 7 : 8);
    }
    world.settle();
    const std::string& said = world.at(0).mismatch();
    EXPECT_TRUE(has(said, "broadcast 1: rank 0 has root 0 and 8 bytes")) << said;
    EXPECT_TRUE(
        has(said, root_differs ? "rank 2 has root 1 and 8 bytes" : "rank 2 has root 0 and 7 bytes"))
        << said;
    EXPECT_FALSE(world.at(2).finished());
  }
}

SectionHeader header_of(SectionKind kind, uint64_t sequence) {
  SectionHeader header;
  header.kind = kind;
  header.step = sequence;
  return header;
}

// Given what no honest rank says of itself, expect it to be refused, and the broadcast to go
// on as if it had not come.
TEST(Broadcast, GarbageFromBelowIsRefused) {
  BroadcastWorld world({"a", "b", "c"});
  std::array<std::byte, 8> sent = {}, got = {};
  sent.fill(std::byte{9});
  world.at(0).start(0, sent.data(), 8);
  const uint64_t bytes = 8;
  const auto payload = std::as_bytes(std::span(&bytes, 1));
  const auto ready = [&](SectionHeader header, uint32_t from, size_t payload_bytes) {
    return world.at(0).on_section(from, {header, payload.first(payload_bytes)});
  };
  const SectionHeader good = header_of(SectionKind::kBroadcastReady, 1);
  EXPECT_FALSE(ready(good, 1, 7)) << "no number of bytes";
  EXPECT_FALSE(ready(good, 0, 8)) << "from itself";
  SectionHeader wrong = good;
  wrong.tag = 3;
  EXPECT_FALSE(ready(wrong, 1, 8)) << "a root that is no rank";
  wrong.tag = 1;
  EXPECT_FALSE(ready(wrong, 1, 8)) << "that root has no parent";
  wrong = good;
  for (const uint8_t part : {1, 2, 255}) {
    wrong.part = part;
    EXPECT_FALSE(ready(wrong, 1, 8)) << "a child by its root's tree needs no second parent";
  }
  EXPECT_TRUE(ready(good, 1, 8));
  EXPECT_FALSE(ready(good, 1, 8)) << "twice";
  wrong = header_of(SectionKind::kBroadcastReady, 9);
  EXPECT_TRUE(ready(wrong, 1, 8)) << "it may be ahead, once";
  EXPECT_FALSE(ready(wrong, 1, 8));
  EXPECT_EQ(world.at(0).mismatch(), "");
  EXPECT_EQ(world.at(0).missing_ranks(), std::vector<uint32_t>{2});
  world.at(2).start(0, got.data(), 8);
  world.settle();
  EXPECT_TRUE(world.at(0).finished() && world.at(2).finished());
  EXPECT_EQ(got, sent);
}

TEST(Broadcast, GarbageFromAboveIsRefused) {
  BroadcastWorld world({"a", "b"});
  std::array<std::byte, 8> got = {};
  const std::array<std::byte, 16> bytes = {std::byte{5}};
  const auto data = [&](SectionHeader header, uint32_t from, size_t payload_bytes) {
    return world.at(1).on_section(from, {header, std::span(bytes).first(payload_bytes)});
  };
  SectionHeader good = header_of(SectionKind::kBroadcastData, 1);
  good.count = 4;
  EXPECT_FALSE(data(good, 0, 4)) << "nothing is under way";
  world.at(1).start(0, got.data(), 8);
  EXPECT_FALSE(data(good, 1, 4)) << "not from its parent";
  EXPECT_FALSE(data(good, 0, 3)) << "fewer bytes than it says";
  SectionHeader wrong = good;
  wrong.step = 2;
  EXPECT_FALSE(data(wrong, 0, 4)) << "of another broadcast";
  wrong = good;
  wrong.first = 4;
  EXPECT_FALSE(data(wrong, 0, 4)) << "a gap";
  wrong = good;
  wrong.count = 9;
  EXPECT_FALSE(data(wrong, 0, 9)) << "more than there is room for";
  wrong = good;
  wrong.part = 1;
  EXPECT_FALSE(data(wrong, 0, 4)) << "its parent is its second parent too";
  EXPECT_EQ(got, (std::array<std::byte, 8>{}));
  EXPECT_TRUE(data(good, 0, 4));
  EXPECT_FALSE(data(good, 0, 4)) << "again";
  good.first = 4;
  EXPECT_TRUE(data(good, 0, 4));
  EXPECT_TRUE(world.at(1).finished());
  EXPECT_EQ(got[0], std::byte{5});
  EXPECT_EQ(got[4], std::byte{5});
}

TEST(Broadcast, TwoAtOnceIsOurBug) {
  BroadcastWorld world({"a"});
  std::byte byte = {};
  world.at(0).start(0, &byte, 1);
  EXPECT_THROW(world.at(0).start(0, &byte, 1), InternalError);
  EXPECT_TRUE(world.at(0).finished());
  world.at(0).finish();
  EXPECT_THROW(world.at(0).finish(), InternalError);
}

}  // namespace
}  // namespace parallax
