// SPDX-License-Identifier: Apache-2.0
// Conformance cases in which one thread polls every rank. Included by conformance.h only.
#ifndef PARALLAX_TESTS_UNIT_TRANSPORT_CONFORMANCE_CASES_H_
#define PARALLAX_TESTS_UNIT_TRANSPORT_CONFORMANCE_CASES_H_

#include <array>
#include <cstring>

#include "unit/transport/conformance.h"

namespace parallax::conformance {

// Given messages of every awkward size up to the largest, expect each byte at the other end.
inline void sizes_and_contents(const Factory& factory) {
  Stage stage(factory, 2);
  const size_t max = stage.at(0).message_bytes_max();
  ASSERT_GE(max, kMessageBytesMin);
  uint64_t sequence = 0;
  for (const size_t bytes :
       {size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{63}, size_t{64}, size_t{65}, size_t{255},
        size_t{4095}, size_t{4096}, size_t{4097}, max / 2, max - 9, max - 1, max, size_t{1}, max}) {
    if (bytes > max) continue;
    for (int repeat = 0; repeat < 5; ++repeat) {
      ASSERT_TRUE(stage.until([&] { return stage.at(0).writable(1); }));
      stage.send(0, 1, sequence, bytes, sequence);
      ++sequence;
      ASSERT_TRUE(stage.until([&] { return stage.recorders[1].received[0] == sequence; }));
      ASSERT_EQ(stage.recorders[1].last_bytes[0], bytes);
    }
  }
  ASSERT_TRUE(stage.until([&] { return stage.recorders[0].sent_count == sequence; }));
}

// Given gather lists of 1..kSegmentsMax pieces, some empty, expect one contiguous message.
inline void gather_lists(const Factory& factory) {
  Stage stage(factory, 2);
  for (uint64_t pieces = 1; pieces <= kSegmentsMax; ++pieces) {
    const size_t bytes = 1000 + 313 * pieces;
    const auto message = make_message(0, pieces - 1, bytes);
    std::array<Segment, kSegmentsMax> segments;
    size_t at = 0;
    for (size_t i = 0; i < pieces; ++i) {
      const size_t take = i + 1 == pieces ? bytes - at : i % 3 == 1 ? 0 : 17 * (i + 1);
      segments[i] = {take == 0 ? nullptr : message.data() + at, take};
      at += take;
    }
    ASSERT_TRUE(stage.until([&] { return stage.at(0).writable(1); }));
    ASSERT_TRUE(stage.at(0).send(1, {segments.data(), pieces}, pieces).ok());
    ASSERT_TRUE(stage.until([&] {
      return stage.recorders[1].received[0] == pieces && stage.recorders[0].sent_count == pieces;
    }));
    ASSERT_EQ(stage.recorders[1].last_bytes[0], bytes);
  }
}

// Given many messages of mixed sizes to two peers in turn, expect each peer's in order, and every
// send completed once.
inline void order_per_peer(const Factory& factory) {
  const uint64_t kCount = rounds(3000);
  Stage stage(factory, 3);
  const size_t max = stage.at(0).message_bytes_max();
  std::array<uint64_t, 3> next{};
  const bool done = stage.until([&] {
    for (uint32_t to = 1; to < 3; ++to) {
      while (next[to] < kCount && stage.at(0).writable(to)) {
        stage.send(0, to, next[to], mixed_bytes(next[to], max), next[to] * 2 + to - 1);
        ++next[to];
      }
    }
    return stage.recorders[1].received[0] == kCount && stage.recorders[2].received[0] == kCount &&
           stage.recorders[0].sent_count == 2 * kCount;
  });
  ASSERT_TRUE(done) << stage.recorders[1].received[0] << " and " << stage.recorders[2].received[0]
                    << " arrived, " << stage.recorders[0].sent_count << " completed";
  stage.linger();
  EXPECT_EQ(stage.recorders[1].received[0], kCount);
  EXPECT_EQ(stage.recorders[0].sent_count, 2 * kCount);
}

// Given a sender that overwrites its buffer as soon as on_sent says so, expect contents intact.
inline void segments_are_free_after_on_sent(const Factory& factory) {
  const uint64_t kCount = rounds(500);
  Stage stage(factory, 2);
  const size_t bytes = stage.at(0).message_bytes_max() - 3;
  std::vector<std::byte> buffer;
  bool free = true;
  uint64_t next = 0;
  stage.recorders[0].sent_hook = [&](uint64_t) {
    std::fill(buffer.begin(), buffer.end(), std::byte{0xee});
    free = true;
  };
  ASSERT_TRUE(stage.until([&] {
    if (free && next < kCount && stage.at(0).writable(1)) {
      buffer = make_message(0, next, bytes);
      const Segment segment{buffer.data(), buffer.size()};
      free = false;
      EXPECT_TRUE(stage.at(0).send(1, {&segment, 1}, next).ok());
      EXPECT_FALSE(free) << "on_sent from within send";
      ++next;
    }
    return stage.recorders[1].received[0] == kCount;
  }));
}

// Given sends that the transport says it has read, to a receiver that does not poll, expect their
// contents intact though they are overwritten at once.
inline void copied_sends_are_read_no_more(const Factory& factory) {
  constexpr uint64_t kBytesMax = 64 << 20;
  constexpr int kIdleMax = 2000;
  Stage stage(factory, 2);
  stage.greet(0, 1);
  if (!stage.at(0).copies_sends(1)) GTEST_SKIP() << "it reads them until they complete";
  const size_t bytes = stage.at(0).message_bytes_max() - 3;
  uint64_t next = 1;  // behind the greeting
  for (int idle = 0; idle < kIdleMax && next * bytes < kBytesMax;) {
    if (!stage.at(0).writable(1)) {
      ++idle;
      stage.poll(0);
      stage.drive();
      continue;
    }
    std::vector<std::byte> buffer = make_message(0, next, bytes);
    const Segment segment{buffer.data(), buffer.size()};
    ASSERT_TRUE(stage.at(0).send(1, {&segment, 1}, next++).ok());
    std::fill(buffer.begin(), buffer.end(), std::byte{0xee});
  }
  EXPECT_TRUE(stage.until([&] { return stage.recorders[1].received[0] == next; }));
}

// Given many senders and a receiver that does not poll, expect writable() to turn false within a
// bound, and to recover once the receiver polls; nothing is lost.
inline void incast_pushes_back(const Factory& factory) {
  constexpr uint32_t kWorld = 5;
  constexpr uint64_t kBytesMax = 64 << 20;  // in flight to one peer, generously
  Stage stage(factory, kWorld);
  const size_t max = stage.at(0).message_bytes_max();
  const uint64_t bound = kBytesMax / max;
  std::array<uint64_t, kWorld> next{};
  const auto push = [&](uint32_t rank) {
    int idle = 0;
    while (idle < 200 && next[rank] < bound) {
      if (stage.at(rank).writable(0)) {
        stage.send(rank, 0, next[rank], max, next[rank]);
        ++next[rank];
        idle = 0;
      } else {
        idle = stage.poll(rank) ? 0 : idle + 1;
        stage.drive();
      }
    }
  };
  for (uint32_t rank = 1; rank < kWorld; ++rank) {
    push(rank);
    EXPECT_LT(next[rank], bound) << "rank " << rank << " was never pushed back";
    EXPECT_GE(next[rank], 1u);
  }
  const auto blocked = next;
  for (uint64_t round = 0; round < rounds(20); ++round) {
    ASSERT_TRUE(stage.until([&] {
      for (uint32_t rank = 1; rank < kWorld; ++rank) {
        if (!stage.at(rank).writable(0)) return false;
      }
      return true;
    })) << "writable did not recover";
    for (uint32_t rank = 1; rank < kWorld; ++rank) push(rank);
  }
  ASSERT_TRUE(stage.until([&] {
    for (uint32_t rank = 1; rank < kWorld; ++rank) {
      if (stage.recorders[0].received[rank] < next[rank]) return false;
      if (stage.recorders[rank].sent_count < next[rank]) return false;
    }
    return true;
  }));
  for (uint32_t rank = 1; rank < kWorld; ++rank) EXPECT_GT(next[rank], blocked[rank]);
}

// Given a rank refused by writable(), expect the room, once it is there, to be news: poll() says
// true, so that a caller that acts on news alone goes on.
inline void room_is_news(const Factory& factory) {
  Stage stage(factory, 2);
  const size_t max = stage.at(0).message_bytes_max();
  uint64_t next = 0;
  for (int round = 0; round < 10; ++round) {
    for (int idle = 0; idle < 200;) {
      if (stage.at(0).writable(1)) {
        stage.send(0, 1, next, max, next);
        ++next;
      } else {
        idle = stage.poll(0) ? 0 : idle + 1;
        stage.drive();
      }
    }
    bool news = false;
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (!news && std::chrono::steady_clock::now() < give_up) {
      stage.poll(1);
      stage.drive();
      news = stage.poll(0);
    }
    ASSERT_TRUE(news);
    ASSERT_TRUE(stage.until([&] { return stage.recorders[1].received[0] == next; }));
  }
}

// Given every rank sending to every other as fast as it may, expect all to arrive.
inline void floods_do_not_deadlock(const Factory& factory) {
  constexpr uint32_t kWorld = 4;
  const uint64_t kCount = rounds(300);
  Stage stage(factory, kWorld);
  const size_t max = stage.at(0).message_bytes_max();
  std::array<std::array<uint64_t, kWorld>, kWorld> next{};
  ASSERT_TRUE(stage.until([&] {
    bool all = true;
    for (uint32_t from = 0; from < kWorld; ++from) {
      for (uint32_t to = 0; to < kWorld; ++to) {
        if (from == to) continue;
        uint64_t& sequence = next[from][to];
        while (sequence < kCount && stage.at(from).writable(to)) {
          stage.send(from, to, sequence, mixed_bytes(sequence, max), sequence * kWorld + to);
          ++sequence;
        }
        all &= stage.recorders[to].received[from] == kCount;
      }
      all &= stage.recorders[from].sent_count == kCount * (kWorld - 1);
    }
    return all;
  }));
}

// Given answers sent from on_message and next messages from on_sent, expect both to work.
inline void sends_inside_callbacks(const Factory& factory) {
  const uint64_t kCount = rounds(1000);
  Stage stage(factory, 2);
  uint64_t answered = 0;
  uint64_t owed = 0;
  stage.recorders[1].message_hook = [&](uint32_t from, std::span<const std::byte>) {
    if (stage.at(1).writable(from)) {
      stage.send(1, from, answered, 24, answered);
      ++answered;
    } else {
      ++owed;
    }
  };
  uint64_t next = 1;
  stage.recorders[0].sent_hook = [&](uint64_t) {
    if (next == kCount || !stage.at(0).writable(1)) return;
    stage.send(0, 1, next, 100, next);
    ++next;
  };
  stage.send(0, 1, 0, 100, 0);
  ASSERT_TRUE(stage.until([&] {
    if (owed > 0 && stage.at(1).writable(0)) {
      stage.send(1, 0, answered, 24, answered);
      ++answered;
      --owed;
    }
    return stage.recorders[0].received[1] == kCount && stage.recorders[1].sent_count == kCount;
  })) << stage.recorders[0].received[1];
}

// Given segments at odd addresses, of odd sizes, expect contents intact (views are unaligned).
inline void odd_sizes_and_addresses(const Factory& factory) {
  Stage stage(factory, 2);
  std::vector<std::byte> buffer(1 << 12);
  uint64_t sequence = 0;
  double sum = 0;
  stage.recorders[1].message_hook = [&](uint32_t, std::span<const std::byte> message) {
    for (size_t at = 0; at + sizeof(float) <= message.size(); at += sizeof(float)) {
      float value;
      std::memcpy(&value, message.data() + at, sizeof value);
      sum += value == value ? 1 : 0;
    }
  };
  for (size_t offset = 0; offset < 16; ++offset) {
    for (const size_t bytes : {size_t{1}, size_t{3}, size_t{13}, size_t{101}, size_t{2047}}) {
      const auto message = make_message(0, sequence, bytes);
      std::copy(message.begin(), message.end(), buffer.begin() + static_cast<ptrdiff_t>(offset));
      const Segment segment{buffer.data() + offset, bytes};
      ASSERT_TRUE(stage.until([&] { return stage.at(0).writable(1); }));
      ASSERT_TRUE(stage.at(0).send(1, {&segment, 1}, sequence).ok());
      ++sequence;
      ASSERT_TRUE(stage.until([&] {
        return stage.recorders[1].received[0] == sequence &&
               stage.recorders[0].sent_count == sequence;
      }));
    }
  }
  EXPECT_GT(sum, 0);
}

// Given a rank that closes, expect each connected peer to be told once, and nothing of others lost.
inline void loss_is_told_once(const Factory& factory) {
  Stage stage(factory, 3);
  stage.greet(0, 1);
  stage.greet(0, 2);
  stage.close(1);
  ASSERT_TRUE(stage.until([&] { return stage.recorders[0].losses[1] == 1; }));
  EXPECT_FALSE(stage.at(0).writable(1));
  stage.linger();
  EXPECT_EQ(stage.recorders[0].losses[1], 1u);
  EXPECT_EQ(stage.recorders[0].losses[2], 0u);
  stage.greet(0, 2);
}

// Given sends under way to a peer that closes, expect each accepted one to complete exactly once.
inline void sends_to_a_lost_peer_complete(const Factory& factory) {
  Stage stage(factory, 2);
  stage.greet(0, 1);
  const size_t max = stage.at(0).message_bytes_max();
  const uint64_t before = stage.recorders[0].sent_count;
  uint64_t accepted = 0;
  const auto push = [&] {
    while (stage.at(0).writable(1) && accepted < 10000) {
      stage.recorders[1].check_pattern = false;
      stage.send(0, 1, accepted, max, accepted);
      ++accepted;
    }
  };
  push();
  stage.close(1);
  ASSERT_TRUE(stage.until([&] {
    return stage.recorders[0].losses[1] == 1 && stage.recorders[0].sent_count == before + accepted;
  })) << stage.recorders[0].sent_count
      << " of " << before + accepted;
  stage.linger();
  EXPECT_EQ(stage.recorders[0].sent_count, before + accepted);
  EXPECT_FALSE(stage.at(0).writable(1));
}

// Given a forgotten peer, expect no message, no writability and no loss of it; sends complete.
inline void forgotten_peers_are_silent(const Factory& factory) {
  Stage stage(factory, 3);
  stage.greet(0, 1);
  stage.greet(0, 2);
  const uint64_t before = stage.recorders[0].sent_count;
  stage.recorders[1].check_pattern = false;
  stage.send(0, 1, 1, 64, 1);
  stage.send(0, 1, 2, 64, 2);
  stage.send(1, 0, 1, 64, 1);
  stage.at(0).forget(1);
  EXPECT_FALSE(stage.at(0).writable(1));
  ASSERT_TRUE(stage.until([&] { return stage.recorders[0].sent_count == before + 2; }));
  stage.linger();
  stage.close(1);
  stage.linger();
  EXPECT_EQ(stage.recorders[0].losses[1], 0u);
  EXPECT_EQ(stage.recorders[0].received[1], 1u);
  stage.greet(0, 2);
}

// Given forget() of the sender called from its own message's callback, expect it to be the last.
inline void forget_inside_a_callback(const Factory& factory) {
  Stage stage(factory, 3);
  stage.greet(0, 1);
  stage.greet(0, 2);
  stage.recorders[0].message_hook = [&](uint32_t from, std::span<const std::byte> message) {
    if (from != 1) return;
    stage.at(0).forget(1);
    EXPECT_EQ(message[0], make_message(1, 1, 1)[0]) << "the view died with forget";
  };
  for (uint64_t sequence = 1; sequence < 6; ++sequence) stage.send(1, 0, sequence, 64, sequence);
  ASSERT_TRUE(stage.until([&] { return stage.recorders[0].received[1] >= 2; }));
  stage.linger();
  EXPECT_EQ(stage.recorders[0].received[1], 2u);
  stage.greet(0, 2);
}

// Given ranks with nothing to do, expect arm() to agree and the descriptor to stay silent: an idle
// rank sleeps, and does not spin on an old wake-up.
inline void idle_ranks_sleep(const Factory& factory) {
  Stage stage(factory, 2);
  if (stage.at(0).wait_fd() < 0)
    GTEST_SKIP() << "no descriptor to block on: driven by a virtual clock";
  for (uint64_t round = 0; round < 5; ++round) {
    stage.greet(0, 1);
    for (const uint32_t rank : {0u, 1u}) {
      bool slept = false;
      for (int tries = 0; tries < 100 && !slept; ++tries) {
        if (stage.poll(rank) || !stage.at(rank).arm()) continue;
        slept = !wait_readable(stage.at(rank).wait_fd(), 20);
      }
      EXPECT_TRUE(slept) << "rank " << rank;
    }
    // Rank 1 is armed: a message must wake it.
    const uint64_t before = stage.recorders[1].received[0];
    stage.send(0, 1, before, 32, 1000 + round);
    bool woken = false;
    for (int tries = 0; tries < 500 && !woken; ++tries) {
      stage.poll(0);  // some transports send from poll
      woken = wait_readable(stage.at(1).wait_fd(), 10);
    }
    EXPECT_TRUE(woken);
    ASSERT_TRUE(stage.until([&] { return stage.recorders[1].received[0] > before; }));
  }
}

// Given pending completions, messages or losses, expect arm() to refuse or poll(2) to wake.
inline void arm_says_what_poll_finds(const Factory& factory) {
  Stage stage(factory, 2);
  if (stage.at(0).wait_fd() < 0)
    GTEST_SKIP() << "no descriptor to block on: driven by a virtual clock";
  stage.greet(0, 1);
  for (uint64_t round = 1; round < 50; ++round) {
    for (const uint32_t rank : {0u, 1u}) {
      stage.send(rank, 1 - rank, round, 128, round);
      if (stage.at(rank).arm()) {
        EXPECT_TRUE(wait_readable(stage.at(rank).wait_fd(), 5000)) << "a completion was to come";
      }
    }
    ASSERT_TRUE(stage.until([&] {
      for (const uint32_t rank : {0u, 1u}) {
        const bool waits = stage.at(rank).arm();
        if (waits) wait_readable(stage.at(rank).wait_fd(), 1);
      }
      return stage.recorders[0].received[1] == round + 1 &&
             stage.recorders[1].received[0] == round + 1 &&
             stage.recorders[0].sent_count == round + 1 &&
             stage.recorders[1].sent_count == round + 1;
    }));
  }
}

}  // namespace parallax::conformance

#endif  // PARALLAX_TESTS_UNIT_TRANSPORT_CONFORMANCE_CASES_H_
