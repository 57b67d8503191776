// SPDX-License-Identifier: Apache-2.0
// Requests used wrongly, and jobs closed with work under way: each is told, nothing is lost, and
// what was right goes on.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/rank_threads.h"

namespace {

using parallax::check;
using parallax::Job;
using parallax::sized;

constexpr uint32_t kBoth = 2;

// A body on each rank of a job of two that is committed.
template <typename Body>
void as_ranks(Body body) {
  const auto committed = [&](uint32_t rank, Job& job) {
    job.commit();
    body(rank, job);
  };
  parallax::testkit::on_ranks(
      kBoth, committed, [](uint32_t, parallax_options_t& options) { options.timeout_ms = 30000; });
}

void expect_refused(parallax_status_t status, parallax_status_t expected, const std::string& word) {
  EXPECT_EQ(status, expected) << parallax_last_error();
  EXPECT_NE(std::string(parallax_last_error()).find(word), std::string::npos)
      << "'" << word << "' in: " << parallax_last_error();
}

// Given a request that is pending because rank 1 holds back, expect each wrong use to be refused
// and the request to complete all the same.
TEST(Misuse, APendingRequest) {
  as_ranks([](uint32_t rank, Job& job) {
    parallax_request_t* request = nullptr;
    if (rank == 1) {
      uint32_t go = 0;
      job.broadcast(&go, sizeof go, 0).wait();  // rank 0 has tried everything
      check(parallax_barrier(job.get(), &request));
      check(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
      check(parallax_request_release(request));
      job.close();
      return;
    }
    check(parallax_barrier(job.get(), &request));
    EXPECT_EQ(parallax_request_test(request), PARALLAX_PENDING);
    EXPECT_STREQ(parallax_request_error(request), "");
    expect_refused(parallax_request_release(request), PARALLAX_STATE, "pending");
    auto info = sized<parallax_step_info_t>();
    expect_refused(parallax_request_step(request, &info), PARALLAX_STATE, "step_end");
    expect_refused(parallax_wait(&request, 1, 0), PARALLAX_TIMEOUT, "rank 1");
    expect_refused(parallax_wait(&request, 1, -2), PARALLAX_INVALID, "timeout_ms");
    const std::array<parallax_request_t*, 2> twice = {request, request};
    expect_refused(parallax_wait(twice.data(), 2, 0), PARALLAX_STATE, "twice");
    const std::array<parallax_request_t*, 2> hole = {request, nullptr};
    expect_refused(parallax_wait(hole.data(), 2, 0), PARALLAX_INVALID, "requests[1]");

    Job other(sized<parallax_options_t>());
    other.commit();
    parallax::Request of_other = other.barrier();
    const std::array<parallax_request_t*, 2> mixed = {request, of_other.get()};
    expect_refused(parallax_wait(mixed.data(), 2, 0), PARALLAX_INVALID, "another job");

    // A second waiter is refused while another waits; which of the two comes first is open.
    parallax_status_t first = PARALLAX_STATE;
    std::thread waiter([&] {
      while (first == PARALLAX_STATE) first = parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT);
    });
    parallax_status_t second = PARALLAX_TIMEOUT;
    while (second == PARALLAX_TIMEOUT) second = parallax_wait(&request, 1, 0);
    expect_refused(second, PARALLAX_STATE, "another thread");
    uint32_t go = 1;
    job.broadcast(&go, sizeof go, 0).wait();
    waiter.join();
    EXPECT_EQ(first, PARALLAX_OK);
    // Complete, it may be asked any number of times, and is gone only by its release.
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(parallax_request_test(request), PARALLAX_OK);
      EXPECT_EQ(parallax_wait(&request, 1, 0), PARALLAX_OK);
    }
    EXPECT_EQ(parallax_request_cancel(request), PARALLAX_OK);
    EXPECT_EQ(parallax_request_test(request), PARALLAX_OK);
    check(parallax_request_release(request));
    job.close();
  });
}

// Given a job that is closed while a barrier waits for a rank that never calls it, expect the
// request to complete with ABORTED and to live on until its release.
TEST(Misuse, ClosedWithWorkPending) {
  as_ranks([](uint32_t rank, Job& job) {
    parallax_request_t* request = nullptr;
    if (rank == 0) check(parallax_barrier(job.get(), &request));
    job.close();
    if (rank == 1) return;
    EXPECT_EQ(parallax_request_test(request), PARALLAX_ABORTED);
    EXPECT_NE(std::string(parallax_request_error(request)), "");
    EXPECT_EQ(parallax_wait(&request, 1, 0), PARALLAX_ABORTED);
    EXPECT_EQ(parallax_request_release(request), PARALLAX_OK);
  });
}

