// SPDX-License-Identifier: Apache-2.0
// ShmTransport between real processes: kill, stop, fork, corrupt memory, descriptors. The child is
// forked while this process has one thread.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>

#include "support/real_time.h"
#include "transport/shm/shm_transport.h"
#include "unit/transport/conformance.h"

namespace parallax {
namespace {

using testkit::in_ms;
using testkit::kClock;

// Rank 0 is this process, rank 1 a child that connects and then runs `life`, which does not return.
class ShmProcess : public ::testing::Test {
 protected:
  ~ShmProcess() override {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
  }

  template <typename Life>
  void start(Life life, bool use_pidfd = true, bool connect = true) {
    ASSERT_TRUE(
        ShmTransport::create({.rank = 0, .clock = &kClock, .use_pidfd = use_pidfd}, &transport_)
            .ok());
    std::unique_ptr<ShmTransport> childs;
    ASSERT_TRUE(
        ShmTransport::create({.rank = 1, .clock = &kClock, .use_pidfd = use_pidfd}, &childs).ok());
    const Endpoint to_parent = endpoint(0, transport_->address());
    peer_ = endpoint(1, childs->address());
    child_ = ::fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      transport_.reset();  // the parent's: our copy of its listener must not outlive it
      if (connect && !childs->connect_all({&to_parent, 1}, 5, in_ms(20000)).ok()) ::_exit(3);
      life(childs.get());
      ::_exit(0);
    }
    childs.reset();  // ours is a copy of the child's: only descriptors go
    if (!connect) return;
    const Status status = transport_->connect_all({&peer_, 1}, 5, in_ms(20000));
    ASSERT_TRUE(status.ok()) << status.message();
  }

  static Endpoint endpoint(uint32_t rank, const std::string& address) {
    Endpoint made;
    made.rank = rank;
    made.host = "here";
    made.shm_address = address;
    return made;
  }

  // Polls, blocked in between, until `done`; the time it took, or -1.
  template <typename Done>
  int64_t poll_until(Done done, int64_t patience_ms = 10000) {
    const int64_t start_ns = kClock.now_ns();
    while (!done()) {
      if (kClock.now_ns() - start_ns > patience_ms * kNanosecondsPerMillisecond) return -1;
      if (!transport_->poll(recorder_) && transport_->arm()) {
        conformance::wait_readable(transport_->wait_fd(), 100);
      }
    }
    return (kClock.now_ns() - start_ns) / kNanosecondsPerMillisecond;
  }

