// SPDX-License-Identifier: Apache-2.0
// Rows that are copied out of the tables of a host's ranks: when they are, what of them is good,
// and what is asked for by messages instead. Any pulls by chance: pull_exchange_test.cc.
#include "server/table_reader.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "unit/server/pull_forms.h"

namespace parallax::testkit::pull_exchange {
namespace {

bool is_of_a_pull(SectionKind kind) {
  return kind == SectionKind::kPullLocal || kind == SectionKind::kPullHost ||
         kind == SectionKind::kValuesHost || kind == SectionKind::kValuesLocal;
}

// Ranks that read each other's tables from step 2 on, when they have been told of them.
class TableReaderTest : public PullTest {
 protected:
  void start_shared(const std::vector<uint32_t>& hosts) {
    job_ = std::make_unique<PullJob>(hosts, every_form(), 1, SlotMap(), 0, true);
    job_->tap = [this](uint32_t, uint32_t, const Section& section) {
      const SectionKind kind = section.header.kind;
      if (is_of_a_pull(kind)) ++asked_;
      if (kind == SectionKind::kTablePlace || kind == SectionKind::kTablesCurrent) ++told_;
    };
  }
  // All of step 1, in which nothing is pulled; those of step 2 may begin.
  void begin_step_2() {
    job_->end_all(1);
    settle();
    job_->commit_all(1);
    settle();
  }
  // Its values are of step 1.
  Pull& pull_rows(uint32_t rank) {
    return job_->pull(rank, 2, {{kEmbedding, {5, 59, 5, -1, 0, 0, -1, 5, 17, 18, 19}}});
  }
  // Of step 3, rows that any rank owns, for rank 0; step 2 is applied everywhere but at that owner.
  // Expects it to be waited for, and named.
  Pull& pull_before_applied(uint32_t late) {
    begin_step_2();
    job_->end_all(2);
    settle();
    for (uint32_t rank = 0; rank < job_->world(); ++rank) {
      if (rank != late) job_->commit(rank, 2);
    }
    Pull& pull = job_->pull(0, 3, {{kEmbedding, range_of_ids(0, 16)}});
    settle();
    EXPECT_FALSE(pull.done);
    EXPECT_EQ(job_->exchange(0).missing_ranks(), (std::vector<uint32_t>{late}));
    return pull;
  }
  TableMark& mark_of(uint32_t rank, uint32_t variable) {
    return *reinterpret_cast<TableMark*>(shared_range(job_->table(rank, variable)).first);
  }

