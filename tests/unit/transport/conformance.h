// SPDX-License-Identifier: Apache-2.0
// The conformance suite of transports: what transport.h promises, asked of any of them. A transport
// is done when one line passes:
//
//   CONFORM(shm, make_shm_world)
//
// where the factory takes the number of ranks and returns them connected as a ConformanceWorld. The
// cases are in conformance_cases.h (one thread polls all ranks) and conformance_threads.h (a thread
// per rank, blocked in poll(2); skipped where wait_fd() is -1). Tests only.
#ifndef PARALLAX_TESTS_UNIT_TRANSPORT_CONFORMANCE_H_
#define PARALLAX_TESTS_UNIT_TRANSPORT_CONFORMANCE_H_

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transport/transport.h"

namespace parallax::conformance {

class World {
 public:
  virtual ~World() = default;
  virtual Transport& at(uint32_t rank) = 0;
  virtual void close(uint32_t rank) = 0;  // destroys that rank's transport
  virtual void drive() {}                 // lets time pass, where that is not the machine's
};

// Enough for transports that live side by side and need nothing else.
class PlainWorld : public World {
 public:
  explicit PlainWorld(std::vector<std::unique_ptr<Transport>> transports)
      : transports_(std::move(transports)) {}
  Transport& at(uint32_t rank) override { return *transports_[rank]; }
  void close(uint32_t rank) override { transports_[rank].reset(); }

 private:
  std::vector<std::unique_ptr<Transport>> transports_;
};

using Factory = std::function<std::unique_ptr<World>(uint32_t world)>;

inline constexpr std::chrono::seconds kPatience{60};  // sanitizers on a loaded machine

// Of repetitions that take their time: an emulated machine (tests/rdma) plays a share of them.
inline uint64_t rounds(uint64_t count) {
  const char* share = std::getenv("PARALLAX_TEST_ROUNDS_SHARE");
  return share == nullptr ? count : count / std::strtoull(share, nullptr, 10);
}

// Eight bytes, from byte 8 * index on, of message number `sequence` from `from`: any mix-up shows.
inline uint64_t pattern(uint32_t from, uint64_t sequence, size_t index) {
  const uint64_t mixed = sequence * 0x9e3779b97f4a7c15 + from * 0xbf58476d1ce4e5b9 + index;
  return (mixed ^ mixed >> 29) * 0x94d049bb133111eb;
}

inline std::vector<std::byte> make_message(uint32_t from, uint64_t sequence, size_t bytes) {
  std::vector<std::byte> message(bytes);
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = pattern(from, sequence, at / sizeof word);
    std::memcpy(message.data() + at, &word, std::min(sizeof word, bytes - at));
  }
  return message;
}

// Message `sequence` of a mixed flow: some of the largest, some middling, most tiny.
inline size_t mixed_bytes(uint64_t sequence, size_t max) {
  switch (sequence % 7) {
    case 0:
      return max;
    case 3:
      return 1 + sequence % 5000 % max;
    default:
      return 1 + sequence % 97;
  }
}

