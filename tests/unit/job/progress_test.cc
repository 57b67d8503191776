// SPDX-License-Identifier: Apache-2.0
// Who drives an engine: a caller by hand, the progress thread, or whoever waits; and who is woken
// by what. Sleeps that nobody ends last a second each (kBlockMaxNs), so what must wake somebody is
// done so often that the test would not end in its time if it did not.
#include "job/progress.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/engine_world.h"
#include "support/heard_lines.h"
#include "support/real_time.h"
#include "support/words.h"
#include "unit/job/progress_world.h"

namespace parallax::testkit {
namespace {

// Rank 0 of two, with a lease of 1 s, driven by hand.
class ProgressOfOne : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(progress_.start(world_.groups(0), true).ok());
    progress_.drive_once();
  }
  // The next pass is late by so much, where it was due at once.
  void held_up(int64_t ns) {
    world_.clock().advance(std::max<int64_t>(due_in_ns(), 0) + ns);
    progress_.drive_once();
  }
  int64_t due_in_ns() {
    return progress_.look([](const Engine& engine) { return engine.next_deadline_ns(); }) -
           world_.clock().now_ns();
  }

  EngineWorld world_{WorldOptions{.hosts = {0, 0}, .lease_ns = 1000 * kMs}};
  Binding binding_;
  Progress progress_{world_.transport(0), world_.clock(), binding_};
  HeardLines heard_;
};

TEST_F(ProgressOfOne, IsWarnedOnceOfBeingHeldUpForAQuarterOfTheLease) {
  held_up(240 * kMs);
  EXPECT_TRUE(heard_.lines().empty()) << heard_.lines()[0];
  held_up(260 * kMs);
  ASSERT_EQ(heard_.lines().size(), 1u);
  EXPECT_TRUE(has(heard_.lines()[0], "rank 0 was held up for 260 ms, with a lease of 1000 ms"))
      << heard_.lines()[0];
  EXPECT_TRUE(has(heard_.lines()[0], "raise lease_ms, or give the ranks more cores"));
  held_up(300 * kMs);
  EXPECT_EQ(heard_.lines().size(), 1u);
}

// Given a request that is done already, as those are that complete within their calls, expect who
// waits for it to drive all the same: nobody else does.
TEST_F(ProgressOfOne, AWaitForWhatIsDoneDrivesWhereThereIsNoThread) {
  world_.clock().advance(due_in_ns());
  ASSERT_EQ(due_in_ns(), 0);
  EXPECT_TRUE(progress_.wait_for({}, kMs));
  EXPECT_GT(due_in_ns(), 0) << "no heartbeat was sent";
}

// Given no threads, expect a call to move what it can at once, and the rest once somebody
// drives.
TEST(Progress, ByHandNothingMovesUnlessItIsDriven) {
  TwoRanks ranks(true, true);
  Request* const zero = ranks.commit(0);
  Request* const one = ranks.commit(1);
  EXPECT_FALSE(zero->done());
  EXPECT_FALSE(one->done()) << "its report is on its way, and rank 0 does not look";
  ranks.progress(1).drive_once();
  EXPECT_FALSE(one->done());
  ranks.progress(0).drive_once();
  EXPECT_TRUE(zero->done()) << "the root has every report";
  EXPECT_FALSE(one->done());
  ranks.progress(1).drive_once();
  EXPECT_TRUE(one->done());
  ranks.expect_done(0, zero);
  ranks.expect_done(1, one);
}

// Given nobody who waits, expect the progress threads to bring requests to their end.
TEST(Progress, TheThreadDrivesWhereNobodyWaits) {
  TwoRanks ranks(false);
  for (int round = 0; round < 20; ++round) {
    Request* const zero = round == 0 ? ranks.commit(0) : ranks.barrier(0);
    Request* const one = round == 0 ? ranks.commit(1) : ranks.barrier(1);
    const int64_t end_ns = in_ms(kPromptMs);
    while ((!zero->done() || !one->done()) && kClock.now_ns() < end_ns) std::this_thread::yield();
    ranks.expect_done(0, zero);
    ranks.expect_done(1, one);
  }
}

