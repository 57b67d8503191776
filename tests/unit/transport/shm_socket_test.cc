// SPDX-License-Identifier: Apache-2.0
// The sockets over which shared memory is attached.
#include "transport/shm/socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <thread>

namespace parallax {
namespace {

// Given a peer that says one thing and hangs up, while it is listened to all the time, expect to
// hear it, always: the system may tell of the end alone.
TEST(ShmSocket, last_words_are_heard) {
  constexpr int kTimes = 30'000;
  std::atomic<int> spoken{-1};
  std::atomic<int> turn{0};
  std::thread peer([&] {
    for (int i = 1; i <= kTimes; ++i) {
      while (turn.load() != i) std::this_thread::yield();
      UniqueFd mouth(spoken.load());
      const std::byte word{1};
      EXPECT_EQ(send_packet(mouth, {&word, 1}, {}), SocketNews::kOk);
    }
  });
  int unheard = 0;
  for (int i = 1; i <= kTimes; ++i) {
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
  peer.join();
  EXPECT_EQ(unheard, 0);
}

}  // namespace
}  // namespace parallax
