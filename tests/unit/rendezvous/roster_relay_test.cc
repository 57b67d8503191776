// SPDX-License-Identifier: Apache-2.0
// RosterRelay: blobs from parent to child, and what becomes of who is neither.
#include "rendezvous/roster_relay.h"

#include <algorithm>
#include <thread>

#include "rendezvous/roster_frames.h"
#include "unit/rendezvous/link_kit.h"

namespace parallax {
namespace {

using link_kit::entry_with;
using link_kit::has;
using link_kit::kClock;

const SocketAddress kLoopback = make_address(std::string("\x7f\0\0\1", 4), 0);

// A rank of a world of 16: rank 8 is the parent of 9 to 15.
struct Rank {
  explicit Rank(uint32_t rank, const std::string& secret = "s") : entry(entry_with(secret)) {
    options = link_kit::options_of(rank);
    options.world = 16;
    relay.emplace(options, entry);
  }
  void look() {
    std::this_thread::yield();
    relay->advance(kClock.now_ns(), [this](std::string_view body) {
      got.emplace_back(body);
      return body != "bad";
    });
  }

  RendezvousOptions options;
  TcpEntry entry;
  std::vector<std::string> got;
  std::optional<RosterRelay> relay;
};

class RosterRelayTest : public ::testing::Test {
 protected:
  RosterRelayTest() : port_(parent_.relay->listen(kLoopback)) { EXPECT_NE(port_, 0); }

  std::string parent_at(uint16_t port) const { return encode(ParentAddress{8, "", port}); }

  void expect_gets(Rank* child, const std::vector<std::string>& bodies) {
    while (child->got.size() < bodies.size() && child->relay->has_parent()) {
      parent_.look();
      child->look();
    }
    EXPECT_EQ(child->got, bodies);
  }

