// SPDX-License-Identifier: Apache-2.0
// LentRuns between whole engines: what is said, in which order, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/runs_world.h"

namespace parallax::testkit {
namespace {

// Given one call of all variables at every rank, expect a section to lend and one to tell for each
// other rank, and nothing for a variable; but for the last one, which shares its last page.
TEST(LentRuns, OneCallIsSaidAtOnce) {
  for (const uint32_t ranks : {2u, 3u, 4u}) {
    std::vector<uint64_t> sizes(20, 8192 * 3);
    sizes.push_back(8192 * 3 + 1);
    RunsWorld world({.ranks = ranks, .elements = sizes, .slow_percent = 0, .beyond = 1});
    world.commit();
    for (uint64_t step = 1; step <= 3; ++step) {
      world.fill(step);
      world.take_said();
      for (const Status& status : world.run_whole_step())
        ASSERT_TRUE(status.ok()) << status.message();
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        for (uint32_t variable = 0; variable < sizes.size(); ++variable) {
          std::set<uint32_t> all;
          for (uint32_t each = 0; each < ranks; ++each) all.insert(each);
          world.expect_sum(rank, step, variable, false, all);
          if (HasFatalFailure()) return;
        }
      }
      const uint64_t pairs = uint64_t{ranks} * (ranks - 1);
      EXPECT_EQ(world.said(SectionKind::kLentRun), pairs);
      // A turn is 1 MiB of sums.
      const uint64_t turns_max = 2 + 20 * 8192 * 3 * sizeof(float) / ranks / (1 << 20);
      EXPECT_LE(world.said(SectionKind::kRunSummed), pairs * turns_max);
      std::set<uint32_t> alone;
      for (const SaidSection& each : world.take_said()) {
        const bool of_variable =
            each.kind == SectionKind::kDenseReduce || each.kind == SectionKind::kDenseGather;
        if (of_variable) alone.insert(each.tag);
      }
      EXPECT_EQ(alone, std::set<uint32_t>{20});
    }
  }
}

// The variables in the order in which each rank tells that it has summed them, where each is a call
// of its own, the last one first.
std::map<uint32_t, std::vector<uint32_t>> order_of_sums(const RunsLayout& layout) {
  RunsWorld world(layout);
  world.commit();
  world.fill(1);
  std::vector<Request*> requests;
  for (uint32_t rank = 0; rank < layout.ranks; ++rank) {
    StepCalls& calls = world.world().engine(rank).step_calls();
    uint64_t step = 0;
    EXPECT_TRUE(calls.begin(&step).ok());
    for (uint32_t variable = world.variables(); variable-- > 0;) {
      const parallax_slice_t slice = world.slice(rank, variable);
      EXPECT_TRUE(calls.reduce(step, {&slice, 1}, &requests.emplace_back()).ok());
    }
    EXPECT_TRUE(calls.end(step, end_options(1), &requests.emplace_back()).ok());
    world.world().engine(rank).kick();
  }
  EXPECT_TRUE(world.world().run_until_done(requests));
  std::map<uint32_t, std::vector<uint32_t>> order;
  for (const SaidSection& each : world.take_said()) {
    if (each.kind == SectionKind::kRunSummed) order[each.from].push_back(each.tag);
  }
  const size_t of_rank = layout.elements.size() + 1;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto rank = static_cast<uint32_t>(i / of_rank);
    EXPECT_TRUE(world.world().engine(rank).release(requests[i]).ok());
  }
  for (uint32_t variable = 0; variable < world.variables(); ++variable) {
    world.expect_sum(0, 1, variable, false, {0, 1});
  }
  return order;
}

// Given a large variable that is called first, expect one that was registered before it, and called
// after it, to be summed first.
TEST(LentRuns, WhatWasRegisteredFirstIsSummedFirst) {
  const auto order = order_of_sums({.elements = {8192 * 3, 3 << 20}, .slow_percent = 0});
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(order.at(rank), (std::vector<uint32_t>{0, 1}));
  }
}

// Given priorities, expect the most urgent to be summed first, wherever it was registered; and of
// one priority what was registered first.
TEST(LentRuns, WhatIsMoreUrgentIsSummedFirst) {
  const std::vector<uint64_t> elements = {3 << 18, 3 << 18, 8192 * 3, 8192 * 3, 8192 * 3};
  const auto order =
      order_of_sums({.elements = elements, .slow_percent = 0, .priorities = {-1, 0, 2, 0, 2}});
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(order.at(rank), (std::vector<uint32_t>{2, 4, 1, 3, 0}));
  }
}

// Given memory that the others can't write, or don't see, expect no run, and the sums.
TEST(LentRuns, WithoutMemoryToWriteThereAreNone) {
  RunsWorld world({.elements = {9000, 9000, 9000}, .lends = false});
  world.commit();
  world.fill(1);
  for (const Status& status : world.run_whole_step()) ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(world.said(SectionKind::kLentRun), 0u);
  world.expect_sum(1, 1, 2, false, {0, 1});
}

