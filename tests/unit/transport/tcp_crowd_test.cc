// SPDX-License-Identifier: Apache-2.0
// A crowd of strangers at the port of a TcpTransport: they keep neither ranks nor messages away.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "transport/tcp/tcp_strangers.h"
#include "unit/transport/tcp_middle.h"

namespace parallax {
namespace {

// Given more silent strangers than a port keeps, and some that talk nonsense, expect ranks to
// connect all the same, the strangers bounded, and the talkers hung up on.
TEST(TcpTransport, strangers_keep_no_rank_away) {
  Ranks ranks(make_tcp_ranks(2));
  std::vector<UniqueFd> strangers;
  const auto flood = [&](const std::string& words) {
    for (int i = 0; i < 100; ++i) {
      strangers.push_back(call(where(*ranks.at[1])));
      std::string said = words;
      (void)tcp_send(strangers.back(), &said);
    }
  };
  flood("");
  flood("GET / HTTP/1.1\r\n\r\n");
  flood(std::string(5000, '\x16'));
  ASSERT_TRUE(ranks.until([&] { return ranks.at[1]->stats().strangers_dropped >= 200; }));
  ranks.greet(0, 1);
  // Whom it keeps is at most its bound: all others read an end. The silent, the first of them, are
  // not accepted yet.
  size_t open = 0;
  for (size_t i = 100; i < strangers.size(); ++i) {
    std::string in;
    open += tcp_receive(strangers[i], 100, &in) ? 1 : 0;
    EXPECT_LE(in.size(), 7u) << "a stranger was told more than an alert";
  }
  EXPECT_LE(open, TcpStrangers::kStrangersMax);
  ranks.greet(0, 1);
}

// What the rank in front of the middle said first.
std::string recorded_hello(const Watched& watched) {
  const std::string& said = watched.middle->said_there;
  EXPECT_GT(said.size(), 5u);
  return said.substr(0, 5 + static_cast<uint8_t>(said[3]) * 256u + static_cast<uint8_t>(said[4]));
}

// Given as many strangers as a port keeps, each of whom completes a recorded hello at the same
// time, expect a few key exchanges in a pass, and all of them in the end.
TEST(TcpTransport, strangers_who_go_on_do_so_a_few_at_a_time) {
  Watched watched;
  const std::string hello = recorded_hello(watched);
  TcpTransport& rank = *watched.ranks.at[1];
  std::vector<UniqueFd> crowd;
  for (uint32_t i = 0; i < TcpStrangers::kStrangersMax; ++i) {
    crowd.push_back(call(where(rank)));
    std::string words = hello.substr(0, hello.size() - 1);
    ASSERT_TRUE(tcp_send(crowd.back(), &words));
  }
  // All of them are accepted, and none is answered.
  for (int i = 0; i < 1000; ++i) rank.poll(watched.ranks.heard[1]);
  for (const UniqueFd& each : crowd) {
    std::string words = hello.substr(hello.size() - 1);
    ASSERT_TRUE(tcp_send(each, &words));
  }
  const auto answered = [&] {
    return std::count_if(crowd.begin(), crowd.end(), [](const UniqueFd& each) {
      pollfd readable = {each.get(), POLLIN, 0};
      return ::poll(&readable, 1, 0) == 1;
    });
  };
  int64_t before = answered();
  EXPECT_EQ(before, 0);
  for (int i = 0; i < 1000 && before < std::ssize(crowd); ++i) {
    rank.poll(watched.ranks.heard[1]);
    const int64_t now = answered();
    EXPECT_LE(now, before + TcpStrangers::kAdvancesPerPass);
    before = now;
  }
  EXPECT_EQ(before, std::ssize(crowd));
}

// Given a crowd at a rank's port each of whom repeats what a rank once said, which costs the rank a
// key exchange, expect it to hear a few of them at a time, and messages in between.
TEST(TcpTransport, strangers_keep_no_message_waiting) {
  Watched watched;
  const std::string hello = recorded_hello(watched);
  TcpTransport& rank = *watched.ranks.at[1];
  conformance::Recorder& heard = watched.ranks.heard[1];
  // As many messages, one a pass; the longest pass.
  const int64_t began_ns = SteadyClock().now_ns();  // after kStrangerNs any number goes at once
  const auto pass = [&](int count, uint64_t strangers_max) {
    int64_t longest_ns = 0;
    for (int i = 0; i < count; ++i) {
      watched.ranks.send(0, 1, 100);
      watched.ranks.at[0]->poll(watched.ranks.heard[0]);
      watched.middle->pass();
      const uint64_t messages = heard.received[0], strangers = rank.stats().strangers_dropped;
      const int64_t from_ns = SteadyClock().now_ns();
      rank.poll(heard);
      longest_ns = std::max(longest_ns, SteadyClock().now_ns() - from_ns);
      EXPECT_EQ(heard.received[0], messages + 1);
      if (SteadyClock().now_ns() - began_ns < TcpStrangers::kStrangerNs) {
        EXPECT_LE(rank.stats().strangers_dropped, strangers + strangers_max);
      }
    }
    return longest_ns;
  };
  const int64_t alone_ns = pass(100, 0);
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 200; ++i) {
    crowd.push_back(call(where(rank)));
    std::string words = hello;
    ASSERT_TRUE(tcp_send(crowd.back(), &words));
  }
  // Who has nobody at his port looks there when he finds no message.
  for (int i = 0; i < 17; ++i) rank.poll(heard);
  const int64_t beside_ns = pass(150, TcpStrangers::kAcceptsPerPass);
  EXPECT_GE(rank.stats().strangers_dropped, 200 - TcpStrangers::kStrangersMax);
  std::printf("report: longest pass: %.0f us, %.0f us with 200 recorded hellos at the port\n",
              1e-3 * static_cast<double>(alone_ns), 1e-3 * static_cast<double>(beside_ns));
}

}  // namespace
}  // namespace parallax
