// SPDX-License-Identifier: Apache-2.0
// Rows with their state over a network of sections: read, written, pulled by id, by several ranks
// at once and in any order of arrival. What is not allowed is in row_access_garbage_test.cc.
#include "server/row_access.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/sanitizers.h"
#include "support/slot_maps.h"
#include "unit/server/rows_job.h"

namespace parallax::testkit::row_access {
namespace {

enum : uint32_t {
  kAdam,
  kRowwise,
  kDense,
  kMirror,
  kMirroredDense,
  kFew,
  kIntegers,
  kLong,
  kNarrow,
  kNarrowDense
};
constexpr uint64_t kLongRows = 2500;  // three portions of a write

const std::vector<Placed>& every_form() {
  static const std::vector<Placed> all = {
      {managed_variable(90, 3, true, PARALLAX_RULE_ADAM)},
      {managed_variable(40, 5, true, PARALLAX_RULE_ROWWISE_ADAGRAD, PARALLAX_F64)},
      {managed_variable(13, 100, false, PARALLAX_RULE_ADAM)},
      {managed_variable(50, 2, true, PARALLAX_RULE_ADAGRAD, PARALLAX_BF16), false},
      {managed_variable(7, 70, false, PARALLAX_RULE_MOMENTUM), false},
      {managed_variable(3, 1, true, PARALLAX_RULE_SGD)},
      {managed_variable(30, 2, true, PARALLAX_RULE_SUM, PARALLAX_I64)},
      {managed_variable(kLongRows, 2, true, PARALLAX_RULE_ADAGRAD)},
      {stored_as(managed_variable(60, 3, true, PARALLAX_RULE_ADAM), PARALLAX_BF16)},
      {stored_as(managed_variable(9, 30, false, PARALLAX_RULE_MOMENTUM), PARALLAX_F16), false}};
  return all;
}

class RowAccessTest : public testing::Test {
 protected:
  void start(const std::vector<uint32_t>& hosts, uint64_t seed = 1) {
    job_ = std::make_unique<RowsJob>(hosts, every_form(), seed);
  }
  void settle() {
    job_->network().settle();
    ASSERT_TRUE(job_->network().refusals().empty()) << told(job_->network().refusals());
  }
  // Counts sections of a kind, and the items of each array.
  void count(SectionKind kind) {
    sections_ = 0;
    items_.fill(0);
    job_->tap = [this, kind](uint32_t, uint32_t, const Section& section) {
      if (section.header.kind != kind) return;
      ++sections_;
      const bool last = (section.header.flags & kSectionLast) != 0;
      if (!last) items_[section.header.part] += section.header.count;
    };
  }
  std::unique_ptr<RowsJob> job_;
  uint64_t sections_ = 0;
  std::array<uint64_t, 256> items_ = {};
};

// ---- one job of any shape, by chance

class RandomRows {
 public:
  // Every other seed: some ranks own nothing, and others more than their share.
  RandomRows(const std::vector<uint32_t>& hosts, uint64_t seed)
      : job_(hosts, every_form(), seed,
             seed % 2 == 0 ? uneven_slots(static_cast<uint32_t>(hosts.size()), seed) : SlotMap()),
        random_(job_.random().fork(1)) {}

