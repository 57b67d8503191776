// SPDX-License-Identifier: Apache-2.0
// RosterFeed: what a member is sent, when, how much of it is kept ready, and what all of it comes
// to.
#include "rendezvous/roster_feed.h"

#include <gtest/gtest.h>

#include "rendezvous/handshake.h"
#include "rendezvous/member_round.h"
#include "support/words.h"
#include "transport/endpoint.h"
#include "world/patterns.h"

namespace parallax {
namespace {

RendezvousOptions options_of_world(uint32_t world) {
  return {.rank = 0, .world = world, .host = "host0", .lease_ms = 1000};
}

class RosterFeedTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kWorld = 60;

  RosterFeedTest() {
    for (uint32_t rank = 1; rank < kWorld; ++rank) {
      EXPECT_TRUE(roster_.admit(rank, "host", 1000, 0).ok());
    }
  }

  // The member takes what it was sent of its rounds; how many pieces of blobs that was.
  int take(MemberRound* member) {
    int pieces = 0;
    for (const Frame& frame : open()) {
      const bool blobs = frame.kind == FrameKind::kBlobs;
      EXPECT_TRUE(blobs || frame.kind == FrameKind::kComplete);
      EXPECT_TRUE(blobs ? member->take_blobs(frame.body) : member->take_complete(frame.body));
      EXPECT_TRUE(member->check());
      pieces += blobs ? 1 : 0;
    }
    return pieces;
  }

  void bring_all(uint64_t round, const std::string& blob) {
    for (uint32_t rank = 0; rank < kWorld; ++rank) {
      EXPECT_TRUE(roster_.bring(rank, round, blob.empty() ? "" : blob + std::to_string(rank)));
    }
  }

  // What the member takes of what it was sent.
  std::vector<Frame> open() {
    std::vector<Frame> frames;
    Frame frame;
    size_t used = 0;
    in_ = out_;
    out_.clear();
    for (size_t at = 0; down_.open(std::string_view(in_).substr(at), &frame, &used) == Took::kFrame;
         at += used) {
      frames.push_back(frame);
    }
    return frames;
  }

