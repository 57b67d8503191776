// SPDX-License-Identifier: Apache-2.0
// Parts of a job through the C ABI: overlapping groups that train side by side, what is refused,
// and how a part ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/rank_threads.h"

namespace {

using parallax::check;
using parallax::Error;
using parallax::Job;
using parallax::Request;
using parallax::sized;
using parallax::testkit::left_or_right;
using parallax::testkit::on_ranks;

using RankList = std::vector<uint32_t>;

// Ranks on two hosts, of which every other one computes on a thread of its own.
void on_both_hosts(uint32_t world, const std::function<void(uint32_t, Job&)>& body) {
  on_ranks(world, body, [](uint32_t rank, parallax_options_t& options) {
    options.host = left_or_right(rank);
    options.compute_threads = rank % 2;
  });
}

parallax_variable_t held(const char* name) {
  auto variable = sized<parallax_variable_t>();
  variable.name = name;
  variable.rows = 2;
  variable.row_elements = 3;
  variable.dtype = PARALLAX_I64;
  return variable;
}

// Steps in which every rank gives its number in the group plus one, and gets the sum of all.
void train(Job& group, uint32_t steps) {
  const parallax_job_info_t info = group.query();
  const uint32_t id = group.register_variable(held("v"));
  group.commit();
  for (uint32_t i = 0; i < steps; ++i) {
    const uint64_t step = group.step_begin();
    std::vector<int64_t> values(6, info.rank + int64_t{1});
    auto slice = sized<parallax_slice_t>();
    slice.variable = id;
    slice.values = values.data();
    group.reduce(step, {slice}).wait();
    const int64_t sum = int64_t{info.world} * (info.world + 1) / 2;
    ASSERT_EQ(values, std::vector<int64_t>(6, sum));
    group.step_end(step, sized<parallax_step_end_options_t>()).wait();
  }
}

TEST(Split, OverlappingGroupsTrainBesideEachOther) {
  const std::vector<RankList> lists = {{0, 1, 2}, {3, 1}, {2, 3, 0}};
  on_both_hosts(4, [&](uint32_t rank, Job& job) {
    std::vector<Job> parts;
    for (const RankList& list : lists) {
      const auto place = std::find(list.begin(), list.end(), rank);
      if (place == list.end()) continue;
      parts.push_back(job.split(list.data(), list.size()));
      const parallax_job_info_t info = parts.back().query();
      EXPECT_EQ(info.rank, place - list.begin());
      EXPECT_EQ(info.world, list.size());
      EXPECT_EQ(info.job_rank, rank);
      EXPECT_EQ(info.committed, 0u);
    }
    // Each part by a thread of its own, beside the whole job.
    std::vector<std::thread> threads;
    for (Job& part : parts) threads.emplace_back([&part] { train(part, 20); });
    train(job, 20);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(parallax_close(job.get()), PARALLAX_STATE) << "parts are open";
    EXPECT_NE(std::string(parallax_last_error()).find("parts"), std::string::npos);
    for (Job& part : parts) part.close();
    job.close();
  });
}

TEST(Split, OfAJobOfOneAndAgainAfterItsClose) {
  Job job(sized<parallax_options_t>());
  for (int i = 0; i < 3; ++i) {
    Job part = job.split({0});
    Job inner = part.split({0});
    train(inner, 2);
    inner.close();
    train(part, 2);
    part.close();
  }
  train(job, 1);
}

TEST(Split, BadListsAreRefused) {
  Job job(sized<parallax_options_t>());
  parallax_job_t* part = nullptr;
  const uint32_t zero[] = {0, 0}, one[] = {1};
  const auto expect_refused = [&](const uint32_t* ranks, size_t count, const char* field) {
    part = job.get();
    EXPECT_EQ(parallax_split(job.get(), ranks, count, &part), PARALLAX_INVALID);
    EXPECT_EQ(part, nullptr);
    auto info = sized<parallax_error_info_t>();
    EXPECT_EQ(parallax_last_error_info(&info), PARALLAX_OK);
    EXPECT_STREQ(info.field, field) << parallax_last_error();
  };
  expect_refused(nullptr, 1, "ranks");
  expect_refused(zero, 0, "count");
  expect_refused(zero, SIZE_MAX, "count");
  expect_refused(zero, 2, "ranks");
  expect_refused(one, 1, "ranks");
  expect_refused(reinterpret_cast<const uint32_t*>(reinterpret_cast<const char*>(zero) + 1), 1,
                 "ranks");
  EXPECT_EQ(parallax_split(nullptr, zero, 1, &part), PARALLAX_INVALID);
  EXPECT_EQ(parallax_split(job.get(), zero, 1, nullptr), PARALLAX_INVALID);
}

// Given a rank that names other ranks, expect a timeout that says who is missing.
TEST(Split, DifferentListsTimeOutByName) {
  std::barrier<> ended(2);  // one that closes while another waits is told, which is no timeout
  on_ranks(2, [&ended](uint32_t rank, Job& job) {
    job.set("timeout_ms", "300");  // of the split alone: to meet may take longer
    parallax_job_t* part = nullptr;
    const uint32_t both[] = {0, 1}, turned[] = {1, 0};
    EXPECT_EQ(parallax_split(job.get(), rank == 0 ? both : turned, 2, &part), PARALLAX_TIMEOUT);
    auto info = sized<parallax_error_info_t>();
    EXPECT_EQ(parallax_last_error_info(&info), PARALLAX_OK);
    EXPECT_EQ(info.peer, 1 - rank) << parallax_last_error();
    ended.arrive_and_wait();
  });
}

// A request that outlives its part can be tested and released.
TEST(Split, ARequestOutlivesItsPart) {
  Job job(sized<parallax_options_t>());
  Job part = job.split({0});
  part.commit();
  Request barrier = part.barrier();
  barrier.wait();
  part.close();
  EXPECT_TRUE(barrier.test());
  { const Request released = std::move(barrier); }
  Job again = job.split({0});
  again.close();
}

TEST(Split, AbortingAPartEndsTheWholeJob) {
  on_both_hosts(3, [](uint32_t rank, Job& job) {
    job.commit();
    if (rank == 2) {
      try {
        job.barrier().wait();
        ADD_FAILURE() << "it completed";
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), PARALLAX_ABORTED) << error.what();
      }
      return;
    }
    Job part = job.split({1, 0});
    if (rank == 0) part.abort("enough");
    EXPECT_EQ(parallax_commit(part.get()), PARALLAX_ABORTED) << parallax_last_error();
  });
}

// Given a split that did not come about, expect that the job closes all the same.
TEST(Split, AJobClosesAfterASplitThatTimedOut) {
  const auto body = [](uint32_t rank, Job& job) {
    job.commit();
    parallax_job_t* part = nullptr;
    const uint32_t both[] = {0, 1};
    if (rank == 1) {
      EXPECT_EQ(parallax_split(job.get(), both, 2, &part), PARALLAX_ABORTED);
    } else {
      parallax_request_t* barrier = nullptr;
      check(parallax_barrier(job.get(), &barrier));
      EXPECT_EQ(parallax_wait(&barrier, 1, 100), PARALLAX_TIMEOUT);
      job.abort("enough");
      EXPECT_EQ(parallax_wait(&barrier, 1, 20000), PARALLAX_ABORTED);
      check(parallax_request_release(barrier));
    }
    try {
      job.close();
      ADD_FAILURE() << "it was aborted";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), PARALLAX_ABORTED) << error.what();
    }
    EXPECT_EQ(job.get(), nullptr) << "it is gone";
  };
  on_ranks(2, body, [](uint32_t, parallax_options_t& options) { options.timeout_ms = 20000; });
}

}  // namespace
