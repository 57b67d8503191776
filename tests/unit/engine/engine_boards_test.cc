// SPDX-License-Identifier: Apache-2.0
// Small steps of ranks of one host, whole engines: what is said on boards, and that nothing of it
// is sent.
#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/engine_world.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kBoardRows = 8;

// One step at all ranks, in an order that the world draws, all of it called before anything is
// waited for, or call by call.
class BoardSteps {
 public:
  explicit BoardSteps(EngineWorld& world)
      : world_(world), sums_(world.size(), std::vector<float>(kBoardRows)) {
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      world.transport(rank).tap([this](uint32_t, std::span<const Segment>) { ++messages_; });
    }
  }

  struct Step {
    uint32_t variable = 0;
    uint32_t absent = UINT32_MAX;
    uint32_t infinite = UINT32_MAX;
    uint32_t other_rate = UINT32_MAX;
    bool waits_for_reduce = false;
  };
  // Rank r gives r + 1.
  void run(const Step& how) {
    std::vector<Request*> reduces, ends(world_.size());
    std::vector<std::vector<float>> given(world_.size());
    std::vector<uint64_t> steps(world_.size());
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      StepCalls& calls = world_.engine(rank).step_calls();
      ASSERT_TRUE(calls.begin(&steps[rank]).ok());
      if (rank == how.absent) continue;
      given[rank].assign(kBoardRows, static_cast<float>(rank + 1));
      parallax_slice_t slice = dense_slice(how.variable, given[rank].data());
      slice.into = sums_[rank].data();
      reduces.emplace_back();
      ASSERT_TRUE(calls.reduce(steps[rank], {&slice, 1}, &reduces.back()).ok());
      if (world_.random().chance(50)) world_.engine(rank).kick();
    }
    if (how.waits_for_reduce) {
      // Nobody is known to be absent before it has ended the step.
      ASSERT_EQ(how.absent, UINT32_MAX);
      ASSERT_TRUE(world_.run_until_done(reduces));
    }
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      parallax_step_end_options_t end = end_options(rank == how.other_rate ? 2.0f : 1.0f);
      end.absent = rank == how.absent ? 1 : 0;
      end.found_inf = rank == how.infinite ? 1 : 0;
      ASSERT_TRUE(world_.engine(rank).step_calls().end(steps[rank], end, &ends[rank]).ok());
    }
    ASSERT_TRUE(world_.run_until_done(reduces));
    ASSERT_TRUE(world_.run_until_done(ends));
    for (Request* reduce : reduces) EXPECT_TRUE(reduce->status.ok()) << reduce->status.message();
    const uint32_t gave = world_.size() - (how.absent == UINT32_MAX ? 0 : 1);
    float sum = 0;
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      if (rank != how.absent) sum += static_cast<float>(rank + 1);
    }
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      if (rank != how.absent) {
        EXPECT_EQ(sums_[rank], std::vector<float>(kBoardRows, sum));
      }
      const Request& end = *ends[rank];
      EXPECT_EQ(end.status.code(), how.other_rate == UINT32_MAX ? PARALLAX_OK : PARALLAX_MISMATCH);
      const bool commits = how.other_rate == UINT32_MAX && how.infinite == UINT32_MAX;
      EXPECT_EQ(end.info.committed, commits ? 1u : 0u);
      EXPECT_EQ(end.info.contributors, gave);
      if (how.other_rate != UINT32_MAX) {
        const std::string named = "rank " + std::to_string(how.other_rate);
        EXPECT_NE(end.status.message().find(named), std::string::npos) << end.status.message();
      }
      EXPECT_TRUE(world_.engine(rank).release(ends[rank]).ok());
    }
    size_t at = 0;
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      if (rank != how.absent) {
        EXPECT_TRUE(world_.engine(rank).release(reduces[at++]).ok());
      }
    }
  }
  uint64_t take_messages() { return std::exchange(messages_, 0); }

 private:
  EngineWorld& world_;
  std::vector<std::vector<float>> sums_;
  uint64_t messages_ = 0;
};

