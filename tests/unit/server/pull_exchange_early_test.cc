// SPDX-License-Identifier: Apache-2.0
// Pulls that are asked for before the step before is decided, and rows of them that are answered
// before it is applied, over a network of sections.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/bits.h"
#include "support/sanitizers.h"
#include "support/slot_maps.h"
#include "unit/server/pull_forms.h"

namespace parallax::testkit::pull_exchange {
namespace {

Wish some_rows(SeededRandom& random, const Variable& of, uint32_t id) {
  const uint32_t floats[] = {PARALLAX_F32, PARALLAX_F64, PARALLAX_F16, PARALLAX_BF16};
  const uint32_t dtype = is_floating(of.dtype) ? floats[random.below(4)] : of.dtype;
  if (!of.ids_declared()) return Wish::whole(id, dtype);
  Wish wish(id, {}, dtype);
  for (uint64_t i = random.below(random.chance(50) ? 3 : of.rows_max + 1); i > 0; --i) {
    wish.ids.push_back(random.chance(10) ? kPaddingId
                                         : static_cast<int64_t>(random.below(of.rows)));
  }
  return wish;
}

// Ranks that begin each step as soon as they have ended the one before: what is pulled, ended,
// decided and applied, and when each rank does it, by chance.
class EarlyPulls {
 public:
  EarlyPulls(const std::vector<uint32_t>& hosts, uint64_t seed,
             const std::vector<Variable>& variables, size_t piece_bytes_max = 0)
      : job_(hosts, variables, seed,
             seed % 2 == 0 ? uneven_slots(static_cast<uint32_t>(hosts.size()), seed) : SlotMap(),
             piece_bytes_max, seed / 2 % 2 == 0, 1),
        variables_(static_cast<uint32_t>(variables.size())),
        random_(job_.random().fork(2)),
        order_(job_.world()) {
    std::iota(order_.begin(), order_.end(), 0u);
  }

  void run(uint64_t last) {
    for (uint64_t step = 1; step <= last; ++step) {
      // Pulls of this step among what is left of the step before.
      for (const uint32_t rank : shuffled()) {
        for (uint64_t left = random_.below(3); left > 0; --left) post(rank, step);
        move(random_.below(30));
      }
      for (const uint32_t rank : shuffled()) {
        if (random_.chance(50)) {
          job_.decide(rank, step - 1);
          if (random_.chance(50)) post(rank, step);
        }
        move(random_.below(10));
      }
      for (const uint32_t rank : shuffled()) {
        job_.commit(rank, step - 1);
        move(random_.below(10));
      }
      for (const uint32_t rank : shuffled()) {
        job_.end(rank, step);
        move(random_.below(10));
      }
      job_.network().settle();
      ASSERT_TRUE(job_.network().refusals().empty()) << told(job_.network().refusals());
      for (const Pull* pull : posted_) ASSERT_NO_FATAL_FAILURE(job_.expect_values(*pull));
      posted_.clear();
    }
  }
  uint64_t early_rows() {
    uint64_t rows = 0;
    for (uint32_t rank = 0; rank < job_.world(); ++rank) rows += job_.exchange(rank).early_rows();
    return rows;
  }

 private:
  const std::vector<uint32_t>& shuffled() {
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_.below(i)]);
    return order_;
  }
  void move(uint64_t times) {
    for (; times > 0; --times) job_.network().move();
  }
  void post(uint32_t rank, uint64_t step) {
    std::vector<Wish> wishes;
    for (uint32_t id = 0; id < variables_; ++id) {
      if (random_.chance(50)) wishes.push_back(some_rows(random_, job_.variable(id), id));
    }
    posted_.push_back(&job_.pull(rank, step, std::move(wishes)));
  }

  PullJob job_;
  const uint32_t variables_;
  SeededRandom random_;
  std::vector<uint32_t> order_;
  std::vector<Pull*> posted_;
};

// Given any layout and order of arrival, expect every pull to have the rows as of the step before,
// whichever of them were answered before that was applied; and that some were where there are
// hosts.
TEST(PullExchangeEarly, AnswersAreTheRowsOfTheStepBefore) {
  constexpr uint64_t kSeeds = kBrief ? 1 : 6;
  uint64_t early_rows = 0;
  for (size_t layout = 0; layout < layouts().size(); ++layout) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      SCOPED_TRACE("layout " + std::to_string(layout) + ", seed " + std::to_string(seed));
      EarlyPulls pulls(layouts()[layout], seed, every_form());
      ASSERT_NO_FATAL_FAILURE(pulls.run(6));
      early_rows += pulls.early_rows();
    }
  }
  EXPECT_GT(early_rows, 100u * kSeeds);
}

