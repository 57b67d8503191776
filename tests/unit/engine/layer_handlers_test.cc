// SPDX-License-Identifier: Apache-2.0
// Which sections a rank takes, and which it refuses, by what it knows of its job and its steps.
// Whole jobs whose every section goes through here are in job_calls_test.cc and step_calls_test.cc.
#include "engine/layer_handlers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "message/kinds.h"
#include "support/words.h"
#include "unit/engine/job_world.h"

namespace parallax::testkit {
namespace {

Section section_of(SectionKind kind, uint32_t tag, uint64_t step) {
  Section section;
  section.header.kind = kind;
  section.header.tag = tag;
  section.header.step = static_cast<decltype(section.header.step)>(step);
  return section;
}

// Whether rank 0 takes it from rank 1.
bool takes(JobWorld& world, SectionKind kind, uint32_t tag, uint64_t step, uint32_t from = 1) {
  return world[0].handlers.take(from, section_of(kind, tag, step));
}

// Given a rank that has not called commit, expect that it hears of losses and of who commits, and
// takes nothing that needs a variable.
TEST(LayerHandlers, BeforeCommitNothingOfStepsMayCome) {
  JobWorld world({0, 0});
  EXPECT_TRUE(takes(world, SectionKind::kHeartbeat, 0, 0));
  for (const KindRow& row : kKindRows) {
    if (row.layer == Layer::kMembership || row.layer == Layer::kTree) continue;
    if (row.kind == SectionKind::kSplitUp) continue;  // a split may be called before
    if (row.kind == SectionKind::kProbe) continue;    // who commits first measures
    EXPECT_FALSE(takes(world, row.kind, JobWorld::kRows, 1)) << row.name;
  }
  EXPECT_TRUE(world[0].failure.job_goes_on());
}

TEST(LayerHandlers, ANoticeEndsTheJob) {
  JobWorld world({0, 1});
  const std::string text = "rank 1 (host host1) aborted the job: enough";
  Section notice = section_of(SectionKind::kAbort, 1, 0);
  notice.payload = std::as_bytes(std::span(text));
  EXPECT_TRUE(world[0].handlers.take(1, notice));
  EXPECT_TRUE(has(world[0].failure.status(), "aborted the job: enough"));
}

TEST(LayerHandlers, OfAStepThatHasNoBuffersNothingMayCome) {
  JobWorld world({0, 0});
  world.commit();
  for (const SectionKind kind :
       {SectionKind::kStepEnded, SectionKind::kLocalReduce, SectionKind::kDenseReduce,
        SectionKind::kPullLocal, SectionKind::kMigrate}) {
    EXPECT_FALSE(takes(world, kind, JobWorld::kRows, StepWindow::kDepth + 1)) << name_of(kind);
    EXPECT_FALSE(takes(world, kind, JobWorld::kRows, 0) && kind != SectionKind::kStepEnded)
        << name_of(kind);
  }
}

// Of what a pull asks for, between hosts, one step more may come: it needs no buffers.
TEST(LayerHandlers, WhatAPullAsksForMayComeAStepSooner) {
  constexpr uint64_t kSooner = StepWindow::kDepth + 1;
  for (const uint32_t host : {1u, 0u}) {
    JobWorld world({0, host});
    world.commit();
    const uint32_t row_key = world[0].group.runtime(JobWorld::kRows).partition.row_key_at(0, 0);
    Section list = section_of(SectionKind::kPullHost, JobWorld::kRows, kSooner + 1);
    list.header.encoding = Encoding::kIds;
    list.header.count = 1;
    list.payload = std::as_bytes(std::span(&row_key, 1));
    EXPECT_FALSE(world[0].handlers.take(1, list));
    list.header.step = kSooner;
    EXPECT_EQ(world[0].handlers.take(1, list), host == 1);
    EXPECT_FALSE(takes(world, SectionKind::kPullPlace, JobWorld::kRows, kSooner));
    EXPECT_FALSE(takes(world, SectionKind::kValuesHost, JobWorld::kRows, kSooner));
  }
}

// Given a rank of this host whose pull is not answered, expect that it cannot have ended the step.
TEST(LayerHandlers, AStepEndsBehindThePullsOfIt) {
  JobWorld world({0, 0});
  world.commit();
  const uint32_t row_key = world[0].group.runtime(JobWorld::kRows).partition.row_key_at(0, 0);
  Section list = section_of(SectionKind::kPullLocal, JobWorld::kRows, 1);
  list.header.encoding = Encoding::kIds;
  list.header.count = 1;
  list.payload = std::as_bytes(std::span(&row_key, 1));
  ASSERT_TRUE(world[0].handlers.take(1, list));
  EXPECT_FALSE(takes(world, SectionKind::kStepEnded, 0, 1));
}

// Given a step that is over here, expect that a rank of this host may still say that it has ended
// it: nothing of it need have passed through this one.
TEST(LayerHandlers, AStepMayEndElsewhereAfterItIsOverHere) {
  JobWorld world({0, 0, 1});
  world.commit();
  parallax_step_end_options_t options = {};
  options.size = sizeof options;
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    uint64_t step = 0;
    Request* request = nullptr;
    ASSERT_TRUE(world[rank].steps.begin(&step).ok());
    ASSERT_TRUE(world[rank].steps.end(step, options, &request).ok());
  }
  world.settle();
  ASSERT_TRUE(world[0].pipeline.window().is_over(1));
  EXPECT_TRUE(takes(world, SectionKind::kStepEnded, 0, 1));
  EXPECT_TRUE(takes(world, SectionKind::kStepEnded, 0, 2));
  EXPECT_FALSE(takes(world, SectionKind::kStepEnded, 0, 2, 2)) << "a rank of another host";
}

TEST(LayerHandlers, AVariableThatIsNotThereIsRefused) {
  JobWorld world({0, 0});
  world.commit();
  const uint32_t beyond = world[0].group.size();
  EXPECT_FALSE(takes(world, SectionKind::kLocalReduce, beyond, 1));
  EXPECT_FALSE(takes(world, SectionKind::kDenseReduce, beyond, 1));
}

// What a rank wants in a pull ends with a tag beyond the variables.
TEST(LayerHandlers, TheEndOfAPullIsOfNoVariable) {
  JobWorld world({0, 0});
  world.commit();
  EXPECT_FALSE(takes(world, SectionKind::kPullLocal, JobWorld::kDense, 1));
  EXPECT_FALSE(takes(world, SectionKind::kPullLocal, kNoVariable, 1)) << "the end of nothing";
  const uint32_t row_key = world[0].group.runtime(JobWorld::kRows).partition.row_key_at(0, 0);
  Section list = section_of(SectionKind::kPullLocal, JobWorld::kRows, 1);
  list.header.encoding = Encoding::kIds;
  list.header.count = 1;
  list.payload = std::as_bytes(std::span(&row_key, 1));
  EXPECT_TRUE(world[0].handlers.take(1, list));
  EXPECT_TRUE(takes(world, SectionKind::kPullLocal, kNoVariable, 1));
}

// Given a variable that is mirrored here from this step on, whose pull buffers are freed, expect
// that a pull of it is refused.
TEST(LayerHandlers, OnlyShardedVariablesArePulled) {
  for (const bool sharded : {true, false}) {
    JobWorld world({0, 0});
    world.commit();
    if (!sharded) world[0].group.runtime(JobWorld::kRows).plan.placement = Placement::kMirrored;
    const std::vector<int64_t> ids = {0, 1, 2, 3, 4};
    std::vector<float> values(2 * ids.size());
    const parallax_slice_t slice = slice_of_rows(ids, values.data());
    uint64_t step = 0;
    Request* request = nullptr;
    ASSERT_TRUE(world[1].steps.begin(&step).ok());
    ASSERT_TRUE(world[1].steps.pull(step, {&slice, 1}, &request).ok());
    EXPECT_TRUE(world[1].steps.advance().ok());
    world.network().settle();
    EXPECT_EQ(world.network().refusals().empty(), sharded) << told(world.network().refusals());
  }
}

TEST(LayerHandlers, RoundsOfTheTreeGoToWhoWaitsForThem) {
  JobWorld world({0, 0});
  world.commit();
  const auto takes_report = [&](TreeKind kind, uint64_t round, size_t bytes) {
    const std::vector<std::byte> payload(bytes);
    Section report = section_of(SectionKind::kTreeUp, static_cast<uint32_t>(kind), round);
    report.payload = payload;
    return world[0].handlers.take(1, report);
  };
  EXPECT_FALSE(takes_report(static_cast<TreeKind>(kTreeKinds), 1, 0)) << "of no kind";
  EXPECT_FALSE(takes_report(TreeKind::kBarrier, 1, 1)) << "a barrier says nothing";
  EXPECT_FALSE(takes_report(TreeKind::kVote, 1, 1)) << "no vote";
  EXPECT_FALSE(takes_report(TreeKind::kClose, 1, 1)) << "no goodbye";
  EXPECT_FALSE(takes_report(TreeKind::kCloseConfirm, 1, 1)) << "no goodbye";
}

// Given what all ranks call together, expect each to be done at all of them.
TEST(LayerHandlers, BarriersBroadcastsAndRowsGoToTheirCalls) {
  JobWorld world({0, 0, 1});
  world.commit();
  std::vector<Request*> requests;
  std::vector<uint64_t> numbers(world.size());
  numbers[1] = 11;
  std::vector<float> values(2 * JobWorld::kRowCount, 77.0f);
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    auto* bytes = reinterpret_cast<std::byte*>(&numbers[rank]);
    EXPECT_TRUE(world[rank].collectives.barrier(&requests.emplace_back(nullptr)).ok());
    EXPECT_TRUE(
        world[rank].collectives.broadcast(bytes, 8, 1, &requests.emplace_back(nullptr)).ok());
  }
  parallax_rows_t rows = {};
  rows.size = sizeof rows;
  rows.variable = JobWorld::kRows;
  rows.row_count = JobWorld::kRowCount;
  rows.values = values.data();
  EXPECT_TRUE(world[0].rows.post(rows, false, &requests.emplace_back(nullptr)).ok());
  world.settle();
  for (const Request* request : requests) EXPECT_TRUE(request->done() && request->status.ok());
  EXPECT_EQ(numbers, std::vector<uint64_t>(3, 11));
  EXPECT_LE(*std::max_element(values.begin(), values.end()), 1.0f) << "every row was read";
}

// A vote may be so long that pieces of it come ahead; nothing else is, and no answer.
TEST(LayerHandlers, OnlyVotesComeInParts) {
  RatesBallot ballot;
  StepRates rates = {.count = 1};
  ballot.say(rates, 1);
  std::vector<std::byte> bytes;
  ballot.for_each_part(
      [&](std::span<const std::byte> part) { bytes.assign(part.begin(), part.end()); });
  JobWorld world({0, 0});
  world.commit();
  for (uint32_t kind = 0; kind < kTreeKinds; ++kind) {
    const uint64_t round = world[0].trees[static_cast<TreeKind>(kind)].round();
    Section part = section_of(SectionKind::kTreeUp, kind, round);
    part.header.part = 1;
    part.payload = bytes;
    EXPECT_EQ(world[0].handlers.take(1, part), static_cast<TreeKind>(kind) == TreeKind::kVote);
    part.payload = part.payload.first(5);
    EXPECT_FALSE(world[0].handlers.take(1, part)) << kind;
    part.header.kind = SectionKind::kTreeDown;
    part.payload = bytes;
    EXPECT_FALSE(world[1].handlers.take(0, part)) << kind;
  }
}

}  // namespace
}  // namespace parallax::testkit
