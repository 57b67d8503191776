// SPDX-License-Identifier: Apache-2.0
// RosterFeed: what a member is sent, when, and how much of it is kept ready.
#include "rendezvous/roster_feed.h"

#include <gtest/gtest.h>

#include "rendezvous/handshake.h"
#include "rendezvous/member_round.h"
#include "support/words.h"

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

  void bring_all(uint64_t round, const std::string& blob) {
    for (uint32_t rank = 0; rank < kWorld; ++rank) {
      EXPECT_TRUE(roster_.bring(rank, round, blob + std::to_string(rank)));
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
  RosterFeed feed_;
  std::string in_, out_;
};

TEST_F(RosterFeedTest, nothing_before_all_have_brought_theirs) {
  EXPECT_TRUE(roster_.bring(0, 0, "a"));
  feed_.put_blobs(roster_, &channel_, &out_);
  feed_.put_verdict(roster_, &channel_, &out_);
  EXPECT_TRUE(out_.empty());
}

TEST_F(RosterFeedTest, each_round_once) {
  MemberRound member(kWorld);
  for (uint64_t round = 0; round < 3; ++round) {
    member.begin("mine");
    bring_all(round, "blob");
    feed_.put_blobs(roster_, &channel_, &out_);
    for (const Frame& frame : open()) EXPECT_TRUE(member.take_blobs(frame.body));
    ASSERT_TRUE(member.met());
    EXPECT_EQ(member.finish()[7], "blob7");
    feed_.put_blobs(roster_, &channel_, &out_);
    EXPECT_TRUE(out_.empty());
  }
}

// Given a member that does not read, expect little more than kFeedBytes to be kept ready for it.
TEST_F(RosterFeedTest, who_does_not_read_costs_a_bounded_amount) {
  MemberRound member(kWorld);
  member.begin("mine");
  bring_all(0, std::string(4000, 'x'));
  for (int i = 0; i < 3; ++i) feed_.put_blobs(roster_, &channel_, &out_);
  EXPECT_GE(out_.size(), kFeedBytes);
  EXPECT_LE(out_.size(), 2 * kFeedBytes);
  while (!out_.empty()) {
    for (const Frame& frame : open()) EXPECT_TRUE(member.take_blobs(frame.body));
    feed_.put_blobs(roster_, &channel_, &out_);
  }
  EXPECT_TRUE(member.met());
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
