// SPDX-License-Identifier: Apache-2.0
// TcpRails: what is not every transport's: turns, ends, and ranks that do not agree.
#include "transport/tcp/tcp_rails.h"

#include <poll.h>

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/manual_clock.h"
#include "unit/transport/conformance.h"
#include "unit/transport/tcp_middle.h"
#include "unit/transport/tcp_world.h"

namespace parallax {
namespace {

// Two ranks of some rails in one thread; one in the middle of rail 0. Given deaf listeners of two
// ranks, the other rails are on their way to these, which answer nobody.
struct TwoRanks {
  explicit TwoRanks(size_t rails, const TcpRanks& deaf = {}, const Clock* clock = nullptr)
      : at(make_tcp_rails(2, rails, clock)), middle(at[1]->rail(0)) {
    std::array<std::vector<std::string>, 2> addresses = {
        {{at[0]->rail(0).address()}, {middle.address()}}};
    for (size_t rank = 0; rank < 2; ++rank) {
      for (size_t rail = 1; rail < rails; ++rail) {
        const TcpTransport& other = deaf.empty() ? at[rank]->rail(rail) : *deaf[rank];
        addresses[rank].push_back(other.address());
      }
      EXPECT_TRUE(at[1 - rank]
                      ->connect(static_cast<uint32_t>(rank), encode_tcp_rails(addresses[rank]))
                      .ok());
    }
  }
  bool until(const std::function<bool()>& done) {
    const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
    while (!done() && std::chrono::steady_clock::now() < give_up) turn();
    return done();
  }
  void turn() {
    for (size_t rank = 0; rank < 2; ++rank) {
      if (at[rank] != nullptr) at[rank]->poll(heard[rank]);
    }
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

// Of two rails the first stands, and rank 1 has heard one message by it.
struct HalfReached {
  HalfReached() : ranks(2, deaf) {
    ranks.send(1);
    EXPECT_TRUE(ranks.until([this] { return ranks.all_heard(); }));
  }
  // What rank 0 connects to for the second.
  void refuse() { deaf[1].reset(); }

  TcpRanks deaf = make_tcp_ranks(2);
  TwoRanks ranks;
};

bool is_readable(int descriptor) {
  pollfd readable = {descriptor, POLLIN, 0};
  return ::poll(&readable, 1, 0) == 1;
}

// Rank 1 has heard that rail 0 was cut, when the next message is rail 1's to bring; rank 0 has not.
struct HalfCut {
  explicit HalfCut(size_t rails) : ranks(rails, {}, &clock) {
    ranks.send(rails + 1);
    EXPECT_TRUE(ranks.until([&] { return ranks.all_heard(); }));
    EXPECT_TRUE(ranks.until([&] { return ranks.at[1]->arm(); }));
    ranks.middle.cut();
    EXPECT_TRUE(conformance::wait_readable(ranks.at[1]->wait_fd(), 60000));
    poll(1);
  }
  void poll(int times) {
    for (int i = 0; i < times; ++i) ranks.at[1]->poll(ranks.heard[1]);
  }
  // Which rank 0, as it has not looked, can send by the rail after it.
  void send() {
    const auto& message = ranks.kept.emplace_back(conformance::make_message(0, ranks.sent, 64));
    const Segment segment{message.data(), message.size()};
    ASSERT_TRUE(ranks.at[0]->send(1, {&segment, 1}, 4 * ranks.sent++ + 1).ok());
  }
  uint64_t losses() { return ranks.heard[1].losses[0]; }

  testkit::ManualClock clock;
  TwoRanks ranks;
};

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

// Given messages of one rank alone, three times as many on each rail as there are credits, expect
// all to come: what its peer gives back comes by rails whose messages are not awaited. So too
// where the sender sleeps until there is news.
TEST(TcpRails, credits_come_by_rails_that_are_held) {
  constexpr size_t kBytes = 60 << 10;
  for (const size_t rails : {2, 3}) {
    TwoRanks ranks(rails);
    ranks.send(rails * 3 * kTcpCreditBytes / kBytes, kBytes);
    ASSERT_TRUE(ranks.until([&] { return ranks.all_heard(); })) << rails << " rails";
    // Until neither the kernel nor a credit lets it send: nobody takes anything.
    for (int in_vain = 0; in_vain < 200;) {
      const auto& message =
          ranks.kept.emplace_back(conformance::make_message(0, ranks.sent, kBytes));
      const Segment segment{message.data(), message.size()};
      const bool may = ranks.at[0]->writable(1);
      if (may) {
        ASSERT_TRUE(ranks.at[0]->send(1, {&segment, 1}, 4 * ranks.sent++ + 1).ok());
      } else {
        ranks.kept.pop_back();
      }
      const bool moved = ranks.at[0]->poll(ranks.heard[0]);
      in_vain = may || moved ? 0 : in_vain + 1;
    }
    const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
    while (!ranks.at[0]->writable(1) && std::chrono::steady_clock::now() < give_up) {
      ranks.at[1]->poll(ranks.heard[1]);
      ranks.middle.pass();
      if (!ranks.at[0]->arm() || conformance::wait_readable(ranks.at[0]->wait_fd(), 1)) {
        ranks.at[0]->poll(ranks.heard[0]);
      }
    }
    EXPECT_TRUE(ranks.at[0]->writable(1)) << rails << " rails";
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

// Given a rail that is cut while another is to bring the next message and stands, expect a rank
// that sleeps to be woken for it, and the rank at its other end to be lost, in words about that
// rail.
TEST(TcpRails, the_end_of_one_that_is_held_is_the_end_too) {
  TwoRanks ranks(2);
  ranks.send(3);
  ASSERT_TRUE(ranks.until([&] { return ranks.all_heard(); }));
  TcpRails& sleeper = *ranks.at[1];
  ASSERT_TRUE(ranks.until([&] { return sleeper.arm(); }));
  ASSERT_FALSE(is_readable(sleeper.wait_fd()));
  ranks.middle.cut();
  ASSERT_TRUE(conformance::wait_readable(sleeper.wait_fd(), 60000)) << "it sleeps on";
  // Rank 0, whose turn of that rail it is, hears of it at once, and would end the other.
  const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
  while (ranks.heard[1].losses[0] == 0 && std::chrono::steady_clock::now() < give_up) {
    sleeper.poll(ranks.heard[1]);
  }
  const std::string& why = ranks.heard[1].reasons[0];
  EXPECT_NE(why.find("one of its connections broke"), std::string::npos) << why;
  EXPECT_FALSE(ranks.at[1]->rail(1).writable(0)) << "the others go with it";
  ASSERT_TRUE(ranks.until([&] { return ranks.heard[0].losses[1] == 1; }));
  for (int turn = 0; turn < 50; ++turn) ranks.turn();
  EXPECT_EQ(ranks.heard[0].losses[1] + ranks.heard[1].losses[0], 2u);
}

// Given a rail that has ended ahead of its turn, expect its rank to be lost once it has been heard
// for no longer than that takes, and not before it was polled for some times.
TEST(TcpRails, an_end_ahead_of_its_turn_waits_by_the_clock_and_in_polls) {
  HalfCut half(2);
  half.poll(100);
  EXPECT_EQ(half.losses(), 0u) << "no time has passed";
  half.clock.advance(TcpRails::kEndNsMax - 1);
  half.poll(1);
  EXPECT_EQ(half.losses(), 0u);
  half.clock.advance(1);
  half.poll(1);
  EXPECT_EQ(half.losses(), 1u);
  HalfCut held_up(2);
  held_up.clock.advance(2 * TcpRails::kEndNsMax);
  held_up.poll(TcpRails::kEndPolls - 1);
  EXPECT_EQ(held_up.losses(), 0u) << "what came meanwhile was not looked at";
  held_up.send();
  ASSERT_TRUE(conformance::wait_readable(held_up.ranks.at[1]->rail(1).wait_fd(), 60000));
  held_up.poll(2);
  EXPECT_TRUE(held_up.ranks.all_heard());
}

// Given messages behind the end of a rail, expect each to put the loss off.
TEST(TcpRails, messages_put_an_end_off) {
  HalfCut half(3);
  half.clock.advance(TcpRails::kEndNsMax - 1);
  half.send();
  const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
  while (!half.ranks.all_heard() && std::chrono::steady_clock::now() < give_up) half.poll(1);
  half.clock.advance(TcpRails::kEndNsMax - 1);
  half.poll(2 * TcpRails::kEndPolls);
  EXPECT_EQ(half.losses(), 0u);
  half.clock.advance(1);
  half.poll(1);
  EXPECT_EQ(half.losses(), 1u);
}

// Given a rail that has ended ahead of its turn, expect its rank to be woken by the clock alone.
TEST(TcpRails, an_end_ahead_of_its_turn_wakes_once) {
  HalfCut half(2);
  bool slept = false;
  for (int i = 0; i < 1000 && !slept; ++i) {
    half.poll(1);  // takes the tick
    slept = half.ranks.at[1]->arm() && !is_readable(half.ranks.at[1]->wait_fd());
  }
  EXPECT_TRUE(slept);
  EXPECT_TRUE(conformance::wait_readable(half.ranks.at[1]->wait_fd(), 60000)) << "no tick";
}

// Given a rank whose connections to another are full, which takes nothing, expect a third one to
// hear that it left, and of no rail ahead of that.
TEST(TcpRails, who_leaves_in_order_is_said_to_have_left) {
  constexpr size_t kRails = 4;
  TcpRailRanks at = make_tcp_rails(3, kRails);
  introduce_tcp(at);
  std::vector<conformance::Recorder> heard(3);
  for (conformance::Recorder& each : heard) each.check_pattern = false;
  const auto poll = [&](size_t ranks) {
    for (size_t rank = 0; rank < ranks; ++rank) at[rank]->poll(heard[rank]);
  };
  const auto message = conformance::make_message(0, 0, 60 << 10);
  const Segment segment{message.data(), message.size()};
  uint64_t cookie = 0;
  // The next one to rank 1 is the last rail's.
  for (const uint32_t to : {1, 2}) {
    for (size_t i = 0; i + 1 < kRails; ++i) {
      ASSERT_TRUE(at[0]->send(to, {&segment, 1}, ++cookie).ok());
    }
  }
  const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
  const auto in_time = [&] { return std::chrono::steady_clock::now() < give_up; };
  const auto opened = [&] {
    return at[0]->stats().endpoints_opened + at[1]->stats().endpoints_opened;
  };
  while (in_time() && (opened() < 3 * kRails || heard[1].received[0] + 1 < kRails)) poll(3);
  for (int idle = 0; idle < 1000; ++idle) {
    poll(2);
    if (!at[0]->writable(2)) continue;
    ASSERT_TRUE(at[0]->send(2, {&segment, 1}, ++cookie).ok());
    idle = 0;
  }
  std::thread closing([&] { at[0].reset(); });
  while (in_time() && heard[1].losses[0] == 0) at[1]->poll(heard[1]);
  closing.join();
  EXPECT_EQ(heard[1].reasons[0], "it left, and closed its connection");
}

// Given ranks that wire() leaves connected to all, expect none to have a port on any rail, and
// messages by each.
TEST(TcpRails, who_is_wired_has_no_port_on_any_rail) {
  TcpRailRanks at = make_tcp_rails(2, 2);
  introduce_tcp(at);
  std::vector<std::thread> wiring;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (size_t rail = 0; rail < 2; ++rail) EXPECT_TRUE(has_port(at[rank]->rail(rail)));
    wiring.emplace_back([&at, rank] {
      const uint32_t other = 1 - rank;
      uint32_t missing = 0;
      const int64_t until_ns = SteadyClock().now_ns() + 60000 * kNanosecondsPerMillisecond;
      const Status wired = at[rank]->wire({&other, 1}, until_ns, &missing);
      EXPECT_TRUE(wired.ok()) << wired.message();
    });
  }
  for (std::thread& each : wiring) each.join();
  for (const auto& rank : at) {
    for (size_t rail = 0; rail < 2; ++rail) EXPECT_FALSE(has_port(rank->rail(rail))) << rail;
  }
  std::vector<conformance::Recorder> heard(2);
  const auto message = conformance::make_message(0, 0, 64);
  const Segment segment{message.data(), message.size()};
  heard[1].check_pattern = false;
  for (uint64_t cookie = 1; cookie <= 4; ++cookie) {
    ASSERT_TRUE(at[0]->send(1, {&segment, 1}, cookie).ok());
  }
  const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
  while (heard[1].received[0] < 4 && std::chrono::steady_clock::now() < give_up) {
    for (size_t rank = 0; rank < 2; ++rank) at[rank]->poll(heard[rank]);
  }
  EXPECT_EQ(heard[1].received[0], 4u);
}

// Given a rank that ends behind messages by every rail, of which those of one come late, expect
// them all before its loss, which both rails tell of.
TEST(TcpRails, messages_come_before_the_end_of_a_process) {
  TwoRanks ranks(2);
  ranks.send(3);
  ASSERT_TRUE(ranks.until([&] { return ranks.all_heard(); }));
  std::string late;
  ranks.middle.there = [&](std::string* bytes) { late += std::exchange(*bytes, {}); };
  ranks.send(6);
  ASSERT_TRUE(ranks.until([&] { return late.size() > 3 * 64; }));
  ASSERT_TRUE(ranks.until([&] { return ranks.heard[0].sent_count == 9; }));
  TcpRails& receiver = *ranks.at[1];
  ranks.at[0].reset();
  for (int polls = 0; polls < 1000 && !receiver.arm(); ++polls) receiver.poll(ranks.heard[1]);
  receiver.poll(ranks.heard[1]);  // the other rail has ended
  EXPECT_EQ(ranks.heard[1].losses[0], 0u);
  ranks.middle.say_there(std::exchange(late, {}));
  ranks.middle.there = {};
  ASSERT_TRUE(ranks.until([&] { return ranks.heard[1].losses[0] == 1; }));
  EXPECT_TRUE(ranks.all_heard());
}

// Given a rail whose port refuses while another holds what the rank said last, expect to hear that
// before the rank is lost.
TEST(TcpRails, last_words_come_before_a_refused_rail) {
  HalfReached half;
  TwoRanks& ranks = half.ranks;
  std::string words;
  ranks.middle.back = [&](std::string* bytes) { words += std::exchange(*bytes, {}); };
  const auto message = conformance::make_message(1, 0, 64);
  const Segment segment{message.data(), message.size()};
  ASSERT_TRUE(ranks.at[1]->send(0, {&segment, 1}, 1).ok());
  ASSERT_TRUE(ranks.until([&] { return words.size() > 64; }));
  half.refuse();
  ASSERT_TRUE(ranks.until([&] { return !ranks.at[0]->rail(1).writable(1); }));
  EXPECT_EQ(ranks.heard[0].losses[1], 0u) << "its last words are on their way";
  ranks.middle.say_back(std::exchange(words, {}));
  ranks.middle.back = {};
  ASSERT_TRUE(ranks.until([&] { return ranks.heard[0].losses[1] == 1; }));
  EXPECT_EQ(ranks.heard[0].received[1], 1u);
}

// Given a rail that refuses while another stands, idle, expect the rank to be lost for it.
TEST(TcpRails, a_refused_rail_is_the_end) {
  HalfReached half;
  half.refuse();
  ASSERT_TRUE(half.ranks.until([&] { return half.ranks.heard[0].losses[1] == 1; }));
  const std::string& why = half.ranks.heard[0].reasons[1];
  EXPECT_NE(why.find("could not be connected to at 127.0.0.1:"), std::string::npos) << why;
}

// Given a rank that stalls once one of its rails has reached another rank, expect every living one
// to name it, and none the other, at the end of wire().
TEST(TcpRails, wiring_names_who_is_stalled) {
  TcpRailRanks at = make_tcp_rails(3, 2);
  const std::unique_ptr<TcpTransport> stalled = make_tcp(tcp_options(2, 3));
  const std::string nowhere = stalled->address();
  const std::string reached = at[2]->rail(0).address();
  ASSERT_TRUE(at[0]->connect(1, at[1]->address()).ok());
  ASSERT_TRUE(at[0]->connect(2, encode_tcp_rails({reached, nowhere})).ok());
  ASSERT_TRUE(at[1]->connect(0, at[0]->address()).ok());
  ASSERT_TRUE(at[1]->connect(2, encode_tcp_rails({nowhere, nowhere})).ok());
  ASSERT_TRUE(at[2]->connect(0, at[0]->address()).ok());
  constexpr std::array<std::array<uint32_t, 2>, 2> kOthers = {{{1, 2}, {0, 2}}};
  std::array<Status, 2> wired;
  std::array<uint32_t, 2> missing = {};
  std::vector<std::thread> threads;
  const int64_t deadline_ns = SteadyClock().now_ns() + 500 * kNanosecondsPerMillisecond;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back(
        [&, rank] { wired[rank] = at[rank]->wire(kOthers[rank], deadline_ns, &missing[rank]); });
  }
  uint32_t ignored = 0;
  constexpr uint32_t kZero = 0;
  EXPECT_EQ(at[2]->wire({&kZero, 1}, deadline_ns, &ignored).code(), PARALLAX_TIMEOUT);
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(wired[rank].code(), PARALLAX_TIMEOUT) << rank;
    EXPECT_EQ(missing[rank], 2u) << rank << ": " << wired[rank].message();
  }
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