  std::unique_ptr<ShmTransport> transport_;
  Endpoint peer_;
  pid_t child_ = -1;
  conformance::Recorder recorder_;
};

// An orderly life: answers every message with one of the same length, for ever.
[[noreturn]] void echo(ShmTransport* transport) {
  struct Echo final : Receiver {
    explicit Echo(ShmTransport* t) : transport(t) {}
    void on_message(uint32_t from, std::span<const std::byte> message) override {
      const Segment segment{message.data(), message.size()};
      if (transport->writable(from)) (void)transport->send(from, {&segment, 1}, 0);
    }
    void on_sent(uint64_t) override {}
    void on_lost(uint32_t, Loss, std::string_view) override { ::_exit(0); }
    ShmTransport* transport;
  } receiver(transport);
  for (;;) {
    if (!transport->poll(receiver) && transport->arm()) {
      conformance::wait_readable(transport->wait_fd(), 1000);
    }
  }
}

void echo_for_ever(ShmTransport* transport) { echo(transport); }

TEST_F(ShmProcess, ping_pong_between_processes) {
  start(echo_for_ever);
  recorder_.check_pattern = false;
  const std::vector<std::byte> message(300, std::byte{7});
  const Segment segment{message.data(), message.size()};
  uint64_t sent = 0;
  EXPECT_GE(poll_until(
                [&] {
                  if (sent == recorder_.received[1] && sent < 10000) {
                    EXPECT_TRUE(transport_->writable(1));
                    EXPECT_TRUE(transport_->send(1, {&segment, 1}, sent++).ok());
                  }
                  return recorder_.received[1] == 10000;
                },
                60000),
            0);
}

TEST_F(ShmProcess, kill_is_seen_without_a_lease) {
  start(echo_for_ever);
  ::kill(child_, SIGKILL);
  const int64_t took_ms = poll_until([&] { return recorder_.losses[1] == 1; });
  EXPECT_GE(took_ms, 0);
  EXPECT_LT(took_ms, 2000);  // 1 to 2 ms; more only where the machine is loaded
  EXPECT_NE(recorder_.reasons[1].find("process " + std::to_string(child_) + " exited"),
            std::string::npos)
      << recorder_.reasons[1];
  EXPECT_FALSE(transport_->writable(1));
}

TEST_F(ShmProcess, kill_is_seen_by_the_connection_where_no_pidfd_is) {
  start(echo_for_ever, false);
  ::kill(child_, SIGKILL);
  const int64_t took_ms = poll_until([&] { return recorder_.losses[1] == 1; });
  EXPECT_GE(took_ms, 0);
  EXPECT_LT(took_ms, 2000);  // 1 to 2 ms; more only where the machine is loaded
}

// Given a killed peer while sends to it are under way, and while this rank only spins, expect every
// send completed once and one loss.
TEST_F(ShmProcess, kill_while_sending) {
  start([](ShmTransport*) { ::pause(); });
  const std::vector<std::byte> message(kShmMessageBytesMax);
  const Segment segment{message.data(), message.size()};
  uint64_t sent = 0;
  while (transport_->writable(1)) {
    ASSERT_TRUE(transport_->send(1, {&segment, 1}, sent++).ok());
    if (sent == 8) ::kill(child_, SIGKILL);
  }
  EXPECT_GT(sent, 8u);
  const auto give_up = in_ms(10000);
  while (recorder_.losses[1] == 0 && kClock.now_ns() < give_up) transport_->poll(recorder_);
  EXPECT_EQ(recorder_.losses[1], 1u);
  EXPECT_EQ(recorder_.sent_count, sent);
}

// Given a peer that sent and then exited without closing, expect its messages before its loss.
TEST_F(ShmProcess, last_words_of_a_dead_process) {
  start([](ShmTransport* transport) {
    for (uint64_t i = 0; i < 10; ++i) {
      const auto message = conformance::make_message(1, i, 5000);
      const Segment segment{message.data(), message.size()};
      if (!transport->send(0, {&segment, 1}, i).ok()) ::_exit(4);
    }
    ::_exit(0);
  });
  EXPECT_GE(poll_until([&] { return recorder_.losses[1] == 1; }), 0);
  EXPECT_EQ(recorder_.received[1], 10u);
}

// Given a peer that forked a child which lives on, expect the peer's death to be seen all the same.
TEST_F(ShmProcess, a_forked_grandchild_does_not_hide_the_death) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  start([&](ShmTransport* transport) {
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ::pause();
      ::_exit(0);
    }
    (void)!::write(pipe_fds[1], &grandchild, sizeof grandchild);
    echo(transport);
  });
  pid_t grandchild = 0;
  ASSERT_EQ(::read(pipe_fds[0], &grandchild, sizeof grandchild),
            static_cast<ssize_t>(sizeof grandchild));
  ::kill(child_, SIGKILL);
  const int64_t took_ms = poll_until([&] { return recorder_.losses[1] == 1; });
  EXPECT_GE(took_ms, 0);
  EXPECT_LT(took_ms, 2000);  // 1 to 2 ms; more only where the machine is loaded
  ::kill(grandchild, SIGKILL);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
}

