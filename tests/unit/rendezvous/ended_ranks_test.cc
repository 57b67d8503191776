// SPDX-License-Identifier: Apache-2.0
// EndedRanks: what is believed of a launcher's file, line by line as it grows.
#include "rendezvous/ended_ranks.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "support/real_time.h"
#include "support/temporary_folder.h"

namespace parallax {
namespace {

using testkit::kClock;

class EndedRanksTest : public ::testing::Test {
 protected:
  void add(const std::string& text) { std::ofstream(file_, std::ios::app) << text; }
  // Of rank 1 of 4, at a time when it looks again.
  const std::vector<EndedRank>& read() {
    ranks_.look(std::max(ranks_.due_ns(), kClock.now_ns()));
    return ranks_.all();
  }

  const testkit::TemporaryFolder folder_;
  const std::string file_ = folder_.path() + "/ended";
  EndedRanks ranks_{{.rank = 1,
                     .world = 4,
                     .host = "a",
                     .lease_ms = kLeaseMillisecondsDefault,
                     .clock = &kClock,
                     .ended_ranks = file_}};
};

TEST_F(EndedRanksTest, ReadsWhatIsAddedInItsOrder) {
  EXPECT_TRUE(read().empty());  // there is no file yet
  add(ended_line({.rank = 3, .host = "b", .how = "killed by signal 9"}));
  ASSERT_EQ(read().size(), 1U);
  add(ended_line({.rank = 0, .host = "a", .how = "exited with status 7"}));
  ASSERT_EQ(read().size(), 2U);
  EXPECT_EQ(ranks_.find(0), &ranks_.all()[1]);
  EXPECT_EQ(ranks_.find(2), nullptr);
  const Status said = ended_before_rendezvous(ranks_.all()[0], "at X");
  EXPECT_EQ(said.code(), PARALLAX_PEER_LOST);
  EXPECT_EQ(said.message(), "rank 3 (host b) ended (killed by signal 9) before all ranks met at X");
}

TEST_F(EndedRanksTest, WaitsForTheEndOfALine) {
  add("2\tb\tkilled by");
  EXPECT_TRUE(read().empty());
  add(" signal 9\n0\ta");
  ASSERT_EQ(read().size(), 1U);
  EXPECT_EQ(ranks_.all()[0].how, "killed by signal 9");
}

TEST_F(EndedRanksTest, PassesOverWhatIsNoOtherRanksLine) {
  add("1\ta\titself\n4\ta\tpast the world\n-2\ta\tx\n2 a x\n\n2\n2\ta\n99999999999\ta\tx\n");
  add("2\ta\tan \x1b[2J escape\n");
  EXPECT_TRUE(read().empty());
  add("2\ta\tfirst\n2\ta\tagain\n");
  ASSERT_EQ(read().size(), 1U);
  EXPECT_EQ(ranks_.all()[0].how, "first");
}

TEST_F(EndedRanksTest, GivesUpOnALineWithoutEnd) {
  add(std::string(100'000, 'x'));
  EXPECT_TRUE(read().empty());
  EXPECT_EQ(ranks_.due_ns(), kNever);
}

TEST_F(EndedRanksTest, FollowsNoLink) {
  const std::string target = folder_.path() + "/target";
  std::ofstream(target) << ended_line({.rank = 3, .host = "b", .how = "x"});
  ASSERT_EQ(::symlink(target.c_str(), file_.c_str()), 0);
  EXPECT_TRUE(read().empty());
}

TEST_F(EndedRanksTest, IsWrittenByNobodyElse) {
  add(ended_line({.rank = 3, .host = "b", .how = "x"}));
  ASSERT_EQ(::chmod(file_.c_str(), 0622), 0);
  EXPECT_TRUE(read().empty());
  ASSERT_EQ(::chmod(file_.c_str(), 0600), 0);
  EXPECT_EQ(read().size(), 1U);
}

TEST_F(EndedRanksTest, BelievesNoOtherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  add(ended_line({.rank = 3, .host = "b", .how = "x"}));
  ASSERT_EQ(::chown(file_.c_str(), 4711, 4711), 0);
  EXPECT_TRUE(read().empty());
}

TEST_F(EndedRanksTest, WaitsForNoWriterOfAFifo) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_TRUE(read().empty());
}

TEST(EndedRanksFile, IsThatOfRanksNumberedAsTheLauncherDoes) {
  std::map<std::string, std::string> variables = {
      {"PARALLAX_RANK", "1"}, {"PARALLAX_WORLD", "4"}, {"PARALLAX_ENDED_RANKS", "/x"}};
  const Environment environment = [&](const char* name) { return variables[name]; };
  EXPECT_EQ(ended_ranks_file(environment, 1, 4), "/x");
  EXPECT_EQ(ended_ranks_file(environment, 1, 3), "");
  EXPECT_EQ(ended_ranks_file(environment, 0, 4), "");
}

}  // namespace
}  // namespace parallax