// The same of rows that are wide enough to be placed, where they can be: none of those is early.
TEST(PullExchangeEarly, WhereRowsArePlacedNoneComesEarly) {
  constexpr size_t kPieceBytesMax = 256 * 1024;
  for (const std::vector<uint32_t>& hosts :
       {std::vector<uint32_t>{0, 1}, std::vector<uint32_t>{0, 0, 0, 0, 1}}) {
    for (uint64_t seed = 1; seed <= (kBrief ? 1 : 3); ++seed) {
      SCOPED_TRACE(std::to_string(hosts.size()) + " ranks, seed " + std::to_string(seed));
      EarlyPulls pulls(hosts, seed, {pulled_variable(500, 960, 150, PARALLAX_F32)}, kPieceBytesMax);
      ASSERT_NO_FATAL_FAILURE(pulls.run(4));
      EXPECT_EQ(pulls.early_rows(), 0u);
    }
  }
}

// What rank 1 is sent by rank 0 in answer to its pull of step 2, in order.
struct Answer {
  std::vector<uint64_t> first_rows, counts;  // of values
  std::vector<uint64_t> marked;              // of early rows
};

class TwoHosts : public testing::Test {
 protected:
  void start(uint64_t early_bytes_min) {
    job_ = std::make_unique<PullJob>(std::vector<uint32_t>{0, 1}, every_form(), 1, SlotMap(), 0,
                                     false, early_bytes_min);
    job_->tap = [this](uint32_t to, uint32_t from, const Section& section) {
      const SectionHeader& header = section.header;
      if (to != 1 || from != 0 || header.step != 2) return;
      if (header.kind == SectionKind::kEarlyRows) {
        for (uint64_t i = 0; i < header.count * 8; ++i) {
          if (bit_at(section.payload, i)) answer_.marked.push_back(header.first + i);
        }
      } else if (header.kind == SectionKind::kValuesHost) {
        answer_.first_rows.push_back(header.first);
        answer_.counts.push_back(header.count);
      }
    };
  }
  // Rows of rank 0, those that step 1 changes or those that it leaves alone.
  std::vector<int64_t> owned(bool changed, size_t most) const {
    std::vector<int64_t> ids;
    const Partition& partition = job_->partition(kEmbedding);
    for (uint64_t row = 0; row < partition.rows() && ids.size() < most; ++row) {
      if (partition.owner_of(partition.row_key_of(row)) == 0 && job_->changes(row, 1) == changed) {
        ids.push_back(static_cast<int64_t>(row));
      }
    }
    return ids;
  }
  Pull& pull_after_end(const std::vector<int64_t>& ids) {
    job_->end_all(1);
    Pull& pull = job_->pull(1, 2, {Wish(kEmbedding, ids)});
    job_->network().settle();
    return pull;
  }
  void finish(Pull& pull) {
    job_->commit_all(1);
    job_->network().settle();
    EXPECT_TRUE(job_->network().refusals().empty()) << told(job_->network().refusals());
    job_->expect_values(pull);
  }
  std::unique_ptr<PullJob> job_;
  Answer answer_;
};

// Given rows of which a step changes every other, expect those that it leaves alone before it is
// decided, said by a bit each, and the others once it is applied; and the pull to be over only
// then.
TEST_F(TwoHosts, RowsLeftAloneComeBeforeTheDecision) {
  start(1);
  const std::vector<int64_t> changed = owned(true, 3), alone = owned(false, 3);
  ASSERT_EQ(changed.size(), 3u);
  Pull& pull = pull_after_end({changed[0], alone[0], changed[1], alone[1], alone[2], changed[2]});
  EXPECT_EQ(answer_.marked, (std::vector<uint64_t>{1, 3, 4}));
  EXPECT_EQ(answer_.first_rows, std::vector<uint64_t>{0});
  EXPECT_EQ(answer_.counts, std::vector<uint64_t>{3});
  EXPECT_FALSE(pull.done);
  finish(pull);
  EXPECT_EQ(answer_.counts, (std::vector<uint64_t>{3, 3}));
}