// Given jobs closed within a step, and with many barriers under way, expect close to end and every
// request to be aborted.
TEST(Misuse, ClosedWithinAStep) {
  as_ranks([](uint32_t, Job& job) { job.step_begin(); });
  as_ranks([](uint32_t rank, Job& job) {
    std::vector<parallax_request_t*> requests(rank == 0 ? 16 : 0);
    for (parallax_request_t*& request : requests) check(parallax_barrier(job.get(), &request));
    job.close();
    for (parallax_request_t* request : requests) {
      EXPECT_EQ(parallax_request_test(request), PARALLAX_ABORTED);
      EXPECT_EQ(parallax_request_release(request), PARALLAX_OK);
    }
  });
}

// Given a sentence that names something very long, expect as much of it as the header promises, cut
// between two characters.
TEST(Misuse, ASentenceHasABound) {
  std::string place = "nowhere:";
  for (int i = 0; i < 3000; ++i) place += "\u00fc";
  auto options = sized<parallax_options_t>();
  options.world = 2;
  options.rendezvous = place.c_str();
  parallax_job_t* job = nullptr;
  EXPECT_EQ(parallax_open(&options, &job), PARALLAX_INVALID);
  const std::string sentence = parallax_last_error();
  EXPECT_NE(sentence.find("nowhere:\u00fc\u00fc"), std::string::npos);
  EXPECT_LE(sentence.size(), 2047u);
  EXPECT_GT(sentence.size(), 2040u);
  EXPECT_TRUE(sentence.ends_with("\u00fc...")) << sentence.substr(sentence.size() - 8);
}

template <typename Struct, typename Room>
Struct* at_four(Room& room) {
  return reinterpret_cast<Struct*>(room.data() + 4);
}

// Given structs and pointers that lie askew, expect each to be named.
TEST(Misuse, MisalignedStructs) {
  alignas(16) std::array<std::byte, sizeof(parallax_options_t) + 16> room = {};
  auto* askew = reinterpret_cast<parallax_options_t*>(room.data() + 4);
  parallax_job_t* job = nullptr;
  expect_refused(parallax_open(askew, &job), PARALLAX_INVALID, "options is not aligned to 8");
  EXPECT_EQ(job, nullptr);

  const auto options = sized<parallax_options_t>();
  ASSERT_EQ(parallax_open(&options, &job), PARALLAX_OK);
  uint32_t id = 0;
  expect_refused(parallax_register(job, at_four<parallax_variable_t>(room), &id), PARALLAX_INVALID,
                 "register: variable is not aligned to 8");
  expect_refused(parallax_query(job, at_four<parallax_job_info_t>(room)), PARALLAX_INVALID,
                 "query: info is not aligned to 8");
  ASSERT_EQ(parallax_commit(job), PARALLAX_OK);
  uint64_t step = 0;
  ASSERT_EQ(parallax_step_begin(job, &step), PARALLAX_OK);
  parallax_request_t* request = nullptr;
  expect_refused(parallax_push(job, step, at_four<parallax_slice_t>(room), 1, &request),
                 PARALLAX_INVALID, "push: slices is not aligned to 8");
  expect_refused(parallax_step_end(job, step, at_four<parallax_step_end_options_t>(room), &request),
                 PARALLAX_INVALID, "step_end: options is not aligned to 8");
  EXPECT_EQ(request, nullptr);
  ASSERT_EQ(parallax_step_end(job, step, nullptr, &request), PARALLAX_OK);
  ASSERT_EQ(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT), PARALLAX_OK);
  expect_refused(parallax_request_step(request, at_four<parallax_step_info_t>(room)),
                 PARALLAX_INVALID, "request_step: info is not aligned to 8");
  ASSERT_EQ(parallax_request_release(request), PARALLAX_OK);
  expect_refused(parallax_read(job, at_four<parallax_rows_t>(room), &request), PARALLAX_INVALID,
                 "read: rows is not aligned to 8");
  EXPECT_EQ(parallax_close(job), PARALLAX_OK);
}

}  // namespace
