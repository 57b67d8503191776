// SPDX-License-Identifier: Apache-2.0
// Pulls of the ranks of a host, together and alone: none waits for what another one calls, and rows
// that the host has are not asked for again.
#include <gtest/gtest.h>

#include <algorithm>

#include "unit/server/pull_forms.h"

namespace parallax::testkit::pull_exchange {
namespace {

// Given ranks of a host that pull different numbers of times, or not at all, and end no step:
// expect every pull to be answered.
TEST_F(PullTest, APullWaitsForNoOtherRank) {
  start({0, 0, 0, 1});
  const Pull& first = job_->pull(0, 1, {{kEmbedding, {1}}});
  const Pull& second = job_->pull(0, 1, {{kEmbedding, {2}}});
  const Pull& other = job_->pull(1, 1, {{kEmbedding, {2, 3}}, Wish::whole(kWide)});
  settle();
  for (const Pull* pull : {&first, &second, &other}) job_->expect_values(*pull);
}

// Receive what a rank wants in part, and it says no more: expect another rank's pull of the same
// rows to be answered.
TEST_F(PullTest, AListThatIsNotWholeHoldsUpNobody) {
  start({0, 0});
  SectionHeader part{.kind = SectionKind::kPullLocal, .encoding = Encoding::kIds};
  part.step = 1;
  part.count = 2;
  const uint32_t mine = job_->partition(kEmbedding).row_key_at(0, 0);
  const uint32_t next = job_->partition(kEmbedding).row_key_at(0, 1);
  ASSERT_TRUE(job_->exchange(0).on_section(
      1, OwnedSection(part, as_payload<uint32_t>({mine, next})).view()));
  const auto id = static_cast<int64_t>(job_->partition(kEmbedding).row_of(mine));
  const Pull& pull = job_->pull(0, 1, {{kEmbedding, {id}}});
  settle();
  job_->expect_values(pull);
}

// Given values that are on their way, or the answer to a rank that takes nothing: expect rows that
// another rank wants too not to be asked for again, and to be given to it.
TEST_F(PullTest, RowsOnTheirWayAreWaitedFor) {
  start({0, 0, 1});
  Counts asks(*job_, SectionKind::kPullHost);
  job_->network().hold(2);
  const Pull& first = job_->pull(0, 1, {{kEmbedding, range_of_ids(0, 16)}});
  job_->network().settle();
  EXPECT_EQ(asks.items, 16u);
  const Pull& second = job_->pull(1, 1, {{kEmbedding, range_of_ids(8, 16)}});
  job_->network().settle();
  EXPECT_EQ(asks.items, 24u);
  EXPECT_FALSE(first.done || second.done);
  // Rank 0 leads the one column, and names owners; rank 1 names its leader.
  EXPECT_EQ(job_->exchange(0).missing_ranks(), std::vector<uint32_t>{2});
  EXPECT_EQ(job_->exchange(1).missing_ranks(), std::vector<uint32_t>{0});
  job_->network().release();
  job_->network().hold(0, 1);  // rank 1 does not take its answer
  job_->network().settle();
  EXPECT_TRUE(first.done);
  EXPECT_FALSE(second.done);
  for (uint32_t times = 0; times < 4; ++times) {
    std::vector<int64_t> ids = range_of_ids(11 * times, 16);
    // Of owners that rank 0 still talks to.
    const Partition& partition = job_->partition(kEmbedding);
    std::erase_if(ids, [&](int64_t id) {
      return partition.owner_of(partition.row_key_of(static_cast<uint64_t>(id))) == 1;
    });
    const Pull& more = job_->pull(0, 1, {{kEmbedding, ids}});
    job_->network().settle();
    job_->expect_values(more);
  }
  job_->network().release();
  settle();
  job_->expect_values(second);
}

// Given pulls of more rows in a step than the leader holds, some of them while others are on their
// way: expect each to be answered, and its rows asked for again once they were forgotten.
TEST_F(PullTest, RowsAreForgottenAndAskedForAgain) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    start({0, 0, 1}, seed);
    Counts asks(*job_, SectionKind::kPullHost);
    std::vector<const Pull*> pulls;
    for (uint32_t times = 0; times < 12; ++times) {
      for (uint32_t rank = 0; rank < 2; ++rank) {
        const int64_t first = (times * (rank == 0 ? 16 : 11)) % 45;
        pulls.push_back(&job_->pull(rank, 1, {{kEmbedding, range_of_ids(first, 15)}}));
      }
    }
    settle();
    for (const Pull* pull : pulls) ASSERT_NO_FATAL_FAILURE(job_->expect_values(*pull));
    EXPECT_GT(asks.items, 60u) << "some rows more than once";
    EXPECT_LT(asks.items, 2u * 12 * 15) << "and not every row for every rank";
  }
}

// Receive pulls of the next step while this one waits for nothing more: expect both in each rank's
// order, and each answered with its own.
TEST_F(PullTest, RanksRunAheadByAStep) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    start({0, 0, 1, 1}, seed);
    SectionNetwork& network = job_->network();
    std::vector<const Pull*> pulls;
    for (uint32_t times = 0; times < 4; ++times) {
      for (uint32_t rank = 0; rank < 4; ++rank) {
        const int64_t first = 4 * times + rank;
        pulls.push_back(&job_->pull(rank, 1, {{kEmbedding, {first, first + 20, 50}}}));
      }
    }
    network.hold(1, 0);  // what rank 1 wants of column 0, and gives of column 1
    network.settle();
    EXPECT_FALSE(pulls[1]->done);
    network.release();
    job_->end_all(1);
    settle();
    // Rank 1 knows first that step 1 is decided, and its leader last.
    for (const uint32_t rank : {1u, 2u, 3u, 0u}) {
      job_->decide(rank, 1);
      for (uint32_t times = 0; times < 2; ++times) {
        pulls.push_back(&job_->pull(rank, 2, {{kEmbedding, range_of_ids(times, 12)}}));
      }
      network.settle();
    }
    EXPECT_FALSE(pulls.back()->done);
    for (uint32_t rank = 0; rank < 4; ++rank) job_->commit(rank, 1);
    settle();
    for (const Pull* pull : pulls) job_->expect_values(*pull);
  }
}

TEST_F(PullTest, HundredsOfPullsInAStep) {
  start({0, 0, 1});
  for (uint32_t times = 0; times < 260; ++times) {
    const int64_t id = times % 60;
    std::vector<Wish> wishes = {{kEmbedding, {id}}};
    if (times % 256 == 0) wishes.push_back({kCounts, {3, 7}, PARALLAX_I64});
    const Pull& pull = job_->pull(times % 2, 1, wishes);
    settle();
    ASSERT_NO_FATAL_FAILURE(job_->expect_values(pull)) << times;
  }
}

}  // namespace
}  // namespace parallax::testkit::pull_exchange