// Given a rank without a thread, expect whoever waits to drive it, each after the other.
TEST(Progress, WhoWaitsDrives) {
  TwoRanks ranks(true);
  Request* const zero = ranks.commit(0);
  Request* const one = ranks.commit(1);
  ranks.expect_done(0, zero);
  ranks.expect_done(1, one);
  std::array<std::thread, 4> threads;
  std::atomic<int> done = 0;
  std::array<Request*, 4> mine, others;
  for (Request*& request : mine) request = ranks.barrier(0);
  for (size_t i = 0; i < threads.size(); ++i) {
    threads[i] = std::thread([&, i] { done += ranks.wait(0, mine[i]) ? 1 : 0; });
  }
  for (Request*& request : others) {
    request = ranks.barrier(1);
    EXPECT_TRUE(ranks.wait(1, request));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 4);
  for (Request* request : mine) ranks.expect_done(0, request);
  for (Request* request : others) ranks.expect_done(1, request);
}

// Given a peer that does not come, expect a wait to end at its deadline with the request
// pending: its missing peer can be told, it cannot be released, and a later wait sees its end.
TEST(Progress, AWaitEndsAtItsDeadlineAndTheRequestGoesOn) {
  for (const bool manual : {false, true}) {
    TwoRanks ranks(manual);
    ranks.commit_both();
    Request* const request = ranks.barrier(0);
    for (const int64_t timeout_ms : {-1, 0, 5}) {
      EXPECT_FALSE(ranks.wait(0, request, timeout_ms));
      EXPECT_FALSE(request->done());
    }
    EXPECT_TRUE(has(ranks.missing(0, *request), "rank 1 (host b)")) << ranks.missing(0, *request);
    EXPECT_EQ(ranks.release(0, request).code(), PARALLAX_STATE);
    Request* const other = ranks.barrier(1);
    ranks.expect_done(0, request);
    ranks.expect_done(1, other);
  }
}

// Given several requests, expect a wait for all to see the last, and a wait for none to be
// over.
TEST(Progress, AWaitIsForAllOfItsRequests) {
  TwoRanks ranks(true);
  ranks.commit_both();
  EXPECT_TRUE(ranks.progress(0).wait({}, 0));
  uint64_t number = 0, sent = 77;
  const std::array<Request*, 2> both = {ranks.barrier(0), ranks.broadcast(0, &number)};
  std::array<Request*, 2> others = {ranks.barrier(1), nullptr};
  EXPECT_TRUE(ranks.wait(0, both[0]));
  EXPECT_FALSE(ranks.progress(0).wait(both, in_ms(5))) << "the broadcast is missing";
  EXPECT_FALSE(both[1]->done());
  EXPECT_EQ(number, 0u);
  others[1] = ranks.broadcast(1, &sent);
  EXPECT_TRUE(ranks.progress(0).wait(both, in_ms(kPromptMs)));
  EXPECT_EQ(number, sent);
  for (Request* request : both) ranks.expect_done(0, request);
  for (Request* request : others) ranks.expect_done(1, request);
}

