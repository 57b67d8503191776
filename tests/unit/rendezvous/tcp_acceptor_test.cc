// SPDX-License-Identifier: Apache-2.0
// TcpAcceptor: who comes, who is let go of, and how many strangers there can be. What ranks make of
// it together is in tcp_host_test.cc.
#include "rendezvous/tcp_acceptor.h"

#include <thread>

#include "unit/rendezvous/link_kit.h"

namespace parallax {
namespace {

using link_kit::has;
using link_kit::kClock;
using Stage = ServerLink::Stage;

class TcpAcceptorTest : public ::testing::Test {
 protected:
  UniqueFd connect() const {
    UniqueFd socket;
    EXPECT_EQ(tcp_connect(address_, &socket), 0);
    return socket;
  }

  // Until one more connection has been accepted.
  ServerLink& accept(int64_t now_ns) {
    while (acceptor_.accept(now_ns) != Accepted::kOne) std::this_thread::yield();
    return *acceptor_.links().back();
  }

  static Status admit_all(const Introduction&) { return {}; }

  const RendezvousOptions options_ = link_kit::options_of(0);
  const TcpEntry entry_ = link_kit::entry_with("s");
  SocketAddress address_;
  TcpAcceptor acceptor_{options_, entry_, "here", link_kit::listen_somewhere(&address_)};
};

TEST_F(TcpAcceptorTest, a_stranger_that_hangs_up_is_counted) {
  EXPECT_EQ(acceptor_.accept(0), Accepted::kNone);
  UniqueFd stranger = connect();
  ServerLink& link = accept(0);
  EXPECT_EQ(acceptor_.turned_away(), "");
  stranger.reset();
  while (acceptor_.receive(link, admit_all)) std::this_thread::yield();
  EXPECT_EQ(link.stage(), Stage::kClosed);
  EXPECT_TRUE(
      has(acceptor_.turned_away(), "; 1 connection was turned away, the last from 127.0.0.1"))
      << acceptor_.turned_away();
  EXPECT_TRUE(has(acceptor_.turned_away(), ": it hung up"));
  acceptor_.sweep();
  EXPECT_TRUE(acceptor_.links().empty());
}

TEST_F(TcpAcceptorTest, a_silent_stranger_has_until_its_deadline) {
  const UniqueFd stranger = connect();
  const ServerLink& link = accept(1000);
  std::vector<pollfd> fds;
  EXPECT_EQ(acceptor_.waits(1000, &fds), 1000 + kIntroductionNs);
  EXPECT_EQ(fds.size(), 2u) << "the listener, and the stranger";
  acceptor_.expire(1000 + kIntroductionNs - 1);
  EXPECT_EQ(link.stage(), Stage::kStranger);
  acceptor_.expire(1000 + kIntroductionNs);
  EXPECT_EQ(link.stage(), Stage::kClosed);
  EXPECT_TRUE(has(acceptor_.turned_away(), "did not say in time who it is"));
}

TEST_F(TcpAcceptorTest, strangers_beyond_the_bound_displace_the_oldest) {
  std::vector<UniqueFd> strangers;
  for (size_t i = 0; i < kStrangersMax + 3; ++i) {
    strangers.push_back(connect());
    (void)accept(0);
  }
  EXPECT_EQ(acceptor_.links().size(), kStrangersMax) << "however many ranks there are";
  EXPECT_TRUE(has(acceptor_.turned_away(), "; 3 connections were turned away"));
}

// Given as many as are kept, each of whom has said who it is, and two more, expect the first of the
// two, which has not been heard yet, to stay.
TEST_F(TcpAcceptorTest, who_came_last_is_not_the_one_to_go) {
  std::string hello;
  ClientHandshake begun(introduce(link_kit::options_of(1), entry_), Key());
  begun.start(&hello);
  std::vector<UniqueFd> talkers;
  for (size_t i = 0; i < kStrangersMax; ++i) {
    talkers.push_back(connect());
    ServerLink& link = accept(0);
    std::string words = hello;
    ASSERT_TRUE(tcp_send(talkers.back(), &words));
    while (!link.introduced()) ASSERT_TRUE(acceptor_.receive(link, admit_all));
  }
  const UniqueFd one = connect();
  const ServerLink* const first = &accept(0);
  const UniqueFd other = connect();
  (void)accept(0);
  ASSERT_EQ(acceptor_.links().size(), kStrangersMax);
  EXPECT_EQ(acceptor_.links()[kStrangersMax - 2].get(), first);
}

TEST_F(TcpAcceptorTest, it_listens_until_told_not_to) {
  const UniqueFd stranger = connect();
  (void)accept(0);
  acceptor_.stop_listening();
  EXPECT_EQ(acceptor_.accept(0), Accepted::kNone);
  EXPECT_FALSE(acceptor_.has_members());
  EXPECT_EQ(acceptor_.links().size(), 1u);
  acceptor_.drop_all();
  EXPECT_TRUE(acceptor_.links().empty());
}

}  // namespace
}  // namespace parallax