// Given a child forked after the rendezvous that destroys its copy, expect the peers to see
// nothing.
TEST_F(ShmProcess, a_forked_copy_says_nothing_when_destroyed) {
  start(echo_for_ever);
  const pid_t copy = ::fork();
  if (copy == 0) {
    transport_.reset();
    ::_exit(0);
  }
  ::waitpid(copy, nullptr, 0);
  recorder_.check_pattern = false;
  const Segment segment{"hello", 5};
  ASSERT_TRUE(transport_->send(1, {&segment, 1}, 1).ok());
  EXPECT_GE(poll_until([&] { return recorder_.received[1] == 1; }), 0);
  EXPECT_EQ(recorder_.losses[1], 0u);
}

TEST_F(ShmProcess, a_peer_stopped_while_attaching_is_a_timeout) {
  start([](ShmTransport*) { ::pause(); }, true, false);
  ::kill(child_, SIGSTOP);
  const int64_t start_ns = kClock.now_ns();
  const Status status = transport_->connect_all({&peer_, 1}, 5, in_ms(300));
  EXPECT_EQ(status.code(), PARALLAX_TIMEOUT);
  EXPECT_NE(status.message().find("rank 1 (host here)"), std::string::npos) << status.message();
  EXPECT_LT(kClock.now_ns() - start_ns, 2000 * kNanosecondsPerMillisecond);
}

TEST_F(ShmProcess, a_peer_killed_while_attaching_is_lost) {
  start([](ShmTransport*) { ::pause(); }, true, false);
  pid_t killer = ::fork();
  if (killer == 0) {
    ::usleep(100000);
    ::kill(child_, SIGKILL);
    ::_exit(0);
  }
  const int64_t start_ns = kClock.now_ns();
  const Status status = transport_->connect_all({&peer_, 1}, 5, in_ms(10000));
  EXPECT_EQ(status.code(), PARALLAX_PEER_LOST) << status.message();
  EXPECT_NE(status.message().find("rank 1 (host here)"), std::string::npos) << status.message();
  EXPECT_LT(kClock.now_ns() - start_ns, 2000 * kNanosecondsPerMillisecond);
  ::waitpid(killer, nullptr, 0);
}

// ---- buffers

constexpr uint64_t kBufferBytes = 1 << 20;

