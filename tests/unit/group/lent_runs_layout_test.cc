// SPDX-License-Identifier: Apache-2.0
// LentRuns of slices that are aligned, of narrow numbers, in order and divided: the totals, what is
// said, and that nothing between the slices is touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "support/runs_world.h"

namespace parallax::testkit {
namespace {

void expect_step(RunsWorld& world, uint32_t ranks, uint64_t step) {
  world.fill(step);
  for (const Status& status : world.run_whole_step()) ASSERT_TRUE(status.ok()) << status.message();
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    world.expect_gaps_untouched(rank);
    for (uint32_t variable = 0; variable < world.variables(); ++variable) {
      world.expect_sum(rank, step, variable, false, all_of(ranks));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

std::set<uint32_t> alone_in(RunsWorld& world) {
  std::set<uint32_t> alone;
  for (const SaidSection& each : world.take_said()) {
    if (each.kind == SectionKind::kDenseReduce) alone.insert(each.tag);
  }
  return alone;
}

// Given variables of any dtype, summed or averaged, in order or not, expect the rounded totals, and
// that all went together.
TEST(LentRunsLayout, AnyNumbersGoTogether) {
  for (const uint32_t dtype : {PARALLAX_F16, PARALLAX_BF16, PARALLAX_F32, PARALLAX_F64}) {
    for (const uint32_t reduction : {PARALLAX_SUM, PARALLAX_MEAN_WORLD}) {
      for (const bool deterministic : {false, true}) {
        for (const uint32_t ranks : {2u, 3u, 5u}) {
          SCOPED_TRACE(std::string(dtype_name(dtype)) + " of " + std::to_string(ranks) +
                       (deterministic ? " in order" : "") + ", reduction " +
                       std::to_string(reduction));
          RunsWorld world({.ranks = ranks,
                           .elements = {8192 + 1, 8192 * 2, 8192 + 3},
                           .deterministic = deterministic,
                           .slow_percent = 0,
                           .dtype = dtype,
                           .reduction = reduction});
          world.commit();
          expect_step(world, ranks, 1);
          if (HasFailure()) return;
          EXPECT_EQ(world.said(SectionKind::kLentRun), uint64_t{ranks} * (ranks - 1));
          EXPECT_EQ(alone_in(world), std::set<uint32_t>());
        }
      }
    }
  }
}

// Given integers, expect what wraps to be summed in any place too.
TEST(LentRunsLayout, IntegersGoTogetherInOrder) {
  for (const uint32_t dtype : {PARALLAX_I32, PARALLAX_I64}) {
    RunsWorld world({.ranks = 3,
                     .elements = {8192 + 1, 8192 * 2},
                     .deterministic = true,
                     .slow_percent = 0,
                     .dtype = dtype});
    world.commit();
    expect_step(world, 3, 1);
    EXPECT_EQ(world.said(SectionKind::kLentRun), 6u);
  }
}

// Given slices that each rank aligns in its own way, expect one run all the same, and what lies
// between them to be as it was.
TEST(LentRunsLayout, AlignedSlicesGoTogether) {
  for (const std::vector<uint64_t>& alignment :
       {std::vector<uint64_t>{64, 64, 64}, {16, 64, 256}, {1, 32, 128}, {8, 4, 2}}) {
    for (const uint32_t dtype : {PARALLAX_F16, PARALLAX_F32}) {
      const auto ranks = static_cast<uint32_t>(alignment.size());
      RunsWorld world({.ranks = ranks,
                       .elements = {8192 * 3 + 1, 8192 * 3 + 3, 8192 * 4, 8192 * 3 + 5, 8192 * 3},
                       .slow_percent = 0,
                       .dtype = dtype,
                       .alignment = alignment});
      world.commit();
      expect_step(world, ranks, 1);
      if (HasFailure()) return;
      EXPECT_EQ(world.said(SectionKind::kLentRun), uint64_t{ranks} * (ranks - 1));
      EXPECT_EQ(alone_in(world), std::set<uint32_t>());
    }
  }
}

// Given gaps that no alignment in a run explains, expect each slice to go by itself, and that in a
// run of one only where it has its pages alone.
TEST(LentRunsLayout, FarSlicesGoAlone) {
  RunsWorld world(
      {.elements = {8192 * 3 + 1, 8192 * 3 + 3}, .slow_percent = 0, .alignment = {4096, 4096}});
  world.commit();
  expect_step(world, 2, 1);
  EXPECT_EQ(world.said(SectionKind::kLentRun), 2u);
  EXPECT_EQ(alone_in(world), std::set<uint32_t>{0});
}

// Given one rank that gives a variable by itself, expect the others, who lent it in a run, to end
// with its total all the same: narrow numbers, aligned and divided.
TEST(LentRunsLayout, WhatGoesAloneIsTheSame) {
  for (const uint32_t dtype : {PARALLAX_F16, PARALLAX_BF16, PARALLAX_F32}) {
    for (const bool deterministic : {false, true}) {
      constexpr uint32_t kRanks = 3;
      RunsWorld world({.ranks = kRanks,
                       .elements = {8192 + 1, 8192 + 3, 8192 * 2},
                       .deterministic = deterministic,
                       .dtype = dtype,
                       .reduction = PARALLAX_MEAN_WORLD,
                       .alignment = {64, 64, 16}});
      world.commit();
      world.fill(1);
      std::vector<Request*> requests;
      std::vector<uint32_t> rank_of;
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        StepCalls& calls = world.world().engine(rank).step_calls();
        uint64_t step = 0;
        ASSERT_TRUE(calls.begin(&step).ok());
        std::vector<parallax_slice_t> slices;
        for (uint32_t i = 0; i < 3; ++i)
          slices.push_back(world.slice(rank, i, rank == 1 && i == 1));
        ASSERT_TRUE(calls.reduce(step, slices, &requests.emplace_back()).ok());
        ASSERT_TRUE(calls.end(step, end_options(1), &requests.emplace_back()).ok());
        rank_of.insert(rank_of.end(), 2, rank);
      }
      ASSERT_TRUE(world.world().run_until_done(requests));
      EXPECT_GT(world.said(SectionKind::kLentRun), 0u);
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        world.expect_gaps_untouched(rank);
        for (uint32_t i = 0; i < 3; ++i) {
          world.expect_sum(rank, 1, i, rank == 1 && i == 1, all_of(kRanks));
          if (HasFatalFailure()) return;
        }
      }
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_TRUE(world.world().engine(rank_of[i]).release(requests[i]).ok());
      }
    }
  }
}

// ---- which alignments there are

const void* address(uint64_t at) { return reinterpret_cast<const void*>(at); }

TEST(RunAlignment, IsTheLeastThatExplainsAllGaps) {
  RunAlignment none(address(4096 + 4));
  EXPECT_TRUE(none.take(address(5001), address(5001)));
  EXPECT_EQ(none.bits(), 0u);

  RunAlignment aligned(address(4096));
  EXPECT_TRUE(aligned.take(address(5000), address(5056)));  // by 64: the gap is 56
  EXPECT_EQ(aligned.bits(), 6u);
  EXPECT_TRUE(aligned.take(address(6000), address(6016)));  // 64 | 6016
  EXPECT_TRUE(aligned.take(address(6400), address(6400)));
  EXPECT_FALSE(aligned.take(address(6500), address(6500))) << "64 does not divide it";
  EXPECT_EQ(aligned.bits(), 6u);
}

TEST(RunAlignment, NothingExplainsOtherGaps) {
  RunAlignment first(address(4096 + 8));
  EXPECT_FALSE(first.take(address(5000), address(5056))) << "the first is at no multiple of 64";
  EXPECT_TRUE(first.take(address(5001), address(5008)));
  EXPECT_EQ(first.bits(), 3u);
  EXPECT_FALSE(first.take(address(6000), address(6008))) << "6000 is a multiple of 8";

  RunAlignment far(address(4096));
  EXPECT_FALSE(far.take(address(4100), address(8192)));
  EXPECT_FALSE(far.take(address(8192), address(4096))) << "before it";
  EXPECT_TRUE(far.take(address(4100), address(4352)));
  EXPECT_EQ(far.bits(), 8u);
}

}  // namespace
}  // namespace parallax::testkit
