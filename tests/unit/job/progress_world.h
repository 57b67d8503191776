// SPDX-License-Identifier: Apache-2.0
// Two ranks, each driven by its own Progress, and a clock that stands still.
#ifndef PARALLAX_TESTS_UNIT_JOB_PROGRESS_WORLD_H_
#define PARALLAX_TESTS_UNIT_JOB_PROGRESS_WORLD_H_

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "job/progress.h"
#include "support/engine_world.h"
#include "support/real_time.h"
#include "transport/inproc/inproc_transport.h"

namespace parallax::testkit {

inline constexpr int64_t kMs = kNanosecondsPerMillisecond;

// Stands still but where a test moves it; for several threads.
class StillClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_; }
  void advance(int64_t by_ns) { now_ns_ += by_ns; }

 private:
  std::atomic<int64_t> now_ns_{1'000'000'000};
};

// Two ranks over inproc, each driven by its own Progress, on the real clock or another one.
class TwoRanks {
 public:
  explicit TwoRanks(bool manual_0, bool manual_1 = false, const Clock& clock = kClock)
      : hosts_(map_hosts(names())), clock_(clock) {
    for (uint32_t rank = 0; rank < 2; ++rank) ranks_[rank] = std::make_unique<Rank>(*this, rank);
    EXPECT_TRUE(ranks_[0]->progress.start(ranks_[0]->groups, manual_0).ok());
    EXPECT_TRUE(ranks_[1]->progress.start(ranks_[1]->groups, manual_1).ok());
  }
  ~TwoRanks() {
    for (const auto& rank : ranks_) rank->progress.stop();
  }
  TwoRanks(const TwoRanks&) = delete;
  TwoRanks& operator=(const TwoRanks&) = delete;

  Progress& progress(uint32_t rank) { return ranks_[rank]->progress; }

  // What a call of the engine gives, posted as the C ABI does.
  template <typename Call>
  Request* post(uint32_t rank, Call call) {
    Request* request = nullptr;
    const Status status =
        progress(rank).call([&](Engine& engine) { return call(engine, &request); });
    EXPECT_TRUE(status.ok()) << status.message();
    return request;
  }
  Request* commit(uint32_t rank) {
    return post(rank, [](Engine& engine, Request** out) { return engine.job_calls().commit(out); });
  }
  Request* barrier(uint32_t rank) {
    return post(
        rank, [](Engine& engine, Request** out) { return engine.collective_calls().barrier(out); });
  }
  // From rank 1.
  Request* broadcast(uint32_t rank, uint64_t* number) {
    return post(rank, [&](Engine& engine, Request** out) {
      return engine.collective_calls().broadcast(reinterpret_cast<std::byte*>(number),
                                                 sizeof *number, 1, out);
    });
  }
  Status release(uint32_t rank, Request* request) {
    return progress(rank).call([&](Engine& engine) { return engine.release(request); });
  }
  std::string missing(uint32_t rank, const Request& request) {
    return progress(rank).look(
        [&](const Engine& engine) { return engine.reports().missing(request).message(); });
  }
  bool wait(uint32_t rank, Request* request, int64_t timeout_ms = kPromptMs) {
    return progress(rank).wait({&request, 1}, clock_.now_ns() + timeout_ms * kMs);
  }
  // Without a wait: by whoever drives.
  void expect_done_unwaited(uint32_t rank, Request* request) {
    const int64_t end_ns = in_ms(kPromptMs);
    while (!request->done() && kClock.now_ns() < end_ns) std::this_thread::yield();
    ASSERT_TRUE(request->done());
    EXPECT_TRUE(release(rank, request).ok());
  }
  void expect_done(uint32_t rank, Request* request) {
    ASSERT_TRUE(wait(rank, request));
    EXPECT_TRUE(request->status.ok()) << request->status.message();
    EXPECT_TRUE(release(rank, request).ok());
  }
  void commit_both() {
    Request* const zero = commit(0);
    Request* const one = commit(1);
    while (!zero->done() || !one->done()) {
      progress(0).drive_once();
      progress(1).drive_once();
    }
    expect_done(0, zero);
    expect_done(1, one);
  }

 private:
  static constexpr int64_t kForeverNs = 600'000 * kMs;  // a lease that no test waits for

  struct Rank {
    Rank(const TwoRanks& world, uint32_t rank)
        : transport(transport_of(world, rank)),
          progress(*transport, world.clock_, binding),
          groups({.rank = rank, .view = first_view(world.hosts_), .lease_ns = kForeverNs},
                 *transport, world.clock_, compute, [this] { progress.on_completed(); }) {
      EXPECT_TRUE(groups.start().ok());
    }
    std::unique_ptr<InprocTransport> transport;
    Binding binding;
    InlineCompute compute;
    Progress progress;
    JobGroups groups;
  };

  static std::vector<std::string> names() { return {"a", "b"}; }
  static std::unique_ptr<InprocTransport> transport_of(const TwoRanks& world, uint32_t rank) {
    std::unique_ptr<InprocTransport> transport;
    EXPECT_TRUE(InprocTransport::create(world.hub_, rank, &transport).ok());
    return transport;
  }

  const HostMap hosts_;
  const Clock& clock_;
  const std::shared_ptr<InprocHub> hub_ = std::make_shared<InprocHub>(2);
  std::array<std::unique_ptr<Rank>, 2> ranks_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_JOB_PROGRESS_WORLD_H_
