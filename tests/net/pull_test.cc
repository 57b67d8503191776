// SPDX-License-Identifier: Apache-2.0
// Ranks that pull different numbers of times and then wait for each other, as processes: what runs
// on two hosts runs on one.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "net/rank_process.h"

namespace parallax::net {
namespace {

// Given ranks that wait for each of their pulls, and then for a reduce of all, before any ends its
// step: expect all of it to come about, wherever they are placed; on one host by reading each
// other's tables, and what a neighbour pushes by reading its rows, of the last of the steps at
// least. `pulls`: how often, a digit each.
void expect_steps(const std::vector<uint32_t>& hosts, const std::string& pulls) {
  constexpr std::chrono::seconds kPatience{60};
  RankJob job({.host_of = hosts,
               .arguments = {"--pulls", pulls},
               .net_namespaces = {},
               .program = "puller"});
  job.start_all();
  const bool over = job.wait_exit(kPatience);
  for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
    EXPECT_TRUE(over && job.rank(rank).exit() == 0) << "rank " << rank << ":\n"
                                                    << job.rank(rank).tail();
    const bool of_tables =
        std::count(hosts.begin(), hosts.end(), hosts[rank]) > 1 && pulls[2 * rank] != '0';
    // Rank 0 pushes; where it has a neighbour that sums a part of that, this reads its rows.
    const bool of_pushes = rank == 1 && hosts[1] == hosts[0];
    const bool read = job.rank(rank).line("read ").value_or("0") != "0";
    EXPECT_EQ(read, of_tables || of_pushes) << job.rank(rank).tail();
  }
}

TEST(Pull, more_often_by_one_rank_of_a_host) { expect_steps({0, 0}, "2,1"); }

TEST(Pull, more_often_by_one_rank_of_two_hosts) { expect_steps({0, 1}, "2,1"); }

TEST(Pull, as_often_as_each_rank_likes) { expect_steps({0, 0, 0, 1, 1}, "3,0,1,5,0"); }

}  // namespace
}  // namespace parallax::net
