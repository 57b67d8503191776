// SPDX-License-Identifier: Apache-2.0
// Real processes call collectives on their buffers: over shared memory inside an emulated host,
// over tcp between hosts. Every rank checks every number.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "net/rank_process.h"
#include "parallax/parallax.h"

namespace parallax::net {
namespace {

constexpr std::chrono::seconds kCollectivesPatience{120};

TEST(Collectives, of_every_kind_on_hosts_of_every_shape) {
  const std::vector<std::vector<uint32_t>> shapes = {
      {0, 0, 0, 0}, {0, 1, 2}, {0, 0, 1, 1}, {0, 1, 1, 2}};
  for (const auto& shape : shapes) {
    RankJob job({.host_of = shape,
                 .arguments = {"--rounds", "8"},
                 .net_namespaces = {},
                 .program = "collectives"});
    job.start_all();
    ASSERT_TRUE(job.wait_exit(kCollectivesPatience)) << "still running";
    for (uint32_t rank = 0; rank < job.world(); ++rank) {
      ASSERT_EQ(job.rank(rank).exit(), 0) << "rank " << rank << ":\n" << job.rank(rank).tail();
      EXPECT_TRUE(job.rank(rank).said("right 56"));
    }
  }
}

// Given a process that is killed between collectives, expect the others' to fail and to name it.
TEST(Collectives, name_the_process_that_is_killed) {
  for (const uint32_t victim : {0u, 3u}) {
    RankJob job({.host_of = {0, 0, 1, 1},
                 .arguments = {"--rounds", "8"},
                 .net_namespaces = {},
                 .program = "collectives"});
    for (uint32_t rank = 0; rank < job.world(); ++rank) {
      if (rank == victim) {
        job.start(rank, {"--die-at", "round:3"});
      } else {
        job.start(rank);
      }
    }
    ASSERT_TRUE(job.wait_exit(kCollectivesPatience)) << "still running";
    for (uint32_t rank = 0; rank < job.world(); ++rank) {
      if (rank == victim) continue;
      ASSERT_EQ(job.rank(rank).exit(), 3) << "rank " << rank << ":\n" << job.rank(rank).tail();
      const std::string failed = job.rank(rank).line("refused ").value_or("");
      EXPECT_TRUE(failed.starts_with("PEER_LOST: ")) << failed;
      EXPECT_NE(failed.find(job.name(victim)), std::string::npos) << failed;
    }
  }
}

}  // namespace
}  // namespace parallax::net