// Checks what arrives: from each rank, messages 0, 1, 2... with their pattern; each cookie once.
// Two of three messages it has placed, where the transport asks.
class Recorder final : public Receiver {
 public:
  std::byte* place(uint32_t from, std::span<const std::byte> head, size_t rest_bytes) override {
    EXPECT_EQ(head.size(), kMessageHeadBytes);
    EXPECT_EQ(losses[from], 0u) << "a message of rank " << from << " after its loss";
    if (received[from] % 3 == 0) return nullptr;
    std::vector<std::byte>& whole = being_placed_[from];
    if (whole.empty()) whole.resize(head.size() + rest_bytes);
    EXPECT_EQ(whole.size(), head.size() + rest_bytes) << "another message is not all there";
    return whole.data() + head.size();
  }
  void on_placed(uint32_t from, std::span<const std::byte> head, size_t rest_bytes) override {
    std::vector<std::byte> whole;
    std::swap(whole, being_placed_[from]);
    ASSERT_EQ(whole.size(), head.size() + rest_bytes);
    std::copy(head.begin(), head.end(), whole.begin());
    ++placed_count;
    on_message(from, whole);
  }
  void on_message(uint32_t from, std::span<const std::byte> message) override {
    EXPECT_EQ(losses[from], 0u) << "a message of rank " << from << " after its loss";
    if (check_pattern) check(from, message);
    received_bytes[from] += message.size();
    last_bytes[from] = message.size();
    ++received[from];
    if (message_hook) message_hook(from, message);
  }
  void on_sent(uint64_t cookie) override {
    EXPECT_EQ(++sent[cookie], 1u) << "cookie " << cookie << " completed twice";
    ++sent_count;
    if (sent_hook) sent_hook(cookie);
  }
  void on_lost(uint32_t rank, Loss loss, std::string_view why) override {
    EXPECT_FALSE(why.empty());
    EXPECT_EQ(++losses[rank], 1u) << "rank " << rank << " lost twice: " << why;
    reasons[rank] = why;
    loss_kinds[rank] = loss;
  }

  bool check_pattern = true;
  uint64_t placed_count = 0;
  std::map<uint32_t, uint64_t> received;
  std::map<uint32_t, uint64_t> received_bytes;
  std::map<uint32_t, size_t> last_bytes;
  std::map<uint64_t, uint32_t> sent;
  uint64_t sent_count = 0;
  std::map<uint32_t, uint32_t> losses;
  std::map<uint32_t, std::string> reasons;
  std::map<uint32_t, Loss> loss_kinds;
  std::function<void(uint32_t, std::span<const std::byte>)> message_hook;
  std::function<void(uint64_t)> sent_hook;

 private:
  std::map<uint32_t, std::vector<std::byte>> being_placed_;

  void check(uint32_t from, std::span<const std::byte> message) {
    for (size_t at = 0; at < message.size(); at += sizeof(uint64_t)) {
      const uint64_t word = pattern(from, received[from], at / sizeof word);
      const size_t bytes = std::min(sizeof word, message.size() - at);
      if (std::memcmp(message.data() + at, &word, bytes) == 0) continue;
      ADD_FAILURE() << "message " << received[from] << " of rank " << from << ", " << message.size()
                    << " bytes, differs from byte " << at << " on";
      return;
    }
  }
};

// False: nothing for that long.
inline bool wait_readable(int fd, int timeout_ms) {
  pollfd polled{fd, POLLIN, 0};
  return ::poll(&polled, 1, timeout_ms) == 1;
}

// Ranks in one thread.
class Stage {
 public:
  Stage(const Factory& factory, uint32_t world) : world_(factory(world)), recorders(world) {
    open.assign(world, true);
  }

  Transport& at(uint32_t rank) { return world_->at(rank); }
  uint32_t size() const { return static_cast<uint32_t>(recorders.size()); }
  World& world() { return *world_; }
  void drive() { world_->drive(); }
  void close(uint32_t rank) {
    world_->close(rank);
    open[rank] = false;
  }

  bool poll(uint32_t rank) { return at(rank).poll(recorders[rank]); }

  // Polls all open ranks until `done`; false when patience ends.
  template <typename Done>
  bool until(Done done) {
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (!done()) {
      bool moved = false;
      for (uint32_t rank = 0; rank < size(); ++rank) {
        if (open[rank]) moved |= poll(rank);
      }
      drive();
      if (!moved) std::this_thread::yield();
      if (std::chrono::steady_clock::now() > give_up) return false;
    }
    return true;
  }

  // Polls for a while with nothing expected.
  void linger(int rounds = 2000) {
    for (int i = 0; i < rounds; ++i) {
      for (uint32_t rank = 0; rank < size(); ++rank) {
        if (open[rank]) poll(rank);
      }
      drive();
    }
  }

