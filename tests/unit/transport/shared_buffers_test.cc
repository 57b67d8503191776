// SPDX-License-Identifier: Apache-2.0
// What ranks of one host say of their buffers, and what a broken or hostile one may say.
#include "transport/shm/shared_buffers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "transport/shm/socket.h"

namespace parallax {
namespace {

using Kind = BufferPacket::Kind;
using News = SharedBuffers::News;

uint64_t page_bytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

// Memory as buffer_alloc makes it.
class Memory {
 public:
  explicit Memory(uint64_t pages = 1) : bytes_(pages * page_bytes()) {
    fd_.reset(::memfd_create("parallax-buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(fd_.get(), static_cast<off_t>(bytes_)), 0);
    base_ = static_cast<std::byte*>(
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
    EXPECT_EQ(::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  }
  ~Memory() { ::munmap(base_, bytes_); }
  Memory(Memory&&) = delete;

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }
  SharedMemory shared() const { return {base_, bytes_, fd_.get()}; }

 private:
  uint64_t bytes_;
  UniqueFd fd_;
  std::byte* base_;
};

struct Ends {
  UniqueFd zero, one;
};

Ends make_ends() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Ranks 0 and 1, connected.
struct Pair {
  explicit Pair(const PeerBufferLimits& limits = {})
      : zero(epoll.get(), limits), one(epoll.get(), limits) {
    Ends ends = make_ends();
    EXPECT_TRUE(zero.add(1, std::move(ends.zero), 1));
    EXPECT_TRUE(one.add(0, std::move(ends.one), 0));
  }
  // Both hear what was said so far.
  void settle() {
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(one.look(0), News::kHeard);
      EXPECT_EQ(zero.look(1), News::kHeard);
    }
  }

  UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  SharedBuffers zero, one;
};

TEST(SharedBuffers, AreReadWhereTheyLie) {
  Pair pair;
  const Memory memory(2);
  EXPECT_EQ(pair.zero.place_of(memory.base(), 1).buffer, 0u);
  ASSERT_TRUE(pair.zero.share(memory.shared()));
  const BufferPlace place = pair.zero.place_of(memory.base() + 100, 50);
  EXPECT_EQ(place.buffer, 1u);
  EXPECT_EQ(place.offset, 100u);
  EXPECT_FALSE(pair.zero.mapped_by(1, place.buffer)) << "not heard of yet";
  pair.settle();
  EXPECT_TRUE(pair.zero.mapped_by(1, place.buffer));
  EXPECT_FALSE(pair.zero.mapped_by(0, place.buffer));
  EXPECT_FALSE(pair.zero.mapped_by(2, place.buffer));
  std::memset(memory.base(), 5, memory.bytes());
  const std::byte* const seen = pair.one.find(0, place, 50);
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(seen[49], std::byte{5});
  memory.base()[149] = std::byte{6};
  EXPECT_EQ(std::byte(static_cast<const volatile std::byte*>(seen)[49]), std::byte{6});
  EXPECT_EQ(pair.one.counts().mapped, 1u);
  EXPECT_EQ(pair.one.counts().mapped_bytes, memory.bytes());
  EXPECT_EQ(pair.zero.counts().shared, 1u);
}

// Given buffers with and without what fills up their last page, expect what is used of each, and
// nothing of one that is not there any more.
TEST(SharedBuffers, SayWhatIsUsedOfThem) {
  Pair pair;
  const Memory whole, partly(2);
  SharedMemory some = partly.shared();
  some.used_bytes = page_bytes() + 7;
  ASSERT_TRUE(pair.zero.share(whole.shared()) && pair.zero.share(some));
  const auto used = [&](const Memory& memory) {
    return pair.zero.used_bytes(pair.zero.place_of(memory.base(), 1).buffer);
  };
  EXPECT_EQ(used(whole), page_bytes());
  EXPECT_EQ(used(partly), page_bytes() + 7);
  const uint64_t number = pair.zero.place_of(partly.base(), 1).buffer;
  pair.zero.unshare(partly.base());
  EXPECT_EQ(pair.zero.used_bytes(number), 0u);
}

// Given a neighbour that may write, and pages made private, expect that what it writes there then
// is not seen, that they hold what they held, and that the others are shared as ever.
TEST(SharedBuffers, WhatIsMadePrivateIsWrittenByNobodyElse) {
  Pair pair;
  const Memory memory(4);
  ASSERT_TRUE(pair.zero.share(memory.shared()));
  pair.settle();
  std::memset(memory.base(), 5, memory.bytes());
  std::byte* const there = pair.one.find_writable(0, {1, 0}, memory.bytes());
  ASSERT_NE(there, nullptr);
  there[page_bytes()] = std::byte{6};
  EXPECT_EQ(memory.base()[page_bytes()], std::byte{6});
  ASSERT_TRUE(
      pair.zero.make_private(ByteRange::at(memory.base() + page_bytes(), 2 * page_bytes())));
  std::memset(there, 9, memory.bytes());
  EXPECT_EQ(memory.base()[0], std::byte{9});
  EXPECT_EQ(memory.base()[page_bytes()], std::byte{6});
  EXPECT_EQ(memory.base()[page_bytes() + 1], std::byte{5});
  EXPECT_EQ(memory.base()[3 * page_bytes() - 1], std::byte{5});
  EXPECT_EQ(memory.base()[3 * page_bytes()], std::byte{9});
  memory.base()[page_bytes()] = std::byte{7};
  EXPECT_EQ(memory.base()[page_bytes()], std::byte{7});
  // Others do not see all of it any more.
  EXPECT_EQ(pair.zero.place_of(memory.base(), 1).buffer, 0u);
}

// Given pages made private twice, expect what was written in between to stay.
TEST(SharedBuffers, WhatIsPrivateAlreadyStaysAsItIs) {
  Pair pair;
  const Memory memory(4);
  ASSERT_TRUE(pair.zero.share(memory.shared()));
  const auto pages = [&memory](uint64_t first, uint64_t count) {
    return ByteRange::at(memory.base() + first * page_bytes(), count * page_bytes());
  };
  ASSERT_TRUE(pair.zero.make_private(pages(1, 1)));
  std::memset(memory.base(), 7, memory.bytes());
  ASSERT_TRUE(pair.zero.make_private(pages(0, 4)));
  for (uint64_t at = 0; at < memory.bytes(); ++at) ASSERT_EQ(memory.base()[at], std::byte{7}) << at;
}

// Given a thread of the program that writes beside what was lent, in the same page, while that is
// made private, expect none of its writes to be lost.
TEST(SharedBuffers, WhatIsWrittenMeanwhileIsKept) {
  Pair pair;
  const Memory memory(4096);
  ASSERT_TRUE(pair.zero.share(memory.shared()));
  const uint64_t words = page_bytes() / sizeof(uint64_t);
  auto* const all = reinterpret_cast<uint64_t*>(memory.base());
  std::atomic<uint64_t> rounds = 0;
  // A word of each page, then another one of each: every word is written once.
  std::thread writer([&] {
    for (uint64_t word = 1; word < words; ++word) {
      for (uint64_t page = 0; page < memory.bytes() / page_bytes(); ++page) {
        std::atomic_ref<uint64_t>(all[page * words + word]).store(1, std::memory_order_relaxed);
      }
      ++rounds;
    }
  });
  while (rounds == 0) std::this_thread::yield();
  EXPECT_TRUE(pair.zero.make_private(ByteRange::at(memory.base(), memory.bytes())));
  writer.join();
  uint64_t lost = 0;
  for (uint64_t i = 0; i < memory.bytes() / sizeof(uint64_t); ++i) {
    if (i % words != 0 && all[i] == 0) ++lost;
  }
  EXPECT_EQ(lost, 0u);
}

TEST(SharedBuffers, OfOneMadePrivateTheOthersAreSharedAsEver) {
  Pair pair;
  const Memory first, second;
  ASSERT_TRUE(pair.zero.share(first.shared()));
  ASSERT_TRUE(pair.zero.share(second.shared()));
  ASSERT_TRUE(pair.zero.make_private(ByteRange::at(first.base(), page_bytes())));
  EXPECT_EQ(pair.zero.place_of(first.base(), 1).buffer, 0u);
  EXPECT_EQ(pair.zero.place_of(second.base(), 1).buffer, 2u);
}

// Given memory that its owner alone writes, expect it to be read, and no place to be given where
// this rank could be made to write.
TEST(SharedBuffers, WhatIsSealedIsReadAlone) {
  Pair pair;
  const Memory memory;
  if (::fcntl(memory.fd(), F_ADD_SEALS, 0x10) != 0) {  // F_SEAL_FUTURE_WRITE
    GTEST_SKIP() << "this kernel cannot seal that (Linux 5.1 can)";
  }
  ASSERT_TRUE(pair.zero.share(memory.shared()));
  pair.settle();
  EXPECT_TRUE(pair.zero.mapped_by(1, 1));
  EXPECT_NE(pair.one.find(0, {1, 0}, memory.bytes()), nullptr);
  EXPECT_EQ(pair.one.find_writable(0, {1, 0}, memory.bytes()), nullptr);
  EXPECT_EQ(pair.one.find_writable(2, {1, 0}, memory.bytes()), nullptr) << "no such rank";
}

// Given a move that the kernel refuses, for it is not to a page, expect that nothing changes.
TEST(SharedBuffers, WhatCannotBeMovedStays) {
  Pair pair;
  const Memory memory(2);
  ASSERT_TRUE(pair.zero.share(memory.shared()));
  pair.settle();
  EXPECT_FALSE(pair.zero.make_private(ByteRange::at(memory.base() + 8, page_bytes())));
  EXPECT_EQ(pair.zero.place_of(memory.base(), 1).buffer, 1u);
  *pair.one.find_writable(0, {1, 8}, 1) = std::byte{4};
  EXPECT_EQ(memory.base()[8], std::byte{4});
}

// Given more than there are addresses for, expect that nothing changes.
TEST(SharedBuffers, WhatCannotBeMadePrivateStays) {
  Pair pair;
  const Memory memory;
  memory.base()[0] = std::byte{3};
  EXPECT_FALSE(pair.zero.make_private(ByteRange::at(memory.base(), uint64_t{1} << 60)));
  EXPECT_EQ(memory.base()[0], std::byte{3});
}

TEST(SharedBuffers, KnowWhereBytesLie) {
  Pair pair;
  const Memory first(1), second(3);
  ASSERT_TRUE(pair.zero.share(first.shared()));
  ASSERT_TRUE(pair.zero.share(second.shared()));
  EXPECT_EQ(pair.zero.place_of(first.base(), page_bytes()).buffer, 1u);
  EXPECT_EQ(pair.zero.place_of(second.base() + page_bytes(), page_bytes()).buffer, 2u);
  EXPECT_EQ(pair.zero.place_of(second.base(), 3 * page_bytes() + 1).buffer, 0u)
      << "not all of them";
  int elsewhere = 0;
  EXPECT_EQ(pair.zero.place_of(&elsewhere, sizeof elsewhere).buffer, 0u);
  EXPECT_EQ(pair.zero.place_of(nullptr, 1).buffer, 0u);
}

TEST(SharedBuffers, GoAsTheyAreFreed) {
  Pair pair;
  const Memory memory;
  ASSERT_TRUE(pair.zero.share(memory.shared()));
  pair.settle();
  pair.zero.unshare(memory.base());
  EXPECT_EQ(pair.zero.place_of(memory.base(), 1).buffer, 0u);
  pair.settle();
  EXPECT_EQ(pair.one.find(0, {1, 0}, 1), nullptr);
  EXPECT_EQ(pair.one.counts().mapped, 0u);
  pair.zero.unshare(memory.base());  // nothing is there: nothing happens
  // The same memory again is another buffer.
  ASSERT_TRUE(pair.zero.share(memory.shared()));
  pair.settle();
  EXPECT_EQ(pair.zero.place_of(memory.base(), 1).buffer, 2u);
  EXPECT_NE(pair.one.find(0, {2, 0}, 1), nullptr);
}

// Given a freed buffer whose answer is still under way, expect that it is not taken for the next.
TEST(SharedBuffers, AnAnswerComesTooLate) {
  Pair pair;
  const Memory memory;
  ASSERT_TRUE(pair.zero.share(memory.shared()));
  EXPECT_EQ(pair.one.look(0), News::kHeard);
  pair.zero.unshare(memory.base());
  ASSERT_TRUE(pair.zero.share(memory.shared()));
  EXPECT_EQ(pair.zero.look(1), News::kHeard);  // the answer to the first
  EXPECT_FALSE(pair.zero.mapped_by(1, 2));
  pair.settle();
  EXPECT_TRUE(pair.zero.mapped_by(1, 2));
}

// Given a peer that does not listen while buffers come and go, expect that what waits is bounded by
// what is there, and that it hears of just that when it listens again.
TEST(SharedBuffers, AStoppedPeerHearsItAllLater) {
  Pair pair;
  std::vector<std::unique_ptr<Memory>> kept;
  const Memory passing;
  for (int i = 0; i < 500; ++i) {
    kept.push_back(std::make_unique<Memory>());
    ASSERT_TRUE(pair.zero.share(kept.back()->shared()));
    for (int k = 0; k < 20; ++k) {
      ASSERT_TRUE(pair.zero.share(passing.shared()));
      pair.zero.unshare(passing.base());
    }
  }
  pair.settle();
  EXPECT_EQ(pair.one.counts().mapped, 500u);
  EXPECT_EQ(pair.one.counts().refused, 0u);
  for (const auto& memory : kept) {
    EXPECT_TRUE(pair.zero.mapped_by(1, pair.zero.place_of(memory->base(), 1).buffer));
  }
}

// Given more than a peer maps of one rank, expect the rest to be refused, and that this is known.
TEST(SharedBuffers, AreRefusedBeyondTheBound) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  SharedBuffers zero(epoll.get()), one(epoll.get(), {.buffers = 2, .bytes = uint64_t{1} << 30});
  Ends ends = make_ends();
  ASSERT_TRUE(zero.add(1, std::move(ends.zero), 1));
  ASSERT_TRUE(one.add(0, std::move(ends.one), 0));
  const Memory memories[3];
  for (const Memory& memory : memories) ASSERT_TRUE(zero.share(memory.shared()));
  EXPECT_EQ(one.look(0), News::kHeard);
  EXPECT_EQ(zero.look(1), News::kHeard);
  EXPECT_TRUE(zero.mapped_by(1, 2));
  EXPECT_FALSE(zero.mapped_by(1, 3));
  EXPECT_EQ(one.counts().refused, 1u);
  EXPECT_EQ(zero.counts().refused_us, 1u);
  const Memory own[3];
  EXPECT_TRUE(one.share(own[0].shared()));
  EXPECT_TRUE(one.share(own[1].shared()));
  EXPECT_FALSE(one.share(own[2].shared())) << "nor does a rank share more";
}

TEST(SharedBuffers, GoWithTheirRank) {
  Pair pair;
  const Memory memory, others;
  ASSERT_TRUE(pair.zero.share(memory.shared()));
  ASSERT_TRUE(pair.one.share(others.shared()));
  pair.settle();
  pair.one.drop(0);
  EXPECT_EQ(pair.one.counts().mapped, 0u);
  EXPECT_FALSE(pair.one.mapped_by(0, 1));
  EXPECT_EQ(pair.zero.look(1), News::kHungUp);
  EXPECT_EQ(pair.zero.counts().mapped, 0u);
  EXPECT_FALSE(pair.zero.mapped_by(1, 1));
  EXPECT_EQ(pair.zero.look(1), News::kHeard) << "its end is told once";
  pair.zero.unshare(memory.base());
}

// Rank 0, and the other end of its connection in the hands of the test.
struct Alone {
  Alone() {
    Ends ends = make_ends();
    EXPECT_TRUE(zero.add(1, std::move(ends.zero), 1));
    peer = std::move(ends.one);
  }
  News say(const BufferPacket& packet, int fd = -1) {
    return say_bytes(std::as_bytes(std::span(&packet, 1)), fd);
  }
  News say_bytes(std::span<const std::byte> bytes, int fd) {
    const std::array<int, 1> fds{fd};
    EXPECT_EQ(send_packet(peer, bytes, fd < 0 ? std::span<const int>() : std::span(fds)),
              SocketNews::kOk);
    return zero.look(1);
  }

  UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  SharedBuffers zero{epoll.get()};
  UniqueFd peer;
};

BufferPacket packet_of(Kind kind, uint64_t buffer, uint64_t bytes = 0) {
  return {.magic = kBufferMagic, .kind = kind, .buffer = buffer, .bytes = bytes};
}

TEST(SharedBuffers, WhatNoRankSaysEndsThePeer) {
  const Memory memory;
  const auto expect_garbled = [](const BufferPacket& packet, int fd = -1) {
    Alone alone;
    EXPECT_EQ(alone.say(packet, fd), News::kGarbled);
    EXPECT_EQ(alone.zero.counts().mapped, 0u);
  };
  BufferPacket wrong = packet_of(Kind::kShare, 1, page_bytes());
  wrong.magic ^= 1;
  expect_garbled(wrong, memory.fd());
  expect_garbled(packet_of(static_cast<Kind>(0), 1));
  expect_garbled(packet_of(static_cast<Kind>(5), 1));
  expect_garbled(packet_of(Kind::kShare, 0, page_bytes()), memory.fd());
  expect_garbled(packet_of(Kind::kMapped, 1));  // nothing was shared
  expect_garbled(packet_of(Kind::kRefused, UINT64_MAX));
  expect_garbled(packet_of(Kind::kUnshare, 1), memory.fd());
  expect_garbled(packet_of(Kind::kUnshare, 1, 5));
  for (const size_t bytes : {size_t{1}, sizeof(BufferPacket) - 1}) {
    Alone alone;
    const std::vector<std::byte> short_one(bytes, std::byte{0x50});
    EXPECT_EQ(alone.say_bytes(short_one, -1), News::kGarbled);
  }
  Alone alone;
  EXPECT_EQ(alone.say(packet_of(Kind::kShare, 3, page_bytes()), memory.fd()), News::kHeard);
  EXPECT_EQ(alone.zero.counts().mapped, 1u);
  EXPECT_EQ(alone.say(packet_of(Kind::kShare, 3, page_bytes()), memory.fd()), News::kGarbled)
      << "a number is given once";
  EXPECT_EQ(alone.zero.counts().mapped, 0u);
}

TEST(SharedBuffers, WhatIsNotAsSaidIsRefused) {
  const Memory memory;
  Alone alone;
  EXPECT_EQ(alone.say(packet_of(Kind::kShare, 1, page_bytes())), News::kHeard) << "no descriptor";
  EXPECT_EQ(alone.say(packet_of(Kind::kShare, 2, 2 * page_bytes()), memory.fd()), News::kHeard);
  EXPECT_EQ(alone.say(packet_of(Kind::kShare, 3, page_bytes()), alone.peer.get()), News::kHeard);
  EXPECT_EQ(alone.say(packet_of(Kind::kUnshare, 2)), News::kHeard) << "it is not there";
  EXPECT_EQ(alone.say(packet_of(Kind::kUnshare, 9)), News::kHeard);
  EXPECT_EQ(alone.zero.counts().refused, 3u);
  EXPECT_EQ(alone.zero.counts().mapped, 0u);
  for (uint64_t number = 1; number <= 3; ++number) {
    BufferPacket answer;
    size_t bytes = 0, fd_count = 0;
    std::array<UniqueFd, kFdsInPacketMax> fds;
    ASSERT_EQ(receive_packet(alone.peer, std::as_writable_bytes(std::span(&answer, 1)), &bytes, fds,
                             &fd_count),
              SocketNews::kOk);
    EXPECT_EQ(answer.kind, Kind::kRefused);
    EXPECT_EQ(answer.buffer, number);
  }
}

// Given a peer that asks and asks and reads no answer, expect an end of it.
TEST(SharedBuffers, AnswersDoNotPileUp) {
  Alone alone;
  News news = News::kHeard;
  for (uint64_t number = 1; number < 10000 && news == News::kHeard; ++number) {
    news = alone.say(packet_of(Kind::kShare, number, page_bytes()));
  }
  EXPECT_EQ(news, News::kGarbled);
}

}  // namespace
}  // namespace parallax

namespace parallax {
namespace {

// Given two ranks, expect what one retracts to be worth nothing to the other, and only to it.
TEST(SharedBufferMarks, what_is_retracted_was_not_meant) {
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  SharedBuffers first(epoll.get()), second(epoll.get());
  ASSERT_TRUE(first.add(1, UniqueFd(ends[0]), 1));
  ASSERT_TRUE(second.add(0, UniqueFd(ends[1]), 0));
  std::atomic<uint32_t> of_first{0}, of_second{0};
  EXPECT_FALSE(second.was_meant(0)) << "no mark tells yet";
  first.set_marks(1, &of_first, &of_second);
  second.set_marks(0, &of_second, &of_first);
  EXPECT_TRUE(first.was_meant(1));
  EXPECT_TRUE(second.was_meant(0));
  EXPECT_FALSE(second.was_meant(7)) << "of nobody";
  first.retract(1);
  EXPECT_FALSE(second.was_meant(0));
  EXPECT_TRUE(first.was_meant(1));
  second.drop(0);
  EXPECT_FALSE(first.was_meant(1));
}

}  // namespace
}  // namespace parallax