  Rank parent_{8};
  uint16_t port_;
};

TEST_F(RosterRelayTest, blobs_go_on_to_who_is_there_and_to_who_comes_later) {
  EXPECT_TRUE(parent_.relay->has_children());
  Rank early(9), late(15);
  EXPECT_FALSE(early.relay->has_children());
  ASSERT_TRUE(early.relay->on_parent(parent_at(port_), kLoopback));
  EXPECT_TRUE(early.relay->has_parent());
  parent_.relay->pass_on({"one"});
  expect_gets(&early, {"one"});
  parent_.relay->pass_on({"two", "three"});
  EXPECT_FALSE(parent_.relay->flushed());
  expect_gets(&early, {"one", "two", "three"});
  EXPECT_TRUE(parent_.relay->flushed());
  ASSERT_TRUE(late.relay->on_parent(parent_at(port_), kLoopback));
  expect_gets(&late, {"two", "three"});
  parent_.relay->pass_on({"four"});
  expect_gets(&early, {"one", "two", "three", "four"});
  expect_gets(&late, {"two", "three", "four"});
  EXPECT_EQ(parent_.got, std::vector<std::string>());
}

// Given a child that does not read, expect what is kept ready for it to be bounded, and the rest to
// come when it does.
TEST_F(RosterRelayTest, many_blobs) {
  Rank child(9);
  ASSERT_TRUE(child.relay->on_parent(parent_at(port_), kLoopback));
  std::vector<std::string> bodies;
  for (int i = 0; i < 300; ++i) {
    bodies.emplace_back(kBlobPieceBytes, static_cast<char>(i));
  }
  parent_.relay->pass_on(bodies);
  expect_gets(&child, bodies);
}

// Given more than is kept ready at a time, expect a pass to go on for as long as the system takes
// it, or to be woken when it takes more.
TEST_F(RosterRelayTest, what_is_left_to_send_is_waited_for) {
  Rank child(9);
  ASSERT_TRUE(child.relay->on_parent(parent_at(port_), kLoopback));
  parent_.relay->pass_on({"one"});
  expect_gets(&child, {"one"});
  parent_.relay->pass_on(std::vector<std::string>(6, std::string(kBlobPieceBytes, 'x')));
  parent_.look();
  std::vector<pollfd> fds;
  (void)parent_.relay->waits(kClock.now_ns(), &fds);
  const bool woken = std::any_of(fds.begin(), fds.end(),
                                 [](const pollfd& each) { return (each.events & POLLOUT) != 0; });
  EXPECT_TRUE(woken || parent_.relay->flushed());
}

TEST_F(RosterRelayTest, a_parent_that_ends_is_dropped_behind_what_it_sent) {
  Rank child(9);
  ASSERT_TRUE(child.relay->on_parent(parent_at(port_), kLoopback));
  parent_.relay->pass_on({"one"});
  expect_gets(&child, {"one"});
  parent_.relay->pass_on({"two"});
  parent_.look();
  parent_.relay->close();
  while (child.relay->has_parent()) child.look();
  EXPECT_EQ(child.got, (std::vector<std::string>{"one", "two"}));
}

TEST_F(RosterRelayTest, a_parent_that_sends_what_does_not_come_next_is_dropped) {
  Rank child(9);
  ASSERT_TRUE(child.relay->on_parent(parent_at(port_), kLoopback));
  parent_.relay->pass_on({"bad"});
  expect_gets(&child, {"bad"});
  EXPECT_FALSE(child.relay->has_parent());
}

// Given ranks that nobody sent here, with the secret and without, expect them to be refused and the
// child to be served.
TEST_F(RosterRelayTest, who_is_no_child_gets_nothing) {
  parent_.relay->pass_on({"one"});
  Rank child(9);
  ASSERT_TRUE(child.relay->on_parent(parent_at(port_), kLoopback));
  expect_gets(&child, {"one"});
  struct Case {
    uint32_t rank;
    const char* secret;
    const char* sentence;
  };
  for (const Case& one :
       {Case{9, "s", "where it is already"}, Case{3, "s", "which passes none on to it"},
        Case{10, "another", "wrong secret"}}) {
    Rank other(one.rank, one.secret);
    ClientLink link(other.options, other.entry, 8);
    link.aim({make_address(address_bytes(kLoopback), port_)});
    Status refused;
    while (refused.ok() && !link.joined()) {
      parent_.look();
      refused = link.advance(kClock.now_ns());
    }
    EXPECT_TRUE(has(refused, one.sentence)) << refused.message();
  }
  parent_.relay->pass_on({"two"});
  expect_gets(&child, {"one", "two"});
}

TEST_F(RosterRelayTest, a_child_that_speaks_is_hung_up_on) {
  Rank child(9);
  ClientLink link(child.options, child.entry, 8);
  link.aim({make_address(address_bytes(kLoopback), port_)});
  while (!link.joined()) {
    parent_.look();
    ASSERT_TRUE(link.advance(kClock.now_ns()).ok());
  }
  link.stream().seal(FrameKind::kBring, "x");
  ASSERT_TRUE(link.stream().send());
  while (link.stream().receive(1000)) parent_.look();
}

TEST_F(RosterRelayTest, where_nobody_listens_there_is_no_parent) {
  Rank child(9);
  SocketAddress nobody;
  link_kit::listen_somewhere(&nobody).reset();
  ASSERT_TRUE(child.relay->on_parent(parent_at(port_of(nobody)), kLoopback));
  while (child.relay->has_parent()) child.look();
  Rank other(9);
  EXPECT_TRUE(other.relay->on_parent(parent_at(0), kLoopback));
  EXPECT_FALSE(other.relay->has_parent());
}

// Given an address elsewhere and no secret, by which that one would be known, expect no connection.
TEST_F(RosterRelayTest, without_a_secret_the_parent_is_on_this_machine) {
  const std::string elsewhere = encode(ParentAddress{8, std::string("\x0a\0\0\1", 4), 1});
  for (const bool secret : {true, false}) {
    Rank child(9);
    child.entry.secret = secret;
    EXPECT_TRUE(child.relay->on_parent(elsewhere, kLoopback));
    EXPECT_EQ(child.relay->has_parent(), secret);
  }
}

TEST_F(RosterRelayTest, another_parent_and_a_second_are_no_word_of_rank_0) {
  Rank child(9);
  EXPECT_FALSE(child.relay->on_parent(encode(ParentAddress{7, "", port_}), kLoopback));
  EXPECT_FALSE(child.relay->on_parent("x", kLoopback));
  EXPECT_TRUE(child.relay->on_parent(parent_at(port_), kLoopback));
  EXPECT_FALSE(child.relay->on_parent(parent_at(port_), kLoopback));
  Rank first(3);
  EXPECT_FALSE(first.relay->on_parent(encode(ParentAddress{0, "", port_}), kLoopback));
}

}  // namespace
}  // namespace parallax