  // Every rank writes its own part of each variable, then all read what they like.
  void round(uint32_t salt) {
    std::vector<RowsRequest*> posted;
    for (uint32_t rank = 0; rank < job_.world(); ++rank) {
      for (uint32_t id = 0; id < every_form().size(); ++id) {
        const uint64_t rows = every_form()[id].variable.rows;
        const uint64_t first = rows * rank / job_.world();
        const uint64_t count = rows * (rank + 1) / job_.world() - first;
        if (count == 0 || random_.chance(40)) continue;
        const auto arrays = static_cast<uint32_t>(random_.below(8));
        posted.push_back(&job_.write(rank, id, first, count, arrays, salt));
        some_moves();
      }
    }
    job_.network().settle();
    for (const RowsRequest* request : posted) {
      ASSERT_TRUE(request->done && request->status.ok()) << request->status.message();
    }
    ASSERT_NO_FATAL_FAILURE(job_.expect_tables());
    posted.clear();
    for (uint32_t rank = 0; rank < job_.world(); ++rank) {
      for (uint32_t call = 0; call < 4; ++call) posted.push_back(&read_something(rank));
    }
    job_.network().settle();
    ASSERT_TRUE(job_.network().refusals().empty()) << told(job_.network().refusals());
    for (const RowsRequest* request : posted) {
      ASSERT_NO_FATAL_FAILURE(job_.expect_contents(*request));
    }
  }

 private:
  void some_moves() {
    for (uint64_t moves = random_.below(20); moves > 0; --moves) job_.network().move();
  }

  RowsRequest& read_something(uint32_t rank) {
    some_moves();
    const auto id = static_cast<uint32_t>(random_.below(every_form().size()));
    const Placed& of = every_form()[id];
    const uint64_t rows = of.variable.rows;
    if (of.sharded && of.variable.ids_declared() && random_.chance(50)) {
      std::vector<int64_t> ids(random_.below(40));
      for (int64_t& each : ids) {
        each = random_.chance(10) ? kPaddingId : static_cast<int64_t>(random_.below(rows));
      }
      const uint32_t floats[] = {PARALLAX_F32, PARALLAX_F64, PARALLAX_F16, PARALLAX_BF16};
      const bool integer = of.variable.dtype == PARALLAX_I64;
      return job_.pull(rank, id, ids, integer ? uint32_t{PARALLAX_I64} : floats[random_.below(4)]);
    }
    const uint64_t first = random_.below(rows);
    const uint64_t count = 1 + random_.below(rows - first);
    return job_.read(rank, id, first, count, static_cast<uint32_t>(random_.below(8)));
  }

