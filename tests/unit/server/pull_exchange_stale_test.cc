// SPDX-License-Identifier: Apache-2.0
// Pulls of several steps at a time, while tables change: what an owner answers and when, what an
// update waits for, and how a leader goes from one step's rows to another's. Whole jobs of it:
// tests/sim/staleness_test.cc.
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "unit/server/pull_garbage.h"

namespace parallax::testkit::pull_garbage {
namespace {

class StalePulls : public PullGarbage {
 protected:
  // Of rank 0's table, by the leader of the other host.
  bool ask(uint64_t step, uint64_t first) {
    SectionHeader header = following(ids_header(SectionKind::kPullHost, 2), first);
    header.step = step;
    return receive_ids(0, 3, header, owned_by(0, 2));
  }
  // Of rows that rank 0 has answered, since this was asked last.
  uint64_t answered() {
    uint64_t rows = 0;
    job_->tap = [&rows](uint32_t, uint32_t from, const Section& section) {
      if (from == 0 && section.header.kind == SectionKind::kValuesHost)
        rows += section.header.count;
    };
    job_->network().settle();
    job_->tap = nullptr;
    return rows;
  }
  // A rank of rank 0's host wants two rows of an owner.
  bool want(uint32_t rank, uint64_t step, uint32_t owner = 0) {
    SectionHeader header = ids_header(SectionKind::kPullLocal, 2);
    header.step = step;
    SectionHeader end = end_header();
    end.step = step;
    return receive_ids(0, rank, header, owned_by(owner, 2)) && receive(0, rank, end, {});
  }
};

// Given a staleness of 2, expect an owner that has applied nothing to answer pulls of the first
// three steps, in any order, and others as soon as it has applied enough.
TEST_F(StalePulls, AreAnsweredAsOfAnEarlierStep) {
  begin(2);
  for (const uint64_t step : {3u, 1u, 2u, 3u}) {
    EXPECT_TRUE(ask(step, 0)) << step;
    EXPECT_EQ(answered(), 2u) << step;
  }
  EXPECT_TRUE(ask(4, 0));
  EXPECT_EQ(answered(), 0u);
  exchange(0).applied(1);
  EXPECT_EQ(answered(), 2u);
}

// Without it an owner that was asked for a step is not asked for one before.
TEST_F(StalePulls, WithoutStalenessStepsDoNotGoBack) {
  EXPECT_TRUE(ask(2, 0));
  EXPECT_EQ(answered(), 0u);
  exchange(0).applied(1);
  EXPECT_EQ(answered(), 2u);
  EXPECT_FALSE(ask(1, 0));
}

// Given answers that are not packed, expect an update to wait for them, what is asked meanwhile to
// wait for the update, and both to go on.
TEST_F(StalePulls, UpdatesWaitForAnswersAndAnswersForThem) {
  begin(1);
  EXPECT_TRUE(exchange(0).hold()) << "nothing is answered";
  exchange(0).applied(1);
  EXPECT_TRUE(ask(2, 0));
  EXPECT_FALSE(exchange(0).hold()) << "an answer is not packed";
  EXPECT_TRUE(ask(2, 2));
  EXPECT_EQ(answered(), 2u) << "the second has to wait";
  EXPECT_TRUE(exchange(0).hold());
  EXPECT_TRUE(exchange(0).hold()) << "it asks in every pass";
  EXPECT_EQ(answered(), 0u);
  exchange(0).applied(2);
  EXPECT_EQ(answered(), 2u);
  EXPECT_TRUE(exchange(0).hold());
}

// Without it nothing is held: the next update needs the vote of who waits for an answer.
TEST_F(StalePulls, WithoutStalenessNothingIsHeld) {
  EXPECT_TRUE(ask(1, 0));
  EXPECT_TRUE(exchange(0).hold());
  EXPECT_TRUE(ask(1, 2));
  EXPECT_EQ(answered(), 4u);
}

// Given a dense answer, expect the same.
TEST_F(StalePulls, UpdatesWaitForDenseAnswers) {
  begin(1);
  SectionHeader header{.kind = SectionKind::kPullHost, .tag = kDense};
  header.step = 1;
  EXPECT_TRUE(receive(0, 3, header, {}));
  EXPECT_FALSE(exchange(0).hold());
  job_->network().settle();
  EXPECT_TRUE(exchange(0).hold());
}

// Given a rank that pulls for the next step before its end of the last one is told, expect it to be
// taken; and a pull of the step that ends to be refused.
TEST_F(StalePulls, AStepEndsBehindPullsOfTheNext) {
  begin(1);
  EXPECT_TRUE(want(1, 2));
  EXPECT_TRUE(exchange(0).end_local(1, 1));
  EXPECT_FALSE(exchange(0).end_local(1, 2)) << "its own pull is under way";
  begin();
  EXPECT_TRUE(want(1, 2));
  EXPECT_FALSE(exchange(0).end_local(1, 1)) << "without staleness";
}

// Given ranks of a host that pull for different steps, expect the leader to ask for the second when
// the first is given out, and not sooner: it has room for the rows of one.
TEST_F(StalePulls, ALeaderTakesUpOneStepAfterAnother) {
  begin(1);
  std::vector<uint64_t> asked;
  uint64_t given = 0;
  job_->tap = [&](uint32_t, uint32_t from, const Section& section) {
    if (from == 0 && section.header.kind == SectionKind::kPullHost) {
      asked.push_back(section.header.step);
    }
    if (from == 0 && section.header.kind == SectionKind::kValuesLocal) ++given;
  };
  EXPECT_TRUE(want(1, 2));
  EXPECT_TRUE(want(2, 1));
  const auto own = static_cast<int64_t>(job_->partition(kRows).row_of(owned_by(0, 2)[1]));
  float values[3];
  const PullSlice slice = {.variable = kRows,
                           .ids = {&own, nullptr},
                           .count = 1,
                           .values = reinterpret_cast<std::byte*>(values)};
  exchange(0).start(2, {&slice, 1});
  job_->network().hold(0, 1);
  job_->network().hold(0, 2);
  job_->network().settle();
  exchange(0).advance();
  EXPECT_EQ(asked, std::vector<uint64_t>{2}) << "its answer has not left";
  job_->network().release();
  for (int turn = 0; turn < 4; ++turn) {
    job_->network().settle();
    exchange(0).advance();
  }
  EXPECT_EQ(asked, (std::vector<uint64_t>{2, 1, 2}));
  EXPECT_EQ(given, 2u);
  EXPECT_TRUE(exchange(0).finished()) << "its own without a message";
}

// Given a step that a leader comes back to after another, for which it asked another owner, expect
// it to go on counting where that owner does.
TEST_F(StalePulls, ALeaderComesBackToAStep) {
  begin(1);
  using Asked = std::tuple<uint32_t, uint64_t, uint64_t>;  // owner, step, first
  std::vector<Asked> asked;
  job_->tap = [&](uint32_t to, uint32_t from, const Section& section) {
    if (from != 0 || section.header.kind != SectionKind::kPullHost) return;
    asked.emplace_back(to, section.header.step, section.header.first);
  };
  const auto turn = [&](uint32_t rank, uint64_t step, uint32_t owner) {
    EXPECT_TRUE(want(rank, step, owner));
    job_->network().settle();
    exchange(0).advance();
  };
  turn(1, 2, 3);
  turn(2, 1, 0);
  turn(1, 2, 3);
  EXPECT_EQ(asked, (std::vector<Asked>{{3, 2, 0}, {0, 1, 0}, {3, 2, 2}}));
  for (const SectionNetwork::Refusal& each : job_->network().refusals()) {
    EXPECT_NE(each.header.kind, SectionKind::kPullHost);
  }
}

}  // namespace
}  // namespace parallax::testkit::pull_garbage
