// SPDX-License-Identifier: Apache-2.0
// TcpRails: what is not every transport's: turns, ends, and ranks that do not agree.
#include "transport/tcp/tcp_rails.h"

#include <poll.h>

#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "unit/transport/conformance.h"
#include "unit/transport/tcp_middle.h"
#include "unit/transport/tcp_world.h"

namespace parallax {
namespace {

// Two ranks of some rails in one thread; one in the middle of rail 0.
struct TwoRanks {
  explicit TwoRanks(size_t rails) : at(make_tcp_rails(2, rails)), middle(at[1]->rail(0)) {
    std::vector<std::string> addresses = {middle.address()};
    for (size_t rail = 1; rail < rails; ++rail) addresses.push_back(at[1]->rail(rail).address());
    EXPECT_TRUE(at[0]->connect(1, encode_tcp_rails(addresses)).ok());
    EXPECT_TRUE(at[1]->connect(0, at[0]->address()).ok());
  }
  bool until(const std::function<bool()>& done) {
    const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
    while (!done() && std::chrono::steady_clock::now() < give_up) turn();
    return done();
  }
  void turn() {
    for (size_t rank = 0; rank < 2; ++rank) at[rank]->poll(heard[rank]);
    middle.pass();
  }
  // So many messages of rank 0, of some size, which stay.
  void send(uint64_t count, size_t bytes = 64) {
    for (uint64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(until([&] { return at[0]->writable(1); }));
      const auto& message = kept.emplace_back(conformance::make_message(0, sent, bytes));
      const Segment segment{message.data(), message.size()};
      ASSERT_TRUE(at[0]->send(1, {&segment, 1}, 4 * sent++ + 1).ok());
    }
  }
  bool all_heard() { return heard[1].received[0] == sent; }

