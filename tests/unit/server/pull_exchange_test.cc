// SPDX-License-Identifier: Apache-2.0
// The pull's four legs over a network of sections: what each sends, waits for and gives out, in
// the orders of arrival that are allowed. Pulls among those of other ranks are in
// pull_exchange_alone_test.cc; what is not allowed is in pull_leader_test.cc,
// pull_owner_test.cc and pull_source_test.cc.
#include "server/pull_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/sanitizers.h"
#include "support/slot_maps.h"
#include "unit/server/pull_forms.h"

namespace parallax::testkit::pull_exchange {
namespace {

// ---- one job of any shape, by chance

Wish random_wish(SeededRandom& random, const Variable& of, uint32_t id) {
  const uint32_t floats[] = {PARALLAX_F32, PARALLAX_F64, PARALLAX_F16, PARALLAX_BF16};
  const uint32_t dtype = is_floating(of.dtype) ? floats[random.below(4)] : of.dtype;
  if (!of.ids_declared() || (of.rows_max >= of.rows && random.chance(20))) {
    return Wish::whole(id, dtype);
  }
  Wish wish(id, {}, dtype);
  const uint64_t rows = random.chance(50) ? std::min<uint64_t>(of.rows, 4) : of.rows;
  for (uint64_t i = random.chance(20) ? of.rows_max : random.below(of.rows_max + 1); i > 0; --i) {
    wish.ids.push_back(random.chance(10) ? kPaddingId : static_cast<int64_t>(random.below(rows)));
  }
  wish.narrow = random.chance(50) && !wish.ids.empty();
  return wish;
}

class RandomPulls {
 public:
  // Every other seed: some ranks own nothing, and others more than their share. Half of either:
  // ranks of a host read each other's tables.
  RandomPulls(const std::vector<uint32_t>& hosts, uint64_t seed)
      : job_(hosts, every_form(), seed,
             seed % 2 == 0 ? uneven_slots(static_cast<uint32_t>(hosts.size()), seed) : SlotMap(), 0,
             seed / 2 % 2 == 0),
        random_(job_.random().fork(1)) {}

  PullJob& job() { return job_; }

  void post_step(uint32_t rank, uint64_t step) {
    for (uint64_t left = random_.below(4); left > 0; --left) {
      std::vector<Wish> wishes;
      for (uint32_t id = 0; id < every_form().size(); ++id) {
        if (random_.chance(40)) add(random_wish(random_, job_.variable(id), id), &wishes);
      }
      posted_.push_back(&job_.pull(rank, step, std::move(wishes)));
      for (uint64_t moves = random_.below(20); moves > 0; --moves) job_.network().move();
    }
  }

  // Every pull is answered before any rank ends its step.
  void expect_answers() {
    job_.network().settle();
    ASSERT_TRUE(job_.network().refusals().empty()) << told(job_.network().refusals());
    for (const Pull* pull : posted_) ASSERT_NO_FATAL_FAILURE(job_.expect_values(*pull));
    posted_.clear();
  }

  // Steps 1..last, with the commits of each among the pulls of the next.
  void run(uint64_t last) {
    std::vector<uint32_t> order(job_.world());
    std::iota(order.begin(), order.end(), 0u);
    for (uint64_t step = 1; step <= last; ++step) {
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
      for (const uint32_t rank : order) {
        if (random_.chance(50)) job_.decide(rank, step - 1);
        if (random_.chance(30)) job_.commit(rank, step - 1);
        post_step(rank, step);
      }
      for (const uint32_t rank : order) {
        job_.commit(rank, step - 1);
        for (uint64_t moves = random_.below(20); moves > 0; --moves) job_.network().move();
      }
      ASSERT_NO_FATAL_FAILURE(expect_answers());
      // More pulls, of some ranks, among the ends of others.
      for (const uint32_t rank : order) {
        if (random_.chance(50)) post_step(rank, step);
        job_.end(rank, step);
      }
      ASSERT_NO_FATAL_FAILURE(expect_answers());
    }
  }

 private:
  // By one slice, or in pieces by several, between those of other variables: rows, or all elements
  // once more.
  void add(Wish wish, std::vector<Wish>* wishes) {
    while (!wish.every_row && random_.chance(30)) {
      Wish piece(wish.variable, {}, wish.dtype);
      const auto cut = static_cast<std::ptrdiff_t>(random_.below(wish.ids.size() + 1));
      piece.ids.assign(wish.ids.begin(), wish.ids.begin() + cut);
      piece.narrow = wish.narrow && cut > 0;
      wish.ids.erase(wish.ids.begin(), wish.ids.begin() + cut);
      wish.narrow = wish.narrow && !wish.ids.empty();
      put(std::move(piece), wishes);
    }
    const bool dense = wish.every_row && !job_.variable(wish.variable).ids_declared();
    while (dense && random_.chance(30)) put(wish, wishes);
    put(std::move(wish), wishes);
  }
  void put(Wish wish, std::vector<Wish>* wishes) {
    const auto place = static_cast<std::ptrdiff_t>(random_.below(wishes->size() + 1));
    wishes->insert(wishes->begin() + place, std::move(wish));
  }