  RowsJob job_;
  SeededRandom random_;
};

// Given any layout, sharded and mirrored variables of every form and all ranks at once,
// expect the tables to hold what was written, and every read and pull to give out just that.
TEST(RowAccess, WhatIsWrittenIsReadBack) {
  for (size_t layout = 0; layout < layouts().size(); ++layout) {
    for (uint64_t seed = 1; seed <= (kBrief ? 1 : 3); ++seed) {
      SCOPED_TRACE("layout " + std::to_string(layout) + ", seed " + std::to_string(seed));
      RandomRows rows(layouts()[layout], seed);
      for (uint32_t salt = 1; salt <= 2; ++salt) ASSERT_NO_FATAL_FAILURE(rows.round(salt));
    }
  }
}

// ---- read and write

// Receive a read of some arrays: expect the others not to travel, nor their buffers to be touched.
TEST_F(RowAccessTest, OnlyTheArraysAskedForTravel) {
  for (const uint32_t variable : {uint32_t{kAdam}, uint32_t{kDense}, uint32_t{kMirror}}) {
    for (const uint32_t arrays : {0u, 1u, 2u, 4u, 5u, 7u}) {
      start({0, 1, 1});
      job_->write(1, variable, 0, 13, kAllArrays, 7);
      settle();
      count(SectionKind::kRowsAnswer);
      const RowsRequest& read = job_->read(0, variable, 2, 10, arrays);
      settle();
      job_->expect_contents(read);
      EXPECT_EQ(read.updates, 7u);
      for (uint32_t array = 0; array < job_->table(0, variable).array_count(); ++array) {
        EXPECT_EQ(items_[array] > 0, (arrays >> array & 1) != 0) << array;
      }
    }
  }
}

// Receive a write of some arrays, without the count of updates: expect the others to stay.
TEST_F(RowAccessTest, OnlyTheArraysGivenAreWritten) {
  start({0, 1, 0});
  for (const uint32_t variable : {uint32_t{kAdam}, uint32_t{kDense}, uint32_t{kMirroredDense}}) {
    job_->write(0, variable, 0, 7, kAllArrays, 5);
    settle();
    RowsRequest& write = job_->write(2, variable, 1, 3, 2, 6);
    settle();
    EXPECT_TRUE(write.status.ok());
    const RowsRequest& read = job_->read(1, variable, 0, 7);
    settle();
    job_->expect_contents(read);
    EXPECT_EQ(read.updates, 6u);
  }
  job_->expect_tables();
}

TEST_F(RowAccessTest, ACallWithoutUpdatesLeavesThem) {
  start({0, 1});
  job_->table(0, kAdam).updates().set(0, 41);
  job_->table(1, kAdam).updates().set(0, 41);
  RowsCall call = {.variable = kAdam, .row_count = 2};
  Numbers values(PARALLAX_F32, 6, 3);
  call.parts[0] = static_cast<std::byte*>(values.data());
  uint32_t pending = 0;
  job_->exchange(0).start_write(call, &pending);
  job_->network().settle();
  EXPECT_TRUE(job_->exchange(0).finished());
  EXPECT_TRUE(job_->exchange(0).finish().ok());
  job_->exchange(0).start_read(call);
  job_->network().settle();
  EXPECT_TRUE(job_->exchange(0).finish().ok());
  EXPECT_EQ(job_->table(1, kAdam).updates().of_first(), 41u);
}

// Receive a write of 2,500 rows: expect it to go in portions, each when the one before is out of
// the caller's buffer, and a read of it to come back whole.
TEST_F(RowAccessTest, ManyRowsGoInPortions) {
  start({0, 1, 2});
  job_->network().hold(0);
  RowsRequest& write = job_->write(0, kLong, 0, kLongRows, kAllArrays, 9);
  count(SectionKind::kRowsWrite);
  job_->network().settle();
  EXPECT_GT(write.pending, 0u) << "borrowed";
  EXPECT_LE(write.pending, 2u * 3) << "one portion of two arrays to three owners";
  EXPECT_EQ(sections_, 0u);
  job_->network().release();
  settle();
  EXPECT_EQ(write.pending, 0u);
  ASSERT_TRUE(write.done && write.status.ok());
  EXPECT_EQ(items_[0], kLongRows);
  EXPECT_EQ(items_[1], kLongRows);
  EXPECT_GE(sections_, 3u * 3 * 2 + 3);
  count(SectionKind::kRowsAnswer);
  const RowsRequest& read = job_->read(1, kLong, 100, kLongRows - 200);
  settle();
  job_->expect_contents(read);
  EXPECT_EQ(items_[0], kLongRows - 200);
}

// Receive a write and a read of one rank: expect the read to see the write. And that of another
// rank, once the write is over.
TEST_F(RowAccessTest, AReadAfterAWriteSeesIt) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    start({0, 0, 1, 2}, seed);
    for (uint32_t salt = 1; salt <= 3; ++salt) {
      const uint32_t variable = salt == 2 ? kMirror : kAdam;
      const RowsRequest& write = job_->write(1, variable, 10, 30, kAllArrays, salt);
      const RowsRequest& own = job_->read(1, variable, 0, 50);
      while (!write.done) ASSERT_TRUE(job_->network().move());
      const RowsRequest& other = job_->read(3, variable, 5, 40);
      settle();
      job_->expect_contents(own);
      job_->expect_contents(other);
    }
  }
}

// Given fewer rows than ranks, expect those that hold none of them not to be waited for.
TEST_F(RowAccessTest, OwnersOfNothingAreNotAsked) {
  start({0, 1, 2, 3, 4});
  count(SectionKind::kRowsAsk);
  const RowsRequest& read = job_->read(4, kFew, 0, 3);
  EXPECT_EQ(job_->exchange(4).missing_ranks(), (std::vector<uint32_t>{0, 1, 2}));
  settle();
  job_->expect_contents(read);
  EXPECT_EQ(sections_, 3u);
}

