// SPDX-License-Identifier: Apache-2.0
// Rows that are pushed out of memory which the ranks of a host share, whole engines: they are read
// where they lie, until all have applied the step, and copied for who does not wait for that.
#include "engine/held_pushes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "support/engine_world.h"
#include "support/runs_world.h"
#include "support/shared_host.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kTableRows = 500;
constexpr uint32_t kRowWidth = 40, kSliceRows = 90;
constexpr int64_t kHoldNs = 3 * kNanosecondsPerMillisecond;  // more than rows are held

// A table of kTableRows x kRowWidth, and a slice of gradients of each rank.
class PushWorld {
 public:
  PushWorld(uint32_t ranks, uint64_t seed, bool lends = true, bool deterministic = false,
            parallax_rule_t rule = PARALLAX_RULE_SGD, const float* initial = nullptr,
            uint32_t not_in_place = UINT32_MAX)
      : host_(ranks),
        world_({.hosts = std::vector<uint32_t>(ranks),
                .deterministic = deterministic,
                .seed = seed,
                .inline_jobs = true,
                .lenders = &host_,
                .adjust =
                    [=](uint32_t rank, EngineOptions* engine) {
                      engine->row_ways.in_place = rank != not_in_place;
                    }}),
        random_(seed) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      slabs_.push_back(std::make_unique<SharedSlab>(kSliceRows * kRowWidth * sizeof(float)));
      if (lends) host_.rank(rank).share(slabs_[rank]->shared());
      ids_.emplace_back(kSliceRows);
    }
    parallax_variable_t table = sparse_variable("table", kTableRows, kRowWidth, kSliceRows, rule);
    if (initial != nullptr) table.init = PARALLAX_INIT_BUFFER;
    table.initial = initial;
    const parallax_variable_t tables[] = {
        table, sparse_variable("short", kTableRows, 4, kSliceRows, PARALLAX_RULE_SGD)};
    for (const Status& status : world_.commit(tables)) {
      EXPECT_TRUE(status.ok()) << status.message();
    }
    world_.settle();
  }

  float* values(uint32_t rank) { return reinterpret_cast<float*>(slabs_[rank]->values()); }
  // Whole numbers, so that sums have one value in any order; some ids come more than once.
  void draw(bool fractions = false) {
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      for (int64_t& id : ids_[rank]) {
        const uint64_t below = random_.chance(40) ? 8 : kTableRows;
        id = random_.chance(5) ? -1 : static_cast<int64_t>(random_.below(below));
      }
      for (uint32_t i = 0; i < kSliceRows * kRowWidth; ++i) {
        const auto number = static_cast<float>(static_cast<int64_t>(random_.below(64)) - 32);
        values(rank)[i] = random_.chance(10) ? -0.0f : fractions ? number / 7 : number;
      }
    }
  }
  uint64_t begin(uint32_t rank) {
    uint64_t step = 0;
    EXPECT_TRUE(calls(rank).begin(&step).ok());
    return step;
  }
  Request* push(uint32_t rank, uint64_t step) {
    Request* request = nullptr;
    const parallax_slice_t slice = rows_slice(0, ids_[rank], values(rank));
    const Status status = calls(rank).push(step, {&slice, 1}, &request);
    EXPECT_TRUE(status.ok()) << status.message();
    world_.engine(rank).kick();
    return request;
  }
  Request* pull(uint32_t rank, uint64_t step, const std::vector<int64_t>& ids, float* into) {
    Request* request = nullptr;
    const parallax_slice_t slice = rows_slice(0, ids, into);
    EXPECT_TRUE(calls(rank).pull(step, {&slice, 1}, &request).ok());
    return request;
  }
  Request* end(uint32_t rank, uint64_t step) {
    Request* request = nullptr;
    EXPECT_TRUE(calls(rank).end(step, end_options(1), &request).ok());
    return request;
  }
  // A step of all ranks, each of which pulls what it pushes where `pulls`.
  void step(bool pulls) {
    std::vector<Request*> pushes, ends;
    std::vector<float> pulled(kSliceRows * kRowWidth);
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      const uint64_t number = begin(rank);
      if (pulls) finish({pull(rank, number, ids_[rank], pulled.data())});
      pushes.push_back(push(rank, number));
    }
    world_.shuffle(random_.below(20));
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      const uint64_t number = pushes[rank]->step;
      ends.push_back(end(rank, number));
      world_.shuffle(random_.below(20));
    }
    finish(pushes);
    finish(ends);
  }
  void finish(const std::vector<Request*>& requests) {
    ASSERT_TRUE(world_.run_until_done(requests));
    for (Request* request : requests) {
      EXPECT_TRUE(request->status.ok()) << request->status.message();
    }
  }
  // All rows, as rank 0 pulls them: what it began with, its own step, is given up behind.
  std::vector<float> table() {
    std::vector<float> all(kTableRows * kRowWidth), part(kSliceRows * kRowWidth);
    std::vector<Request*> ends;
    const uint64_t number = begin(0);
    for (uint64_t first = 0; first < kTableRows; first += kSliceRows) {
      std::vector<int64_t> some(std::min<uint64_t>(kSliceRows, kTableRows - first));
      std::iota(some.begin(), some.end(), static_cast<int64_t>(first));
      finish({pull(0, number, some, part.data())});
      std::copy_n(part.data(), some.size() * kRowWidth, all.data() + first * kRowWidth);
    }
    ends.push_back(end(0, number));
    for (uint32_t rank = 1; rank < world_.size(); ++rank) ends.push_back(end(rank, begin(rank)));
    finish(ends);
    world_.settle();  // all know where tables lie
    return all;
  }
  void subtract_from(std::vector<float>* table) {
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      for (uint32_t i = 0; i < kSliceRows; ++i) {
        if (ids_[rank][i] < 0) continue;
        float* const row = table->data() + static_cast<uint64_t>(ids_[rank][i]) * kRowWidth;
        for (uint32_t at = 0; at < kRowWidth; ++at) row[at] -= values(rank)[i * kRowWidth + at];
      }
    }
  }

  // Draws what the table, once pushed to, is expected to be.
  std::vector<float> draw_to_push() {
    std::vector<float> expected = table();
    draw();
    subtract_from(&expected);
    return expected;
  }

  StepCalls& calls(uint32_t rank) { return world_.engine(rank).step_calls(); }
  uint64_t lent_bytes(uint32_t rank) {
    return nlohmann::json::parse(world_.engine(rank).reports().stats_json())["local"]["lent_bytes"];
  }
  EngineWorld& world() { return world_; }
  SharedHost& host() { return host_; }
  std::vector<int64_t>& ids(uint32_t rank) { return ids_[rank]; }

 private:
  SharedHost host_;
  EngineWorld world_;
  SeededRandom random_;
  std::vector<std::unique_ptr<SharedSlab>> slabs_;
  std::vector<std::vector<int64_t>> ids_;
};

