// SPDX-License-Identifier: Apache-2.0
// UcxTransport in one process: strangers, dead and silent addresses, refused options, and what a
// Receiver throws.
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "base/clock.h"
#include "net/ucx_world.h"
#include "support/real_time.h"
#include "unit/transport/conformance.h"

namespace parallax::net {
namespace {

using conformance::Recorder;
using Clock = std::chrono::steady_clock;

template <typename Done>
bool poll_until(std::vector<std::pair<NetworkTransport*, Recorder*>> ranks, Done done,
                int64_t patience_ms = 10000) {
  const auto start = Clock::now();
  while (!done()) {
    for (auto& [transport, recorder] : ranks) transport->poll(*recorder);
    if (elapsed_ms(start) > patience_ms) return false;
  }
  return true;
}

Status send_one(NetworkTransport& from, uint32_t to, const std::vector<std::byte>& message,
                uint64_t cookie = 0) {
  const Segment segment{message.data(), message.size()};
  return from.send(to, {&segment, 1}, cookie);
}

std::unique_ptr<NetworkTransport> make(uint32_t rank, uint32_t world, size_t message_bytes_max) {
  NetworkOptions options;
  options.rank = rank;
  options.world = world;
  options.net_device = "lo";
  options.message_bytes_max = message_bytes_max;
  std::unique_ptr<NetworkTransport> transport;
  const Status status = ucx_module()->create(options, &transport);
  EXPECT_TRUE(status.ok()) << status.message();
  return transport;
}

// Sends one message to rank 0 of `ranks` from a transport that is not one of them, and expects it
// to be dropped and counted, and the job to go on.
void expect_dropped(NetworkTransport& stranger, const std::string& address, size_t bytes) {
  auto ranks = make_ucx_ranks(2);
  Recorder at_zero;
  Recorder at_stranger;
  const std::string real = address.empty() ? ranks[0]->address() : address;
  std::string target = ranks[0]->address();
  if (!address.empty()) target.replace(target.size() - 8, 8, address);
  ASSERT_TRUE(stranger.connect(0, target).ok());
  const auto message = conformance::make_message(1, 0, bytes);
  ASSERT_TRUE(send_one(stranger, 0, message).ok());
  EXPECT_TRUE(poll_until({{ranks[0].get(), &at_zero}, {&stranger, &at_stranger}},
                         [&] { return ranks[0]->stats().strangers_dropped >= 1; }));
  Recorder at_one;
  const auto honest = conformance::make_message(1, 0, 100);
  ASSERT_TRUE(send_one(*ranks[1], 0, honest).ok());
  EXPECT_TRUE(poll_until({{ranks[0].get(), &at_zero}, {ranks[1].get(), &at_one}},
                         [&] { return at_zero.received[1] == 1; }));
  EXPECT_EQ(at_zero.received.size(), 1u);
  EXPECT_TRUE(at_zero.reasons.empty());
}

// Given a sender that was not given the address by its owner but found the port, expect no message.
TEST(UcxTransport, drops_a_wrong_key) {
  auto stranger = make(1, 2, 0);
  expect_dropped(*stranger, "12345678", 100);
}

// Given a rank beyond the world, expect no message.
TEST(UcxTransport, drops_a_rank_beyond_the_world) {
  auto stranger = make(4, 5, 0);
  expect_dropped(*stranger, "", 100);
}

// Given a message longer than any rank sends, expect no message.
TEST(UcxTransport, drops_a_message_too_long) {
  auto stranger = make(1, 2, 200 * 1024);
  expect_dropped(*stranger, "", 150 * 1024);
}

// Given a rank that was never connected here, expect no message.
TEST(UcxTransport, drops_a_rank_not_connected) {
  auto zero = make(0, 2, 0);
  auto one = make(1, 2, 0);
  Recorder at_zero;
  Recorder at_one;
  ASSERT_TRUE(one->connect(0, zero->address()).ok());
  const auto message = conformance::make_message(1, 0, 10);
  ASSERT_TRUE(send_one(*one, 0, message).ok());
  EXPECT_TRUE(poll_until({{zero.get(), &at_zero}, {one.get(), &at_one}},
                         [&] { return zero->stats().strangers_dropped >= 1; }));
  EXPECT_TRUE(at_zero.received.empty());
}

// Given the address of a rank that is gone, expect sends to be refused or lost soon, without
// blocking, and every accepted one to complete.
TEST(UcxTransport, a_dead_address_is_a_loss) {
  auto ranks = make_ucx_ranks(2);
  ranks[1].reset();
  Recorder at_zero;
  const auto message = conformance::make_message(0, 0, 50000);
  uint64_t accepted = 0;
  const auto start = Clock::now();
  while (ranks[0]->writable(1) && send_one(*ranks[0], 1, message, accepted).ok()) ++accepted;
  EXPECT_LT(elapsed_ms(start), testkit::kPromptMs);
  EXPECT_TRUE(poll_until({{ranks[0].get(), &at_zero}}, [&] { return !at_zero.reasons.empty(); }));
  RecordProperty("lost_after_ms", static_cast<int>(elapsed_ms(start)));
  EXPECT_TRUE(
      poll_until({{ranks[0].get(), &at_zero}}, [&] { return at_zero.sent_count == accepted; }));
}

// With that many rails beside the first.
class UcxLinks : public ::testing::TestWithParam<size_t> {
 protected:
  static std::vector<std::unique_ptr<NetworkTransport>> make(uint32_t world) {
    return make_ucx_ranks(world, std::vector<std::string>(GetParam(), "lo"));
  }
};

INSTANTIATE_TEST_SUITE_P(Beside, UcxLinks, ::testing::Values(0, 2));

// Given a peer that never polls, expect no more than its credits to be taken, and a prompt close of
// both with messages under way.
TEST_P(UcxLinks, closes_with_messages_under_way) {
  auto ranks = make(2);
  Recorder at_zero;
  const auto message = conformance::make_message(0, 0, 60000);
  uint64_t accepted = 0;
  const auto start = Clock::now();
  while (elapsed_ms(start) < 100) {
    while (ranks[0]->writable(1)) ASSERT_TRUE(send_one(*ranks[0], 1, message, accepted++).ok());
    ranks[0]->poll(at_zero);
  }
  EXPECT_EQ(accepted, kSendsInFlightMax);
  const auto close = Clock::now();
  ranks[0].reset();
  ranks[1].reset();
  EXPECT_LT(elapsed_ms(close), testkit::kPromptMs);
}

// Given a peer that never polls and is forgotten, expect what was sent to it to complete.
TEST(UcxTransport, forgetting_completes_what_waits) {
  auto ranks = make_ucx_ranks(2);
  wire_all(ranks);
  Recorder at_zero;
  const auto message = conformance::make_message(0, 0, 60000);
  for (uint64_t i = 0; i < kSendsInFlightMax; ++i) {
    ASSERT_TRUE(send_one(*ranks[0], 1, message, i).ok());
  }
  ranks[0]->forget(1);
  EXPECT_FALSE(ranks[0]->writable(1));
  const auto start = Clock::now();
  while (at_zero.sent_count < kSendsInFlightMax && elapsed_ms(start) < 5000) {
    if (!ranks[0]->poll(at_zero) && ranks[0]->arm()) {
      ASSERT_TRUE(conformance::wait_readable(ranks[0]->wait_fd(), 5000)) << "slept over it";
    }
  }
  EXPECT_EQ(at_zero.sent_count, kSendsInFlightMax);
  EXPECT_TRUE(at_zero.reasons.empty());
}

// Given ranks that wire each other, expect each to hear of a death with no message sent before, and
// one that does not come to be named.
TEST_P(UcxLinks, wired_ranks_hear_of_a_death) {
  auto ranks = make(3);
  wire_all(ranks);
  ranks[2].reset();
  Recorder at_zero;
  Recorder at_one;
  EXPECT_TRUE(poll_until({{ranks[0].get(), &at_zero}, {ranks[1].get(), &at_one}},
                         [&] { return !at_zero.reasons.empty() && !at_one.reasons.empty(); }));

  auto others = make(2);
  uint32_t missing = 0;
  const std::vector<uint32_t> peer = {1};
  const int64_t deadline_ns = SteadyClock().now_ns() + 50 * kNanosecondsPerMillisecond;
  EXPECT_EQ(others[0]->wire(peer, deadline_ns, &missing).code(), PARALLAX_TIMEOUT);
  EXPECT_EQ(missing, 1u);
}

// Given a peer that is forgotten at any moment of the wire-up, by one side or by both, expect both
// processes to live, and what was sent to complete once the peer has answered.
TEST_P(UcxLinks, forgetting_a_peer_in_wire_up_ends_no_process) {
  constexpr int kPollsMax = 24;
  for (const bool both : {false, true}) {
    // With rails those that are not wired are given time as their rank closes.
    for (int polls = 0; polls < 2 * kPollsMax; polls += GetParam() == 0 ? 1 : 7) {
      auto ranks = make(2);
      Recorder at[2];
      const auto first = conformance::make_message(0, 0, 50000);
      const auto second = conformance::make_message(1, 0, 50000);
      ASSERT_TRUE(send_one(*ranks[0], 1, first).ok());
      ASSERT_TRUE(!both || send_one(*ranks[1], 0, second).ok());
      for (int i = 0; i < polls; ++i) {
        ranks[0]->poll(at[0]);
        if (i % 2 == 0 || polls > kPollsMax) ranks[1]->poll(at[1]);
      }
      ranks[0]->forget(1);
      if (both) ranks[1]->forget(0);
      EXPECT_TRUE(poll_until({{ranks[0].get(), &at[0]}, {ranks[1].get(), &at[1]}},
                             [&] { return at[0].sent_count == 1; }))
          << polls << " polls";
      const auto last = Clock::now();
      while (elapsed_ms(last) < 5) {
        for (const int rank : {0, 1}) ranks[rank]->poll(at[rank]);
      }
    }
  }
}

// Given messages whose on_sent was told, expect them to arrive although their sender closes before
// the receiver looks, and the loss after them.
TEST_P(UcxLinks, last_words_arrive_before_the_loss) {
  for (const size_t bytes : {size_t{100}, size_t{8000}, size_t{61440}}) {
    auto ranks = make(2);
    Recorder at_zero;
    Recorder at_one;
    std::vector<std::vector<std::byte>> messages;
    for (uint64_t i = 0; i <= kSendsInFlightMax; ++i) {
      messages.push_back(conformance::make_message(0, i, bytes));
    }
    ASSERT_TRUE(send_one(*ranks[0], 1, messages[0], 0).ok());
    ASSERT_TRUE(poll_until({{ranks[0].get(), &at_zero}, {ranks[1].get(), &at_one}},
                           [&] { return at_one.received[0] == 1 && at_zero.sent_count == 1; }));
    uint64_t count = 1;
    while (ranks[0]->writable(1)) {
      ASSERT_TRUE(send_one(*ranks[0], 1, messages[count], count).ok());
      ++count;
    }
    EXPECT_EQ(count, kSendsInFlightMax);
    ASSERT_TRUE(
        poll_until({{ranks[0].get(), &at_zero}}, [&] { return at_zero.sent_count == count; }));
    ranks[0].reset();
    EXPECT_TRUE(poll_until({{ranks[1].get(), &at_one}}, [&] { return !at_one.reasons.empty(); }));
    EXPECT_EQ(at_one.received[0], count) << bytes << " bytes each";
  }
}

// Given a Receiver that throws, expect poll to throw it, and the transport to go on.
TEST(UcxTransport, what_a_receiver_throws_leaves_poll) {
  auto ranks = make_ucx_ranks(2);
  Recorder at_zero;
  Recorder at_one;
  bool armed = true;
  at_one.message_hook = [&](uint32_t, std::span<const std::byte>) {
    if (std::exchange(armed, false)) throw std::runtime_error("thrown on purpose");
  };
  const auto first = conformance::make_message(0, 0, 10);
  const auto second = conformance::make_message(0, 1, 10);
  ASSERT_TRUE(send_one(*ranks[0], 1, first, 0).ok());
  ASSERT_TRUE(send_one(*ranks[0], 1, second, 1).ok());
  const auto until = [&](auto done) {
    return poll_until({{ranks[0].get(), &at_zero}, {ranks[1].get(), &at_one}}, done);
  };
  EXPECT_THROW(until([] { return false; }), std::runtime_error);
  EXPECT_TRUE(until([&] { return at_one.received[0] == 2; }));
}

// Given ranks of three, three and one rails, expect those to be wired that both of a pair have, and
// none to be in the making when wire() returns; and from then on it is told what UCX took.
TEST(UcxRails, are_wired_as_far_as_both_have_them) {
  std::vector<std::unique_ptr<NetworkTransport>> ranks;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ranks.push_back(make_ucx(rank, 3, std::vector<std::string>(rank < 2 ? 2 : 0, "lo")));
  }
  connect_all(ranks);
  EXPECT_EQ(ranks[0]->way_to(1), NetworkWay()) << "not yet";
  wire_all(ranks);
  EXPECT_EQ(ranks[0]->stats().endpoints_opened, 4u);
  EXPECT_EQ(ranks[1]->stats().endpoints_opened, 4u);
  EXPECT_EQ(ranks[2]->stats().endpoints_opened, 2u);
  EXPECT_EQ(ranks[0]->description(), "tcp on lo, pieces over lo, lo too");
  EXPECT_EQ(ranks[2]->description(), "tcp on lo");
  const NetworkWay whole = {"tcp/lo to lo, pieces by tcp/lo to lo and tcp/lo to lo too"};
  EXPECT_EQ(ranks[0]->way_to(1), whole) << "and nobody asked for more than tcp";
  EXPECT_EQ(ranks[1]->way_to(0), whole);
  EXPECT_EQ(ranks[2]->way_to(1).text, "tcp/lo to lo");
  EXPECT_EQ(ranks[0]->way_to(0), NetworkWay()) << "itself";
  EXPECT_EQ(ranks[0]->way_to(3), NetworkWay()) << "beyond the world";
}

TEST(UcxRails, one_that_does_not_open_is_left_out_unless_it_was_asked_for) {
  std::unique_ptr<NetworkTransport> transport;
  NetworkOptions options;
  options.world = 2;
  options.net_device = "lo";
  options.more_devices = {"nosuch0", "lo"};
  ASSERT_TRUE(ucx_module()->create(options, &transport).ok());
  EXPECT_EQ(
      transport->description(),
      "tcp on lo, pieces over lo too; nosuch0 is left out: net_device \"nosuch0\": this machine "
      "has no such interface");
  options.more_devices_asked = true;
  EXPECT_EQ(ucx_module()->create(options, &transport).code(), PARALLAX_INVALID);
  options.more_devices.assign(kRailsMax, "lo");
  EXPECT_EQ(ucx_module()->create(options, &transport).code(), PARALLAX_INVALID);
}

// Given the address of a peer cut anywhere, expect a sentence or fewer rails, never a look beyond.
TEST(UcxRails, an_address_that_is_cut_is_refused) {
  const auto ranks = make_ucx_ranks(2, {"lo", "lo"});
  const std::string address = ranks[1]->address();
  const std::string key = address.substr(address.size() - sizeof(uint64_t));
  const std::string rails = address.substr(0, address.size() - key.size());
  size_t taken = 0;
  for (size_t bytes = 0; bytes <= rails.size(); ++bytes) {
    const auto other = make_ucx(0, 2);
    taken += other->connect(1, rails.substr(0, bytes) + key).ok() ? 1 : 0;
  }
  EXPECT_EQ(taken, 3u) << "whole ones alone";
  std::string many;
  for (int i = 0; i < 9; ++i) many += rails.substr(0, rails.size() / 3);
  const Status refused = make_ucx(0, 2)->connect(1, many + key);
  EXPECT_EQ(refused.code(), PARALLAX_INVALID);
  EXPECT_NE(refused.message().find("more rails than there can be"), std::string::npos);
}

// Given a name of a device that would not print as one word, expect it to be refused.
TEST(UcxRails, a_device_is_a_word) {
  const auto ranks = make_ucx_ranks(2);
  std::string address = ranks[1]->address();
  const size_t name = address.size() - sizeof(uint64_t) - 2;
  ASSERT_EQ(address.substr(name, 2), "lo");
  for (const char bad : {'\n', '"', ' ', '\0', '\x80', ','}) {
    address[name] = bad;
    EXPECT_EQ(make_ucx(0, 2)->connect(1, address).code(), PARALLAX_INVALID) << int{bad};
  }
  address[name - 1] = 65;
  EXPECT_EQ(make_ucx(0, 2)->connect(1, address).code(), PARALLAX_INVALID) << "too long";
}

// Given options that cannot work, expect a sentence.
TEST(UcxTransport, refuses_what_cannot_work) {
  std::unique_ptr<NetworkTransport> transport;
  const ParallaxTransportModule* module = ucx_module();
  NetworkOptions options;
  options.world = 2;
  options.net_device = "nosuch0";
  Status status = module->create(options, &transport);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_NE(status.message().find("nosuch0"), std::string::npos) << status.message();
  options.net_device = "lo";
  options.rank = 2;
  EXPECT_EQ(module->create(options, &transport).code(), PARALLAX_INVALID);
  auto ranks = make_ucx_ranks(2);
  EXPECT_EQ(ranks[0]->connect(0, ranks[1]->address()).code(), PARALLAX_INVALID);
  EXPECT_EQ(ranks[0]->connect(1, ranks[1]->address()).code(), PARALLAX_INVALID) << "twice";
  EXPECT_EQ(ranks[0]->connect(7, ranks[1]->address()).code(), PARALLAX_INVALID);
}

}  // namespace
}  // namespace parallax::net
