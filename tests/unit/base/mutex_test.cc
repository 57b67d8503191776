// SPDX-License-Identifier: Apache-2.0
#include "base/mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace parallax {
namespace {

// A room for one visitor at a time.
struct Room {
  Mutex mutex;
  CondVar changed;
  int visitors PARALLAX_GUARDED_BY(mutex) = 0;
  int visits PARALLAX_GUARDED_BY(mutex) = 0;

  void visit() PARALLAX_REQUIRES(mutex) {
    EXPECT_EQ(++visitors, 1);
    for (int i = 0; i < 4; ++i) std::this_thread::yield();  // let others in, if they can
    EXPECT_EQ(visitors--, 1);
    ++visits;
  }
};

// Given threads that enter a room again and again, expect each alone in it.
void expect_alone(const std::function<void(Room& room)>& enter) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  Room room;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) enter(room);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MutexLock lock(room.mutex);
  EXPECT_EQ(room.visits, kThreads * kRounds);
}

TEST(Mutex, HasOneHolder) {
  expect_alone([](Room& room) {
    room.mutex.lock();
    room.visit();
    room.mutex.unlock();
  });
}

TEST(MutexLock, HoldsForItsScope) {
  expect_alone([](Room& room) {
    const MutexLock lock(room.mutex);
    room.visit();
  });
}

// Given a lock that was given up, when it is taken again, expect it to hold as at first.
TEST(MutexLock, HoldsAgainOnceRelocked) {
  expect_alone([](Room& room) {
    MutexLock lock(room.mutex);
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
    room.visit();
  });
}

// Given a lock that was given up and a thread that took the mutex since, when the lock's scope is
// left by an exception, expect it to leave the mutex to that thread.
TEST(MutexLock, LeavesAloneWhatItGaveUp) {
  Room room;
  std::atomic<bool> taken{false};
  std::atomic<bool> next_comes{false};
  std::thread holder;
  const auto give_up = [&] {
    MutexLock lock(room.mutex);
    lock.unlock();
    holder = std::thread([&] {
      const MutexLock held(room.mutex);
      ++room.visitors;
      taken = true;
      while (!next_comes) std::this_thread::yield();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      --room.visitors;
    });
    while (!taken) std::this_thread::yield();
    throw std::runtime_error("between unlock and lock");
  };
  EXPECT_THROW(give_up(), std::runtime_error);
  next_comes = true;
  {
    const MutexLock lock(room.mutex);
    EXPECT_EQ(room.visitors, 0);
  }
  holder.join();
}

// Given two threads that take turns, expect a wait to give the mutex up, and a notification to end
// it: else nobody's turn comes.
TEST(CondVar, PassesTurns) {
  constexpr int kTurns = 1000;
  Mutex mutex;
  CondVar changed;
  int turn = 0;
  const auto play = [&](int parity) {
    const MutexLock lock(mutex);
    while (turn < kTurns) {
      while (turn < kTurns && turn % 2 != parity) changed.wait(mutex);
      if (turn < kTurns) ++turn;
      changed.notify_one();
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(turn, kTurns);
}

// Given threads that all wait, when one call wakes them, expect each to go on, alone.
TEST(CondVar, NotifyAllWakesEveryWaiter) {
  constexpr int kWaiters = 8;
  Room room;
  int waiting = 0;
  bool go = false;
  std::vector<std::thread> waiters;
  for (int i = 0; i < kWaiters; ++i) {
    waiters.emplace_back([&] {
      const MutexLock lock(room.mutex);
      ++waiting;
      while (!go) room.changed.wait(room.mutex);
      for (int visit = 0; visit < 100; ++visit) room.visit();
    });
  }
  for (bool all = false; !all; std::this_thread::yield()) {
    const MutexLock lock(room.mutex);
    all = waiting == kWaiters;
    if (all) go = true;
  }
  room.changed.notify_all();
  for (std::thread& waiter : waiters) waiter.join();
  const MutexLock lock(room.mutex);
  EXPECT_EQ(room.visits, 100 * kWaiters);
}

TEST(CondVar, HoldsAgainAfterAWait) {
  expect_alone([](Room& room) {
    const MutexLock lock(room.mutex);
    room.changed.wait_for(room.mutex, std::chrono::nanoseconds(1));
    room.visit();
    room.changed.notify_all();
    room.changed.wait_until(room.mutex, std::chrono::steady_clock::now());
    EXPECT_EQ(room.visitors, 0);
  });
}

// Given a time that has passed, expect a wait to say so, though it was notified.
TEST(CondVar, IsFalseOnceTheTimeHasPassed) {
  Mutex mutex;
  CondVar changed;
  const MutexLock lock(mutex);
  changed.notify_all();
  EXPECT_FALSE(changed.wait_until(mutex, std::chrono::steady_clock::now()));
  EXPECT_FALSE(changed.wait_for(mutex, std::chrono::milliseconds(-1)));
  EXPECT_FALSE(changed.wait_for(mutex, std::chrono::nanoseconds(0)));
}

// Given a time far off, expect a notification to end the wait, which says that there is time left.
TEST(CondVar, IsTrueBeforeTheTimeHasPassed) {
  Mutex mutex;
  CondVar changed;
  bool said = false;
  MutexLock lock(mutex);  // before there is anyone to notify
  std::thread other([&] {
    const MutexLock speaking(mutex);
    said = true;
    changed.notify_one();
  });
  while (!said) EXPECT_TRUE(changed.wait_for(mutex, std::chrono::hours(1)));
  EXPECT_TRUE(said);
  lock.unlock();
  other.join();
}

}  // namespace
}  // namespace parallax
