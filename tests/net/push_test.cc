// SPDX-License-Identifier: Apache-2.0
// Rows pushed out of memory that the ranks of a host share, as processes: whoever waits for the
// push, however and whenever, has its memory again, and the sums are right.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "net/rank_process.h"

namespace parallax::net {
namespace {

constexpr std::chrono::seconds kPushPatience{90};

void expect_pushes(const std::vector<uint32_t>& hosts, const std::string& waits, bool lends) {
  RankJob job({.host_of = hosts,
               // Neighbours map memory as they hear of it, some steps later.
               .arguments = {"--waits", waits, "--steps", lends ? "4000" : "60"},
               .net_namespaces = {},
               .program = "pusher"});
  job.start_all();
  const bool over = job.wait_exit(kPushPatience);
  for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
    EXPECT_TRUE(over && job.rank(rank).exit() == 0) << "rank " << rank << ":\n"
                                                    << job.rank(rank).tail();
    const bool lent = job.rank(rank).line("lent ").value_or("0") != "0";
    EXPECT_EQ(lent, lends) << job.rank(rank).tail();
  }
}

TEST(Push, stays_for_who_waits_behind_the_end) { expect_pushes({0, 0}, "behind", true); }

TEST(Push, stays_for_who_waits_for_both) { expect_pushes({0, 0, 0}, "with", true); }

TEST(Push, is_copied_for_who_waits_before_the_end) { expect_pushes({0, 0}, "before", false); }

TEST(Push, is_copied_for_who_sleeps_in_poll) { expect_pushes({0, 0}, "polls", false); }

TEST(Push, is_copied_where_hosts_are_several) { expect_pushes({0, 0, 1}, "behind", false); }

// Given a rank that is killed while others may read its rows, expect the others to hear of it.
TEST(Push, of_one_who_dies_is_not_waited_for) {
  RankJob job({.host_of = {0, 0, 0},
               .arguments = {"--waits", "behind", "--steps", "1000000"},
               .net_namespaces = {},
               .program = "pusher"});
  job.start_all();
  ASSERT_TRUE(job.wait_until([&] { return job.rank(1).said("step 2000"); }, kPushPatience));
  job.rank(1).signal(SIGKILL);
  ASSERT_TRUE(job.wait_exit(kPushPatience));
  for (const uint32_t rank : {0, 2}) {
    EXPECT_EQ(job.rank(rank).exit(), 3) << job.rank(rank).tail();
    EXPECT_NE(job.rank(rank).line("refused ").value_or("").find("rank 1 (host host0)"),
              std::string::npos)
        << job.rank(rank).tail();
  }
}

}  // namespace
}  // namespace parallax::net
