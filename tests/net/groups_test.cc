// SPDX-License-Identifier: Apache-2.0
// Four processes in three overlapping groups, beside the whole job: every rank checks every value
// that it gets; and a process that dies names itself in all groups of all others.
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "net/rank_process.h"

namespace parallax::net {
namespace {

constexpr std::chrono::seconds kGroupsPatience{120};
constexpr uint32_t kGroupsWorld = 4;
const char* const kGroupLists = "0,1,2;3,1;2,3,0";
const char* const kStepsForever = "1000000000";

std::vector<std::string> group_arguments(const std::string& steps) {
  return {"--groups", kGroupLists, "--steps", steps, "--lease-ms", std::to_string(kLeaseMs)};
}

// Of the whole and the three lists.
std::vector<std::string> groups_of(uint32_t rank) {
  const std::vector<std::vector<std::string>> groups = {
      {"0", "1", "3"}, {"0", "1", "2"}, {"0", "1", "3"}, {"0", "2", "3"}};
  return groups[rank];
}

TEST(Groups, overlapping_groups_train_a_thousand_steps) {
  for (const std::vector<uint32_t>& hosts :
       {std::vector<uint32_t>{0, 1, 0, 1}, std::vector<uint32_t>{0, 0, 0, 0}}) {
    RankJob job({.host_of = hosts,
                 .arguments = group_arguments("1000"),
                 .net_namespaces = {},
                 .program = "grouper"});
    job.start_all();
    ASSERT_TRUE(job.wait_exit(kGroupsPatience)) << "still running";
    for (uint32_t rank = 0; rank < kGroupsWorld; ++rank) {
      EXPECT_EQ(job.rank(rank).exit(), 0) << "rank " << rank << ":\n" << job.rank(rank).tail();
      for (const std::string& group : groups_of(rank)) {
        EXPECT_EQ(job.rank(rank).line("done " + group + " "), "steps 1000") << "rank " << rank;
      }
    }
  }
}

TEST(Groups, a_loss_names_itself_in_all) {
  constexpr uint32_t kLost = 3;
  RankJob job({.host_of = {0, 1, 0, 1},
               .arguments = group_arguments(kStepsForever),
               .net_namespaces = {},
               .program = "grouper"});
  job.start_all();
  ASSERT_TRUE(job.wait_until([&] { return job.rank(0).said("step 20"); }, kGroupsPatience))
      << job.rank(0).tail();
  job.rank(kLost).signal(SIGKILL);
  ASSERT_TRUE(job.wait_exit(kGroupsPatience)) << "still running";
  for (uint32_t rank = 0; rank < kGroupsWorld; ++rank) {
    if (rank == kLost) continue;
    EXPECT_EQ(job.rank(rank).exit(), 3) << "rank " << rank << ":\n" << job.rank(rank).tail();
    for (const std::string& group : groups_of(rank)) {
      const std::string failed = job.rank(rank).line("failed " + group + " ").value_or("nothing");
      EXPECT_EQ(failed.find("PEER_LOST"), 0u)
          << "rank " << rank << ", group " << group << ": " << failed;
      EXPECT_NE(failed.find(job.name(kLost)), std::string::npos) << failed;
      // As data in the groups that it is of; the first list is not one.
      EXPECT_EQ(failed.find("PEER_LOST 3 ") == 0, group != "1") << failed;
    }
  }
}

}  // namespace
}  // namespace parallax::net
