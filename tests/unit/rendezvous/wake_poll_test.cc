// SPDX-License-Identifier: Apache-2.0
// WakePoll: what ends a sleep.
#include "rendezvous/wake_poll.h"

#include <thread>

#include "unit/rendezvous/link_kit.h"

namespace parallax {
namespace {

using link_kit::kClock;

// Ended by the clock, such a sleep would take a second, and this test with it.
TEST(WakePoll, a_wake_before_or_during_a_sleep_ends_it) {
  const WakePoll poll;
  ASSERT_TRUE(poll.made().ok());
  std::vector<pollfd> fds;
  poll.wake();
  poll.wake();
  poll.sleep(&fds, kClock, kNever);
  EXPECT_NE(fds.back().revents & POLLIN, 0);
  std::thread waker([&] { poll.wake(); });
  fds.clear();
  poll.sleep(&fds, kClock, kNever);
  waker.join();
  EXPECT_NE(fds.back().revents & POLLIN, 0);
}

TEST(WakePoll, a_descriptor_ends_it_and_so_does_what_is_due) {
  const WakePoll poll;
  const auto [near, far] = link_kit::connected();
  std::vector<pollfd> fds{{near.get(), POLLIN, 0}};
  poll.sleep(&fds, kClock, kClock.now_ns());
  EXPECT_EQ(fds.front().revents, 0);
  ASSERT_EQ(::send(far.get(), "x", 1, 0), 1);
  fds.assign(1, {near.get(), POLLIN, 0});
  poll.sleep(&fds, kClock, kNever);
  EXPECT_NE(fds.front().revents & POLLIN, 0);
}

}  // namespace
}  // namespace parallax
