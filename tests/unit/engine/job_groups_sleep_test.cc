// SPDX-License-Identifier: Apache-2.0
// Which posts of others end a rank's sleep: over shm, whose bell tells, step by step.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/job_groups.h"
#include "support/engine_world.h"
#include "support/real_time.h"
#include "transport/shm/shm_transport.h"

namespace parallax::testkit {
namespace {

// Two ranks of a host with a variable of one element, held by the framework, on their boards.
class Sleepers : public testing::Test {
 protected:
  void SetUp() override {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(
          ShmTransport::create({.rank = rank, .clock = &kClock, .boards = true}, &transports_[rank])
              .ok());
    }
    std::thread other([this] { connect(1); });
    connect(0);
    other.join();
    std::array<Request*, 2> commits = {};
    for (uint32_t rank = 0; rank < 2; ++rank) {
      groups_[rank] = std::make_unique<JobGroups>(
          EngineOptions{.rank = rank, .view = first_view(hosts_), .lease_ns = 600'000'000'000},
          *transports_[rank], kClock, compute_[rank]);
      ASSERT_TRUE(groups_[rank]->start().ok());
      uint32_t id = 0;
      ASSERT_TRUE(engine(rank).job_calls().register_variable(dense_variable("x", 1, 1), &id).ok());
      ASSERT_TRUE(engine(rank).job_calls().commit(&commits[rank]).ok());
    }
    run_until_done(commits[0], commits[1]);
    ASSERT_TRUE(engine(0).group().entries().are_all());
  }
  void TearDown() override {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      if (groups_[rank] != nullptr) groups_[rank]->complete_all();
    }
  }

  void connect(uint32_t rank) {
    Endpoint peer;
    peer.rank = 1 - rank;
    peer.host = "here";
    peer.shm_address = transports_[1 - rank]->address();
    EXPECT_TRUE(transports_[rank]->connect_all({&peer, 1}, 99, in_ms(20000)).ok());
  }
  Engine& engine(uint32_t rank) { return groups_[rank]->whole(); }
  void run_until_done(Request* a, Request* b) {
    const int64_t end_ns = in_ms(kPromptMs);
    while ((!a->done() || !b->done()) && kClock.now_ns() < end_ns) {
      for (const auto& each : groups_) each->run();
    }
    ASSERT_TRUE(a->done() && b->done());
    EXPECT_TRUE(a->status.ok()) << a->status.message();
    EXPECT_TRUE(b->status.ok()) << b->status.message();
  }
  // As who drives does, with nothing left to be seen.
  void sleep(uint32_t rank) {
    groups_[rank]->run();
    while (!groups_[rank]->arm()) groups_[rank]->run();
    ASSERT_FALSE(woken(rank));
  }
  bool woken(uint32_t rank) {
    pollfd entry = {.fd = transports_[rank]->wait_fd(), .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, 0) == 1;
  }

  // Calls, as threads beside the one that sleeps make them.
  Request* reduce(uint32_t rank) {
    uint64_t step = 0;
    EXPECT_TRUE(engine(rank).step_calls().begin(&step).ok());
    const parallax_slice_t slice = dense_slice(0, &values_[rank]);
    Request* request = nullptr;
    EXPECT_TRUE(engine(rank).step_calls().reduce(step, {&slice, 1}, &request).ok());
    groups_[rank]->kick();
    return request;
  }
  Request* end(uint32_t rank) {
    Request* request = nullptr;
    StepCalls& calls = engine(rank).step_calls();
    EXPECT_TRUE(calls.end(engine(rank).window().begun(), end_options(1), &request).ok());
    groups_[rank]->kick();
    return request;
  }

  const HostMap hosts_ = map_hosts(std::vector<std::string>{"here", "here"});
  std::array<std::unique_ptr<ShmTransport>, 2> transports_;
  std::array<InlineCompute, 2> compute_;
  std::array<std::unique_ptr<JobGroups>, 2> groups_;
  std::array<float, 2> values_ = {1, 2};
};

// Given a rank that sleeps and has called nothing of the step, expect what others give and vote to
// leave it asleep, and to be there when it calls.
TEST_F(Sleepers, WhoAwaitsNothingSleepsOn) {
  sleep(1);
  Request* const first = reduce(0);
  Request* const first_end = end(0);
  EXPECT_FALSE(woken(1));
  Request* const second = reduce(1);
  EXPECT_TRUE(second->done());
  EXPECT_EQ(values_[1], 3);
  Request* const second_end = end(1);
  EXPECT_TRUE(second_end->done());
  EXPECT_FALSE(woken(1));
  run_until_done(first, first_end);
  EXPECT_EQ(values_[0], 3);
}

// Given one whose call awaits what others give, or vote, while it sleeps, expect that to wake it.
TEST_F(Sleepers, WhoAwaitsAPostIsWoken) {
  sleep(1);
  Request* const second = reduce(1);
  EXPECT_FALSE(second->done() || woken(1));
  Request* const first = reduce(0);
  EXPECT_TRUE(woken(1)) << "with what rank 0 gives";
  run_until_done(first, second);
  sleep(1);
  Request* const second_end = end(1);
  EXPECT_FALSE(second_end->done() || woken(1));
  Request* const first_end = end(0);
  EXPECT_TRUE(woken(1)) << "with the vote of rank 0";
  run_until_done(first_end, second_end);
}

// Given one that awaits what others give as it goes to sleep, expect the same.
TEST_F(Sleepers, WhoGoesToSleepAwaitingAPostIsWoken) {
  Request* const second = reduce(1);
  sleep(1);
  Request* const first = reduce(0);
  EXPECT_TRUE(woken(1));
  run_until_done(first, second);
  Request* const ends[] = {end(0), end(1)};
  run_until_done(ends[0], ends[1]);
}

// Given one that closes while it sleeps, expect a vote on a step that it has not ended to wake it:
// it fails the job, for the others' sake.
TEST_F(Sleepers, WhoClosesHearsOfAStepThatOthersEnd) {
  sleep(1);
  Request* close = nullptr;
  ASSERT_TRUE(engine(1).job_calls().close(&close).ok());
  groups_[1]->kick();
  EXPECT_FALSE(woken(1));
  reduce(0);
  end(0);
  EXPECT_TRUE(woken(1));
  groups_[1]->run();
  EXPECT_EQ(engine(1).failure().code(), PARALLAX_PEER_LOST) << engine(1).failure().message();
}

}  // namespace
}  // namespace parallax::testkit
