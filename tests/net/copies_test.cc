// SPDX-License-Identifier: Apache-2.0
// How often the library copies a byte of a dense gradient on its way through one host: the figure
// does not depend on the machine or on what else it does.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "net/rank_process.h"

namespace parallax::net {
namespace {

// Given a dense gradient of 4 MB reduced in place by the ranks of one host, expect at most so many
// bytes copied per byte of it, by every rank.
void expect_copies_at_most(uint32_t ranks, double copies_max) {
  constexpr uint64_t kElements = 1 << 20;
  constexpr std::chrono::seconds kPatience{120};
  RankJob job({.host_of = std::vector<uint32_t>(ranks, 0),
               .arguments = {"--elements", std::to_string(kElements)},
               .net_namespaces = {},
               .program = "copies"});
  job.start_all();
  ASSERT_TRUE(job.wait_exit(kPatience)) << "still running";
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(job.rank(rank).exit(), 0) << "rank " << rank << ":\n" << job.rank(rank).tail();
    if (job.rank(rank).said("uncounted")) GTEST_SKIP() << "a sanitizer copies in memcpy's place";
    const auto copied = job.rank(rank).line("copied ");
    ASSERT_TRUE(copied.has_value());
    const double copies = std::stod(*copied) / (kElements * sizeof(float));
    EXPECT_LE(copies, copies_max) << "rank " << rank;
    EXPECT_GE(copies, 0.5) << "rank " << rank << ": less than its own share; is anything counted?";
  }
}

TEST(Copies, of_a_dense_byte_between_two_ranks) { expect_copies_at_most(2, 2.01); }

TEST(Copies, of_a_dense_byte_among_four_ranks) { expect_copies_at_most(4, 2.51); }

}  // namespace
}  // namespace parallax::net