std::vector<uint32_t> bits_of(const std::vector<float>& numbers) {
  std::vector<uint32_t> bits(numbers.size());
  std::memcpy(bits.data(), numbers.data(), numbers.size() * sizeof(float));
  return bits;
}

void expect_plain_sums(PushWorld& world, uint64_t seed) {
  std::vector<float> expected = world.table();
  for (int step = 0; step < 6; ++step) {
    world.draw();
    world.step(seed % 2 == 0);
    world.subtract_from(&expected);
  }
  EXPECT_EQ(world.table(), expected) << "seed " << seed;
}

// Given pushes out of shared memory, of ids that were pulled or not, expect the table of the plain
// sums, and rows read where they lay.
TEST(HeldPushes, TheSumsAreThoseOfTheRows) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    PushWorld world(static_cast<uint32_t>(2 + seed % 3), seed);
    expect_plain_sums(world, seed);
    EXPECT_GT(world.lent_bytes(0), 0u);
  }
}

// Given a rank whose rows go by messages, expect the same sums, and that nobody's rows stay where
// they are: not all owners could say when they have read them.
TEST(HeldPushes, BesideARankThatReadsNothingInPlaceRowsAreCopied) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const auto ranks = static_cast<uint32_t>(2 + seed % 3);
    PushWorld world(ranks, seed, true, false, PARALLAX_RULE_SGD, nullptr, seed % ranks);
    expect_plain_sums(world, seed);
    for (uint32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(world.lent_bytes(rank), 0u);
  }
}

// Bit for bit, with numbers that round, and -0 among them, by every rule: expect the tables of
// pushes that were copied.
TEST(HeldPushes, TheBitsAreThoseOfACopy) {
  for (const parallax_rule_t rule :
       {PARALLAX_RULE_SGD, PARALLAX_RULE_ADAGRAD, PARALLAX_RULE_MOMENTUM, PARALLAX_RULE_ADAM,
        PARALLAX_RULE_SUM}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      PushWorld shared(3, seed, true, true, rule), copied(3, seed, false, true, rule);
      for (int step = 0; step < 5; ++step) {
        for (PushWorld* world : {&shared, &copied}) {
          world->draw(true);
          world->step(step % 2 == 0);
        }
      }
      EXPECT_EQ(bits_of(shared.table()), bits_of(copied.table())) << "seed " << seed;
      EXPECT_GT(shared.lent_bytes(1), 0u);
      EXPECT_EQ(copied.lent_bytes(1), 0u);
    }
  }
}

