// SPDX-License-Identifier: Apache-2.0
// Ring: wrap, room, flags; and that whatever a peer writes into the shared part is refused, never
// believed.
#include "transport/shm/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>

#include "message/wire.h"
#include "unit/transport/conformance.h"

namespace parallax {
namespace {

class Ring : public ::testing::Test {
 protected:
  Ring()
      : data_(kRingBytesMin),
        producer_(&header_, data_.data(), data_.size()),
        consumer_(&header_, data_.data(), data_.size()) {}

  bool write(uint64_t sequence, size_t bytes) {
    const auto message = conformance::make_message(0, sequence, bytes);
    const Segment segment{message.data(), bytes};
    return producer_.write({&segment, 1}, bytes);
  }
  RingConsumer::Next next() { return consumer_.next(&view_); }
  void expect(uint64_t sequence, size_t bytes) {
    ASSERT_EQ(next(), RingConsumer::Next::kMessage);
    const auto message = conformance::make_message(0, sequence, bytes);
    ASSERT_EQ(view_.size(), bytes);
    EXPECT_TRUE(std::equal(view_.begin(), view_.end(), message.begin()));
  }

  RingHeader header_{};
  std::vector<std::byte> data_;
  RingProducer producer_;
  RingConsumer consumer_;
  std::span<const std::byte> view_;
};

TEST_F(Ring, wraps_at_every_size) {
  uint64_t sequence = 0;
  for (size_t round = 0; round < 4000; ++round) {
    const size_t bytes = round * 7919 % (kShmMessageBytesMax + 1);
    ASSERT_TRUE(producer_.has_room());
    write(sequence, bytes);
    expect(sequence, bytes);
    consumer_.release();
    ++sequence;
  }
  EXPECT_EQ(next(), RingConsumer::Next::kEmpty);
}

TEST_F(Ring, fills_up_and_recovers_anywhere) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, kShmMessageBytesMax}) {
    uint64_t written = 0;
    uint64_t taken = 0;
    for (int round = 0; round < 200; ++round) {
      while (producer_.has_room()) write(written++, bytes);
      ASSERT_GT(written, taken);
      for (int i = 0; i < 3 && taken < written; ++i) {
        expect(taken++, bytes);
        consumer_.release();
      }
    }
    while (taken < written) {
      expect(taken++, bytes);
      consumer_.release();
    }
  }
}

TEST_F(Ring, rings_once_per_sleep) {
  EXPECT_FALSE(write(0, 10));
  EXPECT_FALSE(consumer_.sleep_until_message(true)) << "there is a message";
  consumer_.stay_awake();
  expect(0, 10);
  consumer_.release();
  EXPECT_TRUE(consumer_.sleep_until_message(true));
  EXPECT_TRUE(write(1, 10));
  EXPECT_FALSE(write(2, 10));
}

TEST_F(Ring, wakes_the_producer_when_any_message_fits) {
  uint64_t written = 0;
  while (producer_.has_room()) write(written++, kShmMessageBytesMax);
  EXPECT_TRUE(producer_.sleep_until_room());
  bool woken = false;
  for (uint64_t taken = 0; taken < written; ++taken) {
    expect(taken, kShmMessageBytesMax);
    if (consumer_.release()) {
      EXPECT_FALSE(woken);
      woken = true;
      EXPECT_TRUE(producer_.has_room());
    }
  }
  EXPECT_TRUE(woken);
}

TEST_F(Ring, refuses_row_keys_out_of_range) {
  for (const uint64_t tail : {uint64_t{4}, uint64_t{8}, uint64_t{kRingBytesMin + kRingGrain},
                              ~uint64_t{kRingGrain - 1}}) {
    header_.tail = tail;
    RingConsumer consumer(&header_, data_.data(), data_.size());
    EXPECT_EQ(consumer.next(&view_), RingConsumer::Next::kCorrupt) << tail;
    EXPECT_EQ(consumer.next(&view_), RingConsumer::Next::kCorrupt) << "it stays corrupt";
    EXPECT_STREQ(consumer.corruption(), "its ring's position is out of range");
  }
  while (producer_.has_room()) write(0, kShmMessageBytesMax);
  header_.head = 1 << 30;
  EXPECT_FALSE(producer_.has_room());
  EXPECT_TRUE(producer_.corrupt());
  header_.head = 0;
  EXPECT_FALSE(producer_.has_room()) << "it stays corrupt";
}