// Given a rank that is lost while runs are lent to it, expect the requests of the others to fail,
// and their memory to be their own alone before they do.
TEST(LentRuns, WhatALostRankMayWriteIsMadePrivate) {
  RunsWorld world({.ranks = 3, .elements = {8192 * 3, 8192 * 3}, .slow_percent = 0});
  world.commit();
  world.fill(1);
  std::vector<Request*> requests;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    StepCalls& calls = world.world().engine(rank).step_calls();
    uint64_t step = 0;
    ASSERT_TRUE(calls.begin(&step).ok());
    const std::vector<parallax_slice_t> slices = {world.slice(rank, 0), world.slice(rank, 1)};
    ASSERT_TRUE(calls.reduce(step, slices, &requests.emplace_back()).ok());
  }
  world.world().settle();
  for (const Request* each : requests) EXPECT_FALSE(each->done());
  EXPECT_EQ(world.said(SectionKind::kLentRun), 4u);
  world.world().kill(2);
  // Others may know more of it: that is waited for.
  for (int i = 0; i < 1000 && !(requests[0]->done() && requests[1]->done()); ++i) {
    world.world().clock().advance(10'000'000);
    for (uint32_t rank = 0; rank < 2; ++rank) world.world().engine(rank).run();
  }
  ASSERT_TRUE(requests[0]->done() && requests[1]->done());
  const ByteRange given = ByteRange::at(world.values(0, 0), world.total() * sizeof(float));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(requests[rank]->status.code(), PARALLAX_PEER_LOST);
    EXPECT_FALSE(world.host().rank(rank).made_private.empty());
    EXPECT_TRUE(world.world().engine(rank).release(requests[rank]).ok());
  }
  const ByteRange& own = world.host().rank(0).made_private[0];
  EXPECT_LE(own.first, given.first);
  EXPECT_GE(own.first + own.bytes, given.first + given.bytes);
}

// What a rank that does not keep to the rules says of runs: three variables, which rank 0 has
// given.
struct RunLie {
  const char* what;
  SectionKind kind;
  uint32_t tag;
  uint64_t first;
  std::vector<std::byte> payload;
  bool twice = false;
};

std::vector<std::byte> lent_part_bytes(uint64_t buffer, uint64_t offset, uint64_t bytes,
                                       uint64_t alignment_bits = 0) {
  const LentRunPart part = {.part = {.place = {buffer, offset},
                                     .bytes = bytes,
                                     .loan = 7,
                                     .returns = {.first = 0, .end = bytes}},
                            .alignment_bits = alignment_bits};
  const auto raw = std::as_bytes(std::span(&part, 1));
  return {raw.begin(), raw.end()};
}

std::vector<std::byte> count_bytes(uint32_t count) {
  const auto raw = std::as_bytes(std::span(&count, 1));
  return {raw.begin(), raw.end()};
}

// Given runs and words of runs that no rank sends, expect the job to fail with the name of who did.
TEST(LentRuns, WhatNoRankSaysFailsTheJobWithItsName) {
  constexpr uint64_t kElements = 8192 * 3;
  constexpr uint64_t kBytes = kElements * sizeof(float);
  const auto run = SectionKind::kLentRun, summed = SectionKind::kRunSummed;
  const RunLie lies[] = {
      {"none", run, 0, 0, lent_part_bytes(1, 0, 0)},
      {"more than there are", run, 1, 3, lent_part_bytes(1, 0, 3 * kBytes)},
      {"more than a number holds", run, 1, UINT64_MAX, lent_part_bytes(1, 0, kBytes)},
      {"no variable", run, 3, 1, lent_part_bytes(1, 0, kBytes)},
      {"another length", run, 0, 2, lent_part_bytes(1, 0, 2 * kBytes - 4)},
      {"no buffer", run, 0, 2, lent_part_bytes(9, 0, 2 * kBytes)},
      {"beyond the buffer", run, 0, 2, lent_part_bytes(1, 2 * kBytes, 2 * kBytes)},
      {"no alignment", run, 0, 2, lent_part_bytes(1, 0, 2 * kBytes, kRunAlignmentBits + 1)},
      {"no part", run, 0, 1, count_bytes(1)},
      {"again", run, 0, 2, lent_part_bytes(1, 0, 2 * kBytes), true},
      {"none summed", summed, 0, 0, count_bytes(0)},
      {"more summed than there are", summed, 2, 0, count_bytes(2)},
      {"no count", summed, 0, 0, {}},
      {"of no loan", summed, 0, 12345, count_bytes(1)},
  };
  for (const RunLie& lie : lies) {
    SCOPED_TRACE(lie.what);
    RunsWorld world({.elements = {kElements, kElements, kElements}, .slow_percent = 0});
    world.commit();
    world.fill(1);
    StepCalls& calls = world.world().engine(0).step_calls();
    uint64_t step = 0;
    ASSERT_TRUE(calls.begin(&step).ok());
    const std::vector<parallax_slice_t> slices = {world.slice(0, 0), world.slice(0, 1),
                                                  world.slice(0, 2)};
    Request* request = nullptr;
    ASSERT_TRUE(calls.reduce(step, slices, &request).ok());
    world.world().settle();
    Transport& liar = world.world().take_over(1);
    for (int i = 0; i < (lie.twice ? 2 : 1); ++i) {
      SectionHeader section = {.kind = lie.kind, .tag = lie.tag, .step = step, .first = lie.first};
      section.count = section.payload_bytes = static_cast<uint32_t>(lie.payload.size());
      const MessageHeader header = {
          .epoch = 1, .sequence = 1000 + static_cast<uint32_t>(i), .section_count = 1};
      const Segment segments[] = {{&header, sizeof header},
                                  {&section, sizeof section},
                                  {lie.payload.data(), lie.payload.size()}};
      ASSERT_TRUE(liar.send(0, segments, 0).ok());
      world.world().engine(0).run();
    }
    world.expect_rank_1_failed_it(request);
  }
}

}  // namespace
}  // namespace parallax::testkit