// Given rows that one rank alone gives and that are all -0, expect the sign that the sum has: it
// begins from +0, and -0 less +0 is -0, where -0 less -0 is +0.
TEST(HeldPushes, OfMinusZeroTheSumIsZero) {
  const std::vector<float> initial(kTableRows * kRowWidth, -0.0f);
  std::vector<std::vector<float>> tables;
  for (const bool lends : {true, false}) {
    PushWorld world(2, 2, lends, false, PARALLAX_RULE_SGD, initial.data());
    tables.push_back(world.table());
    EXPECT_TRUE(std::signbit(tables.back()[0]));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      std::fill_n(world.values(rank), kSliceRows * kRowWidth, -0.0f);
      std::iota(world.ids(rank).begin(), world.ids(rank).end(), rank * 200);
    }
    world.step(false);
    tables.push_back(world.table());
    EXPECT_EQ(world.lent_bytes(0) > 0, lends);
  }
  for (const auto& table : tables) EXPECT_EQ(bits_of(table), bits_of(tables[0]));
}

// Given a push before the end of its step, expect it to be complete for who waits for it, and for
// who lets some time pass, and the sums to be right; and not before.
TEST(HeldPushes, WhoWaitsBeforeTheEndIsGivenACopy) {
  for (const bool waits : {true, false}) {
    PushWorld world(2, 4);
    std::vector<float> expected = world.draw_to_push();
    std::vector<Request*> pushes, ends;
    for (uint32_t rank = 0; rank < 2; ++rank) pushes.push_back(world.push(rank, world.begin(rank)));
    world.world().settle();
    EXPECT_FALSE(pushes[0]->done());
    EXPECT_NE(world.calls(0).held_until_ns(), kNever);
    if (waits) {
      pushes[0]->waiter.there = true;
    } else {
      EXPECT_GE(world.world().engine(0).next_deadline_ns(), world.world().clock().now_ns());
      EXPECT_LE(world.world().engine(0).next_deadline_ns(),
                world.world().clock().now_ns() + kHoldNs);
      for (int pass = 0; pass < 3; ++pass) {
        world.world().clock().advance(kHoldNs);
        world.world().settle();
      }
    }
    world.world().settle();
    ASSERT_TRUE(pushes[0]->done());
    EXPECT_EQ(world.calls(0).held_until_ns(), kNever);
    std::fill_n(world.values(0), kSliceRows * kRowWidth, 1e9f);  // it is the caller's again
    for (uint32_t rank = 0; rank < 2; ++rank) ends.push_back(world.end(rank, pushes[rank]->step));
    world.finish(ends);
    world.finish(pushes);
    EXPECT_EQ(world.table(), expected);
  }
}

// Given a rank that has not applied the step, expect the others' rows to stay borrowed until it
// has, though their own steps are over.
TEST(HeldPushes, RowsAreBorrowedUntilAllHaveApplied) {
  PushWorld world(2, 6);
  std::vector<float> expected = world.draw_to_push();
  std::vector<Request*> pushes, ends;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    pushes.push_back(world.push(rank, world.begin(rank)));
    ends.push_back(world.end(rank, pushes[rank]->step));
  }
  // The root alone moves, once it has the other's vote.
  for (int pass = 0; pass < 10000 && !ends[0]->done(); ++pass) {
    world.world().groups(0).run();
    if (!ends[0]->done() && pass % 4 == 0) world.world().groups(1).run();
  }
  ASSERT_TRUE(ends[0]->done());
  EXPECT_FALSE(ends[1]->done());
  EXPECT_FALSE(pushes[0]->done());
  world.finish(pushes);
  world.finish(ends);
  EXPECT_EQ(world.table(), expected);
}

// Given a job that fails while rows are lent, expect their pages to be the caller's own before its
// request completes.
TEST(HeldPushes, OfAJobThatFailsTheCallerHasPagesOfItsOwn) {
  PushWorld world(2, 8);
  world.table();
  world.draw();
  const uint64_t step = world.begin(0);
  Request* const push = world.push(0, step);
  Request* const end = world.end(0, step);
  world.world().groups(0).run();
  EXPECT_FALSE(push->done());
  EXPECT_TRUE(world.host().rank(0).made_private.empty());
  world.world().engine(0).cancel(*end);
  ASSERT_TRUE(world.world().run_until([&] { return push->done() && end->done(); }));
  EXPECT_FALSE(push->status.ok());
  ASSERT_FALSE(world.host().rank(0).made_private.empty());
  const ByteRange pages = world.host().rank(0).made_private[0];
  EXPECT_EQ(pages.first, reinterpret_cast<uintptr_t>(world.values(0)));
  EXPECT_GE(pages.bytes, kSliceRows * kRowWidth * sizeof(float));
  EXPECT_EQ(world.calls(0).held_until_ns(), kNever);
}

