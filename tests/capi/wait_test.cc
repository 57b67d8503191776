// SPDX-License-Identifier: Apache-2.0
// One wait for requests of a job and of its parts: until all are complete, with the first failure
// in their order, whichever group it comes from.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/rank_threads.h"

namespace {

using parallax::Job;
using parallax::Request;
using parallax::testkit::on_rank_threads;

// A rank with the whole job and two parts, {0, 1} and {2, 0}; of each group, as far as it is in it.
struct Member {
  Member(uint32_t rank, const parallax_options_t& options) : job(options) {
    job.commit();
    if (rank != 2) {
      parts.push_back(job.split({0, 1}));
      parts.back().commit();
    }
    if (rank != 1) {
      parts.push_back(job.split({2, 0}));
      parts.back().commit();
    }
  }
  void close() {
    for (Job& part : parts) part.close();
    job.close();
  }

  Job job;
  std::vector<Job> parts;
};

void on_members(const std::function<void(uint32_t rank, Member& member)>& body) {
  on_rank_threads(3, [&](uint32_t rank, const parallax_options_t& options) {
    Member member(rank, options);
    body(rank, member);
  });
}

parallax_status_t wait_all_of(const std::vector<const Request*>& requests, int64_t timeout_ms) {
  std::vector<parallax_request_t*> raw;
  for (const Request* request : requests) raw.push_back(request->get());
  return parallax_wait(raw.data(), raw.size(), timeout_ms);
}

// Given barriers of three groups of which one lacks a rank, expect a wait for all to name it, by
// the number that it has there, and to be OK once it has come.
TEST(WaitAcrossGroups, EndsWithTheLastOfThem) {
  on_members([](uint32_t rank, Member& member) {
    uint32_t go = 0;
    Request whole = member.job.barrier();
    if (rank == 1) {
      member.job.broadcast(&go, sizeof go, 0).wait();
      member.parts[0].barrier().wait();
    } else if (rank == 2) {
      member.job.broadcast(&go, sizeof go, 0).wait();
      member.parts[0].barrier().wait();
    } else {
      Request first = member.parts[0].barrier(), second = member.parts[1].barrier();
      whole.wait();
      EXPECT_EQ(wait_all_of({&whole, &first, &second}, 20), PARALLAX_TIMEOUT);
      const std::string sentence = parallax_last_error();
      EXPECT_NE(sentence.find("wait: after 20 ms barrier waits for rank 1"), std::string::npos)
          << sentence;
      EXPECT_EQ(wait_all_of({&whole, &second}, 20), PARALLAX_TIMEOUT);
      EXPECT_NE(std::string(parallax_last_error()).find("rank 0 (rank 2 of the job"),
                std::string::npos)
          << parallax_last_error();
      member.job.broadcast(&go, sizeof go, 0).wait();
      EXPECT_EQ(wait_all_of({&first, &whole, &second}, PARALLAX_WAIT_DEFAULT), PARALLAX_OK)
          << parallax_last_error();
    }
    whole.wait();
    member.close();
  });
}

// Given a failure of one part, expect a wait for requests of all groups to end with it on every
// rank, though what was complete before stays so, and each group to say it for itself.
TEST(WaitAcrossGroups, AFailureOfAPartEndsThemAll) {
  on_members([](uint32_t rank, Member& member) {
    Request done = member.job.barrier();
    done.wait();
    uint32_t word = 0;
    if (rank == 1) {
      member.job.broadcast(&word, sizeof word, 0).wait();
      member.parts[0].abort("a part of it");
      return;
    }
    // Of rank 2, which is not in the part that fails, too.
    Request never = member.job.barrier();
    Request part = member.parts.back().barrier();
    Request other = rank == 0 ? member.parts[0].barrier() : Request();
    if (rank == 0) {
      part.wait();  // rank 2 is in it
      member.job.broadcast(&word, sizeof word, 0);
      EXPECT_EQ(wait_all_of({&done, &part, &other, &never}, PARALLAX_WAIT_DEFAULT),
                PARALLAX_ABORTED);
      EXPECT_NE(std::string(parallax_last_error()).find("a part of it"), std::string::npos)
          << parallax_last_error();
      EXPECT_EQ(parallax_request_test(other.get()), PARALLAX_ABORTED);
      // Of the part, by the part's number.
      EXPECT_NE(std::string(other.error()).find("rank 1 (rank 1 of the job"), std::string::npos)
          << other.error();
    } else {
      EXPECT_EQ(wait_all_of({&part, &done}, PARALLAX_WAIT_DEFAULT), PARALLAX_OK);
      EXPECT_EQ(wait_all_of({&done, &never}, PARALLAX_WAIT_DEFAULT), PARALLAX_ABORTED);
    }
    EXPECT_EQ(parallax_request_test(done.get()), PARALLAX_OK);
    EXPECT_EQ(parallax_request_test(part.get()), PARALLAX_OK);
    EXPECT_EQ(parallax_request_test(never.get()), PARALLAX_ABORTED);
  });
}

// Given two threads that wait, each for requests of several groups, expect a failure to end both.
TEST(WaitAcrossGroups, TwoWaitersAreBothTold) {
  on_members([](uint32_t rank, Member& member) {
    uint32_t word = 0;
    if (rank == 2) {
      // Both others have called all that they wait for.
      for (const uint32_t root : {0, 1}) member.job.broadcast(&word, sizeof word, root).wait();
      member.job.abort("for everybody");
      return;
    }
    Request a = member.job.barrier(), b = member.parts[0].barrier();
    Request c = member.job.barrier(), d = member.parts.back().barrier();
    std::array<parallax_status_t, 2> ended = {};
    std::thread waiter([&] { ended[0] = wait_all_of({&a, &b}, PARALLAX_WAIT_DEFAULT); });
    Request first = member.job.broadcast(&word, sizeof word, 0);
    if (rank == 1) first.wait();
    Request second = member.job.broadcast(&word, sizeof word, 1);
    ended[1] = wait_all_of({&d, &c}, PARALLAX_WAIT_DEFAULT);
    waiter.join();
    EXPECT_EQ(ended[0], PARALLAX_ABORTED);
    EXPECT_EQ(ended[1], PARALLAX_ABORTED);
  });
}

}  // namespace
