// SPDX-License-Identifier: Apache-2.0
// Conformance cases with a thread per rank, each blocked in poll(2) when it has nothing to do.
// Included by conformance.h only.
#ifndef PARALLAX_TESTS_UNIT_TRANSPORT_CONFORMANCE_THREADS_H_
#define PARALLAX_TESTS_UNIT_TRANSPORT_CONFORMANCE_THREADS_H_

#include <atomic>

#include "unit/transport/conformance.h"

namespace parallax::conformance {

inline constexpr int kLostWakeUpMilliseconds = 10000;

// One rank's loop: `act` runs after every batch and says when it is done. Blocks whenever poll
// finds nothing and arm() agrees. False: it slept through something, or patience ended.
template <typename Act>
bool run_blocked(Transport& transport, Recorder& recorder, Act act) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (!act()) {
    if (transport.poll(recorder)) continue;
    if (!transport.arm()) continue;
    if (!wait_readable(transport.wait_fd(), kLostWakeUpMilliseconds)) return false;
    if (std::chrono::steady_clock::now() > give_up) return false;
  }
  return true;
}

// Given two threads that play ping-pong and block in between, expect every wake-up.
inline void blocked_ping_pong(const Factory& factory) {
  const uint64_t round_count = rounds(10000);
  Stage stage(factory, 2);
  if (stage.at(0).wait_fd() < 0)
    GTEST_SKIP() << "no descriptor to block on: driven by a virtual clock";
  std::array<bool, 2> ok{};
  const auto play = [&](uint32_t rank) {
    Transport& transport = stage.at(rank);
    Recorder& recorder = stage.recorders[rank];
    recorder.check_pattern = false;
    const uint64_t word = rank;
    const Segment segment{&word, sizeof word};
    uint64_t next = 0;
    ok[rank] = run_blocked(transport, recorder, [&] {
      const uint64_t turn = recorder.received[1 - rank] + (rank == 0 ? 1 : 0);
      if (next < turn && next < round_count && transport.writable(1 - rank)) {
        EXPECT_TRUE(transport.send(1 - rank, {&segment, 1}, next).ok());
        ++next;
      }
      return recorder.received[1 - rank] == round_count && recorder.sent_count == round_count;
    });
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  EXPECT_TRUE(ok[0] && ok[1]) << "a wake-up was lost after " << stage.recorders[0].received[1]
                              << " and " << stage.recorders[1].received[0] << " messages";
}

// Given a sender blocked for want of room, expect it to wake when the receiver makes some.
inline void blocked_sender_wakes_for_room(const Factory& factory) {
  const uint64_t kCount = rounds(400);
  Stage stage(factory, 2);
  if (stage.at(0).wait_fd() < 0)
    GTEST_SKIP() << "no descriptor to block on: driven by a virtual clock";
  const size_t bytes = stage.at(0).message_bytes_max();
  std::array<bool, 2> ok{};
  std::thread receiver([&] {
    // Slower than the sender, in bursts, so that the sender fills all room and sleeps.
    Recorder& recorder = stage.recorders[1];
    uint64_t rested = 0;
    ok[1] = run_blocked(stage.at(1), recorder, [&] {
      if (recorder.received[0] >= rested + 20) {
        rested = recorder.received[0];
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      return recorder.received[0] == kCount;
    });
  });
  uint64_t next = 0;
  std::vector<std::vector<std::byte>> kept;
  kept.reserve(kCount);
  ok[0] = run_blocked(stage.at(0), stage.recorders[0], [&] {
    while (next < kCount && stage.at(0).writable(1)) {
      const auto& message = kept.emplace_back(make_message(0, next, bytes));
      const Segment segment{message.data(), bytes};
      EXPECT_TRUE(stage.at(0).send(1, {&segment, 1}, next).ok());
      ++next;
    }
    return stage.recorders[0].sent_count == kCount;
  });
  receiver.join();
  EXPECT_TRUE(ok[0]) << "the sender slept on, " << next << " sent";
  EXPECT_TRUE(ok[1]) << "the receiver slept on, " << stage.recorders[1].received[0] << " received";
}

// Given four threads that flood each other, expect all messages, in order, each completed once.
inline void floods_between_threads(const Factory& factory) {
  constexpr uint32_t kWorld = 4;
  const uint64_t kCount = rounds(400);
  Stage stage(factory, kWorld);
  if (stage.at(0).wait_fd() < 0)
    GTEST_SKIP() << "no descriptor to block on: driven by a virtual clock";
  const size_t max = stage.at(0).message_bytes_max();
  std::atomic<uint32_t> finished{0};
  const auto flood = [&](uint32_t rank) {
    Transport& transport = stage.at(rank);
    Recorder& recorder = stage.recorders[rank];
    std::array<uint64_t, kWorld> next{};
    std::vector<std::vector<std::byte>> kept;
    kept.reserve(kCount * kWorld);
    const bool ok = run_blocked(transport, recorder, [&] {
      bool all = true;
      for (uint32_t to = 0; to < kWorld; ++to) {
        if (to == rank) continue;
        while (next[to] < kCount && transport.writable(to)) {
          const auto& message =
              kept.emplace_back(make_message(rank, next[to], mixed_bytes(next[to], max)));
          const Segment segment{message.data(), message.size()};
          EXPECT_TRUE(transport.send(to, {&segment, 1}, next[to] * kWorld + to).ok());
          ++next[to];
        }
        all &= recorder.received[to] == kCount;
      }
      return all && recorder.sent_count == kCount * (kWorld - 1);
    });
    EXPECT_TRUE(ok) << "rank " << rank << " slept on";
    if (ok) ++finished;
  };
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kWorld; ++rank) threads.emplace_back(flood, rank);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(finished, kWorld);
}

// Given a rank blocked with nothing under way, expect a peer's end to wake it.
inline void loss_wakes_a_blocked_peer(const Factory& factory) {
  Stage stage(factory, 2);
  if (stage.at(0).wait_fd() < 0)
    GTEST_SKIP() << "no descriptor to block on: driven by a virtual clock";
  stage.greet(0, 1);
  bool ok = false;
  std::thread blocked([&] {
    ok = run_blocked(stage.at(0), stage.recorders[0],
                     [&] { return stage.recorders[0].losses[1] == 1; });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  stage.close(1);
  blocked.join();
  EXPECT_TRUE(ok);
}

}  // namespace parallax::conformance

#endif  // PARALLAX_TESTS_UNIT_TRANSPORT_CONFORMANCE_THREADS_H_
