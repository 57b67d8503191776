// SPDX-License-Identifier: Apache-2.0
// RunNotes: what is said of a step on boards and read of it; and runs that go by it, between whole
// engines.
#include "group/run_notes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "group/lent_runs.h"
#include "support/host_map_of.h"
#include "support/outbox_world.h"
#include "support/runs_world.h"
#include "world/patterns.h"

namespace parallax::testkit {
namespace {

struct NotesRank {
  NotesRank(const HostMap& hosts, uint32_t rank, Outbox& outbox)
      : columns(hosts, rank), entries(columns, outbox.boards()), notes(columns, entries) {
    entries.find_boards();
  }
  bool on_section(uint32_t, const Section&) { return false; }
  const Columns columns;
  Entries entries;
  RunNotes notes;
};

struct NotesWorld {
  explicit NotesWorld(uint32_t world)
      : map(host_map(std::vector<uint32_t>(world))),
        ranks(world, [this](uint32_t rank, Outbox& outbox) {
          return std::make_unique<NotesRank>(map, rank, outbox);
        }) {}
  RunNotes& operator[](uint32_t rank) { return ranks.at(rank).notes; }

  const HostMap map;
  OutboxWorld<NotesRank> ranks;
};

constexpr uint64_t kLoans[] = {10, 11, 12};

RunNote lent_note(uint32_t first) {
  return {.kind = RunNote::Kind::kLent,
          .first = first,
          .count = 2,
          .alignment_bits = 3,
          .place = {4, 5},
          .bytes = 6};
}

// Given notes of two steps, expect each to be read once by every other rank, in order, each with
// its own loan, and none of a step that took another's place before that one's.
TEST(RunNotes, AreReadOnceByEachOther) {
  NotesWorld world(3);
  for (uint64_t step = 1; step <= 6; ++step) {
    for (uint32_t rank = 0; rank < 3; ++rank) world[rank].open(step);
    RunNote read;
    EXPECT_FALSE(world[0].read(1, step, &read)) << "nothing is said of the step";
    ASSERT_TRUE(world[1].say(step, lent_note(7), kLoans));
    ASSERT_TRUE(world[1].say(step, lent_note(9), kLoans));
    EXPECT_FALSE(world[1].read(1, step, &read)) << "its own";
    for (const uint32_t reader : {0u, 2u}) {
      for (const uint32_t first : {7u, 9u}) {
        ASSERT_TRUE(world[reader].read(1, step, &read));
        EXPECT_EQ(read.kind, RunNote::Kind::kLent);
        EXPECT_EQ(read.first, first);
        EXPECT_EQ(read.count, 2u);
        EXPECT_EQ(read.alignment_bits, 3u);
        EXPECT_EQ(read.place.buffer, 4u);
        EXPECT_EQ(read.place.offset, 5u);
        EXPECT_EQ(read.bytes, 6u);
        EXPECT_EQ(read.loan, kLoans[reader]);
      }
      EXPECT_FALSE(world[reader].read(1, step, &read));
      EXPECT_FALSE(world[reader].read(2, step, &read));
    }
  }
}

TEST(RunNotes, OfAStepThereIsRoomForAFew) {
  NotesWorld world(2);
  for (const uint64_t step : {1u, 2u, 3u}) {
    for (uint32_t rank = 0; rank < 2; ++rank) world[rank].open(step);
    for (uint32_t i = 0; i < RunNotes::kOfStepMax; ++i) {
      EXPECT_TRUE(world[0].say(step, lent_note(i), std::span(kLoans, 2)));
    }
    EXPECT_FALSE(world[0].say(step, lent_note(99), std::span(kLoans, 2)));
    RunNote read;
    for (uint32_t i = 0; i < RunNotes::kOfStepMax; ++i) {
      ASSERT_TRUE(world[1].read(0, step, &read));
      EXPECT_EQ(read.first, i);
    }
    EXPECT_FALSE(world[1].read(0, step, &read));
  }
}

TEST(RunNotes, WithoutBoardsThereAreNone) {
  NotesWorld world(9);  // more than boards are for
  EXPECT_FALSE(world[0].usable());
  EXPECT_FALSE(world[0].say(1, lent_note(0), std::vector<uint64_t>(9)));
  RunNote read;
  EXPECT_FALSE(world[0].read(1, 1, &read));
}

// ---- runs

void expect_sums(RunsWorld& world, uint32_t ranks, uint64_t step) {
  std::set<uint32_t> all;
  for (uint32_t each = 0; each < ranks; ++each) all.insert(each);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (uint32_t variable = 0; variable < world.variables(); ++variable) {
      world.expect_sum(rank, step, variable, false, all);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Given one call of all variables at every rank, expect nothing to be sent for it.
TEST(RunNotes, ARunOfBoardsSendsNothing) {
  for (const uint32_t ranks : {2u, 3u, 4u, 8u}) {
    RunsWorld world({.ranks = ranks,
                     .elements = std::vector<uint64_t>(5, 8192 * 3),
                     .seed = kBoardsSeed,
                     .slow_percent = 0});
    world.commit();
    for (uint64_t step = 1; step <= 5; ++step) {
      world.fill(step);
      for (const Status& status : world.run_whole_step())
        ASSERT_TRUE(status.ok()) << status.message();
      expect_sums(world, ranks, step);
      EXPECT_EQ(world.said(SectionKind::kLentRun), 0u);
      EXPECT_EQ(world.said(SectionKind::kRunSummed), 0u);
      EXPECT_EQ(world.said(SectionKind::kDenseReduce), 0u);
    }
  }
}

// Given more calls than a step's notes have room for, expect the others to go as messages, and the
// sums.
TEST(RunNotes, WhatHasNoRoomIsSent) {
  const std::vector<uint64_t> sizes(3 * RunNotes::kOfStepMax, 8192);
  RunsWorld world({.elements = sizes, .seed = kBoardsSeed});
  world.commit();
  for (uint64_t step = 1; step <= 4; ++step) {
    world.fill(step);
    std::vector<Request*> requests;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      StepCalls& calls = world.world().engine(rank).step_calls();
      uint64_t begun = 0;
      ASSERT_TRUE(calls.begin(&begun).ok());
      for (uint32_t variable = 0; variable < sizes.size(); ++variable) {
        const parallax_slice_t slice = world.slice(rank, variable);
        ASSERT_TRUE(calls.reduce(begun, {&slice, 1}, &requests.emplace_back()).ok());
      }
      ASSERT_TRUE(calls.end(begun, end_options(1), &requests.emplace_back()).ok());
    }
    ASSERT_TRUE(world.world().run_until_done(requests));
    expect_sums(world, 2, step);
    const uint64_t lent = world.said(SectionKind::kLentRun);
    EXPECT_GT(lent, 0u);
    EXPECT_LT(lent, 2 * sizes.size());
    world.take_said();
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto rank = static_cast<uint32_t>(i / (requests.size() / 2));
      EXPECT_TRUE(world.world().engine(rank).release(requests[i]).ok());
    }
  }
}

// Given more that is awaited on boards than is asked at every look, and a note that was posted
// before its reader came to wait for it, expect it to be read all the same: rank 0 has looked for
// the small ones since, and gives the large variable otherwise.
TEST(RunNotes, ANoteThatWasPostedBeforeIsRead) {
  std::vector<uint64_t> sizes(9, 8);
  sizes.push_back(kStagedOfTwoBytesMax / sizeof(float) + 1024);
  // Pages of its own, without which it goes alone.
  RunsWorld world({.elements = sizes,
                   .seed = kBoardsSeed,
                   .slow_percent = 0,
                   .alignment = {kPageBytes, kPageBytes}});
  world.commit();
  for (uint64_t step = 1; step <= 3; ++step) {
    world.fill(step);
    std::vector<Request*> large(2), requests;
    std::vector<uint32_t> of;
    uint64_t begun = 0;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(world.world().engine(rank).step_calls().begin(&begun).ok());
    }
    const auto give = [&](uint32_t rank, uint32_t variable, bool apart) {
      const parallax_slice_t slice = world.slice(rank, variable, apart);
      StepCalls& calls = world.world().engine(rank).step_calls();
      EXPECT_TRUE(calls.reduce(begun, {&slice, 1}, &requests.emplace_back()).ok());
      of.push_back(rank);
      world.world().engine(rank).kick();
      return requests.back();
    };
    large[1] = give(1, 9, false);
    for (uint32_t variable = 0; variable < 9; ++variable) give(0, variable, true);
    world.world().settle();
    large[0] = give(0, 9, true);
    ASSERT_TRUE(world.world().run_until_done(large)) << "step " << step;
    for (uint32_t variable = 0; variable < 9; ++variable) give(1, variable, true);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      StepCalls& calls = world.world().engine(rank).step_calls();
      ASSERT_TRUE(calls.end(begun, end_options(1), &requests.emplace_back()).ok());
      of.push_back(rank);
    }
    ASSERT_TRUE(world.world().run_until_done(requests));
    world.expect_sum(0, step, 9, true, all_of(2));
    world.expect_sum(1, step, 9, false, all_of(2));
    world.expect_sum(0, step, 8, true, all_of(2));
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(world.world().engine(of[i]).release(requests[i]).ok());
    }
  }
}

