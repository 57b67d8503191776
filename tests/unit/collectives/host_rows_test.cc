// SPDX-License-Identifier: Apache-2.0
// Rows of a host that are read where they lie: in turns, checked, and only of ranks that are there.
// (What comes of them: the conformance suite of exchanges.)
#include "collectives/host_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "collectives/row_exchange.h"
#include "unit/collectives/exchange_conformance.h"

namespace parallax::exchange_conformance {
namespace {

constexpr uint32_t kReader = 0, kGiver = 1, kLast = 2;

Candidate rows_pushed() {
  return {.make =
              [](const Columns& columns, const Partition& partition, Outbox& outbox,
                 Compute& compute, ExchangeOptions options) {
                options.method = Method::kPushPull;
                return std::make_unique<RowExchange>(columns, partition, outbox, compute, options,
                                                     row_algorithm_for(Method::kPushPull));
              },
          .rows = true,
          .delivers = false};
}

Setting one_host(const Shape& shape, bool rows_stay, bool lends = false) {
  return {.hosts = {0, 0, 0},
          .shape = shape,
          .variable = 3,
          .seed = 5,
          .lends = lends,
          .staged = true,
          .all_staged = true,
          .rows_stay = rows_stay};
}

class HostRowsTest : public testing::TestWithParam<bool> {
 protected:
  // All but the last have given step 1 and ended it, and all notes have come.
  void start(const Shape& shape) {
    const Candidate candidate = rows_pushed();
    world_ = std::make_unique<ExchangeWorld>(candidate, one_host(shape, GetParam()));
    gifts_ = draw_contributions(world_->setting(), {}, world_->random());
    world_->tap([this](const Parcel& parcel) {
      if (parcel.from != kGiver || parcel.to != kReader) return;
      ASSERT_EQ(parcel.header.encoding, Encoding::kBytes) << "rows were sent";
      std::memcpy(&note_, parcel.payload().data(), sizeof note_);
    });
    for (const uint32_t rank : {kReader, kGiver}) give(rank);
    ASSERT_GT(note_.count, 0u);
  }
  void give(uint32_t rank) {
    world_->contribute(rank, 1, gifts_[rank]);
    world_->end(rank, 1);
    world_->run();
  }
  bool reduced() { return world_->exchange(kReader).state(1).reduced; }
  // Of the row keys, or of the places behind them, the first of the reader's column.
  std::byte* number_of_giver(bool place) {
    const size_t row_bytes = world_->setting().shape.row_elements * sizeof(float);
    const size_t at = note_.rows * row_bytes + (place ? note_.items : 0) * sizeof(uint32_t);
    return world_->staged_of(kGiver, 1).data() + at + note_.first * sizeof(uint32_t);
  }

