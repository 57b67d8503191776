// SPDX-License-Identifier: Apache-2.0
// Rounds of a leader: who may still send what, and whom a round waits for.
#include "server/pull_rounds.h"

#include <gtest/gtest.h>

#include "unit/server/layouts.h"

namespace parallax::testkit::pull_rounds {
namespace {

// Three ranks of a host, and one of another.
class PullRoundsTest : public testing::Test {
 protected:
  // A pull without rows: begun and ended.
  PullRound* join(uint32_t local, uint64_t step, uint8_t number) {
    PullRound* round = rounds_.joinable(local, step, number);
    if (round != nullptr) round->here[local] = 1;
    return round;
  }
  const HostMap hosts_ = host_map({0, 0, 0, 1});
  const Columns columns_{hosts_, 0};
  PullRounds rounds_{columns_};
};

// Receive the pulls of all ranks, or their ends of the step: expect the round to be complete with
// the last of them.
TEST_F(PullRoundsTest, ARoundIsCompleteWithEveryRank) {
  PullRound* round = join(0, 1, 0);
  ASSERT_NE(round, nullptr);
  EXPECT_EQ(join(2, 1, 0), round);
  EXPECT_FALSE(rounds_.complete(*round));
  rounds_.end(1, 2);
  EXPECT_FALSE(rounds_.complete(*round)) << "the end of another step";
  rounds_.end(1, 1);
  EXPECT_TRUE(rounds_.complete(*round));
  EXPECT_EQ(&rounds_.of_parity(1)[0], round);
}

// Receive more of a rank that ended its pull or its step, or of a round that was asked for (past):
// expect no round.
TEST_F(PullRoundsTest, WhatIsOverIsNotJoined) {
  PullRound* round = join(0, 1, 0);
  EXPECT_EQ(rounds_.joinable(0, 1, 0), nullptr) << "its pull is over";
  rounds_.end(1, 1);
  EXPECT_EQ(rounds_.joinable(1, 1, 0), nullptr) << "its step is over";
  EXPECT_EQ(rounds_.joinable(1, 1, 1), nullptr);
  EXPECT_NE(rounds_.joinable(1, 2, 0), nullptr);
  EXPECT_EQ(rounds_.joinable(2, 1, 0), round);
  round->asked = true;
  EXPECT_EQ(rounds_.joinable(2, 1, 0), nullptr) << "the owners were asked";
}

// Receive pulls further on (future): expect four rounds side by side, and no room in a place whose
// round waits for ranks or for values.
TEST_F(PullRoundsTest, APlaceHasOneRound) {
  std::vector<PullRound*> open;
  for (const uint64_t step : {uint64_t{1}, uint64_t{2}}) {
    for (const uint8_t number : {uint8_t{4}, uint8_t{5}}) open.push_back(join(0, step, number));
  }
  for (size_t i = 0; i < open.size(); ++i) {
    ASSERT_NE(open[i], nullptr);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(open[i], open[j]);
  }
  EXPECT_EQ(join(0, 1, 6), nullptr);
  EXPECT_EQ(join(0, 3, 4), nullptr);
  const uint64_t opening = open[0]->opening;
  open[0]->asked = true;
  open[0]->left = 1;
  EXPECT_EQ(join(0, 1, 6), nullptr) << "values are to come";
  open[0]->left = 0;
  ASSERT_EQ(join(0, 1, 6), open[0]);
  EXPECT_NE(open[0]->opening, opening);
  EXPECT_FALSE(open[0]->asked);
  EXPECT_EQ(open[0]->here, (std::vector<uint8_t>{1, 0, 0}));
}

// Receive values: expect them due in a round that was asked for, as long as any are to come.
TEST_F(PullRoundsTest, ValuesAreDueOnceAsked) {
  PullRound* round = join(0, 1, 0);
  EXPECT_EQ(rounds_.answerable(1, 0), nullptr);
  round->asked = true;
  EXPECT_EQ(rounds_.answerable(1, 0), nullptr) << "for nothing";
  round->left = 2;
  EXPECT_EQ(rounds_.answerable(1, 0), round);
  EXPECT_EQ(rounds_.answerable(1, 2), nullptr) << "of the same place";
  EXPECT_EQ(rounds_.answerable(3, 0), nullptr);
  EXPECT_EQ(rounds_.answerable(1, 1), nullptr);
  rounds_.open_step(3);
  EXPECT_EQ(rounds_.answerable(1, 0), nullptr) << "its step is over";
}

// Given a new step, expect neither rounds nor ends of the one before the last.
TEST_F(PullRoundsTest, AStepStartsAfresh) {
  join(0, 1, 0);
  rounds_.end(1, 1);
  rounds_.open_step(3);
  EXPECT_EQ(rounds_.waiting(1).number, 0u);
  PullRound* round = join(1, 3, 0);
  ASSERT_NE(round, nullptr);
  rounds_.end(0, 3);
  EXPECT_FALSE(rounds_.complete(*round)) << "rank 2 has neither pulled nor ended";
}

TEST_F(PullRoundsTest, TheOldestIsNamed) {
  EXPECT_EQ(rounds_.waiting(1).number, 0u);
  join(1, 1, 1);
  join(1, 1, 0);
  rounds_.end(2, 1);
  const PullWait wait = rounds_.waiting(1);
  EXPECT_EQ(wait.number, 1u);
  EXPECT_EQ(wait.here, std::vector<uint32_t>{1});
  EXPECT_EQ(wait.missing, std::vector<uint32_t>{0});
  EXPECT_EQ(rounds_.waiting(2).number, 0u);
}

}  // namespace
}  // namespace parallax::testkit::pull_rounds