// The note of a run of `count` variables that lies on a board, and where its entry's word does.
std::byte* find_note(std::span<std::byte> board, uint64_t step, uint32_t count) {
  const uint64_t word = step << 2 | 1;
  for (size_t at = 0; at + sizeof word + sizeof(RunNote) <= board.size(); at += 64) {
    RunNote note;
    std::memcpy(&note, board.data() + at + sizeof word, sizeof note);
    if (std::memcmp(board.data() + at, &word, sizeof word) != 0) continue;
    if (note.kind == RunNote::Kind::kLent && note.count == count) return board.data() + at;
  }
  return nullptr;
}

// Given a board on which a rank has written what no rank says of a run, expect the job to fail with
// its name.
TEST(RunNotes, WhatNoRankSaysFailsTheJobWithItsName) {
  constexpr uint64_t kElements = 8192 * 3;
  struct Lie {
    const char* what;
    void (*tell)(RunNote& note);
  };
  const Lie lies[] = {
      {"no kind", [](RunNote& note) { note.kind = RunNote::Kind{9}; }},
      {"none", [](RunNote& note) { note.count = 0; }},
      {"more than there are", [](RunNote& note) { note.count = 3; }},
      {"more than a number holds", [](RunNote& note) { note.count = UINT32_MAX; }},
      {"no variable", [](RunNote& note) { note.first = 2; }},
      {"another length", [](RunNote& note) { note.bytes -= 4; }},
      {"no buffer", [](RunNote& note) { note.place.buffer = 9; }},
      {"beyond the buffer", [](RunNote& note) { note.place.offset = kElements * 8; }},
      {"no alignment", [](RunNote& note) { note.alignment_bits = kRunAlignmentBits + 1; }},
      {"of no loan", [](RunNote& note) { note.kind = RunNote::Kind::kSummed; }},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.what);
    RunsWorld world({.elements = {kElements, kElements}, .seed = kBoardsSeed, .slow_percent = 0});
    world.commit();
    for (uint64_t step = 1; step <= 2; ++step) {
      world.fill(step);
      for (const Status& status : world.run_whole_step())
        ASSERT_TRUE(status.ok()) << status.message();
    }
    StepCalls& calls = world.world().engine(0).step_calls();
    uint64_t step = 0;
    ASSERT_TRUE(calls.begin(&step).ok());
    const std::vector<parallax_slice_t> slices = {world.slice(0, 0), world.slice(0, 1)};
    Request* request = nullptr;
    ASSERT_TRUE(calls.reduce(step, slices, &request).ok());
    world.world().settle();
    Boards& boards = *world.world().take_over(1).boards();
    std::byte* const entry = find_note({boards.own(), boards.bytes()}, step - 2, 2);
    ASSERT_NE(entry, nullptr);
    RunNote note;
    std::memcpy(&note, entry + sizeof(uint64_t), sizeof note);
    lie.tell(note);
    std::memcpy(entry + sizeof(uint64_t), &note, sizeof note);
    const uint64_t word = step << 2 | 1;
    std::memcpy(entry, &word, sizeof word);
    boards.post();
    world.world().engine(0).run();
    world.expect_rank_1_failed_it(request);
  }
}

}  // namespace
}  // namespace parallax::testkit