  std::unique_ptr<ExchangeWorld> world_;
  Contributions gifts_;
  StagedNote note_;
};

INSTANTIATE_TEST_SUITE_P(BothWays, HostRowsTest, testing::Bool());

// Given so many bytes that they are read in turns, expect what else is to be done between them.
TEST_P(HostRowsTest, MuchIsReadInTurns) {
  start({64, 24000, 24});
  EXPECT_FALSE(reduced());
  world_->contribute(kLast, 1, gifts_[kLast]);
  world_->end(kLast, 1);
  uint32_t between = 0;
  for (int i = 0; i < 100000 && !reduced(); ++i) {
    world_->wander(1);
    between += world_->lending_of(kReader).to_read() ? 1 : 0;
  }
  EXPECT_GT(between, 0u);
  world_->run();
  check_step(*world_, rows_pushed(), 1, gifts_);
  EXPECT_GT(world_->lending_of(kReader).counts().read_bytes, 1u << 19);
}

// Given a row key that is none, or another column's, or a place beyond the block, which was put
// there behind the note, expect it found and its rank named.
TEST_P(HostRowsTest, WhatDoesNotFitNamesItsRank) {
  for (int what = 0; what < 3; ++what) {
    start({64, 3, 24});
    uint32_t number = what == 0 ? 64 : what == 1 ? 0 : note_.rows;
    const Partition& partition = world_->partition();
    while (what == 0 && partition.owner_of(number) != kReader) ++number;
    while (what == 1 && partition.owner_of(number) == kReader) ++number;
    std::memcpy(number_of_giver(what == 2), &number, sizeof number);
    give(kLast);
    EXPECT_FALSE(reduced());
    EXPECT_EQ(world_->misfits(), std::vector<uint32_t>{kGiver});
  }
}

// Given a rank whose memory goes before it is read, expect the step to wait for the news, and
// nobody blamed.
TEST_P(HostRowsTest, WhoIsGoneIsNotRead) {
  start({64, 3, 24});
  world_->unmap(kReader, kGiver);
  give(kLast);
  EXPECT_FALSE(reduced());
  EXPECT_TRUE(world_->misfits().empty());
}

// Given a rank whose memory goes behind the turns in which it was read and before those of the next
// one, whose rows are added to it, expect rows that stay to be read no more. Copied ones are here.
TEST_P(HostRowsTest, WhoGoesBetweenTurnsIsNotAddedTo) {
  start({256, 24000, 96});
  world_->contribute(kLast, 1, gifts_[kLast]);
  world_->end(kLast, 1);
  const uint64_t of_giver = note_.count * 24000 * sizeof(float);
  for (int i = 0; i < 100000 && world_->lending_of(kReader).counts().read_bytes < of_giver; ++i) {
    world_->wander(1);
  }
  ASSERT_FALSE(reduced());
  world_->unmap(kReader, kGiver);
  world_->run();
  EXPECT_EQ(reduced(), !GetParam());
  EXPECT_TRUE(world_->misfits().empty());
}

// Given a note of memory that is mapped no more, expect it taken of a rank whose end is known,
// which is told soon, and of no other.
TEST_P(HostRowsTest, TheNoteOfOneWhoIsGoneIsTaken) {
  for (const bool gone : {true, false}) {
    const Candidate candidate = rows_pushed();
    world_ = std::make_unique<ExchangeWorld>(candidate, one_host({64, 3, 24}, GetParam()));
    world_->expect_anything();
    gifts_ = draw_contributions(world_->setting(), {}, world_->random());
    uint32_t taken = 0;
    world_->unmap(kReader, kGiver);
    if (gone) world_->end_seen(kReader, kGiver);
    world_->tap([&](const Parcel& parcel) {
      if (parcel.from == kGiver && parcel.to == kReader &&
          parcel.header.kind == SectionKind::kLocalReduce) {
        taken += world_->inject(parcel) ? 1 : 0;
      }
    });
    give(kGiver);
    EXPECT_EQ(taken, gone ? 1u : 0u);
  }
}

// Given hosts of a rank or of two, expect an owner's sum to have its own host's rows where they
// are, without a message; but where sums have an order, all to be sent.
TEST(RowsOfTheOwnersHost, AreNotSentToIt) {
  for (const std::vector<uint32_t>& hosts :
       std::vector<std::vector<uint32_t>>{{0, 1}, {0, 0, 1, 1}, {0, 0, 1}}) {
    for (const bool ordered : {false, true}) {
      const Candidate candidate = rows_pushed();
      Setting setting = {
          .hosts = hosts, .shape = {64, 3, 24}, .ordered = ordered, .seed = 5, .rows_stay = true};
      ExchangeWorld world(candidate, setting);
      const Contributions gifts = draw_contributions(world.setting(), {}, world.random());
      uint64_t to_itself = 0, to_others = 0;
      world.tap([&](const Parcel& parcel) {
        if (parcel.header.kind != SectionKind::kHostReduce) return;
        (parcel.from == parcel.to ? to_itself : to_others) += parcel.header.count;
      });
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        world.contribute(rank, 1, gifts[rank]);
        world.end(rank, 1);
      }
      world.run();
      check_step(world, candidate, 1, gifts);
      EXPECT_GT(to_others, 0u);
      EXPECT_EQ(to_itself > 0, ordered);
      EXPECT_EQ(world.exchange(0).owned(1).places != nullptr, !ordered);
    }
  }
}

// Receive rows in the name of oneself, alone on a host, whose rows are in its block.
TEST(RowsOfTheOwnersHost, ReceiveRowsOfOneself) {
  ExchangeWorld world(rows_pushed(), {.hosts = {0, 1}, .shape = {64, 3, 24}, .seed = 5});
  world.expect_anything();
  Parcel parcel = {.header = {.kind = SectionKind::kLocalReduce, .encoding = Encoding::kRows}};
  parcel.header.tag = world.setting().variable;
  parcel.header.step = 1;
  parcel.header.count = 1;
  parcel.bytes.resize(1 + sizeof(uint32_t) + 3 * sizeof(float));
  EXPECT_FALSE(world.inject(parcel));
}

// Given ranks of one host, of which one gives nothing in the second step, expect none to be sent a
// message by itself.
TEST(RowsOfOneself, GoWithoutAMessage) {
  const Candidate candidate = rows_pushed();
  for (const bool staged : {true, false}) {
    Setting setting = one_host({64, 3, 24}, true);
    setting.staged = setting.all_staged = staged;
    ExchangeWorld world(candidate, setting);
    uint32_t to_itself = 0, to_others = 0;
    world.tap([&](const Parcel& parcel) {
      if (parcel.header.kind != SectionKind::kLocalReduce) return;
      ++(parcel.from == parcel.to ? to_itself : to_others);
    });
    for (const uint64_t step : {1u, 2u}) {
      Contributions gifts = draw_contributions(world.setting(), {}, world.random());
      if (step == 2) gifts[kLast] = {};
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        if (step == 1 || rank != kLast) world.contribute(rank, step, gifts[rank]);
        world.end(rank, step);
      }
      world.run();
      check_step(world, candidate, step, gifts);
    }
    EXPECT_EQ(to_itself, 0u);
    EXPECT_GT(to_others, 0u);
  }
}