// Given a thread that drives while it waits for what comes last, expect the other waiters of
// the rank to be woken by each of their own.
TEST(Progress, WhoDoesNotDriveIsWokenByWhoDoes) {
  constexpr int kRounds = 200;
  TwoRanks ranks(true);
  ranks.commit_both();
  uint64_t number = 0, sent = 5;
  Request* const last = ranks.broadcast(0, &number);
  std::thread driver([&] { EXPECT_TRUE(ranks.wait(0, last, 10 * kPromptMs)); });
  std::atomic<int> begun = 0;
  std::thread peer([&] {
    for (int round = 0; round < kRounds; ++round) {
      while (begun <= round) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // rank 0 waits by then, mostly
      ranks.expect_done(1, ranks.barrier(1));
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    Request* const zero = ranks.barrier(0);
    ++begun;
    ranks.expect_done(0, zero);
  }
  peer.join();
  EXPECT_FALSE(last->done());
  ranks.expect_done(1, ranks.broadcast(1, &sent));
  driver.join();
  EXPECT_EQ(number, sent);
  ranks.expect_done(0, last);
}

// Given a waiter asleep with nothing to come, expect a call of another thread that ends its
// request to wake it, with the status that ends it.
TEST(Progress, ACallOfAnotherThreadWakesWhoWaits) {
  constexpr int kRounds = 150;
  for (int round = 0; round < kRounds; ++round) {
    TwoRanks ranks(round % 2 == 0);
    ranks.commit_both();
    Request* const request = ranks.barrier(0);
    std::atomic<bool> waits = false;
    std::thread waiter([&] {
      waits = true;
      EXPECT_TRUE(ranks.wait(0, request, 10 * kPromptMs));
    });
    while (!waits) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // to where it sleeps, most often
    const bool cancel = round % 3 == 0;
    const Status ended = ranks.progress(0).call([&](Engine& engine) {
      cancel ? engine.cancel(*request) : engine.complete_all();
      return Status();
    });
    EXPECT_TRUE(ended.ok());
    waiter.join();
    EXPECT_EQ(request->status.code(), cancel ? PARALLAX_CANCELED : PARALLAX_ABORTED);
    EXPECT_TRUE(ranks.release(0, request).ok());
  }
}

// Given callers that wait again and again, expect them to make no system call: nobody blocks, and
// the thread is woken once at most, from its first sleep; a moment after the last one left, expect
// it to drive again.
TEST(Progress, WaitsThatEndByLookingLeaveTheThreadAsleep) {
  StillClock clock;  // so that a moment is as long as the test wants
  TwoRanks ranks(false, false, clock);
  std::thread peer([&] {
    ranks.expect_done(1, ranks.commit(1));
    for (int round = 0; round < 500; ++round) ranks.expect_done(1, ranks.barrier(1));
  });
  ranks.expect_done(0, ranks.commit(0));
  for (int round = 0; round < 500; ++round) ranks.expect_done(0, ranks.barrier(0));
  peer.join();
  for (const uint32_t rank : {0u, 1u}) {
    EXPECT_EQ(ranks.progress(rank).counts().waits_blocked, 0u);
    EXPECT_GT(ranks.progress(rank).counts().waits_spun, 0u);
    EXPECT_LE(ranks.progress(rank).counts().bells, 1u);
  }
  const uint64_t passes = ranks.progress(0).counts().thread_passes;
  Request* const zero = ranks.barrier(0);
  Request* const one = ranks.barrier(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(ranks.progress(0).counts().thread_passes, passes) << "the moment is not over";
  clock.advance(Parking::kRestNs);
  ranks.expect_done_unwaited(0, zero);
  ranks.expect_done_unwaited(1, one);
}

// Given a caller that waited for long and has left, expect the thread to answer what a peer needs.
TEST(Progress, TheThreadTakesOverFromAWaiter) {
  for (const int64_t timeout_ms : {1, 5}) {
    TwoRanks ranks(false, true);
    Request* const first = ranks.commit(0);
    ranks.expect_done(1, ranks.commit(1));
    ranks.expect_done(0, first);
    for (int round = 0; round < 10; ++round) {
      Request* const zero = ranks.barrier(0);
      EXPECT_FALSE(ranks.wait(0, zero, timeout_ms));
      ranks.expect_done(1, ranks.barrier(1));
      ranks.expect_done_unwaited(0, zero);
    }
  }
}

// Given a caller that asks by waits of no time, expect the thread to drive nevertheless.
TEST(Progress, WhoOnlyAsksDoesNotKeepTheThreadFromDriving) {
  TwoRanks ranks(false);
  ranks.commit_both();
  Request* const zero = ranks.barrier(0);
  Request* const one = ranks.barrier(1);
  const int64_t end_ns = in_ms(kPromptMs);
  while (!ranks.wait(0, zero, 0) && kClock.now_ns() < end_ns) continue;
  EXPECT_TRUE(zero->done());
  ranks.expect_done(0, zero);
  ranks.expect_done(1, one);
}

// Given news that no message tells of, expect whoever drives to make a pass: a waiter asleep, or
// the thread, on duty or at rest.
TEST(Progress, NewsWakesWhoeverDrives) {
  StillClock clock;
  TwoRanks ranks(false, true, clock);
  Progress& progress = ranks.progress(0);
  for (int round = 0; round < 20; ++round) {
    const uint64_t passes = progress.counts().thread_passes;
    progress.wake();
    const int64_t end_ns = in_ms(kPromptMs);
    while (progress.counts().thread_passes == passes && kClock.now_ns() < end_ns) {
      std::this_thread::yield();
    }
    ASSERT_GT(progress.counts().thread_passes, passes);
    if (round != 10) continue;
    // From here on it rests, and the clock stands still.
    Request* const zero = ranks.commit(0);
    ranks.expect_done(1, ranks.commit(1));
    ranks.expect_done(0, zero);
  }
}

// Given the descriptor of completions, expect it to be readable from a completion until it is
// read.
TEST(Progress, ADescriptorTellsOfCompletions) {
  TwoRanks ranks(true, true);
  ranks.commit_both();
  const int fd = ranks.progress(0).completion_fd();
  ASSERT_GE(fd, 0);
  EXPECT_EQ(ranks.progress(0).completion_fd(), fd);
  const auto readable = [fd] {
    pollfd entry = {.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&entry, 1, 0) == 1;
  };
  Request* const zero = ranks.barrier(0);
  Request* const one = ranks.barrier(1);
  EXPECT_FALSE(readable());
  ranks.progress(0).drive_once();
  EXPECT_TRUE(zero->done());
  EXPECT_TRUE(readable());
  uint64_t count = 0;
  EXPECT_EQ(read(fd, &count, sizeof count), static_cast<ssize_t>(sizeof count));
  EXPECT_EQ(count, 1u);
  EXPECT_FALSE(readable());
  ranks.expect_done(1, one);
  ranks.expect_done(0, zero);
}

// Given a waiter, expect its own requests' completions not to be told by the descriptor, which
// would cost each of them a system call, and another's that comes in the same passes to be.
TEST(Progress, ADescriptorTellsOfCompletionsThatNobodyWaitsFor) {
  TwoRanks ranks(true, true);
  ranks.commit_both();
  const int fd = ranks.progress(0).completion_fd();
  uint64_t count = 0;
  for (int round = 0; round < 3; ++round) {
    Request* const zero = ranks.barrier(0);
    Request* const one = ranks.barrier(1);
    ranks.progress(1).drive_once();
    ASSERT_TRUE(ranks.wait(0, zero));
    EXPECT_EQ(read(fd, &count, sizeof count), -1) << count << " told";
    ranks.expect_done(1, one);
    ranks.expect_done(0, zero);
  }
  uint64_t number = 0, sent = 9;
  Request* const unwaited = ranks.broadcast(0, &number);
  Request* const root = ranks.broadcast(1, &sent);
  Request* const waited = ranks.barrier(0);
  Request* const other = ranks.barrier(1);
  ranks.progress(1).drive_once();
  ASSERT_TRUE(ranks.wait(0, waited));
  while (!unwaited->done()) ranks.progress(0).drive_once();
  EXPECT_EQ(read(fd, &count, sizeof count), static_cast<ssize_t>(sizeof count));
  EXPECT_EQ(count, 1u);
  ranks.expect_done(0, unwaited);
  ranks.expect_done(0, waited);
  ranks.expect_done(1, root);
  ranks.expect_done(1, other);
}

// Given a process that may open nothing more, expect a sentence with the remedy.
TEST(Progress, WithoutDescriptorsItSaysSo) {
  EngineWorld world(WorldOptions{});
  Binding binding;
  Progress progress(world.transport(0), world.clock(), binding);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Status status = progress.start(world.groups(0), true);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), PARALLAX_LIMIT);
  EXPECT_TRUE(has(status, "raise ulimit -n")) << status.message();
}

}  // namespace
}  // namespace parallax::testkit