// Receive a read of a mirror: expect the rank to ask itself alone.
TEST_F(RowAccessTest, AMirrorIsReadAtOnce) {
  start({0, 1, 2});
  job_->write(2, kMirror, 0, 50, kAllArrays, 3);
  settle();
  job_->network().hold(0, 1);
  job_->network().hold(0, 2);
  const RowsRequest& read = job_->read(0, kMirror, 0, 50);
  EXPECT_EQ(job_->exchange(0).missing_ranks(), std::vector<uint32_t>{0});
  settle();
  job_->expect_contents(read);
}

// ---- pull

// Receive ids twice, padding, more of them than a portion and than rows: expect all, in any dtype.
TEST_F(RowAccessTest, PulledRowsComeInTheirOrder) {
  start({0, 0, 1});
  job_->write(0, kAdam, 0, 90, 1, 11);
  settle();
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 1300; ++i)
    ids.push_back(i % 7 == 3 ? kPaddingId : (i * 11 + i / 90) % 90);
  count(SectionKind::kRowsAsk);
  for (const uint32_t dtype : {PARALLAX_F32, PARALLAX_F64, PARALLAX_F16, PARALLAX_BF16}) {
    const RowsRequest& pull = job_->pull(2, kAdam, ids, dtype);
    settle();
    job_->expect_contents(pull);
  }
  EXPECT_EQ(sections_, 4u * 3 * 3) << "three portions of three owners";
  const RowsRequest& padding = job_->pull(0, kAdam, {kPaddingId, kPaddingId});
  EXPECT_TRUE(padding.done) << "nobody is asked";
  job_->expect_contents(padding);
}

TEST_F(RowAccessTest, AMirrorIsNotPulled) {
  start({0, 1});
  EXPECT_THROW(job_->pull(0, kMirror, {1}), InternalError);
}

// ---- who waits for whom

// Given an owner that is held back, expect it alone to be missing; the variable is told, too.
TEST_F(RowAccessTest, WhatIsMissingIsNamed) {
  start({0, 1, 2});
  job_->network().hold(1);
  const RowsRequest& read = job_->read(0, kRowwise, 0, 40);
  EXPECT_EQ(job_->exchange(0).missing_ranks(), (std::vector<uint32_t>{0, 1, 2}));
  settle();
  EXPECT_FALSE(read.done);
  EXPECT_EQ(job_->exchange(0).missing_ranks(), std::vector<uint32_t>{1});
  EXPECT_EQ(job_->exchange(0).variable(), uint32_t{kRowwise});
  job_->network().release();
  settle();
  EXPECT_TRUE(job_->exchange(0).missing_ranks().empty());
  job_->expect_contents(read);
  job_->network().hold(2);
  const RowsRequest& write = job_->write(0, kAdam, 0, 90, 1, 2);
  settle();
  EXPECT_FALSE(write.done);
  EXPECT_EQ(job_->exchange(0).missing_ranks(), std::vector<uint32_t>{2});
  EXPECT_EQ(job_->exchange(0).variable(), uint32_t{kAdam});
}

// Given an asker that takes nothing, expect the others to be served all the same.
TEST_F(RowAccessTest, NoAskWaitsForAnother) {
  start({0, 1, 2});
  job_->write(0, kLong, 0, kLongRows, kAllArrays, 4);
  settle();
  job_->network().hold(0, 1);
  const RowsRequest& slow = job_->read(1, kLong, 0, kLongRows);
  for (uint32_t i = 0; i < 3; ++i) {
    const RowsRequest& read = job_->read(2, kLong, 10 * i, 1000);
    settle();
    job_->expect_contents(read);
  }
  EXPECT_FALSE(slow.done);
  job_->network().release();
  settle();
  job_->expect_contents(slow);
}

