// SPDX-License-Identifier: Apache-2.0
// The sockets over which shared memory is attached.
#include "transport/shm/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "support/real_time.h"

namespace parallax {
namespace {

// Given a peer that says one thing and hangs up, while it is listened to all the time, expect to
// hear it, always: the system may tell of the end alone. Less often where the two threads must wait
// for their turn on a busy machine.
TEST(ShmSocket, last_words_are_heard) {
  constexpr int kTimes = 30'000, kTimesMin = 100;
  constexpr int64_t kLongMs = 5000;
  const int64_t end_ns = testkit::in_ms(kLongMs);
  std::atomic<int> spoken{-1};
  std::atomic<int> turn{0};
  std::atomic<bool> over{false};
  std::thread peer([&] {
    for (int i = 1;; ++i) {
      while (turn.load() != i && !over) std::this_thread::yield();
      if (over) return;
      UniqueFd mouth(spoken.load());
      const std::byte word{1};
      EXPECT_EQ(send_packet(mouth, {&word, 1}, {}), SocketNews::kOk);
    }
  });
  int unheard = 0;
  for (int i = 1; i <= kTimes; ++i) {
    if (i > kTimesMin && testkit::kClock.now_ns() > end_ns) break;
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    const UniqueFd ear(ends[0]);
    spoken = ends[1];
    turn = i;
    std::array<UniqueFd, kFdsInPacketMax> fds;
    std::byte word{};
    size_t bytes = 0;
    size_t fd_count = 0;
    SocketNews news = SocketNews::kAgain;
    for (int tries = 1; news == SocketNews::kAgain; ++tries) {
      if (tries % 256 == 0) std::this_thread::yield();  // not at once: the moment is short
      news = receive_packet(ear, {&word, 1}, &bytes, fds, &fd_count);
    }
    unheard += news == SocketNews::kOk && bytes == 1 ? 0 : 1;
  }
  over = true;
  peer.join();
  EXPECT_EQ(unheard, 0);
}

// Listens as another user, says the name, and waits for the end of `until`. A child's whole life.
void listen_as(uid_t user, int say, int until) {
  UniqueFd listener;
  std::string name;
  if (::setresuid(user, user, user) != 0 || !listen_abstract(&listener, &name).ok() ||
      ::write(say, name.data(), name.size()) != static_cast<ssize_t>(name.size())) {
    ::_exit(1);
  }
  char end = 0;
  (void)!::read(until, &end, 1);
  ::_exit(0);
}

// Given a listener of this user, and one of another who took a name that is free again, expect the
// first to be spoken to and the second not.
TEST(ShmSocket, a_listener_of_another_user_is_not_spoken_to) {
  UniqueFd own, socket;
  std::string name;
  ASSERT_TRUE(listen_abstract(&own, &name).ok());
  EXPECT_EQ(connect_abstract(name, &socket), SocketNews::kOk);
  EXPECT_TRUE(socket.valid());
  if (::geteuid() != 0) GTEST_SKIP() << "only root can listen as another user";
  constexpr uid_t kNobody = 65534;
  int said[2], until[2];
  ASSERT_EQ(::pipe2(said, O_CLOEXEC) + ::pipe2(until, O_CLOEXEC), 0);
  const UniqueFd said_in(said[0]), until_in(until[0]);
  UniqueFd said_out(said[1]), until_out(until[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    until_out.reset();
    listen_as(kNobody, said_out.get(), until_in.get());
  }
  said_out.reset();
  char bytes[128];
  const ssize_t count = ::read(said_in.get(), bytes, sizeof bytes);
  ASSERT_GT(count, 0);
  socket.reset();
  EXPECT_EQ(connect_abstract(std::string(bytes, static_cast<size_t>(count)), &socket),
            SocketNews::kOtherUser);
  EXPECT_FALSE(socket.valid());
  until_out.reset();
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace parallax