// Given messages of any length, expect the elements of each one's first section, behind the headers
// of both, to begin a cache line.
TEST_F(Ring, elements_begin_a_cache_line) {
  constexpr size_t kHeaders = sizeof(MessageHeader) + sizeof(SectionHeader);
  constexpr size_t kCacheLine = 64;
  for (size_t round = 0; round < 3000; ++round) {
    const size_t bytes = kHeaders + round * 7919 % (kShmMessageBytesMax + 1 - kHeaders);
    ASSERT_TRUE(producer_.has_room());
    write(round, bytes);
    expect(round, bytes);
    const auto at = static_cast<size_t>(view_.data() + kHeaders - data_.data());
    ASSERT_EQ(at % kCacheLine, 0u) << bytes;
    consumer_.release();
  }
}

// Given messages of random sizes written whenever there is room, expect none overwritten.
TEST_F(Ring, never_overwrites_what_is_unread) {
  constexpr uint32_t kSeed = 99;
  std::mt19937 random(kSeed);
  std::deque<std::pair<uint64_t, size_t>> unread;
  uint64_t sequence = 0;
  for (int round = 0; round < 3000; ++round) {
    while (producer_.has_room()) {
      const size_t bytes = random() % (random() % 4 == 0 ? kShmMessageBytesMax + 1 : 9000);
      write(sequence, bytes);
      unread.emplace_back(sequence++, bytes);
    }
    for (uint32_t i = 1 + random() % 9; i > 0 && !unread.empty(); --i) {
      expect(unread.front().first, unread.front().second);
      ASSERT_FALSE(HasFailure()) << "seed " << kSeed << ", round " << round;
      unread.pop_front();
      consumer_.release();
    }
  }
}

// Given a length that leaves what was published, or the ring, expect it refused.
TEST_F(Ring, refuses_lengths_out_of_range) {
  size_t position = 0;
  const auto advance = [&](size_t record_bytes) {
    write(0, record_bytes - kRingRecordHeadBytes);  // whole grains
    ASSERT_EQ(next(), RingConsumer::Next::kMessage);
    consumer_.release();
    position += record_bytes;
  };
  while (position < kRingBytesMin - 1024) advance(1024);
  write(0, 100);
  for (const uint32_t bytes : {uint32_t{200}, uint32_t{5000}, UINT32_MAX}) {
    std::memcpy(data_.data() + position, &bytes, sizeof bytes);
    RingConsumer consumer = consumer_;
    EXPECT_EQ(consumer.next(&view_), RingConsumer::Next::kCorrupt) << bytes;
  }
  const uint32_t right = 100;
  std::memcpy(data_.data() + position, &right, sizeof right);
  expect(0, 100);
}

// Given rings of random bytes and mutated good ones, expect every view to lie inside the ring.
TEST_F(Ring, believes_no_garbage) {
  constexpr uint32_t kSeed = 4711;
  std::mt19937 random(kSeed);
  int corrupt = 0;
  for (int round = 0; round < 3000; ++round) {
    header_.tail = 0;
    header_.head = 0;
    RingProducer producer(&header_, data_.data(), data_.size());
    RingConsumer consumer(&header_, data_.data(), data_.size());
    for (int i = 0; i < 20; ++i) {
      const auto message = conformance::make_message(0, static_cast<uint64_t>(i), random() % 300);
      const Segment segment{message.data(), message.size()};
      producer.write({&segment, 1}, message.size());
    }
    for (int flips = 0; flips < 6; ++flips) {
      data_[random() % 2000] = static_cast<std::byte>(random());
    }
    if (round % 3 == 0) header_.tail = header_.tail + kRingGrain * (random() % 100);
    for (int i = 0; i < 1000; ++i) {
      std::span<const std::byte> view;
      const RingConsumer::Next next = consumer.next(&view);
      if (next != RingConsumer::Next::kMessage) {
        corrupt += next == RingConsumer::Next::kCorrupt;
        break;
      }
      ASSERT_GE(view.data(), data_.data());
      ASSERT_LE(view.data() + view.size(), data_.data() + data_.size()) << "seed " << kSeed;
      consumer.release();
    }
  }
  EXPECT_GT(corrupt, 300);
}

}  // namespace
}  // namespace parallax