// Given early rows that have not left when the step is applied, expect none of the list behind what
// was queued meanwhile.
TEST_F(TwoHosts, RowsThatHadToWaitDoNotGoBehindLaterPushes) {
  start(1);
  job_->network().hold(0, 1);
  const std::vector<int64_t> changed = owned(true, 2), alone = owned(false, 2);
  Pull& pull = pull_after_end({changed[0], alone[0], alone[1], changed[1]});
  ASSERT_EQ(job_->exchange(0).early_rows(), 2u);
  size_t before = 0;
  const auto seen = job_->tap;
  job_->tap = [&](uint32_t to, uint32_t from, const Section& section) {
    seen(to, from, section);
    if (to == 1 && section.header.tag == 99) before = answer_.counts.size();
  };
  // Stands for a push: it says nothing of a step that is over.
  Send push;
  push.header.kind = SectionKind::kStepEnded;
  push.header.step = 1;
  push.header.tag = 99;
  job_->network().outbox(0).add(1, push);
  job_->commit_all(1);
  job_->network().release();
  job_->network().settle();
  EXPECT_EQ(answer_.marked, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(answer_.counts, (std::vector<uint64_t>{2, 2}));
  EXPECT_EQ(before, 2u);
  EXPECT_TRUE(job_->network().refusals().empty()) << told(job_->network().refusals());
  job_->expect_values(pull);
}

// Given rows that are all left alone, expect all of them early, and the pull to wait for the commit
// all the same: the step before may still fail.
TEST_F(TwoHosts, APullIsOverWhenTheStepBeforeIs) {
  start(1);
  Pull& pull = pull_after_end(owned(false, 4));
  EXPECT_EQ(answer_.counts, std::vector<uint64_t>{4});
  EXPECT_TRUE(job_->exchange(1).finished());
  EXPECT_FALSE(pull.done);
  finish(pull);
  EXPECT_EQ(answer_.counts, std::vector<uint64_t>{4});
}

// Given rows that a step changes, or fewer bytes than are worth a message, or no early pulls,
// expect no row early.
TEST_F(TwoHosts, NothingComesEarlyThatIsNotWorthIt) {
  for (const bool changed : {true, false}) {
    start(changed ? 1 : 4 * 12 + 1);
    answer_ = {};
    Pull& pull = pull_after_end(owned(changed, 4));
    EXPECT_TRUE(answer_.counts.empty());
    EXPECT_TRUE(answer_.marked.empty());
    finish(pull);
  }
  start(PullExchange::kNeverEarly);
  answer_ = {};
  Pull& pull = pull_after_end({0, 1, 2});
  EXPECT_FALSE(pull.started);
  finish(pull);
  EXPECT_TRUE(answer_.marked.empty());
}

// Given more rows than one message has bits for, expect those that the step leaves alone early all
// the same, and each row's values to be its own.
TEST(PullExchangeEarly, ALongListIsSiftedWhole) {
  constexpr uint64_t kRows = 90000;
  PullJob job({0, 1}, {pulled_variable(kRows, 1, kRows, PARALLAX_F32)}, 1, {}, 0, false, 1);
  Wish wish(0, {});
  uint64_t alone = 0;
  const Partition& partition = job.partition(0);
  for (uint64_t row = 0; row < kRows; ++row) {
    if (partition.owner_of(partition.row_key_of(row)) != 0) continue;
    wish.ids.push_back(static_cast<int64_t>(row));
    alone += job.changes(row, 1) ? 0 : 1;
  }
  ASSERT_GT(wish.ids.size(), Outbox::kControlBytesMax * 8);
  job.end(1, 1);
  const Pull& pull = job.pull(1, 2, {std::move(wish)});
  job.network().settle();
  EXPECT_EQ(job.exchange(0).early_rows(), 0u);
  job.end(0, 1);  // now it is known what the step changes
  job.network().settle();
  EXPECT_EQ(job.exchange(0).early_rows(), alone);
  job.commit_all(1);
  job.network().settle();
  ASSERT_TRUE(job.network().refusals().empty()) << told(job.network().refusals());
  job.expect_values(pull);
}

// ---- what a pass costs

// How often a pass over what waits at rank 0 asks what step 1 changes.
uint64_t asked_in_a_pass(PullJob& job, const RowIndex* changed) {
  uint64_t asked = 0;
  job.exchange(0).answer_early(1, [&](uint32_t) {
    ++asked;
    return changed;
  });
  return asked;
}

// Given a list that waits, expect every pass to ask until what the step changes is known, and none
// after.
TEST(PullExchangeEarly, AListIsSiftedOnce) {
  PullJob job({0, 1}, every_form(), 1, {}, 0, false, 1);
  job.end(1, 1);
  job.pull(1, 2, {Wish(kEmbedding, range_of_ids(0, 16))});
  job.network().settle();
  const RowIndex none;
  EXPECT_EQ(asked_in_a_pass(job, nullptr), 1u);
  EXPECT_EQ(asked_in_a_pass(job, nullptr), 1u);
  EXPECT_EQ(asked_in_a_pass(job, &none), 1u);
  EXPECT_GT(job.exchange(0).early_rows(), 0u);
  EXPECT_EQ(asked_in_a_pass(job, &none), 0u);
}

// Given lists of this host, and dense variables, expect no pass to ask about them.
TEST(PullExchangeEarly, WhatNeverComesEarlyIsNotLookedAt) {
  PullJob of_host({0, 0, 1}, every_form(), 1, {}, 0, false, 1);
  for (const uint32_t rank : {0u, 1u}) of_host.end(rank, 1);
  of_host.pull(1, 2, {Wish(kEmbedding, range_of_ids(0, 16))});
  of_host.network().settle();
  EXPECT_EQ(asked_in_a_pass(of_host, nullptr), 0u);
  PullJob dense({0, 1}, every_form(), 1, {}, 0, false, 1);
  dense.end(1, 1);
  dense.pull(1, 2, {Wish::whole(kWide)});
  dense.network().settle();
  EXPECT_EQ(asked_in_a_pass(dense, nullptr), 0u);
}

}  // namespace
}  // namespace parallax::testkit::pull_exchange