  const Key key_ = derive_key("key", "test");
  Channel channel_{key_, Key()};
  Channel down_{Key(), key_};
  Roster roster_{options_of_world(kWorld), "here"};
  RosterFeed feed_{3};  // a child of rank 0
  std::string in_, out_;
};

TEST_F(RosterFeedTest, nothing_before_all_have_brought_theirs) {
  EXPECT_TRUE(roster_.bring(0, 0, "a"));
  feed_.put_rounds(roster_, &channel_, &out_);
  feed_.put_verdict(roster_, &channel_, &out_);
  EXPECT_TRUE(out_.empty());
}

TEST_F(RosterFeedTest, each_round_once) {
  MemberRound member(kWorld);
  for (uint64_t round = 0; round < 3; ++round) {
    member.begin("mine");
    (void)member.bring();
    bring_all(round, "blob");
    feed_.put_rounds(roster_, &channel_, &out_);
    EXPECT_EQ(take(&member), 1);
    ASSERT_TRUE(member.met());
    EXPECT_EQ(member.finish()[7], "blob7");
    feed_.put_rounds(roster_, &channel_, &out_);
    EXPECT_TRUE(out_.empty());
  }
}

// Given a member that does not read, expect little more than kFeedBytes to be kept ready for it.
TEST_F(RosterFeedTest, who_does_not_read_costs_a_bounded_amount) {
  MemberRound member(kWorld);
  member.begin("mine");
  (void)member.bring();
  bring_all(0, std::string(4000, 'x'));
  for (int i = 0; i < 3; ++i) feed_.put_rounds(roster_, &channel_, &out_);
  EXPECT_GE(out_.size(), kFeedBytes);
  EXPECT_LE(out_.size(), 2 * kFeedBytes);
  EXPECT_TRUE(feed_.lags(roster_)) << "there is more to put once these are gone";
  while (!out_.empty()) {
    EXPECT_GT(take(&member), 0);
    feed_.put_rounds(roster_, &channel_, &out_);
  }
  EXPECT_FALSE(feed_.lags(roster_));
  EXPECT_TRUE(member.met());
}

// Given a rank whose parent is not rank 0, expect to it no blobs, until it fetches them, and those
// of the rounds that follow.
TEST_F(RosterFeedTest, who_has_another_parent_is_told_and_may_fetch) {
  RosterFeed feed(9);
  MemberRound member(kWorld);
  member.begin("mine");
  (void)member.bring();
  EXPECT_FALSE(feed.fetch(roster_, {.round = 0})) << "before the round is complete";
  bring_all(0, "blob");
  feed.put_rounds(roster_, &channel_, &out_);
  EXPECT_EQ(take(&member), 0);
  EXPECT_TRUE(member.awaits_blobs());
  BlobPiece piece{.round = 0, .first = 0, .blobs = {"blob0", "blob1"}};
  EXPECT_TRUE(member.take_blobs(encode(piece))) << "from its parent, which then ends";
  EXPECT_FALSE(feed.fetch(roster_, {.round = 1}));
  FetchRequest request;
  ASSERT_TRUE(decode(member.fetch(), &request));
  EXPECT_TRUE(feed.fetch(roster_, request));
  EXPECT_FALSE(feed.fetch(roster_, request)) << "twice";
  feed.put_rounds(roster_, &channel_, &out_);
  EXPECT_EQ(take(&member), 1);
  EXPECT_TRUE(member.met());
  EXPECT_EQ(member.finish()[2], "blob2");
  member.begin("mine");
  (void)member.bring();
  bring_all(1, "blob");
  feed.put_rounds(roster_, &channel_, &out_);
  EXPECT_EQ(take(&member), 1);
  EXPECT_TRUE(member.met());
}

TEST_F(RosterFeedTest, who_has_brought_more_lacks_nothing) {
  RosterFeed feed(9);
  bring_all(0, "blob");
  feed.put_rounds(roster_, &channel_, &out_);
  EXPECT_TRUE(roster_.bring(9, 1, "next"));
  EXPECT_FALSE(feed.fetch(roster_, {.round = 0}));
}

TEST_F(RosterFeedTest, an_empty_round_is_a_word) {
  bring_all(0, "");
  feed_.put_rounds(roster_, &channel_, &out_);
  MemberRound member(kWorld);
  member.begin("");
  (void)member.bring();
  EXPECT_EQ(take(&member), 0);
  EXPECT_TRUE(member.met());
}

SocketAddress address_of(uint8_t first, uint16_t port) {
  return make_address(std::string(1, static_cast<char>(first)) + std::string("\0\0\2", 3), port);
}

// Where a parent's children are sent: to its address, where both come from one network; where rank
// 0 is, if the parent is on rank 0's machine; nowhere, if it takes none.
TEST_F(RosterFeedTest, the_parent_once_it_is_known) {
  struct Case {
    SocketAddress parent, from;
    std::string address;
    uint16_t port;
  };
  const Case cases[] = {
      {address_of(10, 4711), address_of(10, 1), std::string("\x0a\0\0\2", 4), 4711},
      {address_of(127, 4711), address_of(127, 1), std::string("\x7f\0\0\2", 4), 4711},
      {address_of(127, 4711), address_of(10, 1), "", 4711},
      {address_of(10, 0), address_of(10, 1), "", 0},
  };
  for (const Case& one : cases) {
    Roster roster(options_of_world(kWorld), "here");
    RosterFeed feed(9);
    feed.put_parent(roster, one.from, &channel_, &out_);
    EXPECT_TRUE(out_.empty());
    EXPECT_TRUE(roster.listens(8, one.parent));
    EXPECT_FALSE(roster.listens(8, one.parent)) << "twice";
    for (int i = 0; i < 2; ++i) feed.put_parent(roster, one.from, &channel_, &out_);
    const std::vector<Frame> frames = open();
    ASSERT_EQ(frames.size(), 1u);
    EXPECT_EQ(frames[0].kind, FrameKind::kParent);
    ParentAddress parent;
    ASSERT_TRUE(decode(frames[0].body, &parent));
    EXPECT_EQ(parent.rank, 8u);
    EXPECT_EQ(parent.port, one.port);
    if (one.port == 0) continue;
    EXPECT_EQ(parent.address, one.address);
  }
}

TEST_F(RosterFeedTest, who_brings_a_blob_and_no_port_takes_no_children) {
  EXPECT_EQ(roster_.children_port(8), nullptr);
  EXPECT_TRUE(roster_.bring(8, 0, "blob"));
  ASSERT_NE(roster_.children_port(8), nullptr);
  EXPECT_EQ(port_of(*roster_.children_port(8)), 0);
}

// A rank of a job over UCX on a cluster: its host's and machine's names and addresses as long as
// they are there.
Endpoint rank_of_a_cluster(uint32_t rank) {
  Endpoint endpoint;
  endpoint.rank = rank;
  endpoint.host = "gpu" + std::to_string(1000 + rank / 8);
  endpoint.machine.assign(54, 'm');
  endpoint.cores.mask.assign(24, '\xff');
  endpoint.shm_address.assign(30, 's');
  endpoint.network_address.assign(215, 'u');
  return endpoint;
}

// What rank 0 seals for all others in the three rounds of a job, less keepalives.
size_t bytes_from_rank_0(uint32_t world) {
  Roster roster(options_of_world(world), "here");
  for (uint32_t rank = 1; rank < world; ++rank) {
    EXPECT_TRUE(roster.admit(rank, "host", 1000, 0).ok());
    EXPECT_TRUE(roster.listens(rank, address_of(10, 4711)));
  }
  std::vector<RosterFeed> feeds;
  std::vector<Channel> channels(world, Channel(Key(), Key()));
  for (uint32_t rank = 0; rank < world; ++rank) feeds.emplace_back(rank);
  size_t bytes = 0;
  for (uint64_t round = 0; round < 3; ++round) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      const Endpoint endpoint = rank_of_a_cluster(rank);
      std::string blob;
      if (round == 0) blob = encode_endpoint(endpoint);
      if (round == 1) blob = encode_addresses(endpoint);
      EXPECT_TRUE(roster.bring(rank, round, blob));
    }
    for (uint32_t rank = 1; rank < world; ++rank) {
      std::string out;
      feeds[rank].put_parent(roster, address_of(10, 1), &channels[rank], &out);
      for (size_t before = SIZE_MAX; before != 0; out.clear()) {
        feeds[rank].put_rounds(roster, &channels[rank], &out);
        bytes += before = out.size();
      }
    }
  }
  return bytes;
}