  uint64_t asked_ = 0, told_ = 0;
};

// Given rows of every kind, ids twice, padding and other dtypes: expect them without a message, but
// for what has no row ids; and in the step before the owners have told where tables lie, by
// messages.
TEST_F(TableReaderTest, RowsAreReadWhereTheyLie) {
  start_shared({0, 0, 0});
  const Pull& first = job_->pull(1, 1, {{kEmbedding, {3, 4, 5}}});
  settle();
  job_->expect_values(first);
  EXPECT_GT(asked_, 0u);
  begin_step_2();
  asked_ = 0;
  Wish narrow(kCounts, {-1, 19, 19, 0}, PARALLAX_I64);
  narrow.narrow = true;
  const Pull& pull = job_->pull(1, 2,
                                {{kEmbedding, {5, 59, 5, -1, 0, 0, -1, 5}},
                                 narrow,
                                 {kFew, {-1, 2, -1}, PARALLAX_F32},
                                 {kEmbedding, {7, 5}},
                                 Wish::whole(kLong, PARALLAX_F32)});
  EXPECT_TRUE(pull.done) << "nobody is waited for";
  job_->expect_values(pull);
  const Pull& dense = job_->pull(1, 2, {Wish::whole(kWide), {kEmbedding, {11}}});
  settle();
  job_->expect_values(dense);
  EXPECT_GT(asked_, 0u) << "of elements";
  EXPECT_GT(job_->network().outbox(1).lending().counts().read_bytes, 0u);
}

// Given more rows than are looked at together, and widths that are copied each in a way of its own:
// expect the values of each, and zeros for padding.
TEST_F(TableReaderTest, RowsOfAnyWidthAndNumber) {
  std::vector<Variable> variables;
  for (const uint64_t width : {1, 8, 16, 32, 33, 64, 100}) {
    variables.push_back(pulled_variable(200, width, 100, PARALLAX_F32));
  }
  job_ = std::make_unique<PullJob>(std::vector<uint32_t>{0, 0}, variables, 1, SlotMap(), 0, true);
  begin_step_2();
  for (const int64_t count : {1, 31, 32, 33, 64, 65, 100}) {
    SCOPED_TRACE(count);
    std::vector<int64_t> ids = range_of_ids(0, count);
    for (int64_t& id : ids) id = id % 7 == 3 ? kPaddingId : id * 37 % 200;
    std::vector<Wish> wishes;
    for (uint32_t variable = 0; variable < variables.size(); ++variable) {
      wishes.emplace_back(variable, ids);
    }
    const Pull& pull = job_->pull(1, 2, wishes);
    EXPECT_TRUE(pull.done);
    job_->expect_values(pull);
  }
}

// Ids of which many came long before, in slices of one variable and of another, and rows so wide
// that few are copied in a turn.
TEST_F(TableReaderTest, RowsThatCameInTurnsBefore) {
  constexpr uint64_t kRows = 300, kWidth = 4096;
  const std::vector<Variable> variables = {pulled_variable(kRows, kWidth, 300, PARALLAX_F32),
                                           pulled_variable(kRows, kWidth, 300, PARALLAX_F32)};
  job_ =
      std::make_unique<PullJob>(std::vector<uint32_t>{0, 0, 0}, variables, 1, SlotMap(), 0, true);
  begin_step_2();
  std::vector<Wish> wishes;
  for (uint32_t slice = 0; slice < 4; ++slice) {
    std::vector<int64_t> ids(120);
    for (int64_t i = 0; i < 120; ++i) {
      ids[i] = i % 5 == 4 ? kPaddingId : i % 3 == 0 ? i * 7 % 20 : (i * 37 + slice) % kRows;
    }
    wishes.emplace_back(slice / 2, ids);
  }
  const Pull& pull = job_->pull(1, 2, wishes);
  settle();
  job_->expect_values(pull);
}

// Given an owner whose memory is mapped elsewhere from the second turn on: expect rows that came
// before to be found there.
TEST_F(TableReaderTest, TablesMayMoveBetweenTurns) {
  constexpr uint64_t kRows = 100, kWidth = 4096;
  job_ = std::make_unique<PullJob>(
      std::vector<uint32_t>{0, 0},
      std::vector<Variable>{pulled_variable(kRows, kWidth, 2 * kRows, PARALLAX_F32)}, 1, SlotMap(),
      0, true);
  begin_step_2();
  SharedMemory& lent = job_->memory(1).shared.begin()->second;
  const std::vector<std::byte> moved(lent.base, lent.base + lent.bytes);
  int looks = 0;
  job_->memory(0).before_asked = [&] {
    if (++looks != 1) return;
    std::span<std::byte> values = job_->table(1, 0).array(0);
    std::fill(values.begin(), values.end(), std::byte{0x55});
    lent.base = moved.data();
  };
  std::vector<int64_t> ids = range_of_ids(0, 20);
  for (int turn = 0; turn < 9; ++turn) {
    const std::vector<int64_t> again = range_of_ids(turn, 20);
    ids.insert(ids.end(), again.begin(), again.end());
  }
  const Pull& pull = job_->pull(0, 2, {{0, ids}});
  settle();
  EXPECT_GT(looks, 3);
  job_->expect_values(pull);
}

// Given an owner that has not applied the step before: expect the pull to wait for it, to name it,
// and to have the rows of that step.
TEST_F(TableReaderTest, WaitForOwnersToApplyTheStepBefore) {
  start_shared({0, 0, 0});
  const Pull& pull = pull_before_applied(2);
  job_->commit(2, 2);
  settle();
  job_->expect_values(pull);
  EXPECT_TRUE(job_->exchange(0).missing_ranks().empty());
}

// Given an owner in the midst of writing rows: expect nothing to be taken of it before it is done.
TEST_F(TableReaderTest, WaitForAnOwnerThatWrites) {
  start_shared({0, 0});
  begin_step_2();
  ++mark_of(1, kEmbedding);
  const Pull& pull = pull_rows(0);
  EXPECT_FALSE(pull.done);
  ++mark_of(1, kEmbedding);
  job_->advance(0);
  job_->expect_values(pull);
}

// Given an owner that wrote rows while they were copied: expect them to be copied again.
TEST_F(TableReaderTest, CopyAgainWhatWasWrittenMeanwhile) {
  start_shared({0, 0});
  begin_step_2();
  Table& table = job_->table(1, kEmbedding);
  const std::vector<std::byte> good(table.array(0).begin(), table.array(0).end());
  std::fill(table.array(0).begin(), table.array(0).end(), std::byte{0x55});
  int looks = 0;
  job_->memory(0).before_asked = [&] {
    if (++looks > 1) return;
    mark_of(1, kEmbedding) += 2;
    std::copy(good.begin(), good.end(), table.array(0).begin());
  };
  const Pull& pull = pull_rows(0);
  EXPECT_EQ(looks, 2);
  job_->expect_values(pull);
}

// Given an owner that has given this rank up, or whose memory is gone: expect nothing to be taken
// of it, for its loss to be told.
TEST_F(TableReaderTest, TakeNothingOfARankThatIsGone) {
  for (const bool unmapped : {false, true}) {
    start_shared({0, 0});
    begin_step_2();
    job_->end_all(2);
    settle();
    job_->commit(0, 2);
    const Pull& pull = job_->pull(0, 3, {{kEmbedding, {1, 2, 3, 4}}});
    (unmapped ? job_->memory(0).unmapped : job_->memory(1).retracted) = true;
    job_->commit(1, 2);
    settle();
    EXPECT_FALSE(pull.done);
  }
}

// Given a rank that maps nothing, or owners that are let share nothing: expect messages.
TEST_F(TableReaderTest, WhatIsNotMappedIsAskedFor) {
  start_shared({0, 0});
  begin_step_2();
  job_->memory(0).unmapped = true;
  const Pull& pull = pull_rows(0);
  settle();
  job_->expect_values(pull);
  EXPECT_GT(asked_, 0u);
}

// Given several hosts, of as many ranks or not: expect each rank to read what its host owns, and to
// ask for the rest, whatever rows it names how often; and nobody to be told of other hosts' tables.
TEST_F(TableReaderTest, OfSeveralHostsThoseOfOnesOwnAreRead) {
  for (const std::vector<uint32_t>& hosts :
       std::vector<std::vector<uint32_t>>{{0, 1}, {0, 0, 1, 1}, {0, 0, 0, 1, 1}, {0, 1, 1, 2}}) {
    start_shared(hosts);
    Counts told(*job_, SectionKind::kTablePlace);
    begin_step_2();
    EXPECT_EQ(told.between_hosts, 0u);
    Counts asks(*job_, SectionKind::kPullHost);
    const std::vector<int64_t> ids = {5, 59, 5, -1, 0, 0, -1, 5, 17, 18, 19};
    std::vector<const Pull*> pulls;
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      pulls.push_back(&job_->pull(rank, 2,
                                  {{kEmbedding, ids},
                                   {kCounts, {19, 0, 19, -1, 2}, PARALLAX_I64},
                                   {kEmbedding, {7, 5, 1}},
                                   Wish::whole(kWide)}));
    }
    settle();
    for (const Pull* pull : pulls) job_->expect_values(*pull);
    uint64_t read_bytes = 0;  // of neighbours
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      read_bytes += job_->network().outbox(rank).lending().counts().read_bytes;
    }
    EXPECT_EQ(read_bytes > 0, hosts.size() > 2);
    EXPECT_EQ(asks.between_hosts, asks.items) << "of rows nobody asks on the own host";
    EXPECT_GT(asks.items, 0u);
  }
}