  PullJob job_;
  SeededRandom random_;
  std::vector<Pull*> posted_;
};

// Given any layout, several variables in a pull, ids twice or padding, any dtypes, ranks that
// pull more or less than others and start the next step before this one is applied everywhere:
// expect the owners' rows as of the step before, for five steps, whatever the others call.
TEST(PullExchange, AnswersAreTheOwnersRows) {
  for (size_t layout = 0; layout < layouts().size(); ++layout) {
    for (uint64_t seed = 1; seed <= (kBrief ? 1 : 6); ++seed) {
      SCOPED_TRACE("layout " + std::to_string(layout) + ", seed " + std::to_string(seed));
      RandomPulls pulls(layouts()[layout], seed);
      ASSERT_NO_FATAL_FAILURE(pulls.run(5));
    }
  }
}

// ---- what a rank gets

// Receive ids twice and three times, and padding: expect each row everywhere it was asked for, and
// zeros for padding.
TEST_F(PullTest, DuplicatesAndPaddingAreFilledIn) {
  for (const std::vector<uint32_t>& hosts : layouts()) {
    start(hosts);
    Wish wide(kEmbedding, {5, 59, 5, -1, 0, 0, -1, 5});
    Wish narrow(kCounts, {-1, 19, 19, 0}, PARALLAX_I64);
    narrow.narrow = true;
    Wish padding(kFew, {-1, -1, -1}, PARALLAX_F64);
    const Pull& pull = job_->pull(0, 1, {wide, narrow, padding});
    job_->end_all(1);
    settle();
    job_->expect_values(pull);
  }
}

// Receive a pull of nothing, or of no ids: expect it to be over at once, and nobody to be asked.
TEST_F(PullTest, AnEmptyPullAsksNobody) {
  for (const bool of_no_ids : {false, true}) {
    start({0, 0, 1, 1});
    std::vector<Wish> wishes;
    if (of_no_ids) wishes.push_back({kEmbedding, {}});
    EXPECT_TRUE(job_->pull(0, 1, wishes).done);
    settle();
    EXPECT_EQ(job_->network().delivered(), 0u);
    EXPECT_EQ(job_->exchange(0).pulled_rows(kEmbedding, 1), 0u);
  }
}

// Receive every row of a variable, and one of more rows than a message holds: expect all of it, in
// messages of 4096 bytes.
TEST_F(PullTest, ManyRowsGoInSeveralMessages) {
  start({0, 1});
  const Counts values(*job_, SectionKind::kValuesHost);
  const Pull& pull =
      job_->pull(0, 1, {Wish::whole(kLong), Wish::whole(kWide), Wish::whole(kFew, PARALLAX_F64)});
  job_->end_all(1);
  settle();
  job_->expect_values(pull);
  // 70 rows of 160 bytes, half of them from the other owner: two messages at least; and so of the
  // dense one, of which this rank's half is sent, too.
  EXPECT_GE(values.sections, 2u + 2 * 2);
  EXPECT_GE(job_->told_in_parts(), 4u) << "what is there leaves before the rest has come";
}

// Receive the same rows from three ranks of a host: expect them to cross the wire once, and each
// rank to have its own.
TEST_F(PullTest, RowsCrossOnceForAHost) {
  start({0, 0, 0, 1, 1});
  Counts asks(*job_, SectionKind::kPullHost);
  const Pull& first = job_->pull(0, 1, {{kEmbedding, range_of_ids(0, 10)}});
  const Pull& second = job_->pull(1, 1, {{kEmbedding, range_of_ids(5, 10)}});
  const Pull& third = job_->pull(2, 1, {{kEmbedding, {14, 0, 14}}});
  settle();
  for (const Pull* pull : {&first, &second, &third}) job_->expect_values(*pull);
  EXPECT_EQ(asks.items, 15u) << "the union of what the host asked for";
  const auto owned_there = [&](int64_t id) {
    const Partition& partition = job_->partition(kEmbedding);
    return partition.owner_of(partition.row_key_of(static_cast<uint64_t>(id))) >= 3;
  };
  const std::vector<int64_t> wanted = range_of_ids(0, 15);
  const auto of_others =
      static_cast<uint64_t>(std::count_if(wanted.begin(), wanted.end(), owned_there));
  uint64_t counted = 0;
  for (const uint32_t leader : {0u, 1u})
    counted += job_->exchange(leader).pulled_rows(kEmbedding, 1);
  EXPECT_EQ(counted, of_others) << "those of the other host";
  EXPECT_EQ(job_->exchange(2).pulled_rows(kEmbedding, 1), 0u) << "no leader";
  // What is held is given from there; a row that is not adds to it; the step after the next starts
  // over.
  const Pull& again = job_->pull(2, 1, {{kEmbedding, {0, 14, 7, 59}}});
  job_->end_all(1);
  settle();
  job_->expect_values(again);
  EXPECT_EQ(asks.items, 16u);
  for (const uint32_t leader : {0u, 1u})
    counted += job_->exchange(leader).pulled_rows(kEmbedding, 1);
  EXPECT_EQ(counted, 2 * of_others + (owned_there(59) ? 1u : 0u));
  job_->commit_all(1);
  for (const uint32_t leader : {0u, 1u}) EXPECT_EQ(job_->exchange(leader).pulled_rows(0, 3), 0u);
}

// Receive one variable in one dtype: expect it to travel as the smaller of that and the master's.
// In several dtypes: expect the owners to be asked for the master's, from the next step on.
TEST_F(PullTest, ValuesTravelInTheSmallestTypeThatServesAll) {
  struct Case {
    std::vector<uint32_t> asked;
    uint32_t wire;
  };
  const Case cases[] = {
      {{PARALLAX_F16, PARALLAX_F16}, PARALLAX_F16}, {{PARALLAX_BF16, PARALLAX_BF16}, PARALLAX_BF16},
      {{PARALLAX_F64, PARALLAX_F64}, PARALLAX_F32}, {{PARALLAX_F16, PARALLAX_BF16}, PARALLAX_F32},
      {{PARALLAX_F32, PARALLAX_F16}, PARALLAX_F32}, {{PARALLAX_BF16, PARALLAX_F64}, PARALLAX_F32}};
  for (const Case& each : cases) {
    for (const uint32_t variable : {uint32_t{kEmbedding}, uint32_t{kWide}}) {
      start({0, 0, 1, 1});
      for (uint64_t step = 1; step <= 2; ++step) {
        const Counts values(*job_, SectionKind::kValuesHost);
        std::vector<const Pull*> pulls;
        for (uint32_t rank = 0; rank < 2; ++rank) {
          Wish wish(variable, range_of_ids(3 * rank, 12), each.asked[rank]);
          if (variable == kWide) wish.ids.clear();
          pulls.push_back(&job_->pull(rank, step, {wish}));
        }
        settle();
        for (const Pull* pull : pulls) job_->expect_values(*pull);
        EXPECT_GT(values.sections, 0u);
        if (step == 2 || each.asked[0] == each.asked[1]) {
          EXPECT_EQ(values.sections_by_dtype[each.wire], values.sections);
        }
        job_->end_all(step);
        settle();
        job_->commit_all(step);
      }
    }
  }
}

// Receive a variable by one rank of the host and another by the other: expect neither to get what
// the other wanted.
TEST_F(PullTest, EachRankGetsWhatItAskedFor) {
  start({0, 0, 1});
  const Counts values(*job_, SectionKind::kValuesLocal);
  const Pull& rows = job_->pull(0, 1, {{kEmbedding, {1, 2, 3}}});
  const Pull& dense = job_->pull(1, 1, {Wish::whole(kBias, PARALLAX_F64)});
  settle();
  job_->expect_values(rows);
  job_->expect_values(dense);
  // What rank 0 leads itself it has without a message.
  uint64_t own = 0;
  for (const uint64_t id : {1, 2, 3}) {
    const Partition& partition = job_->partition(kEmbedding);
    const uint32_t owner = partition.owner_of(partition.row_key_of(id));
    own += job_->columns(0).column_of(owner) == 0 ? 1 : 0;
  }
  EXPECT_EQ(values.items, 3u + 3u - own);
}

// ---- steps

// Receive asks of step t + 1 (future): expect the owner to hold them until it has committed t, and
// to answer with what t made of the rows.
TEST_F(PullTest, AsksOfTheNextStepWaitForTheCommit) {
  start({0, 1, 2});
  const Counts values(*job_, SectionKind::kValuesHost);
  job_->end_all(1);
  settle();
  for (uint32_t rank = 0; rank < 3; ++rank) job_->decide(rank, 1);
  const Pull& rows = job_->pull(0, 2, {{kEmbedding, range_of_ids(0, 12)}});
  const Pull& whole = job_->pull(1, 2, {Wish::whole(kWide)});
  settle();
  EXPECT_EQ(values.sections, 0u);
  job_->commit(2, 1);
  settle();
  EXPECT_GT(values.sections, 0u) << "one owner has committed, and answers";
  EXPECT_FALSE(rows.done || whole.done);
  job_->commit(0, 1);
  job_->commit(1, 1);
  settle();
  job_->expect_values(rows);
  job_->expect_values(whole);
}

// Receive asks of a variable whose table is not here yet, of one that goes meanwhile, and of one
// that goes and comes again: expect the first to be answered with the commit that brings the table,
// the others dropped.
TEST_F(PullTest, AsksWaitForTheirTable) {
  start({0, 1});
  PullExchange& owner = job_->exchange(1);
  const Variable added = pulled_variable(8, 2, 4, PARALLAX_F32);
  const Partition partition(8, 2, true, SlotMap::of_ranks(2, kSlotsPerOwner), 6);
  Table table(added, partition, 1, true);
  ASSERT_TRUE(table.reserve().ok());
  for (const uint32_t id : {6u, 7u, 8u}) {
    ASSERT_TRUE(owner.add_variable(id, added, partition).ok());
  }
  ASSERT_NE(owner.arena_of(6), nullptr);
  EXPECT_EQ(owner.arena_of(6)->used_bytes(),
            PullExchange::needed_bytes(job_->columns(1), added, partition));
  const Counts values(*job_, SectionKind::kValuesHost);
  for (const uint32_t id : {6u, 7u, 8u}) {
    SectionHeader ask{.kind = SectionKind::kPullHost, .encoding = Encoding::kIds, .tag = id};
    ask.step = 1;
    ask.count = 2;
    ASSERT_TRUE(owner.on_section(0, OwnedSection(ask, as_payload<uint32_t>({1, 3})).view()));
  }
  job_->network().settle();
  EXPECT_EQ(values.sections, 0u);
  owner.remove_variable(7);
  EXPECT_EQ(owner.arena_of(7), nullptr);
  EXPECT_EQ(owner.pulled_rows(7, 1), 0u);
  ASSERT_TRUE(owner.add_variable(8, added, partition).ok());
  owner.set_table(6, &table);
  owner.set_table(8, &table);
  owner.applied(1);
  job_->network().settle();
  EXPECT_EQ(values.items, 2u) << "to rank 0, which does not know the variable";
  EXPECT_EQ(values.sections, 1u);
}

// Given steps that use the same memory, expect of each only what it asked for: no row,
// rank, dense wish or dtype of the step before the last.
TEST_F(PullTest, NothingLeaksIntoTheNextStep) {
  start({0, 0, 1, 1});
  for (uint64_t step = 1; step <= 6; ++step) {
    const bool full = step <= 2;
    Counts asks(*job_, SectionKind::kPullHost);
    std::vector<const Pull*> pulls;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      std::vector<Wish> wishes;
      if (full) {
        wishes = {{kEmbedding, range_of_ids(16 * rank, 16), PARALLAX_F16},
                  Wish::whole(kBias, PARALLAX_F64)};
      } else if (rank == step % 2) {
        wishes = {{kEmbedding, {7}}};
        if (step > 4) wishes.push_back(Wish::whole(kBias, PARALLAX_F64));
      }
      pulls.push_back(&job_->pull(rank, step, wishes));
    }
    settle();
    if (!full) {
      EXPECT_EQ(asks.items, 1u);
      EXPECT_EQ(asks.sections_by_dtype[PARALLAX_F32], 1u);
      EXPECT_EQ(asks.sections, step > 4 ? 2u : 1u) << "the dense variable has one owner";
    }
    job_->end_all(step);
    settle();
    for (const Pull* pull : pulls) job_->expect_values(*pull);
    job_->commit_all(step);
  }
}

// Given a rank with nothing under way, expect it to be neither active nor finished, and a
// second pull beside one under way to fail the check.
TEST_F(PullTest, OnePullIsUnderWay) {
  start({0});
  PullExchange& exchange = job_->exchange(0);
  EXPECT_FALSE(exchange.active() || exchange.finished());
  const std::vector<int64_t> ids = {5};
  std::vector<float> values(3);
  PullSlice slice;
  slice.ids.wide = ids.data();
  slice.count = 1;
  slice.values = reinterpret_cast<std::byte*>(values.data());
  exchange.start(1, {&slice, 1});
  EXPECT_TRUE(exchange.active());
  EXPECT_FALSE(exchange.finished());
  EXPECT_THROW(exchange.start(1, {}), InternalError);
  EXPECT_THROW(exchange.finish(), InternalError);
  EXPECT_TRUE(job_->network().outbox(0).lending().read()) << "a rank alone reads its own table";
  ASSERT_TRUE(exchange.finished());
  exchange.finish();
  EXPECT_FALSE(exchange.active() || exchange.finished());
}

}  // namespace
}  // namespace parallax::testkit::pull_exchange