void commit_one(EngineWorld& world, const char* name, uint64_t row_elements = 1) {
  const parallax_variable_t variable = dense_variable(name, kBoardRows, row_elements);
  for (const Status& status : world.commit({&variable, 1})) {
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

// Given steps of all kinds, expect the sums of those who gave, what all agree on, and no message;
// of a variable that a later commit brings, too.
TEST(EngineBoards, StepsOfOneHostSendNothing) {
  for (const uint32_t ranks : {2u, 3u, 5u, 8u}) {
    for (const bool deterministic : {false, true}) {
      EngineWorld world({.hosts = std::vector<uint32_t>(ranks),
                         .deterministic = deterministic,
                         .seed = 2 * ranks,
                         .slow_percent = 30});
      BoardSteps steps(world);
      commit_one(world, "v");
      world.settle();
      steps.take_messages();
      for (uint32_t variable = 0; variable < 2; ++variable) {
        for (uint32_t i = 0; i < 3; ++i) {
          steps.run({.variable = variable, .waits_for_reduce = true});
          steps.run({.variable = variable});
          steps.run({.variable = variable, .absent = i % ranks});
          steps.run({.variable = variable, .infinite = (i + 1) % ranks});
          // Which of two is the odd one nobody can tell.
          if (ranks > 2) steps.run({.variable = variable, .other_rate = i % ranks});
          if (testing::Test::HasFatalFailure()) return;
        }
        EXPECT_EQ(steps.take_messages(), 0u) << ranks << " ranks, variable " << variable;
        if (variable == 0) commit_one(world, "w");
        world.settle();
        steps.take_messages();
      }
    }
  }
}

// Given a transport without boards, or engines that are not to use them, expect the same of
// messages.
TEST(EngineBoards, WithoutBoardsTheSameIsSent) {
  for (const uint64_t seed : {3u, 4u}) {
    EngineWorld world(
        {.hosts = {0, 0, 0}, .seed = seed, .adjust = [](uint32_t, EngineOptions* options) {
           options->boards = false;
         }});
    BoardSteps steps(world);
    commit_one(world, "v");
    world.settle();
    steps.take_messages();
    steps.run({.waits_for_reduce = true});
    steps.run({.absent = 1});
    steps.run({.infinite = 2});
    steps.run({.other_rate = 0});
    EXPECT_GT(steps.take_messages(), 0u);
  }
}

// Given a step that the other rank has given its part of, expect a glance to end the reduce, and
// none where nothing new is said, where a call is pending that ranks agree on by messages, or once
// no run has been for a while: messages are read, and leases kept, by runs.
TEST(EngineBoards, AGlanceIsForBoardsAlone) {
  EngineWorld world({.hosts = {0, 0}, .seed = 2});
  commit_one(world, "v");
  world.settle();
  std::array<std::vector<float>, 2> numbers;
  std::array<Request*, 2> reduces;
  uint64_t step = 0;
  const auto reduce = [&](uint32_t rank) {
    numbers[rank].assign(kBoardRows, 1.0f);
    const parallax_slice_t slice = dense_slice(0, numbers[rank].data());
    ASSERT_TRUE(world.engine(rank).step_calls().begin(&step).ok());
    ASSERT_TRUE(world.engine(rank).step_calls().reduce(step, {&slice, 1}, &reduces[rank]).ok());
    world.engine(rank).kick();
  };
  const auto end_step = [&] {
    std::vector<Request*> all(reduces.begin(), reduces.end());
    for (uint32_t rank = 0; rank < 2; ++rank) {
      Request* end = nullptr;
      ASSERT_TRUE(world.engine(rank).step_calls().end(step, end_options(1), &end).ok());
      all.push_back(end);
    }
    ASSERT_TRUE(world.run_until_done(all));
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_TRUE(world.engine(i % 2).release(all[i]).ok());
    }
    world.settle();
  };
  reduce(0);
  EXPECT_FALSE(world.engine(0).glance()) << "the other rank has said nothing";
  reduce(1);
  EXPECT_FALSE(reduces[0]->done());
  EXPECT_TRUE(world.engine(0).glance());
  EXPECT_TRUE(reduces[0]->done());
  EXPECT_FALSE(world.engine(0).glance());
  end_step();

  world.clock().advance(kNanosecondsPerMillisecond);
  reduce(0);
  reduce(1);
  EXPECT_FALSE(world.engine(0).glance()) << "a run has been a millisecond ago";
  world.engine(0).run();
  EXPECT_TRUE(reduces[0]->done());
  end_step();

  Request* barrier = nullptr;
  ASSERT_TRUE(world.engine(0).collective_calls().barrier(&barrier).ok());
  world.engine(0).kick();
  reduce(0);
  reduce(1);
  EXPECT_FALSE(world.engine(0).glance()) << "beside a barrier a look at boards is not all";
  Request* others = nullptr;
  ASSERT_TRUE(world.engine(1).collective_calls().barrier(&others).ok());
  ASSERT_TRUE(world.run_until_done(std::vector<Request*>{barrier, others, reduces[0]}));
}

// Given a rank whose process goes in the midst of a step, when it has given its slice, expect the
// others' calls to end with its loss, and none of them to wait for its vote.
TEST(EngineBoards, ALossEndsTheStep) {
  EngineWorld world({.hosts = {0, 0, 0}, .seed = 2});
  commit_one(world, "v");
  world.settle();
  std::array<std::vector<float>, 3> numbers;
  std::vector<Request*> requests;
  uint64_t step = 0;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    numbers[rank].assign(kBoardRows, 1.0f);
    const parallax_slice_t slice = dense_slice(0, numbers[rank].data());
    Request* request = nullptr;
    StepCalls& calls = world.engine(rank).step_calls();
    ASSERT_TRUE(calls.begin(&step).ok());
    ASSERT_TRUE(calls.reduce(step, {&slice, 1}, &request).ok());
    world.engine(rank).kick();
    if (rank == 2) break;
    ASSERT_TRUE(calls.end(step, end_options(1), &requests.emplace_back()).ok());
    world.engine(rank).kick();
  }
  world.kill(2);
  // For a while one of the others might bring other news of the cause.
  bool done = false;
  for (int i = 0; i < 10 && !done; ++i) done = world.run_until_done(requests);
  ASSERT_TRUE(done);
  for (const Request* request : requests) {
    EXPECT_EQ(request->status.code(), PARALLAX_PEER_LOST) << request->status.message();
  }
}

}  // namespace
}  // namespace parallax::testkit