// Given rows that may stay where they are, expect nobody to be told of them before it is said that
// they do, or that they are copied; and the sum of all either way.
TEST(HostRowsInPlace, RowsWaitForWordAndStay) {
  for (const int how : {0, 1, 2, 3}) {
    const bool stay = how % 2 == 0, at_once = how / 2 == 1;
    const Candidate candidate = rows_pushed();
    ExchangeWorld world(candidate, one_host({64, 3, 24}, true, true));
    const Contributions gifts = draw_contributions(world.setting(), {}, world.random());
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      uint32_t notes = 0, of_slice = 0;
      world.tap([&](const Parcel& parcel) {
        if (parcel.from != rank || parcel.header.kind != SectionKind::kLocalReduce) return;
        StagedNote note;
        ASSERT_EQ(parcel.header.encoding, Encoding::kBytes) << "rows were sent";
        std::memcpy(&note, parcel.payload().data(), sizeof note);
        ++notes;
        of_slice += note.slice_rows > 0 ? 1 : 0;
      });
      world.contribute(rank, 1, gifts[rank]);
      if (!at_once) world.run();
      ASSERT_TRUE(world.was_held(rank, 1));
      EXPECT_EQ(notes, 0u);
      EXPECT_FALSE(world.exchange(rank).state(1).contributed) << "the step could end without it";
      EXPECT_EQ(world.exchange(rank).settle(1, stay), stay);
      EXPECT_FALSE(world.exchange(rank).holds(1));
      world.run();
      EXPECT_GT(notes, 0u);
      EXPECT_EQ(of_slice, stay ? notes : 0u);
      world.end(rank, 1);
      world.run();
    }
    check_step(world, candidate, 1, gifts);
  }
}

// Given a place beyond the slice, which was put there behind the note, expect its rank named.
TEST(HostRowsInPlace, APlaceBeyondTheSliceNamesItsRank) {
  const Candidate candidate = rows_pushed();
  ExchangeWorld world(candidate, one_host({64, 3, 24}, true, true));
  const Contributions gifts = draw_contributions(world.setting(), {}, world.random());
  StagedNote note;
  world.tap([&](const Parcel& parcel) {
    if (parcel.from != kGiver || parcel.to != kReader ||
        parcel.header.kind != SectionKind::kLocalReduce) {
      return;
    }
    std::memcpy(&note, parcel.payload().data(), sizeof note);
  });
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    if (rank == kLast) {
      ASSERT_GT(note.count, 0u);
      const size_t row_bytes = 3 * sizeof(float);
      const size_t at = note.rows * row_bytes + (note.items + note.first) * sizeof(uint32_t);
      const uint32_t place = RowsInPlace::kInSlice | note.slice_rows;
      std::memcpy(world.staged_of(kGiver, 1).data() + at, &place, sizeof place);
    }
    world.contribute(rank, 1, gifts[rank]);
    if (world.exchange(rank).holds(1)) world.exchange(rank).settle(1, true);
    world.end(rank, 1);
    world.run();
  }
  EXPECT_FALSE(world.exchange(kReader).state(1).reduced);
  EXPECT_EQ(world.misfits(), std::vector<uint32_t>{kGiver});
}

}  // namespace
}  // namespace parallax::exchange_conformance