// Each rank's blobs leave rank 0 once for each of its children in the tree; to every other rank it
// says little, and as much in any world.
TEST(BytesFromRank0, grow_with_its_children_and_not_with_the_square_of_the_world) {
  constexpr size_t kSaidToEach =
      3 * 46 + 2 * 32 + 48;  // three rounds complete, and where its parent is
  for (const uint32_t world : {8u, 64u, 256u}) {
    size_t roster_bytes = 0;
    for (uint32_t rank = 0; rank < world; ++rank) {
      roster_bytes += encode_endpoint(rank_of_a_cluster(rank)).size() +
                      encode_addresses(rank_of_a_cluster(rank)).size();
    }
    const size_t bytes = bytes_from_rank_0(world);
    const size_t children = radix_children(world, 0).size();
    EXPECT_GE(bytes, children * roster_bytes);
    EXPECT_LE(bytes, children * (roster_bytes + roster_bytes / 50 + 200) + world * kSaidToEach)
        << world << " ranks";
    RecordProperty("bytes_" + std::to_string(world), std::to_string(bytes));
  }
}

TEST_F(RosterFeedTest, the_verdict_once) {
  roster_.hung_up(3);
  feed_.put_verdict(roster_, &channel_, &out_);
  feed_.put_verdict(roster_, &channel_, &out_);
  const std::vector<Frame> frames = open();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].kind, FrameKind::kVerdict);
  std::string_view body = frames[0].body;
  Status said;
  ASSERT_TRUE(take_status(&body, &said));
  EXPECT_TRUE(testkit::has(said, "rank 3 (host host) ended while ranks met at here"));
}

}  // namespace
}  // namespace parallax
