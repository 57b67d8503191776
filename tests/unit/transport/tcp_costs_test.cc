// SPDX-License-Identifier: Apache-2.0
// What frames of tcp cost in steady state: system calls and allocations, between two ranks, whose
// sockets are asked at every poll, and among five, where epoll says which.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "transport/tcp/tcp_transport.h"
#include "unit/engine/watched_memory.h"
#include "unit/transport/conformance.h"
#include "unit/transport/tcp_world.h"

namespace parallax {
namespace {

// Sends that the kernel took in part, until its buffers have grown.
constexpr uint64_t kBlockedSends = 20;

class Counter final : public Receiver {
 public:
  void on_message(uint32_t, std::span<const std::byte>) override { ++messages; }
  void on_sent(uint64_t) override {}
  void on_lost(uint32_t, Loss, std::string_view) override { ++lost; }

  uint64_t messages = 0, lost = 0;
  uint64_t polls = 0, idle_polls = 0;
};

// Ranks in one thread, each of which sends to all others.
class Exchange {
 public:
  Exchange(uint32_t world, TcpSecurity security) : counters(world), next_(world * world) {
    TcpOptions options = tcp_options(0, 1);
    options.security = security;
    at = make_tcp_ranks(world, options);
  }

  // `count` more messages of each pair and direction.
  void run(uint64_t count) {
    std::fill(next_.begin(), next_.end(), 0);
    for (Counter& each : counters) each.messages = 0;
    const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
    while (!is_over(count) && std::chrono::steady_clock::now() < give_up) {
      for (uint32_t rank = 0; rank < at.size(); ++rank) {
        send_some(rank, count);
        const bool moved = at[rank]->poll(counters[rank]);
        ++counters[rank].polls;
        counters[rank].idle_polls += moved ? 0 : 1;
      }
    }
    EXPECT_TRUE(is_over(count));
  }

  TcpRanks at;
  std::vector<Counter> counters;

 private:
  bool is_over(uint64_t count) const {
    return std::all_of(counters.begin(), counters.end(), [&](const Counter& each) {
      return each.messages == count * (counters.size() - 1);
    });
  }

  void send_some(uint32_t from, uint64_t count) {
    for (uint32_t to = 0; to < at.size(); ++to) {
      uint64_t& next = next_[from * at.size() + to];
      if (to == from || next == count || !at[from]->writable(to)) continue;
      const Segment segment{message_.data(), next++ % 3 == 0 ? size_t{64} : message_.size()};
      ASSERT_TRUE(at[from]->send(to, {&segment, 1}, 1).ok());
    }
  }

  const std::vector<std::byte> message_ = conformance::make_message(0, 0, 60 << 10);
  std::vector<uint64_t> next_;  // message, of from * world + to
};

// Given messages in steady state, expect no allocation, and at most one system call a frame in each
// direction; and epoll to be asked once in a poll at most, of few ranks only where nothing came.
TEST(TcpCosts, a_frame_costs_a_system_call_and_no_allocation) {
  for (const uint32_t world : {2u, 5u}) {
    for (const TcpSecurity security :
         {TcpSecurity::kEncrypt, TcpSecurity::kAuthenticate, TcpSecurity::kHandshake}) {
      SCOPED_TRACE(std::to_string(world) + " ranks, " + tcp_security_name(security));
      const uint64_t count = 2000 / (world - 1);
      Exchange exchange(world, security);
      exchange.run(200);
      testkit::memory_watch().allocations = 0;
      const TcpCounters before = exchange.at[0]->counters();
      const Counter calls = exchange.counters[0];
      {
        const testkit::CountedMemory counted;
        exchange.run(count);
      }
      const TcpCounters after = exchange.at[0]->counters();
      const Counter& calls_after = exchange.counters[0];
      if (PARALLAX_TEST_WATCHES_MEMORY) {
        EXPECT_EQ(testkit::memory_watch().allocations, 0u);
      }
      EXPECT_EQ(calls_after.lost, 0u);
      EXPECT_EQ(after.frames_sent - before.frames_sent, count * (world - 1));
      EXPECT_LE(after.receive_calls - before.receive_calls,
                after.frames_received - before.frames_received);
      EXPECT_LE(after.send_calls - before.send_calls,
                after.frames_sent - before.frames_sent + kBlockedSends * (world - 1));
      const uint64_t looks = after.looks - before.looks;
      EXPECT_LE(looks, calls_after.polls - calls.polls);
      if (world == 2) {
        EXPECT_LE(looks, calls_after.idle_polls - calls.idle_polls + kBlockedSends);
      }
    }
  }
}

}  // namespace
}  // namespace parallax