// Given a pull of what the host owns alone, expect each row to be told of, those that come twice
// and padding, too.
TEST_F(TableReaderTest, RowsOfTheHostAreToldOf) {
  start_shared({0, 0, 1});
  begin_step_2();
  const Partition& partition = job_->partition(kEmbedding);
  std::vector<int64_t> ids;
  for (int64_t id = 0; ids.size() < 8; ++id) {
    const uint32_t row_key = partition.row_key_of(static_cast<uint64_t>(id));
    if (partition.owner_of(row_key) < 2) ids.push_back(id);
  }
  ids.insert(ids.end(), {ids[3], kPaddingId, ids[0]});
  asked_ = 0;
  const Pull& pull = job_->pull(0, 2, {{kEmbedding, ids}});
  settle();
  job_->expect_values(pull);
  EXPECT_EQ(asked_, 0u);
  EXPECT_EQ(pull.wishes[0].there, std::vector<bool>(ids.size(), true));
}

// Given variables that one host owns alone, or others, expect the one to read and the others to
// ask.
TEST_F(TableReaderTest, WhatOneHostOwnsAlone) {
  const std::vector<Variable> variables = {pulled_variable(2, 3, 8, PARALLAX_F32)};
  job_ = std::make_unique<PullJob>(std::vector<uint32_t>{0, 0, 1, 1}, variables, 1, SlotMap(), 0,
                                   true);
  Counts asks(*job_, SectionKind::kPullHost);
  begin_step_2();
  std::vector<const Pull*> pulls;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    pulls.push_back(&job_->pull(rank, 2, {{0, {1, 0, -1, 1, 0}}}));
    EXPECT_EQ(pulls.back()->done, job_->partition(0).rows_owned(rank / 2 * 2) +
                                          job_->partition(0).rows_owned(rank / 2 * 2 + 1) ==
                                      2);
  }
  settle();
  for (const Pull* pull : pulls) job_->expect_values(*pull);
  EXPECT_EQ(asks.between_hosts, asks.items);
}