// As buffer_alloc makes them; it lives as long as its process.
SharedMemory make_buffer() {
  const int fd = ::memfd_create("parallax-buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(::ftruncate(fd, kBufferBytes), 0);
  EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  void* const base = ::mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  EXPECT_NE(base, MAP_FAILED);
  return {static_cast<const std::byte*>(base), kBufferBytes, fd};
}

volatile char& last_byte(const SharedMemory& memory) {
  return const_cast<volatile char&>(
      reinterpret_cast<const volatile char&>(memory.base[memory.bytes - 1]));
}

// Shares a buffer, writes into it whatever it is told by a message's first byte, and frees it as it
// is told 0.
[[noreturn]] void lend(ShmTransport* transport) {
  struct Lender final : Receiver {
    explicit Lender(ShmTransport* t) : transport(t) { transport->peer_memory()->share(own); }
    void on_message(uint32_t from, std::span<const std::byte> message) override {
      last_byte(own) = static_cast<char>(message[0]);
      if (message[0] == std::byte{0}) transport->peer_memory()->unshare(own.base);
      const Segment segment{message.data(), message.size()};
      if (transport->writable(from)) (void)transport->send(from, {&segment, 1}, 0);
    }
    void on_sent(uint64_t) override {}
    void on_lost(uint32_t, Loss, std::string_view) override { ::_exit(0); }
    ShmTransport* transport;
    const SharedMemory own = make_buffer();
  } lender(transport);
  for (;;) {
    if (!transport->poll(lender) && transport->arm()) {
      conformance::wait_readable(transport->wait_fd(), 1000);
    }
  }
}

void expect_lent(const PeerMemory& memory, uint64_t buffers) {
  EXPECT_EQ(memory.counts().mapped, buffers);
  EXPECT_EQ(memory.counts().mapped_bytes, buffers * kBufferBytes);
}

class ShmBuffers : public ShmProcess, public ::testing::WithParamInterface<bool> {
 protected:
  void tell(char what) {
    const Segment segment{&what, 1};
    const uint64_t before = recorder_.received[1];
    ASSERT_TRUE(transport_->writable(1));
    ASSERT_TRUE(transport_->send(1, {&segment, 1}, told_++).ok());
    ASSERT_GE(poll_until([&] { return recorder_.received[1] > before; }), 0);
  }
  bool until_mapped(uint64_t buffers) {
    return poll_until([&] { return transport_->peer_memory()->counts().mapped == buffers; }) >= 0;
  }
  uint64_t told_ = 0;
};

// With and without a pidfd, as where the other's pid namespace is not ours.
INSTANTIATE_TEST_SUITE_P(pidfd, ShmBuffers, ::testing::Bool());

TEST_P(ShmBuffers, are_read_in_another_process) {
  recorder_.check_pattern = false;
  start([](ShmTransport* transport) { lend(transport); }, GetParam());
  PeerMemory& memory = *transport_->peer_memory();
  ASSERT_TRUE(until_mapped(1));
  expect_lent(memory, 1);
  for (const char what : {'a', 'b', 'c'}) {
    tell(what);
    const std::byte* const seen = memory.find(1, {1, kBufferBytes - 1}, 1);
    ASSERT_NE(seen, nullptr);
    EXPECT_EQ(*seen, static_cast<std::byte>(what));
  }
  tell(0);
  ASSERT_TRUE(until_mapped(0));
  EXPECT_EQ(memory.find(1, {1, 0}, 1), nullptr);
  EXPECT_EQ(recorder_.losses[1], 0u);
}

TEST_P(ShmBuffers, go_with_the_process_that_owned_them) {
  recorder_.check_pattern = false;
  start([](ShmTransport* transport) { lend(transport); }, GetParam());
  ASSERT_TRUE(until_mapped(1));
  ::kill(child_, SIGKILL);
  EXPECT_GE(poll_until([&] { return recorder_.losses[1] == 1; }), 0);
  expect_lent(*transport_->peer_memory(), 0);
}

TEST_P(ShmBuffers, go_as_their_rank_is_forgotten) {
  recorder_.check_pattern = false;
  start([](ShmTransport* transport) { lend(transport); }, GetParam());
  ASSERT_TRUE(until_mapped(1));
  transport_->forget(1);
  expect_lent(*transport_->peer_memory(), 0);
}

// Given a rank that is stopped, expect its buffer to be read as it is, and what is shared with it
// meanwhile to be mapped once it goes on.
TEST_P(ShmBuffers, of_a_stopped_rank_stay) {
  recorder_.check_pattern = false;
  start([](ShmTransport* transport) { lend(transport); }, GetParam());
  ASSERT_TRUE(until_mapped(1));
  tell('x');
  ::kill(child_, SIGSTOP);
  PeerMemory& memory = *transport_->peer_memory();
  const SharedMemory own = make_buffer();
  ASSERT_TRUE(memory.share(own));
  EXPECT_EQ(*memory.find(1, {1, kBufferBytes - 1}, 1), std::byte{'x'});
  EXPECT_FALSE(memory.mapped_by(1, 1));
  ::kill(child_, SIGCONT);
  EXPECT_GE(poll_until([&] { return memory.mapped_by(1, 1); }), 0);
  memory.unshare(own.base);
  last_byte(own) = 'y';  // the owner's as ever
}

// Overwrites every ring this process shares, as a peer gone wild would.
[[noreturn]] void scribble(uint32_t seed, bool headers_only) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::ifstream maps("/proc/self/maps");
    std::string line;
    while (std::getline(maps, line)) {
      if (line.find("memfd:parallax-ring") == std::string::npos) continue;
      uint64_t from = 0;
      uint64_t to = 0;
      if (std::sscanf(line.c_str(), "%lx-%lx", &from, &to) != 2) continue;
      const uint64_t bytes = headers_only ? sizeof(RingHeader) : to - from;
      for (int i = 0; i < 200; ++i) {
        const uint64_t word = random() >> random() % 64;
        std::memcpy(reinterpret_cast<void*>(from + random() % (bytes / 8) * 8), &word, 8);
      }
    }
  }
  ::pause();
  ::_exit(0);
}

