// SPDX-License-Identifier: Apache-2.0
// What those who connect and prove nothing may cost: connections, bytes and time are bounded.
#include "transport/tcp/tcp_strangers.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>

#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/tcp_socket.h"

namespace parallax {
namespace {

constexpr int64_t kBeganNs = 1000000000;
constexpr int kPatienceMs = 60000;

class TcpStrangersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    trust_.identity.world = 2;
    trust_.identity.to = 1;
    const auto find = [this](uint32_t from, TcpTrust* trust) {
      *trust = trust_;
      return from == 0;
    };
    ASSERT_TRUE(TcpTls::create({}, find, &tls_).ok());
    strangers_ = std::make_unique<TcpStrangers>(*tls_);
    ASSERT_TRUE(strangers_->listen(make_address(std::string("\x7f\0\0\x01", 4), 0), {}).ok());
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  }

  // One more is there, has said a byte or what is given, and was accepted at that time.
  UniqueFd come(int64_t now_ns, std::string words = "\x16") {
    UniqueFd socket;
    EXPECT_EQ(tcp_connect(strangers_->address(), &socket), 0);
    while (tcp_connected(socket) == ENOTCONN) std::this_thread::yield();
    EXPECT_TRUE(tcp_send(socket, &words));
    const uint32_t before = strangers_->count() + static_cast<uint32_t>(strangers_->turned_away());
    while (strangers_->count() + strangers_->turned_away() == before) {
      EXPECT_TRUE(strangers_->accept(epoll_.get(), 0, now_ns));
    }
    return socket;
  }

  // Looks at whoever has something to say.
  void hear() {
    epoll_event event;
    ASSERT_EQ(epoll_wait(epoll_.get(), &event, 1, kPatienceMs), 1);
    TcpStrangers::Member member;
    EXPECT_FALSE(strangers_->advance(static_cast<uint32_t>(event.data.u64), &member));
  }

  static bool was_shown_out(const UniqueFd& socket) {
    std::string in;
    pollfd readable = {socket.get(), POLLIN, 0};
    return ::poll(&readable, 1, 0) == 1 && !tcp_receive(socket, 1, &in);
  }

  TcpTrust trust_;
  std::unique_ptr<TcpTls> tls_;
  std::unique_ptr<TcpStrangers> strangers_;
  UniqueFd epoll_;
};

// Given strangers of whom one says a byte now and then, expect each to go when his time is over,
// and not before.
TEST_F(TcpStrangersTest, who_takes_too_long_goes) {
  const UniqueFd early = come(kBeganNs);
  const UniqueFd late = come(kBeganNs + 7);
  strangers_->expire(kBeganNs + TcpStrangers::kStrangerNs - 1);
  EXPECT_EQ(strangers_->count(), 2u);
  std::string word = "\x16";
  ASSERT_TRUE(tcp_send(early, &word));
  hear();
  strangers_->expire(kBeganNs + TcpStrangers::kStrangerNs);
  EXPECT_EQ(strangers_->count(), 1u);
  EXPECT_TRUE(was_shown_out(early));
  EXPECT_FALSE(was_shown_out(late));
  strangers_->expire(kBeganNs + 7 + TcpStrangers::kStrangerNs);
  EXPECT_EQ(strangers_->count(), 0u);
  EXPECT_TRUE(was_shown_out(late));
}

// Given one who promises a record of 16 KiB and sends it byte by byte, expect him to be heard as
// far as a handshake goes, and no further.
TEST_F(TcpStrangersTest, who_says_more_than_a_handshake_goes) {
  const UniqueFd socket = come(kBeganNs, std::string("\x16\x03\x01\x40\x00", 5));
  size_t said = 5;
  while (strangers_->count() == 1 && said <= 2 * TcpStrangers::kHandshakeBytesMax) {
    std::string word(1 + said % 100, 'x');
    said += word.size();
    (void)tcp_send(socket, &word);
    hear();
  }
  EXPECT_EQ(strangers_->count(), 0u);
  EXPECT_GE(said, TcpStrangers::kHandshakeBytesMax);
  EXPECT_LE(said, TcpStrangers::kHandshakeBytesMax + 200);
}

// Given as many as are kept, each of whom has said something, and two more, expect the oldest to
// go, and the first of the two, who has not been heard yet, to stay.
TEST_F(TcpStrangersTest, who_came_last_is_not_the_one_to_go) {
  for (const std::string& words : {std::string("\x16"), std::string("\x16\x03\x01\0\x01\x01", 6)}) {
    SCOPED_TRACE(words.size());
    std::vector<UniqueFd> talkers;
    for (uint32_t i = 0; i < TcpStrangers::kStrangersMax; ++i) {
      talkers.push_back(come(kBeganNs + i, words));
    }
    const UniqueFd one = come(kBeganNs + 100), other = come(kBeganNs + 101);
    EXPECT_EQ(strangers_->count(), TcpStrangers::kStrangersMax);
    EXPECT_FALSE(was_shown_out(one));
    EXPECT_FALSE(was_shown_out(other));
    EXPECT_TRUE(was_shown_out(talkers[0]));
    EXPECT_TRUE(was_shown_out(talkers[1]));
    EXPECT_FALSE(was_shown_out(talkers[2]));
    strangers_->expire(kBeganNs + 101 + TcpStrangers::kStrangerNs);
  }
}

// Given a rank in the middle of its handshake and twice as many strangers as are kept, expect it to
// stay; given as many replays of what it said, expect one who said little to stay.
TEST_F(TcpStrangersTest, neither_ranks_nor_strangers_crowd_the_others_out) {
  TcpHandshake rank(*tls_, trust_);
  std::string hello;
  rank.start(&hello);
  const UniqueFd socket = come(kBeganNs, hello);
  for (uint32_t i = 0; i < 2 * TcpStrangers::kStrangersMax; ++i) (void)come(kBeganNs + 1 + i);
  EXPECT_EQ(strangers_->count(), TcpStrangers::kStrangersMax);
  std::string in;
  EXPECT_TRUE(tcp_receive(socket, 4096, &in));
  EXPECT_FALSE(in.empty()) << "it was answered as it came";
  const UniqueFd quiet = come(kBeganNs + 1000);
  std::vector<UniqueFd> replays;
  for (uint32_t i = 0; i < 2 * TcpStrangers::kStrangersMax; ++i) {
    replays.push_back(come(kBeganNs + 2000 + i, hello));
  }
  EXPECT_FALSE(was_shown_out(quiet));
}

// Given one who says nothing, expect him to take no place at once.
TEST_F(TcpStrangersTest, who_is_silent_is_not_accepted_yet) {
  UniqueFd silent;
  ASSERT_EQ(tcp_connect(strangers_->address(), &silent), 0);
  while (tcp_connected(silent) == ENOTCONN) std::this_thread::yield();
  const UniqueFd talks = come(kBeganNs);
  EXPECT_EQ(strangers_->count(), 1u);
}

}  // namespace
}  // namespace parallax
