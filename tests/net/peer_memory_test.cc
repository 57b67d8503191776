// SPDX-License-Identifier: Apache-2.0
// Buffers of ranks that are processes: the ranks of a host map them, the others do not, and they go
// with their owner's word or its life.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "net/rank_process.h"

namespace parallax::net {
namespace {

constexpr std::chrono::seconds kPatience{120};
constexpr uint64_t kBuffers = 3;
constexpr uint64_t kBufferBytes = 1 << 20;

RankJob job_of(std::vector<uint32_t> host_of, uint64_t dies) {
  return RankJob(
      {.host_of = std::move(host_of),
       .arguments = {"--buffers", std::to_string(kBuffers), "--dies", std::to_string(dies)},
       .net_namespaces = {},
       .program = "lender"});
}

std::string mapped_of(uint64_t neighbours) {
  return std::to_string(neighbours * kBuffers) + " " +
         std::to_string(neighbours * kBuffers * kBufferBytes);
}

void expect_lent(const std::vector<uint32_t>& host_of, const std::vector<uint64_t>& neighbours) {
  RankJob job = job_of(host_of, host_of.size());
  job.start_all();
  ASSERT_TRUE(job.wait_exit(kPatience)) << "still running";
  for (uint32_t rank = 0; rank < host_of.size(); ++rank) {
    EXPECT_EQ(job.rank(rank).exit(), 0) << "rank " << rank << ":\n" << job.rank(rank).tail();
    EXPECT_EQ(job.rank(rank).line("mapped "), mapped_of(neighbours[rank])) << "rank " << rank;
    EXPECT_EQ(job.rank(rank).line("left "), "0") << "rank " << rank;
  }
}

TEST(LentBuffers, are_mapped_by_the_ranks_of_the_host) { expect_lent({0, 0, 0}, {2, 2, 2}); }

// One machine; but what the user calls two hosts does not attach.
TEST(LentBuffers, are_not_mapped_by_ranks_of_another_host) { expect_lent({0, 0, 1}, {1, 1, 0}); }

TEST(LentBuffers, go_with_a_rank_that_is_killed) {
  RankJob job = job_of({0, 0, 0}, 1);
  job.start_all();
  EXPECT_TRUE(job.wait_until([&] { return job.rank(0).said("lost ") && job.rank(2).said("lost "); },
                             kPatience));
  EXPECT_EQ(job.rank(1).exit(), 128 + SIGKILL);
  for (const uint32_t rank : {0u, 2u}) {
    EXPECT_EQ(job.rank(rank).line("mapped "), mapped_of(2)) << job.rank(rank).tail();
    EXPECT_EQ(job.rank(rank).line("lost "), std::to_string(kBuffers)) << job.rank(rank).tail();
  }
}

// ---- what is read where it lies

std::unique_ptr<RankJob> readers(std::vector<uint32_t> host_of, uint64_t elements,
                                 const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"--elements", std::to_string(elements), "--lease-ms",
                                        std::to_string(kLeaseMs)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return std::make_unique<RankJob>(RankJobOptions{.host_of = std::move(host_of),
                                                  .arguments = std::move(arguments),
                                                  .net_namespaces = {},
                                                  .program = "reader"});
}

// Expects right totals, and each rank that sums for others of its host to have read what they have,
// and written the totals there; in a part, to have written nothing. Over two hosts that is the
// first of each.
void expect_totals(const std::string& part) {
  for (const std::vector<uint32_t>& host_of : {std::vector<uint32_t>{0, 0}, {0, 0, 0}, {0, 1, 0}}) {
    constexpr uint64_t kElements = 300'007;
    const std::unique_ptr<RankJob> running =
        readers(host_of, kElements, {"--steps", "20", "--part", part});
    RankJob& job = *running;
    job.start_all();
    ASSERT_TRUE(job.wait_exit(kPatience)) << "still running";
    for (uint32_t rank = 0; rank < job.world(); ++rank) {
      EXPECT_EQ(job.rank(rank).exit(), 0) << "rank " << rank << ":\n" << job.rank(rank).tail();
      const bool alone = std::count(host_of.begin(), host_of.end(), host_of[rank]) == 1;
      const uint64_t read = std::stoull(job.rank(rank).line("read ").value_or("0"));
      if (alone) {
        EXPECT_EQ(read, 0u) << "rank " << rank;
      } else if (rank == (part == "0" ? 0 : 2) || host_of.back() == host_of[1]) {
        EXPECT_GT(read, kElements * sizeof(float)) << "rank " << rank;
        const uint64_t wrote = std::stoull(job.rank(rank).line("wrote ").value_or("0"));
        if (part == "0") {
          EXPECT_GT(wrote, kElements * sizeof(float)) << "rank " << rank;
        } else {
          EXPECT_EQ(wrote, 0u) << "rank " << rank;
        }
      }
    }
  }
}

// Given ranks of one host, and of two.
TEST(ReadBuffers, give_the_totals) { expect_totals("0"); }

// Given a part of the job that has all of its ranks, in the other order.
TEST(ReadBuffers, give_the_totals_of_parts) { expect_totals("1"); }

// Given slices of one call that lie one behind the other, which begin and end anywhere in a page,
// expect every total to be written where its addends lay, but for the page that has the last of
// them: all others are borrowed whole. Before all have mapped the buffer, in the first steps, they
// go in messages.
TEST(ReadBuffers, are_written_across_the_slices_of_a_call) {
  constexpr uint64_t kElements = 300'007, kSteps = 100, kFirst = 2;
  const std::unique_ptr<RankJob> running =
      readers({0, 0}, kElements, {"--steps", std::to_string(kSteps), "--variables", "7"});
  RankJob& job = *running;
  job.start_all();
  ASSERT_TRUE(job.wait_exit(kPatience)) << "still running";
  uint64_t wrote = 0;
  for (uint32_t rank = 0; rank < job.world(); ++rank) {
    EXPECT_EQ(job.rank(rank).exit(), 0) << "rank " << rank << ":\n" << job.rank(rank).tail();
    wrote += std::stoull(job.rank(rank).line("wrote ").value_or("0"));
  }
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_GE(wrote, (kSteps - kFirst) * (kElements * sizeof(float) / page * page));
}

// Given collectives in place of every type and operation, about the edges of pages and blocks and
// from places that are aligned to nothing, expect every number right, all of the long ones written
// where they lay, and no byte of the buffer beside them changed.
TEST(ReadBuffers, are_written_where_the_numbers_are_and_nowhere_else) {
  constexpr uint64_t kCalls = 8 * (5 + 5 + 7 + 7);
  for (const std::vector<uint32_t>& host_of :
       {std::vector<uint32_t>{0, 0}, {0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 1, 1}}) {
    RankJob job({.host_of = host_of, .arguments = {}, .net_namespaces = {}, .program = "rewriter"});
    job.start_all();
    ASSERT_TRUE(job.wait_exit(kPatience)) << "still running";
    for (uint32_t rank = 0; rank < job.world(); ++rank) {
      EXPECT_EQ(job.rank(rank).exit(), 0) << "rank " << rank << ":\n" << job.rank(rank).tail();
      EXPECT_EQ(job.rank(rank).line("right "), std::to_string(kCalls)) << "rank " << rank;
      EXPECT_GT(std::stoull(job.rank(rank).line("wrote ").value_or("0")), kCalls * 4096);
    }
  }
}

// How long the slowest of the others took to answer, from when the rank was gone; printed, since
// another machine, or this one with other work, has other times.
void expect_in_time(RankJob& job, bool stop, uint64_t elements) {
  const auto gone_ms = std::stoll(job.rank(1).line("clock ").value_or("0"));
  int64_t took_ms = 0;
  for (const uint32_t rank : {0u, 2u}) {
    const auto heard_ms = std::stoll(job.rank(rank).line("clock ").value_or("0"));
    took_ms = std::max<int64_t>(took_ms, heard_ms - gone_ms);
  }
  const int64_t lease_ms = stop ? kLeaseMs : 0;
  std::printf("answered a %s in a reduce of %llu floats %lld ms after %s\n", stop ? "stop" : "kill",
              static_cast<unsigned long long>(elements), static_cast<long long>(took_ms - lease_ms),
              stop ? "the lease" : "it");
  EXPECT_LE(took_ms, lease_ms + kSlackMs);
}

// Given a rank that ends, or stops, in whatever it does of a reduce, expect every other to hear of
// it, to have its own buffer at once, and what was stopped, once it goes on, to write nothing
// there, nor to take what lies there by then for a total.
TEST(ReadBuffers, are_their_owners_as_a_reader_is_gone) {
  for (const bool stop : {false, true}) {
    constexpr uint64_t kElements = 2'000'000;
    // A stop is heard of after the lease; its moments are those of one reduce.
    const uint64_t moments = stop ? 4 : 6;
    const uint64_t apart_us = stop ? 400 : 1700;
    for (uint64_t i = 0; i < moments; ++i) {
      const std::unique_ptr<RankJob> running =
          readers({0, 0, 0}, kElements,
                  {"--steps", "1000000", "--dies", "1", "--how", stop ? "stop" : "kill",
                   "--after-us", std::to_string(300 + apart_us * i),
                   // Every other time with pages that several loans share.
                   "--variables", i % 2 == 0 ? "1" : "9",
                   // And those behind the half of them in a part.
                   "--part", i < moments / 2 ? "0" : "1"});
      RankJob& job = *running;
      job.start_all();
      EXPECT_TRUE(job.wait_until(
          [&job] { return job.rank(0).said("failed ") && job.rank(2).said("failed "); }, kPatience))
          << job.rank(0).tail() << job.rank(1).tail() << job.rank(2).tail();
      for (const uint32_t rank : {0u, 2u}) {
        const std::string failed = job.rank(rank).line("failed ").value_or("");
        EXPECT_NE(failed.find(job.name(1)), std::string::npos) << failed;
        EXPECT_TRUE(job.rank(rank).running()) << job.rank(rank).tail();
      }
      EXPECT_TRUE(job.wait_until(
          [&job] { return job.rank(0).said("clock ") && job.rank(2).said("clock "); }, kPatience));
      expect_in_time(job, stop, kElements);
      if (!stop) {
        EXPECT_EQ(job.rank(1).exit(), 128 + SIGKILL);
        continue;
      }
      job.rank(1).signal(SIGCONT);
      EXPECT_TRUE(job.wait_until([&job] { return !job.rank(1).running(); }, kPatience));
      EXPECT_EQ(job.rank(1).exit(), kExitPeerLost) << job.rank(1).tail();
      for (const uint32_t rank : {0u, 2u}) {
        job.rank(rank).signal(SIGUSR1);
        EXPECT_TRUE(job.wait_until([&] { return job.rank(rank).said("kept "); }, kPatience));
        EXPECT_EQ(job.rank(rank).line("kept "), std::to_string(kElements)) << "rank " << rank;
      }
    }
  }
}

// Given the same of a rank whose steps are so short that the others look for it all the time, and
// never sleep, expect them to hear of it.
TEST(ReadBuffers, whoever_looks_for_a_rank_hears_that_it_is_gone) {
  constexpr uint64_t kElements = 2;
  for (const bool stop : {false, false, false, true}) {
    const std::unique_ptr<RankJob> running =
        readers({0, 0, 0}, kElements,
                {"--steps", "100000000", "--dies", "1", "--how", stop ? "stop" : "kill",
                 "--after-us", "3000"});
    RankJob& job = *running;
    job.start_all();
    EXPECT_TRUE(job.wait_until(
        [&job] { return job.rank(0).said("clock ") && job.rank(2).said("clock "); }, kPatience))
        << job.rank(0).tail() << job.rank(1).tail() << job.rank(2).tail();
    for (const uint32_t rank : {0u, 2u}) {
      const std::string failed = job.rank(rank).line("failed ").value_or("");
      EXPECT_NE(failed.find(job.name(1)), std::string::npos) << failed;
    }
    expect_in_time(job, stop, kElements);
  }
}

}  // namespace
}  // namespace parallax::net
