// SPDX-License-Identifier: Apache-2.0
// What those who connect and prove nothing may cost: connections, bytes and time are bounded.
#include "transport/tcp/tcp_strangers.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>

#include <memory>
#include <string>
#include <vector>

#include "base/tcp_socket.h"

namespace parallax {
namespace {

constexpr int64_t kBeganNs = 1000000000;
constexpr int kPatienceMs = 60000;

class TcpStrangersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(TcpTls::create(
                    {}, [](uint32_t, TcpTrust*) { return false; }, &tls_)
                    .ok());
    strangers_ = std::make_unique<TcpStrangers>(*tls_);
    ASSERT_TRUE(strangers_->listen(make_address(std::string("\x7f\0\0\x01", 4), 0), {}).ok());
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  }

  // One more is there, and was accepted at that time.
  UniqueFd come(int64_t now_ns) {
    UniqueFd socket;
    EXPECT_EQ(tcp_connect(strangers_->address(), &socket), 0);
    const uint32_t before = strangers_->count() + static_cast<uint32_t>(strangers_->turned_away());
    while (strangers_->count() + strangers_->turned_away() == before) {
      EXPECT_TRUE(strangers_->accept(epoll_.get(), 0, now_ns));
    }
    return socket;
  }

  // Looks at whoever has something to say, until `bytes` more were said or he was shown out.
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
  const UniqueFd socket = come(kBeganNs);
  std::string head = std::string("\x16\x03\x01\x40\x00", 5);
  ASSERT_TRUE(tcp_send(socket, &head));
  hear();
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

// Given more than are kept, expect the oldest that said nothing to go first, then the oldest.
TEST_F(TcpStrangersTest, of_more_than_are_kept_the_silent_go_first) {
  std::vector<UniqueFd> sockets;
  for (uint32_t i = 0; i < TcpStrangers::kStrangersMax; ++i) sockets.push_back(come(kBeganNs + i));
  std::string word = "\x16";
  ASSERT_TRUE(tcp_send(sockets[0], &word));
  hear();
  sockets.push_back(come(kBeganNs + 100));
  EXPECT_EQ(strangers_->count(), TcpStrangers::kStrangersMax);
  EXPECT_FALSE(was_shown_out(sockets[0])) << "who talks stays";
  EXPECT_TRUE(was_shown_out(sockets[1]));
  EXPECT_FALSE(was_shown_out(sockets[2]));
}

}  // namespace
}  // namespace parallax
