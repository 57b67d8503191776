// SPDX-License-Identifier: Apache-2.0
// Parts of a job whose devices sum among themselves: communicators made out of the job's, and those
// of their own, over the doubles, which refuse what NCCL refuses while one is in progress, and mix
// up two at a time.
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <thread>

#include "cuda/held.h"
#include "cuda/module_ranks.h"
#include "support/environment_variable.h"

namespace cuda_double_test::parts {
namespace {

using Ranks = std::vector<uint32_t>;

class ModuleParts : public NcclJobs {
 protected:
  void SetUp() override {
    NcclJobs::SetUp();
    for (const char* function : {"ncclCommShrink", "ncclCommSplit", "ncclGetUniqueId"}) {
      before_[function] = cuda_double_calls(function);
    }
  }
  void TearDown() override {
    nccl_double_hold_splits(0);
    EXPECT_FALSE(log_has("whose last operation is in progress")) << log();
    NcclJobs::TearDown();
  }
  uint64_t calls(const std::string& function) {
    return cuda_double_calls(function.c_str()) - before_.at(function);
  }

 private:
  std::map<std::string, uint64_t> before_;
};

void add_one(DeviceRank& own) { own.add("w"); }

// What a rank gives in one step, and gets: the sum of the ranks' numbers in the job, each plus one.
void sum(const DeviceRank& job, float expected) {
  const DeviceNumbers<float> values(std::vector<float>(kCount, static_cast<float>(job.rank + 1)));
  const uint64_t step = job.begin();
  DeviceRank::finish({job.reduce(step, job.slice(0, values.address())), job.end(step)});
  EXPECT_EQ(values.values(), std::vector<float>(kCount, expected));
}

DeviceRank part_of(const DeviceRank& own, const Ranks& ranks) {
  DeviceRank part = own;
  check(parallax_split(own.job, ranks.data(), ranks.size(), &part.job));
  part.add("in part");
  return part;
}

bool planned(const DeviceRank& part, const std::string& words) {
  return part.report(PARALLAX_REPORT_PLAN).find(words) != std::string::npos;
}
constexpr const char* kOutOfJob = "in a communicator made out of the job's";
constexpr const char* kOwn = "in a communicator of its own: rank";

// Rows and columns of two by two, one after the other, and a part of all.
TEST_F(ModuleParts, AreMadeOutOfTheJobs) {
  for (const uint32_t in_order : {0, 1}) {
    SCOPED_TRACE(in_order);
    run(
        4, add_one,
        [](DeviceRank& own) {
          sum(own, 10);
          const uint32_t row = own.rank / 2 * 2, column = own.rank % 2;
          const std::vector<Ranks> lists = {{row, row + 1}, {column, column + 2}, {0, 1, 2, 3}};
          const float sums[] = {static_cast<float>(2 * row + 3), static_cast<float>(2 * column + 4),
                                10};
          std::vector<DeviceRank> made;
          for (size_t i = 0; i < 3; ++i) {
            made.push_back(part_of(own, lists[i]));
            check(parallax_commit(made.back().job));
            EXPECT_TRUE(planned(made.back(), kOutOfJob))
                << made.back().report(PARALLAX_REPORT_PLAN);
            sum(made.back(), sums[i]);
          }
          sum(own, 10);
          for (size_t i = 0; i < 3; ++i) {
            sum(made[i], sums[i]);
            check(parallax_close(made[i].job));
          }
        },
        [&](parallax_options_t* options) { options->deterministic = in_order; });
  }
  EXPECT_EQ(calls("ncclCommShrink"), 2u * 2 * 4);
  EXPECT_EQ(calls("ncclCommSplit"), 2u * 4);
  EXPECT_EQ(calls("ncclGetUniqueId"), 2u) << "of the jobs";
}

TEST_F(ModuleParts, WhereNothingWasReducedTheyHaveTheirOwn) {
  run(2, add_one, [](DeviceRank& own) {
    DeviceRank part = part_of(own, {own.rank});
    check(parallax_commit(part.job));
    EXPECT_TRUE(planned(part, kOwn));
    sum(part, static_cast<float>(own.rank + 1));
    sum(own, 3);
    check(parallax_close(part.job));
  });
  EXPECT_EQ(calls("ncclCommShrink"), 0u);
}

// Resources that are shared want one order of launches, which groups do not have.
TEST_F(ModuleParts, WhereTheEnvironmentSharesResourcesTheyHaveTheirOwn) {
  setenv("NCCL_COMM_SHRINK_SHARE_RESOURCES", "1", 1);
  run(2, add_one, [](DeviceRank& own) {
    sum(own, 3);
    DeviceRank part = part_of(own, {0, 1});
    check(parallax_commit(part.job));
    EXPECT_TRUE(planned(part, "NCCL_COMM_SHRINK_SHARE_RESOURCES is set"));
    sum(part, 3);
    check(parallax_close(part.job));
  });
  unsetenv("NCCL_COMM_SHRINK_SHARE_RESOURCES");
  EXPECT_EQ(calls("ncclCommSplit"), 0u);
}

// Rank 0 reduces in the part and then in the job, rank 1 waits for the job's before it reduces in
// the part: a communicator that formed with the part's first reduction would never form.
TEST_F(ModuleParts, WhoWaitsForTheJobFirstKeepsNobodyWaiting) {
  run(3, add_one, [](DeviceRank& own) {
    sum(own, 6);
    if (own.rank == 2) return sum(own, 6);
    DeviceRank part = part_of(own, {0, 1});
    check(parallax_commit(part.job));
    EXPECT_TRUE(planned(part, kOutOfJob));
    if (own.rank == 1) {
      sum(own, 6);
      sum(part, 3);
    } else {
      const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
      const uint64_t step = part.begin();
      parallax_request_t* request = part.reduce(step, part.slice(0, values.address()));
      sum(own, 6);
      DeviceRank::finish({request, part.end(step)});
      EXPECT_EQ(values.host()[0], 3.f);
    }
    check(parallax_close(part.job));
  });
}

// Rank 1 has a reduction of the job's under way, which rank 0 gives behind the part's commit.
TEST_F(ModuleParts, WithAReductionUnderWayTheyHaveTheirOwn) {
  run(3, add_one, [&](DeviceRank& own) {
    sum(own, 6);
    // To give memory back waits for the device, so not before the end.
    const std::vector<float> mine(kCount, static_cast<float>(own.rank + 1));
    const DeviceNumbers<float> values(mine), in_part(mine);
    const uint64_t step = own.begin();
    parallax_request_t* request = nullptr;
    if (own.rank > 0) request = own.reduce(step, own.slice(0, values.address()));
    while (launched() < 3 + 2) std::this_thread::yield();
    if (own.rank < 2) {
      DeviceRank part = part_of(own, {0, 1});
      check(parallax_commit(part.job));
      EXPECT_TRUE(planned(part, kOwn)) << part.report(PARALLAX_REPORT_PLAN);
      const uint64_t first = part.begin();
      DeviceRank::finish({part.reduce(first, part.slice(0, in_part.address())), part.end(first)});
      EXPECT_EQ(in_part.host()[0], 3.f);
      check(parallax_close(part.job));
    }
    if (own.rank == 0) request = own.reduce(step, own.slice(0, values.address()));
    DeviceRank::finish({request, own.end(step)});
    EXPECT_EQ(values.host()[0], 6.f);
  });
  EXPECT_EQ(calls("ncclCommShrink"), 0u);
}

// Two parts with two ranks in common, which commit them at once, by a thread for each and in any
// order.
TEST_F(ModuleParts, ThoseThatOverlapAtOnceAreNotMixedUp) {
  for (int round = 0; round < 4; ++round) {
    run(4, add_one, [](DeviceRank& own) {
      sum(own, 10);
      std::vector<DeviceRank> made;
      if (own.rank != 3) made.push_back(part_of(own, {0, 1, 2}));
      if (own.rank != 0) made.push_back(part_of(own, {1, 2, 3}));
      std::vector<std::thread> commits;
      for (DeviceRank& each : made) {
        commits.emplace_back([&each] { check(parallax_commit(each.job)); });
      }
      for (std::thread& each : commits) each.join();
      for (size_t i = 0; i < made.size(); ++i) {
        sum(made[i], own.rank != 3 && i == 0 ? 6.f : 9.f);
        check(parallax_close(made[i].job));
      }
      sum(own, 10);
    });
  }
}

// Given ranks that close a part at once, each when its own commit is over, expect the commit of one
// whose communicator is there later to be over in its own time.
TEST_F(ModuleParts, ACommitIsOverForWhoeverClosesFirst) {
  nccl_double_hold_splits_of(2);
  Held held("a part", [] { nccl_double_hold_splits_of(-1); });
  run(3, add_one, [&held](DeviceRank& own) {
    sum(own, 6);
    DeviceRank part = part_of(own, {0, 1, 2});
    EXPECT_EQ(parallax_commit(part.job), PARALLAX_OK) << parallax_last_error();
    std::future<parallax_status_t> closed =
        std::async(std::launch::async, [&part] { return parallax_close(part.job); });
    if (own.rank == 0) {
      // It waits for rank 2, which has heard of it by now.
      EXPECT_EQ(closed.wait_for(std::chrono::milliseconds(150)), std::future_status::timeout);
      EXPECT_FALSE(held.vain());
      held.release();
    }
    EXPECT_EQ(closed.get(), PARALLAX_OK);
    sum(own, 6);
  });
}

// ---- what ends it

// A part of the first two of three ranks, whose commit fails, and what it says.
void expect_commit(const DeviceRank& own, parallax_status_t expected, const std::string& words) {
  DeviceRank part = part_of(own, {0, 1});
  EXPECT_EQ(parallax_commit(part.job), expected);
  EXPECT_NE(std::string(parallax_last_error()).find(words), std::string::npos)
      << parallax_last_error();
  parallax_close(part.job);
}

TEST_F(ModuleParts, AnErrorOfOneRankIsTheCommitsOfAll) {
  for (int code = ncclUnhandledCudaError; code <= ncclRemoteError; ++code) {
    SCOPED_TRACE(code);
    std::atomic<uint32_t> summed{0};
    run(
        3, add_one,
        [&](DeviceRank& own) {
          sum(own, 6);
          // A peer that is lost ends the sums of all, too.
          for (++summed; summed != 3;) std::this_thread::yield();
          if (own.rank == 2) return;
          if (own.rank == 0) cuda_double_fail("ncclCommShrink", 1, code, 0);
          expect_commit(own, code == ncclRemoteError ? PARALLAX_PEER_LOST : PARALLAX_IO,
                        "ncclCommShrink");
        },
        {}, false);
    cuda_double_clear_failures();
    EXPECT_EQ(nccl_leaks(), "");
  }
}

TEST_F(ModuleParts, AnAbortWhileOneFormsEndsItsCommitAndLeavesNothing) {
  nccl_double_hold_splits(1);
  run(
      3, add_one,
      [&](DeviceRank& own) {
        sum(own, 6);
        if (own.rank < 2) return expect_commit(own, PARALLAX_ABORTED, "enough");
        while (calls("ncclCommShrink") < 2) std::this_thread::yield();
        EXPECT_EQ(parallax_abort(own.job, "enough"), PARALLAX_OK);
      },
      {}, false);
  EXPECT_EQ(calls("ncclCommShrink"), 2u);
}

TEST_F(ModuleParts, ADeadlineWhileOneFormsIsTheCommits) {
  nccl_double_hold_splits(1);
  std::atomic<uint32_t> come{0}, answered{0};
  run(
      2, add_one,
      [&](DeviceRank& own) {
        sum(own, 3);
        DeviceRank part = part_of(own, {0, 1});
        check(parallax_set(own.job, "timeout_ms", "1500"));
        for (++come; come != 2;) std::this_thread::yield();
        EXPECT_EQ(parallax_commit(part.job), PARALLAX_TIMEOUT);
        EXPECT_NE(
            std::string(parallax_last_error()).find("to form a communicator out of the job's"),
            std::string::npos)
            << parallax_last_error();
        // Who closes ends the other's commit otherwise.
        for (++answered; answered != 2;) std::this_thread::yield();
        parallax_close(part.job);
      },
      {}, false);
  EXPECT_EQ(calls("ncclCommSplit"), 2u);
}

// The deadline of sums goes on while it forms: the job ends, on the rank that is outside too, and
// all give up the communicator that it is made out of.
TEST_F(ModuleParts, OneThatDoesNotFormEndsTheJobByTheDeadlineOfSums) {
  const parallax::testkit::EnvironmentVariable deadline("PARALLAX_NCCL_TIMEOUT_MS", "300");
  const uint64_t aborts = cuda_double_calls("ncclCommAbort");
  nccl_double_hold_splits(1);
  run(
      3, add_one,
      [&](DeviceRank& own) {
        sum(own, 6);
        const std::string words = "within 300 ms since its communicator forms";
        if (own.rank < 2) return expect_commit(own, PARALLAX_IO, words);
        parallax_request_t* request = nullptr;
        check(parallax_barrier(own.job, &request));
        EXPECT_EQ(DeviceRank::wait(request), PARALLAX_IO);
        EXPECT_NE(std::string(parallax_last_error()).find(words), std::string::npos)
            << parallax_last_error();
        check(parallax_request_release(request));
      },
      {}, false);
  EXPECT_EQ(calls("ncclCommShrink"), 2u);
  EXPECT_EQ(cuda_double_calls("ncclCommAbort") - aborts, 3u + 2u) << "and the parts' own";
}

}  // namespace
}  // namespace cuda_double_test::parts