  TcpRailRanks at;
  Middle middle;
  std::vector<conformance::Recorder> heard = std::vector<conformance::Recorder>(2);
  std::deque<std::vector<std::byte>> kept;
  uint64_t sent = 0;
};

bool is_readable(int descriptor) {
  pollfd readable = {descriptor, POLLIN, 0};
  return ::poll(&readable, 1, 0) == 1;
}

// Given three rails, expect every third message on each, and all of them in order.
TEST(TcpRails, messages_take_them_in_turn) {
  TwoRanks ranks(3);
  ranks.send(60, 3000);
  ASSERT_TRUE(ranks.until([&] { return ranks.all_heard(); }));
  for (size_t rail = 0; rail < 3; ++rail) {
    EXPECT_EQ(ranks.at[0]->rail(rail).counters().frames_sent, 20u) << rail;
    EXPECT_EQ(ranks.at[1]->rail(rail).counters().frames_received, 20u) << rail;
  }
}

// Given a message that is late on its rail, expect those behind it, on others, to wait for it, at
// most as many of them as may be under way; and the rank that they are for to sleep meanwhile.
TEST(TcpRails, what_is_ahead_of_its_turn_waits_and_wakes_nobody) {
  TwoRanks ranks(2);
  ranks.send(2);
  ASSERT_TRUE(ranks.until([&] { return ranks.all_heard(); }));
  std::string late;
  ranks.middle.there = [&](std::string* bytes) { late += std::exchange(*bytes, {}); };
  ranks.send(4);
  TcpRails& receiver = *ranks.at[1];
  ASSERT_TRUE(ranks.until([&] { return late.size() > 128; })) << "two messages of rail 0";
  // Rail 1 brings its two now, if not before.
  for (int turn = 0; turn < 100; ++turn) ranks.turn();
  EXPECT_EQ(ranks.heard[1].received[0], 2u);
  ASSERT_TRUE(ranks.until([&] { return receiver.arm(); }));
  EXPECT_FALSE(is_readable(receiver.wait_fd())) << "it would be woken in vain";
  EXPECT_FALSE(receiver.poll(ranks.heard[1]));
  ranks.middle.there = [&](std::string* bytes) { bytes->insert(0, std::exchange(late, {})); };
  ranks.send(2);
  ASSERT_TRUE(ranks.until([&] { return ranks.all_heard(); }));
  EXPECT_EQ(ranks.heard[0].losses[1] + ranks.heard[1].losses[0], 0u);
}

// Given a rail that is cut, expect its rank to be lost, once, behind all that came before.
TEST(TcpRails, the_end_of_one_is_the_end) {
  TwoRanks ranks(2);
  ranks.send(3);
  ASSERT_TRUE(ranks.until([&] { return ranks.all_heard(); }));
  ranks.send(1);
  ranks.middle.cut();
  ASSERT_TRUE(ranks.until([&] { return ranks.heard[1].losses[0] == 1; }));
  EXPECT_EQ(ranks.heard[1].received[0], 4u);
  EXPECT_FALSE(ranks.at[1]->writable(0));
  EXPECT_FALSE(ranks.at[1]->rail(1).writable(0)) << "the others go with it";
  for (int turn = 0; turn < 50; ++turn) ranks.turn();
  EXPECT_EQ(ranks.heard[1].losses[0], 1u);
  EXPECT_EQ(ranks.heard[0].losses[1], 1u);
  EXPECT_EQ(ranks.heard[0].sent_count, 4u);
}

// Given messages under way, expect a call for each frame and direction at most.
TEST(TcpRails, a_frame_costs_a_system_call) {
  TcpRailRanks at = make_tcp_rails(2, 2);
  introduce_tcp(at);
  std::vector<conformance::Recorder> heard(2);
  const auto message = conformance::make_message(0, 0, 60 << 10);
  const Segment segment{message.data(), message.size()};
  heard[1].check_pattern = false;
  for (uint64_t sent = 0; sent < 1000;) {
    if (at[0]->writable(1)) {
      ASSERT_TRUE(at[0]->send(1, {&segment, 1}, 4 * sent++ + 1).ok());
    }
    for (size_t rank = 0; rank < 2; ++rank) at[rank]->poll(heard[rank]);
  }
  const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
  while (heard[1].received[0] < 1000 && std::chrono::steady_clock::now() < give_up) {
    for (size_t rank = 0; rank < 2; ++rank) at[rank]->poll(heard[rank]);
  }
  ASSERT_EQ(heard[1].received[0], 1000u);
  for (size_t rail = 0; rail < 2; ++rail) {
    const TcpCounters& sender = at[0]->rail(rail).counters();
    const TcpCounters& receiver = at[1]->rail(rail).counters();
    EXPECT_LE(sender.send_calls, sender.frames_sent + 30) << rail;
    EXPECT_LE(receiver.receive_calls, receiver.frames_received) << rail;
  }
}

TEST(TcpRails, ranks_have_as_many) {
  const TcpRailRanks two = make_tcp_rails(2, 2), three = make_tcp_rails(2, 3);
  TcpRanks one = make_tcp_ranks(2);
  const Status more = two[0]->connect(1, three[1]->address());
  EXPECT_EQ(more.code(), PARALLAX_MISMATCH);
  EXPECT_NE(more.message().find("this rank has 2 rails, rank 1 has 3"), std::string::npos);
  EXPECT_EQ(more.facts().field, "tcp_rails");
  EXPECT_EQ(two[0]->connect(1, one[1]->address()).code(), PARALLAX_MISMATCH);
  std::unique_ptr<TcpTransport> alone = make_tcp(tcp_options(0, 2));
  const Status fewer = alone->connect(1, two[1]->address());
  EXPECT_EQ(fewer.code(), PARALLAX_MISMATCH);
  EXPECT_EQ(fewer.facts().field, "tcp_rails");
}

TEST(TcpRails, addresses_are_checked) {
  const TcpRailRanks two = make_tcp_rails(2, 2);
  const std::string good = two[1]->address();
  std::vector<std::string> read;
  ASSERT_TRUE(decode_tcp_rails(good, &read).ok());
  EXPECT_EQ(read, (std::vector<std::string>{two[1]->rail(0).address(), two[1]->rail(1).address()}));
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(two[0]->connect(1, good.substr(0, bytes)).ok()) << bytes;
  }
  EXPECT_FALSE(two[0]->connect(1, good + "x").ok());
  for (const char count : {'\0', '\1', '\3', '\xff'}) {
    std::string other = good;
    other[1] = count;
    EXPECT_FALSE(two[0]->connect(1, other).ok()) << int{count};
  }
  EXPECT_TRUE(two[0]->connect(1, good).ok());
}

}  // namespace
}  // namespace parallax
