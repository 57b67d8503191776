// SPDX-License-Identifier: Apache-2.0
// Buffers of ranks that are processes: the ranks of a host map them, the others do not, and they go
// with their owner's word or its life.
#include <gtest/gtest.h>

#include <csignal>
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

}  // namespace
}  // namespace parallax::net