  // Sends the next pattern message; the buffer lives until the stage ends.
  void send(uint32_t from, uint32_t to, uint64_t sequence, size_t bytes, uint64_t cookie) {
    auto& kept = kept_.emplace_back(make_message(from, sequence, bytes));
    const Segment segment{kept.data(), kept.size()};
    const Status status = at(from).send(to, {&segment, 1}, cookie);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  // One message each way; so the pair is connected.
  void greet(uint32_t a, uint32_t b) {
    const uint64_t cookie = UINT64_MAX - greetings_++;
    send(a, b, recorders[b].received[a], 16, cookie);
    send(b, a, recorders[a].received[b], 16, cookie);
    const auto before_a = recorders[a].received[b];
    const auto before_b = recorders[b].received[a];
    ASSERT_TRUE(until([&] {
      return recorders[a].received[b] > before_a && recorders[b].received[a] > before_b &&
             recorders[a].sent.count(cookie) == 1 && recorders[b].sent.count(cookie) == 1;
    }));
  }

 private:
  std::unique_ptr<World> world_;
  std::vector<std::vector<std::byte>> kept_;
  uint64_t greetings_ = 0;

 public:
  std::vector<Recorder> recorders;
  std::vector<bool> open;
};

}  // namespace parallax::conformance

#include "unit/transport/conformance_cases.h"
#include "unit/transport/conformance_threads.h"

#define PARALLAX_CONFORM_CASE(name, case_name, factory) \
  TEST(Conform_##name, case_name) { ::parallax::conformance::case_name(factory); }

// One test per promise. `name` is an identifier; `factory` converts to Factory.
#define CONFORM(name, factory)                                          \
  PARALLAX_CONFORM_CASE(name, sizes_and_contents, factory)              \
  PARALLAX_CONFORM_CASE(name, gather_lists, factory)                    \
  PARALLAX_CONFORM_CASE(name, order_per_peer, factory)                  \
  PARALLAX_CONFORM_CASE(name, segments_are_free_after_on_sent, factory) \
  PARALLAX_CONFORM_CASE(name, copied_sends_are_read_no_more, factory)   \
  PARALLAX_CONFORM_CASE(name, incast_pushes_back, factory)              \
  PARALLAX_CONFORM_CASE(name, room_is_news, factory)                    \
  PARALLAX_CONFORM_CASE(name, floods_do_not_deadlock, factory)          \
  PARALLAX_CONFORM_CASE(name, sends_inside_callbacks, factory)          \
  PARALLAX_CONFORM_CASE(name, odd_sizes_and_addresses, factory)         \
  PARALLAX_CONFORM_CASE(name, loss_is_told_once, factory)               \
  PARALLAX_CONFORM_CASE(name, sends_to_a_lost_peer_complete, factory)   \
  PARALLAX_CONFORM_CASE(name, forgotten_peers_are_silent, factory)      \
  PARALLAX_CONFORM_CASE(name, forget_inside_a_callback, factory)        \
  PARALLAX_CONFORM_CASE(name, arm_says_what_poll_finds, factory)        \
  PARALLAX_CONFORM_CASE(name, idle_ranks_sleep, factory)                \
  PARALLAX_CONFORM_CASE(name, blocked_ping_pong, factory)               \
  PARALLAX_CONFORM_CASE(name, blocked_sender_wakes_for_room, factory)   \
  PARALLAX_CONFORM_CASE(name, floods_between_threads, factory)          \
  PARALLAX_CONFORM_CASE(name, loss_wakes_a_blocked_peer, factory)       \
  PARALLAX_CONFORM_CASE(name, boards_are_read_by_all, factory)          \
  PARALLAX_CONFORM_CASE(name, a_post_is_seen_before_a_sleep, factory)   \
  PARALLAX_CONFORM_CASE(name, posts_wake_who_sleeps, factory)           \
  PARALLAX_CONFORM_CASE(name, posts_wake_who_heeds_them_asleep, factory)

#endif  // PARALLAX_TESTS_UNIT_TRANSPORT_CONFORMANCE_H_
