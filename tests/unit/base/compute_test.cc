// SPDX-License-Identifier: Apache-2.0
#include "base/compute.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace parallax {
namespace {

struct Work {
  ComputeJob job;
  int runs = 0;  // not atomic: a job owns it until it is handed back
  std::thread::id ran_on;
};

void prepare(Work* work) {
  work->job.context = work;
  work->job.run = [](ComputeJob& job) {
    auto* mine = static_cast<Work*>(job.context);
    ++mine->runs;
    mine->ran_on = std::this_thread::get_id();
  };
}

TEST(InlineCompute, RunsAtOnceAndHandsBackInOrder) {
  InlineCompute compute;
  EXPECT_EQ(compute.take_done(), nullptr);
  std::vector<Work> works(3);
  for (Work& work : works) {
    prepare(&work);
    compute.submit(work.job);
    EXPECT_EQ(work.runs, 1);
  }
  for (Work& work : works) EXPECT_EQ(compute.take_done(), &work.job);
  EXPECT_EQ(compute.take_done(), nullptr);
  compute.submit(works[1].job);
  EXPECT_EQ(compute.take_done(), &works[1].job) << "a job is used again";
  EXPECT_EQ(works[1].runs, 2);
}

// Given a job that throws among others, expect all back, then what it threw, then nothing.
template <typename Take>
void expect_thrown_once(std::vector<Work>& works, Take take) {
  size_t back = 0;
  bool thrown = false;
  while (back < works.size() || !thrown) {
    try {
      if (take() != nullptr) ++back;
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "a check failed");
      EXPECT_FALSE(thrown);
      thrown = true;
    }
  }
  EXPECT_EQ(take(), nullptr);
}

TEST(InlineCompute, HandsBackWhatAJobThrew) {
  InlineCompute compute;
  std::vector<Work> works(3);
  for (Work& work : works) prepare(&work);
  works[1].job.run = [](ComputeJob&) { throw std::runtime_error("a check failed"); };
  for (Work& work : works) compute.submit(work.job);
  expect_thrown_once(works, [&] { return compute.take_done(); });
}

// Given jobs of two shares of a pool, expect each to know its own, whoever takes them back.
TEST(ComputeShare, KnowsItsOwnJobsUntilTheyAreHandedBack) {
  InlineCompute pool;
  ComputeShare first(pool), second(pool);
  ComputeJob jobs[3];
  for (ComputeJob& job : jobs) job.run = [](ComputeJob&) {};
  first.submit(jobs[0]);
  second.submit(jobs[1]);
  first.submit(jobs[2]);
  EXPECT_EQ(first.under_way(), 2u);
  EXPECT_EQ(second.under_way(), 1u);
  EXPECT_EQ(second.take_done(), &jobs[0]);
  EXPECT_EQ(first.under_way(), 1u);
  ASSERT_EQ(pool.take_done(), &jobs[1]);
  EXPECT_EQ(second.under_way(), 1u) << "nobody has said so";
  ComputeShare::taken(jobs[1]);
  EXPECT_EQ(second.under_way(), 0u);
  EXPECT_EQ(first.take_done(), &jobs[2]);
  EXPECT_EQ(first.take_done(), nullptr);
  EXPECT_EQ(first.under_way(), 0u);
  ComputeJob alone = {.run = [](ComputeJob&) {}};
  pool.submit(alone);
  EXPECT_EQ(first.take_done(), &alone) << "of no share";
}

TEST(ThreadCompute, HandsBackWhatAJobThrew) {
  ThreadCompute compute([] {});
  ASSERT_TRUE(compute.start(2).ok());
  std::vector<Work> works(8);
  for (Work& work : works) prepare(&work);
  works[1].job.run = [](ComputeJob&) { throw std::runtime_error("a check failed"); };
  for (Work& work : works) compute.submit(work.job);
  compute.drain();
  expect_thrown_once(works, [&] { return compute.take_done(); });
}

TEST(ThreadCompute, EveryJobRunsOnceAndComesBackOnce) {
  std::atomic<int> wakes{0};
  ThreadCompute compute([&wakes] { ++wakes; });
  ASSERT_TRUE(compute.start(3).ok());
  constexpr int kRounds = 200;
  std::vector<Work> works(16);
  for (Work& work : works) prepare(&work);
  for (int round = 0; round < kRounds; ++round) {
    for (Work& work : works) compute.submit(work.job);
    for (size_t back = 0; back < works.size();) {
      if (ComputeJob* job = compute.take_done()) {
        EXPECT_EQ(static_cast<Work*>(job->context)->runs, round + 1);
        ++back;
      } else {
        std::this_thread::yield();
      }
    }
    EXPECT_EQ(compute.take_done(), nullptr);
  }
  for (const Work& work : works) EXPECT_NE(work.ran_on, std::this_thread::get_id());
  compute.drain();
  // The wake of the last job comes after it was handed over.
  for (int i = 0; i < 10000 && wakes < kRounds * 16; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(wakes, kRounds * 16) << "one wake a job, after it is done";
}

TEST(ThreadCompute, DrainWaitsForWhatIsQueued) {
  ThreadCompute compute([] {});
  ASSERT_TRUE(compute.start(2).ok());
  std::vector<Work> works(50);
  for (Work& work : works) {
    prepare(&work);
    compute.submit(work.job);
  }
  compute.drain();
  for (const Work& work : works) EXPECT_EQ(work.runs, 1);
  compute.drain();
}

TEST(ThreadCompute, EndsWithJobsQueued) {
  std::vector<Work> works(100);
  {
    ThreadCompute compute([] {});
    ASSERT_TRUE(compute.start(1).ok());
    for (Work& work : works) {
      prepare(&work);
      compute.submit(work.job);
    }
  }
  for (const Work& work : works) EXPECT_LE(work.runs, 1);
}

}  // namespace
}  // namespace parallax
