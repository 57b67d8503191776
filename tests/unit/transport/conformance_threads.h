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

// Given ranks that each write all of their board, expect the others to read it where it lies, and
// to see that somebody else has posted; also after its end, as far as they have it mapped.
inline void boards_are_read_by_all(const Factory& factory) {
  constexpr uint32_t kWorld = 3;
  Stage stage(factory, kWorld);
  if (stage.at(0).boards() == nullptr) GTEST_SKIP() << "it has none";
  const std::vector<std::byte> zero(Boards::kBytes);
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    Boards& boards = *stage.at(rank).boards();
    EXPECT_EQ(std::memcmp(boards.own(), zero.data(), zero.size()), 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(boards.own()) % 4096, 0u);
    const std::vector<std::byte> said = make_message(rank, 1, Boards::kBytes);
    std::memcpy(boards.own(), said.data(), said.size());
    std::array<uint64_t, kWorld> before = {};
    for (uint32_t each = 0; each < kWorld; ++each) before[each] = stage.at(each).boards()->posts();
    boards.post();
    for (uint32_t each = 0; each < kWorld; ++each) {
      EXPECT_EQ(stage.at(each).boards()->posts() != before[each], each != rank);
    }
  }
  const auto expect_read = [&](uint32_t reader, uint32_t from) {
    const std::vector<std::byte> said = make_message(from, 1, Boards::kBytes);
    const std::byte* const there = stage.at(reader).boards()->of(from);
    ASSERT_NE(there, nullptr);
    EXPECT_EQ(std::memcmp(there, said.data(), said.size()), 0);
  };
  for (uint32_t reader = 0; reader < kWorld; ++reader) {
    for (uint32_t from = 0; from < kWorld; ++from) {
      if (from != reader) expect_read(reader, from);
    }
    EXPECT_EQ(stage.at(reader).boards()->of(kWorld), nullptr);
  }
  stage.at(0).forget(1);
  expect_read(0, 1);
}

// Given a post that came before a rank goes to sleep, expect it not to until it has looked again.
inline void a_post_is_seen_before_a_sleep(const Factory& factory) {
  Stage stage(factory, 2);
  if (stage.at(0).boards() == nullptr) GTEST_SKIP() << "it has none";
  Transport& transport = stage.at(0);
  for (int round = 0; round < 3; ++round) {
    while (!transport.arm()) transport.poll(stage.recorders[0]);
    transport.poll(stage.recorders[0]);
    stage.at(1).boards()->post();
    EXPECT_FALSE(transport.arm()) << round;
    transport.poll(stage.recorders[0]);
    EXPECT_TRUE(transport.arm()) << round;
  }
}

// Two threads answer each other on their boards alone, and block in between. `asleep`: they come to
// heed posts when their sleep has begun.
inline void answer_by_posts(const Factory& factory, bool asleep) {
  const uint64_t round_count = rounds(10000);
  Stage stage(factory, 2);
  if (stage.at(0).boards() == nullptr) GTEST_SKIP() << "it has none";
  std::array<uint64_t, 2> heard = {};
  const auto play = [&](uint32_t rank) {
    Transport& transport = stage.at(rank);
    Boards& boards = *transport.boards();
    auto& own = *reinterpret_cast<std::atomic<uint64_t>*>(boards.own());
    const auto& others = *reinterpret_cast<const std::atomic<uint64_t>*>(boards.of(1 - rank));
    const auto say = [&](uint64_t what) {
      own.store(what, std::memory_order_release);
      boards.post();
    };
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    if (rank == 0) say(1);
    while (heard[rank] < round_count && std::chrono::steady_clock::now() < give_up) {
      transport.poll(stage.recorders[rank]);
      boards.heed(!asleep);
      if (asleep && !transport.arm()) continue;
      boards.heed(true);
      const uint64_t now = others.load(std::memory_order_acquire);
      if (now > heard[rank]) {
        heard[rank] = now;
        say(rank == 0 ? now + 1 : now);
        continue;
      }
      if (!asleep && !transport.arm()) continue;
      if (!wait_readable(transport.wait_fd(), kLostWakeUpMilliseconds)) return;
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  EXPECT_EQ(heard[0], round_count) << "a wake-up was lost";
  EXPECT_EQ(heard[1], round_count) << "a wake-up was lost";
}

// Given such threads, expect every wake-up.
inline void posts_wake_who_sleeps(const Factory& factory) { answer_by_posts(factory, false); }
inline void posts_wake_who_heeds_them_asleep(const Factory& factory) {
  answer_by_posts(factory, true);
}

}  // namespace parallax::conformance

#endif  // PARALLAX_TESTS_UNIT_TRANSPORT_CONFORMANCE_THREADS_H_