// Receive an ask as of a commit that this owner has not come to (future): expect it to wait for
// that one, and an ask as of an earlier one not to.
TEST_F(RowAccessTest, AnAskWaitsForItsCommit) {
  start({0, 1, 2});
  job_->rank(0).finished = 5;
  job_->rank(1).finished = 4;
  job_->rank(2).finished = 5;
  const RowsRequest& later = job_->read(0, kAdam, 0, 90);
  const RowsRequest& earlier = job_->read(1, kAdam, 0, 90);
  settle();
  EXPECT_FALSE(later.done);
  EXPECT_EQ(job_->exchange(0).missing_ranks(), std::vector<uint32_t>{1});
  job_->expect_contents(earlier);
  job_->write(2, kAdam, 0, 90, kAllArrays, 8);  // as the commit would
  settle();
  job_->rank(1).finished = 5;
  job_->exchange(1).advance();
  settle();
  EXPECT_TRUE(later.done && later.status.ok());
  for (uint64_t row = 0; row < 90; ++row) {
    const bool late = job_->owner_of_row(kAdam, row) == 1;
    EXPECT_EQ(later.parts[0][row * 3], late ? static_cast<double>((row * 9 + 8) % 200) : 0) << row;
  }
}

// ---- writes and steps

// Receive rows in a step, whether it is over before the last of them or begun after the first:
// expect STATE that names the rank, the rows left out, and the next write whole.
TEST_F(RowAccessTest, AWriteThatMeetsAStepIsRefused) {
  for (const bool at_the_start : {true, false}) {
    start({0, 1, 2});
    job_->network().hold(0, 2);  // its owner sees nothing of it at first
    const RowsRequest& write = job_->write(0, kLong, 0, kLongRows, kAllArrays, 4);
    job_->rank(2).stepping = at_the_start;
    uint32_t parts = 0;
    job_->tap = [&](uint32_t to, uint32_t, const Section& section) {
      if (to == 2 && section.header.kind == SectionKind::kRowsWrite && ++parts == 2) {
        job_->rank(2).stepping = !at_the_start;
      }
    };
    job_->network().release();
    settle();
    EXPECT_GT(parts, 2u);
    ASSERT_TRUE(write.done);
    EXPECT_EQ(write.status.code(), PARALLAX_STATE);
    EXPECT_NE(write.status.message().find("rank 2 was in a step"), std::string::npos)
        << write.status.message();
    EXPECT_EQ(job_->table(1, kLong).updates().of_first(), 4u);
    EXPECT_EQ(job_->table(2, kLong).updates().of_first(), 0u) << "refused whole";
    job_->rank(2).stepping = false;
    const RowsRequest& again = job_->write(0, kLong, 0, kLongRows, kAllArrays, 5);
    settle();
    EXPECT_TRUE(again.status.ok()) << again.status.message();
    job_->expect_tables();
    EXPECT_EQ(job_->table(2, kLong).updates().of_first(), 5u);
  }
}

// Receive two writes in a step, one of them refused before: expect each writer to be told for
// itself, with every rank that refused.
TEST_F(RowAccessTest, EachWriterIsToldForItself) {
  start({0, 1, 2});
  job_->rank(1).stepping = job_->rank(2).stepping = true;
  const RowsRequest& refused = job_->write(0, kMirror, 0, 50, kAllArrays, 4);
  settle();
  EXPECT_EQ(refused.status.code(), PARALLAX_STATE);
  const std::string& message = refused.status.message();
  EXPECT_TRUE(message.find("rank 1, 2 was") != std::string::npos ||
              message.find("rank 2, 1 was") != std::string::npos)
      << message;
  job_->rank(1).stepping = job_->rank(2).stepping = false;
  const RowsRequest& other = job_->write(1, kMirror, 0, 50, kAllArrays, 5);
  settle();
  EXPECT_TRUE(other.status.ok());
  job_->expect_tables();
}

}  // namespace
}  // namespace parallax::testkit::row_access