TEST_F(ShmProcess, corrupt_memory_loses_the_peer_and_nothing_else) {
  for (const uint32_t seed : {1u, 2u, 3u, 4u, 5u, 6u}) {
    recorder_ = {};
    recorder_.check_pattern = false;
    start([&](ShmTransport*) { scribble(seed, seed % 2 == 0); });
    const std::vector<std::byte> message(1000);
    const Segment segment{message.data(), message.size()};
    const int64_t took_ms = poll_until([&] {
      if (transport_->writable(1)) (void)transport_->send(1, {&segment, 1}, recorder_.sent.size());
      recorder_.sent.clear();
      return recorder_.losses[1] == 1;
    });
    EXPECT_GE(took_ms, 0) << "seed " << seed;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }
}

// Connects rank 0 and 1, each in a thread that starts before descriptors become few and ends after,
// since UBSan's checks of virtual calls need some. What they answered.
std::array<Status, 2> connect_with_few_descriptors(rlim_t descriptors) {
  std::array<Status, 2> answers;
  std::array<std::unique_ptr<ShmTransport>, 2> ranks;
  std::barrier few_from_here(3);
  std::barrier made(2);
  std::barrier few_until_here(3);
  const auto connect = [&](uint32_t rank) {
    answers[rank] = ShmTransport::create({.rank = rank, .clock = &kClock}, &ranks[rank]);
    made.arrive_and_wait();
    if (!answers[0].ok() || !answers[1].ok()) return;
    Endpoint peer;
    peer.rank = 1 - rank;
    peer.host = "here";
    peer.shm_address = ranks[1 - rank]->address();
    made.arrive_and_wait();  // nobody looks at answers[] any more
    answers[rank] = ranks[rank]->connect_all({&peer, 1}, 5, in_ms(3000));
  };
  const auto run = [&](uint32_t rank) {
    few_from_here.arrive_and_wait();
    few_from_here.arrive_and_wait();
    connect(rank);
    few_until_here.arrive_and_wait();
    few_until_here.arrive_and_wait();
  };
  std::thread zero(run, 0);
  std::thread one(run, 1);
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit few = before;
  few.rlim_cur = descriptors;
  few_from_here.arrive_and_wait();  // both threads run
  ::setrlimit(RLIMIT_NOFILE, &few);
  few_from_here.arrive_and_wait();
  few_until_here.arrive_and_wait();
  ::setrlimit(RLIMIT_NOFILE, &before);
  few_until_here.arrive_and_wait();
  zero.join();
  one.join();
  return answers;
}

// Given too few descriptors, expect a clear error wherever they run out, and no hang.
TEST(ShmDescriptors, running_out_is_told) {
  const int lowest = ::dup(0);
  ASSERT_GE(lowest, 0);
  ::close(lowest);
  bool connected = false;
  int refused = 0;
  for (rlim_t more = 0; more < 24 && !connected; ++more) {
    const auto answers = connect_with_few_descriptors(static_cast<rlim_t>(lowest) + more);
    connected = answers[0].ok() && answers[1].ok();
    if (connected) break;
    ++refused;
    bool told = false;
    for (const Status& answer : answers) {
      told |= answer.code() == PARALLAX_LIMIT &&
              answer.message().find("ulimit -n") != std::string::npos;
    }
    EXPECT_TRUE(told) << more << ": " << answers[0].message() << " / " << answers[1].message();
  }
  EXPECT_TRUE(connected);
  EXPECT_GT(refused, 8);
}

}  // namespace
}  // namespace parallax
