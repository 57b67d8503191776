// SPDX-License-Identifier: Apache-2.0
// Real processes that open and close jobs over tcp, UCX and shared memory: hundreds of times, with
// few descriptors, and beside forked children.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/rank_process.h"
#include "support/environment_variable.h"

namespace parallax::net {
namespace {

constexpr std::chrono::seconds kOpenPatience{240};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kFreedIsKept = true;  // by the sanitizer, for a while
constexpr int kJobs = 150;           // each takes ten times as long, and no memory is compared
constexpr int kJobsOverUcx = 100;
#else
constexpr bool kFreedIsKept = false;
constexpr int kJobs = 450;
constexpr int kJobsOverUcx = 300;
#endif

// Runs the opener on every rank, and expects each to end with 0.
void expect_all_well(RankJob& job) {
  job.start_all();
  EXPECT_TRUE(job.wait_exit(kOpenPatience)) << "still running";
  for (uint32_t rank = 0; rank < job.world(); ++rank) {
    EXPECT_EQ(job.rank(rank).exit(), 0) << "rank " << rank << ":\n" << job.rank(rank).tail();
  }
}

// Given jobs of these hosts one after the other, expects each process to hold as many
// descriptors after the last as after the warm-up, and its memory not to grow.
void expect_jobs_to_leave_nothing(std::vector<uint32_t> hosts, int jobs = kJobs) {
  constexpr long kGrowthKib = 1600;  // 4 KiB a job would be a leak
  RankJob job({.host_of = std::move(hosts),
               .arguments = {"--times", std::to_string(jobs), "--warm-up", "50"},
               .net_namespaces = {},
               .program = "opener"});
  expect_all_well(job);
  for (uint32_t rank = 0; rank < job.world(); ++rank) {
    const std::vector<std::string> descriptors = job.rank(rank).lines("descriptors ");
    const std::vector<std::string> resident = job.rank(rank).lines("resident ");
    ASSERT_EQ(descriptors.size(), 2U);
    ASSERT_EQ(resident.size(), 2U);
    EXPECT_EQ(descriptors[0], descriptors[1]);
    const long growth_kib = std::stol(resident[1]) - std::stol(resident[0]);
    testing::Test::RecordProperty("growth_kib_" + std::to_string(rank),
                                  static_cast<int>(growth_kib));
    if (kFreedIsKept) continue;
    EXPECT_LT(growth_kib, kGrowthKib) << resident[0] << " KiB, then " << resident[1];
  }
}

TEST(Opener, hundreds_of_jobs_leave_nothing) { expect_jobs_to_leave_nothing({0, 1}); }

TEST(Opener, hundreds_of_jobs_over_ucx_leave_nothing) {
  const testkit::EnvironmentVariable ucx("PARALLAX_TRANSPORT", "ucx");
  expect_jobs_to_leave_nothing({0, 1}, kJobsOverUcx);
}

TEST(Opener, hundreds_of_jobs_of_one_host_leave_nothing) { expect_jobs_to_leave_nothing({0, 0}); }

// Given three hosts of two ranks, expect each rank to be connected to those of the other hosts when
// open returns, before anyone has sent anything.
TEST(Opener, ranks_of_other_hosts_are_connected_inside_open) {
  RankJob job(
      {.host_of = {0, 0, 1, 1, 2, 2}, .arguments = {}, .net_namespaces = {}, .program = "opener"});
  expect_all_well(job);
  for (uint32_t rank = 0; rank < job.world(); ++rank) {
    EXPECT_GE(std::stoi(job.rank(rank).line("connections ").value_or("-1")), 4) << "rank " << rank;
  }
}

// Given processes that may open 64 descriptors, expect a job of two hosts with two ranks each to
// train; given too few, expect LIMIT with the remedy on one rank and no crash on any.
void expect_to_live_with_few_descriptors(const char* too_few) {
  RankJob enough({.host_of = {0, 0, 1, 1},
                  .arguments = {"--descriptors", "64"},
                  .net_namespaces = {},
                  .program = "opener"});
  expect_all_well(enough);

  RankJob few({.host_of = {0, 1}, .arguments = {}, .net_namespaces = {}, .program = "opener"});
  few.start(0);
  few.start(1, {"--descriptors", too_few});
  EXPECT_TRUE(few.wait_exit(kOpenPatience)) << "still running";
  EXPECT_EQ(few.rank(0).exit(), 3) << few.rank(0).tail();
  EXPECT_EQ(few.rank(1).exit(), 3) << few.rank(1).tail();
  EXPECT_NE(few.rank(1).tail().find("LIMIT: "), std::string::npos) << few.rank(1).tail();
  EXPECT_NE(few.rank(1).tail().find("ulimit"), std::string::npos) << few.rank(1).tail();
  EXPECT_NE(few.rank(0).tail().find("rank 1"), std::string::npos) << few.rank(0).tail();
}

TEST(Opener, few_descriptors) { expect_to_live_with_few_descriptors("8"); }

TEST(Opener, few_descriptors_over_ucx) {
  const testkit::EnvironmentVariable ucx("PARALLAX_TRANSPORT", "ucx");
  expect_to_live_with_few_descriptors("24");
}

// Given ranks whose forked children meet in a job of their own while the parents' job is open,
// expect both to train, within a host and across hosts; over UCX the children to be told that it
// does not fork, and the parents to train.
TEST(Opener, forked_children_have_jobs_of_their_own) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer allows a forked child no thread";
#elif defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP()
      << "a fork beside a thread that allocates leaves AddressSanitizer's allocator locked";
#endif
  const auto fork_on = [](std::vector<uint32_t> hosts) {
    auto job = std::make_unique<RankJob>(RankJobOptions{.host_of = std::move(hosts),
                                                        .arguments = {"--fork", "1"},
                                                        .net_namespaces = {},
                                                        .program = "opener"});
    expect_all_well(*job);
    return job;
  };
  for (const std::vector<uint32_t>& hosts : {std::vector<uint32_t>{0, 0}, {0, 1}}) {
    const auto job = fork_on(hosts);
    for (uint32_t rank = 0; rank < job->world(); ++rank) {
      EXPECT_EQ(job->rank(rank).line("child "), "0") << job->rank(rank).tail();
    }
  }
  const testkit::EnvironmentVariable ucx("PARALLAX_TRANSPORT", "ucx");
  const auto job = fork_on({0, 1});
  for (uint32_t rank = 0; rank < job->world(); ++rank) {
    const std::string refused = job->rank(rank).line("child refused ").value_or("");
    EXPECT_EQ(refused.rfind("UNSUPPORTED: ", 0), 0U) << job->rank(rank).tail();
    EXPECT_NE(refused.find("UCX"), std::string::npos) << refused;
  }
}

}  // namespace
}  // namespace parallax::net