// Given an owner of this host that has not applied the step before, while those of others have:
// expect the pull to wait for it and to name it, and what has come meanwhile to be told of as it
// is, without rows that are not there.
TEST_F(TableReaderTest, RowsOfOthersComeBeforeThoseOfTheHost) {
  start_shared({0, 0, 1});
  const Pull& pull = pull_before_applied(1);
  const Partition& partition = job_->partition(kEmbedding);
  const std::vector<bool>& there = pull.wishes[0].there;  // empty before any was told of
  for (uint32_t i = 0; i < there.size(); ++i) {
    const uint32_t owner = partition.owner_of(partition.row_key_of(i));
    EXPECT_FALSE(owner == 1 && there[i]) << i;
  }
  job_->commit(1, 2);
  settle();
  job_->expect_values(pull);
}

// Receive what does not fit of a neighbour.
TEST_F(TableReaderTest, ReceiveTablesThatDoNotFit) {
  start_shared({0, 0});
  begin_step_2();
  PullExchange& exchange = job_->exchange(0);
  const BufferPlace place = {.buffer = 1, .offset = 0};
  const auto bytes = std::as_bytes(std::span(&place, 1));
  SectionHeader header = {.kind = SectionKind::kTablePlace, .tag = kEmbedding, .step = 3};
  EXPECT_TRUE(exchange.on_tables(1, {header, bytes}, false)) << "what all of these began with";
  EXPECT_FALSE(exchange.on_tables(0, {header, bytes}, false)) << "of this rank itself";
  EXPECT_FALSE(exchange.on_tables(1, {header, bytes.first(8)}, false));
  for (const BufferPlace& wrong : {BufferPlace(), BufferPlace{.buffer = 1, .offset = 4}}) {
    EXPECT_FALSE(exchange.on_tables(1, {header, std::as_bytes(std::span(&wrong, 1))}, false));
  }
  header.tag = kWide;
  EXPECT_FALSE(exchange.on_tables(1, {header, bytes}, false)) << "it has no rows";
  header.tag = 99;
  EXPECT_FALSE(exchange.on_tables(1, {header, bytes}, false));
  EXPECT_TRUE(exchange.on_tables(1, {header, bytes}, true)) << "mirrored since";
  header = {.kind = SectionKind::kTablesCurrent, .tag = UINT32_MAX, .step = 3};
  EXPECT_FALSE(exchange.on_tables(1, {header, bytes}, false));
  EXPECT_TRUE(exchange.on_tables(1, {header, {}}, false));
  EXPECT_FALSE(exchange.on_tables(1, {header, {}}, false)) << "again";
  header.step = 2;
  EXPECT_FALSE(exchange.on_tables(1, {header, {}}, false)) << "of a step before";
}

// A place that is not the owner's: what is not in its memory is not read.
TEST_F(TableReaderTest, APlaceBeyondTheMemoryIsNotRead) {
  start_shared({0, 0});
  begin_step_2();
  const uint64_t end = job_->memory(1).shared.begin()->second.bytes;
  const BufferPlace place = {.buffer = 1, .offset = end - kArenaAlignmentBytes};
  const SectionHeader header = {.kind = SectionKind::kTablePlace, .tag = kEmbedding, .step = 3};
  ASSERT_TRUE(job_->exchange(0).on_tables(1, {header, std::as_bytes(std::span(&place, 1))}, false));
  const Pull& pull = pull_rows(0);
  settle();
  job_->expect_values(pull);
  EXPECT_GT(asked_, 0u);
}

}  // namespace
}  // namespace parallax::testkit::pull_exchange
