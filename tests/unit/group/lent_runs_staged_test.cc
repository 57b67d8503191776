// SPDX-License-Identifier: Apache-2.0
// Slices of the caller's own memory that go in runs out of a slab: the totals, where they come, and
// what goes otherwise.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "group/lent_runs.h"
#include "support/runs_world.h"

namespace parallax::testkit {
namespace {

uint64_t messages(const RunsWorld& world) {
  uint64_t count = 0;
  for (const SectionKind kind : {SectionKind::kLentRun, SectionKind::kRunSummed,
                                 SectionKind::kDenseReduce, SectionKind::kDenseGather}) {
    count += world.said(kind);
  }
  return count;
}

// Given steps in which some ranks give memory of their own and the others lend theirs, in any
// numbers, expect every total where it belongs, and nothing sent; in more steps than there are
// slabs.
TEST(LentRunsStaged, OwnMemoryGoesAsWhatIsLent) {
  for (const uint32_t ranks : {2u, 3u, 8u}) {
    for (const uint32_t apart_from : {0u, 1u}) {
      for (const uint32_t dtype :
           {uint32_t{PARALLAX_F32}, uint32_t{PARALLAX_BF16}, uint32_t{PARALLAX_F64}}) {
        for (const bool mean : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << ranks << " ranks, dtype " << dtype << ", mean " << mean);
          RunsWorld world(
              {.ranks = ranks,
               .elements = {8192, 8193, 9001, 8192},
               .seed = kBoardsSeed,
               .slow_percent = 30,
               .dtype = dtype,
               .reduction = mean ? uint32_t{PARALLAX_MEAN_WORLD} : uint32_t{PARALLAX_SUM}});
          world.commit();
          for (uint64_t step = 1; step <= 4; ++step) {
            world.fill(step);
            for (const Status& status : world.run_whole_step(apart_from))
              ASSERT_TRUE(status.ok()) << status.message();
            for (uint32_t rank = 0; rank < ranks; ++rank) {
              for (uint32_t variable = 0; variable < 4; ++variable) {
                world.expect_sum(rank, step, variable, rank >= apart_from, all_of(ranks));
                if (HasFatalFailure()) return;
              }
            }
          }
          EXPECT_EQ(messages(world), 0u);
        }
      }
    }
  }
}

// Given places of their own for totals, expect them there, and what was given as it was.
TEST(LentRunsStaged, ATotalComesWhereItIsToGo) {
  constexpr uint64_t kElements = 8192;
  RunsWorld world({.elements = {kElements}, .seed = kBoardsSeed});
  world.commit();
  for (uint64_t step = 1; step <= 3; ++step) {
    world.fill(step);
    std::vector<Request*> requests;
    std::vector<std::vector<float>> totals(2, std::vector<float>(kElements));
    std::vector<float> given;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      StepCalls& calls = world.world().engine(rank).step_calls();
      uint64_t begun = 0;
      ASSERT_TRUE(calls.begin(&begun).ok());
      // Of rank 0 in memory that it lends, of the other not.
      parallax_slice_t slice = world.slice(rank, 0, rank == 1);
      if (rank == 1) given.assign(world.values(1, 0, true), world.values(1, 0, true) + kElements);
      slice.into = totals[rank].data();
      ASSERT_TRUE(calls.reduce(begun, {&slice, 1}, &requests.emplace_back()).ok());
      ASSERT_TRUE(calls.end(begun, end_options(1), &requests.emplace_back()).ok());
    }
    ASSERT_TRUE(world.world().run_until_done(requests));
    for (uint64_t i = 0; i < kElements; ++i) {
      const float sum = RunsWorld::number(0, step, i) + RunsWorld::number(1, step, i);
      ASSERT_EQ(totals[0][i], sum);
      ASSERT_EQ(totals[1][i], sum);
      ASSERT_EQ(world.values(1, 0, true)[i], given[i]);
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(world.world().engine(static_cast<uint32_t>(i / 2)).release(requests[i]).ok());
    }
  }
  EXPECT_EQ(messages(world), 0u);
}

// Given more than there is room for, of a call or a step, or a bound on memory, expect messages for
// what has none, and the totals.
TEST(LentRunsStaged, WhatHasNoRoomIsSent) {
  struct Case {
    const char* what;
    std::vector<uint64_t> elements;
    uint64_t memory_max_bytes = 0;
    bool all_sent = false;
  };
  const Case cases[] = {
      {"a large variable", {8192, kStagedOfTwoBytesMax / sizeof(float) + 1, 8192}},
      {"many variables", std::vector<uint64_t>(40, 16 * 1024)},
      {"a bound on memory", {8192, 8192}, uint64_t{1} << 30, true},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    RunsWorld world({.elements = each.elements,
                     .seed = kBoardsSeed,
                     .memory_max_bytes = each.memory_max_bytes});
    world.commit();
    for (uint64_t step = 1; step <= 3; ++step) {
      world.fill(step);
      for (const Status& status : world.run_whole_step(0))
        ASSERT_TRUE(status.ok()) << status.message();
      for (uint32_t rank = 0; rank < 2; ++rank) {
        for (uint32_t variable = 0; variable < each.elements.size(); ++variable) {
          world.expect_sum(rank, step, variable, true, all_of(2));
          if (HasFatalFailure()) return;
        }
      }
      std::set<uint32_t> sent;
      for (const SaidSection& said : world.take_said()) {
        if (said.kind == SectionKind::kDenseReduce) sent.insert(said.tag);
      }
      EXPECT_FALSE(sent.empty());
      EXPECT_EQ(sent.size() == each.elements.size(), each.all_sent);
    }
  }
}

// Given a rank that gives nothing in a step in which others have staged theirs, expect their totals
// without it.
TEST(LentRunsStaged, WhoGivesNothingIsNotAwaited) {
  RunsWorld world({.ranks = 3, .elements = {8192, 9000}, .seed = kBoardsSeed});
  world.commit();
  for (uint64_t step = 1; step <= 4; ++step) {
    world.fill(step);
    const auto absent = static_cast<uint32_t>(step % 3);
    std::vector<Request*> requests;
    std::vector<uint32_t> of;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      StepCalls& calls = world.world().engine(rank).step_calls();
      uint64_t begun = 0;
      ASSERT_TRUE(calls.begin(&begun).ok());
      parallax_step_end_options_t end = end_options(1);
      end.absent = rank == absent ? 1 : 0;
      if (rank != absent) {
        const std::vector<parallax_slice_t> slices = {world.slice(rank, 0, true),
                                                      world.slice(rank, 1, true)};
        ASSERT_TRUE(calls.reduce(begun, slices, &requests.emplace_back()).ok());
        of.push_back(rank);
      }
      ASSERT_TRUE(calls.end(begun, end, &requests.emplace_back()).ok());
      of.push_back(rank);
    }
    ASSERT_TRUE(world.world().run_until_done(requests));
    std::set<uint32_t> givers = all_of(3);
    givers.erase(absent);
    for (const uint32_t rank : givers) {
      for (uint32_t variable = 0; variable < 2; ++variable) {
        world.expect_sum(rank, step, variable, true, givers);
        if (HasFatalFailure()) return;
      }
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(requests[i]->status.ok()) << requests[i]->status.message();
      EXPECT_TRUE(world.world().engine(of[i]).release(requests[i]).ok());
    }
  }
}

}  // namespace
}  // namespace parallax::testkit
