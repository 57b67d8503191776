// SPDX-License-Identifier: Apache-2.0
// What the processes of ucx_processes_test.cc run: one role each, chosen by the environment. The
// test UcxProgram.run is their main(); in a process that was given no role it has nothing to do.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>

#include "net/ucx_process.h"
#include "net/ucx_world.h"
#include "unit/transport/conformance.h"

namespace parallax::net {
namespace {

using conformance::Recorder;
using Clock = std::chrono::steady_clock;

constexpr int kWakePatienceMs = 5000;
constexpr int64_t kStalledMs = 500;
constexpr int kExitStuck = 3;        // waited in vain
constexpr uint64_t kRunning = 1000;  // messages after which a flow counts as established

// One rank, met and connected.
class Rank {
 public:
  Rank() : rank(own_rank()), world(own_world()), transport(make_ucx(rank, world)) {
    put_blob("address" + std::to_string(rank), transport->address());
    for (uint32_t peer = 0; peer < world; ++peer) {
      if (peer == rank) continue;
      const Status status = transport->connect(peer, get_blob("address" + std::to_string(peer)));
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }

  // False: the peer is found lost, and nothing will complete.
  bool try_send(uint32_t to, uint64_t sequence, size_t bytes) {
    auto& kept = buffers_[to * kKept + sequence % kKept];
    kept = conformance::make_message(rank, sequence, bytes);
    // 1..kSegmentsMax pieces of uneven size
    const size_t pieces = 1 + sequence % kSegmentsMax;
    std::array<Segment, kSegmentsMax> segments;
    size_t at = 0;
    for (size_t i = 0; i < pieces; ++i) {
      const size_t take = i + 1 == pieces ? bytes - at : bytes / pieces / (1 + i % 3);
      segments[i] = {kept.data() + at, take};
      at += take;
    }
    return transport->send(to, {segments.data(), pieces}, sequence * world + to).ok();
  }
  void send(uint32_t to, uint64_t sequence, size_t bytes) {
    EXPECT_TRUE(try_send(to, sequence, bytes)) << "rank " << to << " is lost";
  }

  // Blocks in poll(2) where nothing is there; a wake-up that never comes ends the process.
  void turn() {
    if (transport->poll(recorder) || !transport->arm()) return;
    if (!conformance::wait_readable(transport->wait_fd(), kWakePatienceMs)) {
      say("stuck");
      _exit(kExitStuck);
    }
  }

  const uint32_t rank;
  const uint32_t world;
  std::unique_ptr<NetworkTransport> transport;
  Recorder recorder;

 private:
  // Twice the credits: a buffer is made anew only long after its send was complete.
  static constexpr size_t kKept = 2 * kSendsInFlightMax;
  std::vector<std::vector<std::byte>> buffers_{world * kKept};
};

// Waits until every rank is here, so that nobody's end looks like a loss.
void leave_together(Rank& self) {
  put_blob("done" + std::to_string(self.rank), "x");
  for (uint32_t peer = 0; peer < self.world; ++peer) get_blob("done" + std::to_string(peer));
}

// Everybody sends `count` messages of mixed sizes to everybody and checks what it gets.
void run_exchange(uint64_t count) {
  Rank self;
  const size_t max = self.transport->message_bytes_max();
  std::vector<uint64_t> next(self.world);
  const auto start = Clock::now();
  const auto unfinished = [&] {
    for (uint32_t peer = 0; peer < self.world; ++peer) {
      if (peer != self.rank && self.recorder.received[peer] < count) return true;
    }
    return self.recorder.sent_count < count * (self.world - 1);
  };
  while (unfinished()) {
    for (uint32_t to = 0; to < self.world; ++to) {
      while (to != self.rank && next[to] < count && self.transport->writable(to)) {
        self.send(to, next[to], conformance::mixed_bytes(next[to], max));
        ++next[to];
      }
    }
    self.turn();
  }
  say("done in " + std::to_string(elapsed_ms(start)) + " ms");
  EXPECT_EQ(self.transport->stats().strangers_dropped, 0u);
  leave_together(self);
}

// Blocked ping-pong; rank 0 begins.
void run_ping(uint64_t rounds) {
  Rank self;
  const uint32_t peer = 1 - self.rank;
  const auto start = Clock::now();
  for (uint64_t round = 0; round < rounds; ++round) {
    if (self.rank == 0) self.send(peer, round, 8);
    while (self.recorder.received[peer] <= round) self.turn();
    if (self.rank == 1) self.send(peer, round, 8);
    self.recorder.sent.clear();
  }
  while (self.recorder.sent_count < rounds) self.turn();
  say("round trip " +
      std::to_string(static_cast<double>(elapsed_ms(start)) * 1000 / static_cast<double>(rounds)) +
      " us");
  leave_together(self);
}

// Rank 0 sends without an end to rank 1, until the test kills one of them.
void run_until_lost() {
  Rank self;
  const size_t max = self.transport->message_bytes_max();
  self.recorder.check_pattern = false;
  uint64_t sent = 0;
  bool told = false;
  while (self.recorder.reasons.empty()) {
    while (self.rank == 0 && self.transport->writable(1) && self.try_send(1, sent, max)) ++sent;
    self.turn();
    if (!told && sent + self.recorder.received[0] >= kRunning) {
      say("running");
      told = true;
    }
  }
  say("lost rank " + std::to_string(self.recorder.reasons.begin()->first) + ": " +
      self.recorder.reasons.begin()->second);
  EXPECT_FALSE(self.transport->writable(1 - self.rank));
  const auto start = Clock::now();
  while (self.recorder.sent_count < sent && elapsed_ms(start) < kWakePatienceMs) {
    self.transport->poll(self.recorder);
  }
  EXPECT_EQ(self.recorder.sent_count, sent);
}

// Polls, without sending, until `ready` or for kStalledMs.
template <typename Ready>
bool wait_while_polling(Rank& self, Ready ready) {
  const auto start = Clock::now();
  while (!ready() && elapsed_ms(start) < kStalledMs) self.transport->poll(self.recorder);
  return ready();
}

// Sends to rank 1 until it has sent `count` more, or is pushed back for kStalledMs.
bool push(Rank& self, uint64_t* sent, uint64_t count) {
  for (const uint64_t end = *sent + count; *sent < end;) {
    if (!wait_while_polling(self, [&] { return self.transport->writable(1); })) return false;
    self.send(1, (*sent)++, self.transport->message_bytes_max());
  }
  return true;
}

// Rank 0 sends, is pushed back when the test stops rank 1, and does then what the test says.
void run_push() {
  Rank self;
  self.recorder.check_pattern = false;
  if (self.rank == 1) {
    while (self.recorder.reasons.empty()) self.turn();
    return;
  }
  uint64_t sent = 0;
  EXPECT_TRUE(push(self, &sent, kRunning));
  say("running");
  get_blob("stopped");
  EXPECT_FALSE(push(self, &sent, kRunning));
  say("pushed back after " + std::to_string(sent - kRunning));
  EXPECT_TRUE(self.recorder.reasons.empty());
  if (get_blob("then") == "resume") {
    EXPECT_TRUE(push(self, &sent, kRunning));
    EXPECT_TRUE(wait_while_polling(self, [&] { return self.recorder.sent_count == sent; }));
    say("resumed");
  }
  const auto start = Clock::now();
  self.transport.reset();
  say("closed in " + std::to_string(elapsed_ms(start)));
}

TEST(UcxProgram, run) {
  if (is_role("exchange")) run_exchange(3000);
  if (is_role("ping")) run_ping(20000);
  if (is_role("until_lost")) run_until_lost();
  if (is_role("push")) run_push();
}

}  // namespace
}  // namespace parallax::net
