// SPDX-License-Identifier: Apache-2.0
// Which algorithm of congestion control connections get, and which settings are refused.
#include "transport/tcp/tcp_congestion.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/tcp_socket.h"
#include "unit/transport/tcp_world.h"

namespace parallax {
namespace {

// One end of a connection over loopback that stands.
class Connected : public testing::Test {
 protected:
  void SetUp() override {
    SocketAddress address = make_address(std::string("\x7f\0\0\x01", 4), 0), from;
    ASSERT_EQ(tcp_listen_at(address, &listener_), 0);
    ASSERT_TRUE(tcp_name(listener_, &address).ok());
    ASSERT_EQ(tcp_connect(address, &near_), 0);
    pollfd waiting = {.fd = listener_.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&waiting, 1, 60'000), 1);
    ASSERT_EQ(tcp_accept(listener_, &far_, &from), Accepted::kOne);
    ASSERT_EQ(tcp_connected(near_), 0);
  }

  // Skips where this process may not have it.
  void begin_with(const std::string& algorithm) {
    if (setsockopt(near_.get(), IPPROTO_TCP, TCP_CONGESTION, algorithm.data(), algorithm.size()) !=
        0) {
      GTEST_SKIP() << "the kernel refuses " << algorithm << ": " << std::strerror(errno);
    }
  }

  UniqueFd listener_, near_, far_;
};

TEST_F(Connected, HasWhatIsNamed) {
  set_tcp_congestion(near_, "reno");
  EXPECT_EQ(congestion_of(near_.get()), "reno");
}

TEST_F(Connected, KeepsTheSystemsWhereThatIsAskedFor) {
  const std::string before = congestion_of(near_.get());
  set_tcp_congestion(near_, "system");
  EXPECT_EQ(congestion_of(near_.get()), before);
}

TEST_F(Connected, KeepsWhatSuitsRanks) {
  ASSERT_NO_FATAL_FAILURE(begin_with("reno"));
  set_tcp_congestion(near_, "auto");
  EXPECT_EQ(congestion_of(near_.get()), "reno");
}

TEST_F(Connected, LeavesBbrWhereRanksAreNear) {
  begin_with("bbr");
  if (IsSkipped()) return;
  set_tcp_congestion(near_, "auto");
  const std::string now = congestion_of(near_.get());
  EXPECT_TRUE(now == "cubic" || now == "reno") << now;
}

TEST_F(Connected, KeepsBbrWhereThatIsAskedFor) {
  begin_with("bbr");
  if (IsSkipped()) return;
  set_tcp_congestion(near_, "system");
  EXPECT_EQ(congestion_of(near_.get()), "bbr");
}

TEST(TcpCongestion, BbrIsForLongWays) {
  for (const char* bbr : {"bbr", "bbr2", "bbr3"}) {
    EXPECT_FALSE(suits_ranks(bbr, 0)) << bbr;
    EXPECT_FALSE(suits_ranks(bbr, kNearRoundTripUs - 1)) << bbr;
    EXPECT_TRUE(suits_ranks(bbr, kNearRoundTripUs)) << bbr;
    EXPECT_TRUE(suits_ranks(bbr, UINT32_MAX)) << bbr;
  }
  for (const char* other : {"cubic", "reno", "dctcp", "bb", ""}) {
    EXPECT_TRUE(suits_ranks(other, 0)) << other;
  }
}

TEST(TcpCongestion, SettingsAreChecked) {
  for (const char* right : {"auto", "system", "reno"}) {
    const Status taken = check_tcp_congestion(right);
    EXPECT_TRUE(taken.ok()) << taken.message();
  }
  for (const std::string& wrong :
       {std::string(), std::string("renoo"), std::string("Auto"), std::string("no_such_name_a"),
        std::string("reno\0x", 6), std::string(16, 'a'), std::string(4096, 'a')}) {
    const Status refused = check_tcp_congestion(wrong);
    EXPECT_EQ(refused.code(), PARALLAX_INVALID) << wrong;
    EXPECT_EQ(refused.facts().field, "tcp_congestion");
    // What there is: every kernel has it.
    EXPECT_NE(refused.message().find("reno", refused.message().find(" has ")), std::string::npos)
        << refused.message();
    EXPECT_LT(refused.message().size(), 400u);
  }
}

}  // namespace
}  // namespace parallax