// Given a job that fails while rows are held, expect nobody to wait for them.
TEST(HeldPushes, AJobMayFailWhileRowsAreHeld) {
  PushWorld world(2, 10);
  world.table();
  world.draw();
  Request* const push = world.push(0, world.begin(0));
  EXPECT_FALSE(push->done());
  world.world().engine(0).cancel(*push);
  ASSERT_TRUE(world.world().run_until([&] { return push->done(); }));
  EXPECT_FALSE(push->status.ok());
  EXPECT_TRUE(world.host().rank(0).made_private.empty());
}

// Given a push of the next step before the last one is decided, and somebody who waits for it,
// expect a copy, whenever it starts, and the sums of both.
TEST(HeldPushes, WhoWaitsForAStepAheadIsGivenACopy) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    PushWorld world(2, seed);
    std::vector<float> expected = world.draw_to_push();
    std::vector<Request*> requests;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const uint64_t step = world.begin(rank);
      requests.push_back(world.push(rank, step));
      requests.push_back(world.end(rank, step));
    }
    world.world().shuffle(seed % 7);
    std::vector<Request*> ahead;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const uint64_t step = world.begin(rank);
      Request*& push = ahead.emplace_back();
      const parallax_slice_t slice = rows_slice(0, world.ids(rank), world.values(rank));
      ASSERT_TRUE(world.calls(rank).push(step, {&slice, 1}, &push).ok());
      push->waiter.there = true;
    }
    world.finish(ahead);
    world.subtract_from(&expected);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      std::fill_n(world.values(rank), kSliceRows * kRowWidth, 1e9f);
      requests.push_back(world.end(rank, ahead[rank]->step));
    }
    world.finish(requests);
    EXPECT_EQ(world.table(), expected) << "seed " << seed;
  }
}

// Given a slice that nobody has mapped any more when its step ends, expect a copy.
TEST(HeldPushes, WhatIsMappedNoMoreIsCopied) {
  PushWorld world(2, 14);
  std::vector<float> expected = world.draw_to_push();
  std::vector<Request*> requests;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const uint64_t step = world.begin(rank);
    requests.push_back(world.push(rank, step));
    EXPECT_EQ(requests.back()->rows_given, RowsGiven::kHeld);
    world.host().rank(rank).unshare(world.values(rank));
    requests.push_back(world.end(rank, step));
  }
  world.finish(requests);
  EXPECT_EQ(world.table(), expected);
  EXPECT_EQ(world.lent_bytes(0), 0u);
}

// Given long rows and short ones in one call, expect the former alone to be lent, whichever is
// first.
TEST(HeldPushes, RowsAreChosenByTheirOwnLength) {
  for (const bool short_first : {true, false}) {
    PushWorld world(2, 16);
    std::vector<float> expected = world.draw_to_push();
    std::vector<Request*> requests;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const uint64_t step = world.begin(rank);
      const parallax_slice_t rows = rows_slice(0, world.ids(rank), world.values(rank));
      const parallax_slice_t few = rows_slice(1, world.ids(rank), world.values(rank));
      const parallax_slice_t slices[] = {short_first ? few : rows, short_first ? rows : few};
      ASSERT_TRUE(world.calls(rank).push(step, slices, &requests.emplace_back()).ok());
      world.world().engine(rank).kick();
      EXPECT_EQ(requests.back()->rows_given, RowsGiven::kHeld);
      requests.push_back(world.end(rank, step));
    }
    world.finish(requests);
    EXPECT_EQ(world.table(), expected);
    EXPECT_EQ(world.lent_bytes(0), kSliceRows * kRowWidth * sizeof(float));
  }
}

// Given memory that no owner has mapped, expect a copy.
TEST(HeldPushes, WhatNobodyElseReadsIsCopied) {
  PushWorld world(2, 12, false);
  world.table();
  world.draw();
  const uint64_t step = world.begin(0);
  Request* const push = world.push(0, step);
  world.world().settle();
  EXPECT_TRUE(push->done());
}

}  // namespace
}  // namespace parallax::testkit
