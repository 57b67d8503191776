// SPDX-License-Identifier: Apache-2.0
// Entries on the boards of ranks in one thread, over inproc.
#include "collectives/entries.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/host_map_of.h"
#include "support/outbox_world.h"
#include "world/patterns.h"

namespace parallax {
namespace {

// A rank's entries.
struct EntriesRank {
  EntriesRank(const HostMap& hosts, uint32_t rank, Outbox& outbox)
      : columns(hosts, rank), entries(columns, outbox.boards()) {
    entries.find_boards();
  }
  bool on_section(uint32_t, const Section&) { return false; }
  const Columns columns;
  Entries entries;
};

struct EntriesWorld {
  explicit EntriesWorld(const std::vector<uint32_t>& hosts)
      : map(testkit::host_map(hosts)),
        ranks(static_cast<uint32_t>(hosts.size()), [this](uint32_t rank, Outbox& outbox) {
          return std::make_unique<EntriesRank>(map, rank, outbox);
        }) {}
  Entries& operator[](uint32_t rank) { return ranks.at(rank).entries; }

  const HostMap map;
  testkit::OutboxWorld<EntriesRank> ranks;
};

void say_entry(Entries& entries, const EntryPlace& place, uint64_t step, const std::string& text) {
  std::memcpy(entries.own(place, step), text.data(), text.size());
  entries.publish(place, step, EntryKind::kValues);
}

std::string heard_entry(const Entries& entries, uint32_t from, const EntryPlace& place,
                        uint64_t step, size_t size) {
  return {reinterpret_cast<const char*>(entries.of(from, place, step)), size};
}

TEST(Entries, AreOfTwoToEightRanksOfOneHost) {
  for (uint32_t world = 1; world <= 9; ++world) {
    EntriesWorld one(std::vector<uint32_t>(world, 0));
    EXPECT_EQ(one[0].usable(), world >= 2 && world <= kEntryRanksMax) << world;
    EXPECT_EQ(one[0].reserve(0, 8).exists(), one[0].usable()) << world;
  }
  EXPECT_FALSE(EntriesWorld({0, 0, 1})[0].usable());
}

// Given steps of both parities, expect what was said of each to be read by all as long as it is
// not written again, and nothing of other steps.
TEST(Entries, AreFoundByVariableAndStep) {
  EntriesWorld world({0, 0, 0});
  EntryPlace places[2];
  for (uint32_t rank = 0; rank < 3; ++rank) {
    places[0] = world[rank].reserve(0, 5);
    places[1] = world[rank].reserve(1, 5);
  }
  say_entry(world[1], places[0], 6, "first");
  say_entry(world[1], places[0], 7, "other");
  world[1].publish(places[1], 6, EntryKind::kNothing);
  for (const uint32_t reader : {0u, 2u}) {
    EXPECT_EQ(heard_entry(world[reader], 1, places[0], 6, 5), "first");
    EXPECT_EQ(heard_entry(world[reader], 1, places[0], 7, 5), "other");
    EXPECT_EQ(world[reader].kind(1, places[0], 6), EntryKind::kValues);
    EXPECT_EQ(world[reader].kind(1, places[1], 6), EntryKind::kNothing);
    for (const uint64_t step : {1u, 4u, 5u, 8u, 9u}) {
      EXPECT_EQ(world[reader].kind(1, places[0], step), EntryKind::kNone) << step;
    }
    EXPECT_EQ(world[reader].kind(0, places[0], 6), EntryKind::kNone);
  }
}

// Given entries of many sizes, expect none to overlap, few bytes to lie in the word's line and more
// to begin one, a variable to keep its place, and an end of the room.
TEST(Entries, LieApartUntilBoardsAreFull) {
  EntriesWorld world({0, 0});
  Entries& entries = world[0];
  std::vector<std::pair<uint64_t, uint64_t>> taken;
  uint32_t variable = 0;
  const EntryPlace votes = entries.reserve_votes(3000);
  EXPECT_EQ(votes.head, 8u);
  EXPECT_EQ(entries.reserve_votes(3000).offset, votes.offset);
  taken.emplace_back(votes.offset, 2 * votes.stride);
  for (;; ++variable) {
    const uint64_t bytes = 1 + (variable % 7) * (variable % 7) * 1000 + variable % 60;
    const EntryPlace place = entries.reserve(variable, bytes);
    if (!place.exists()) break;
    ASSERT_EQ(place.head, bytes <= 56 ? 8u : 64u);
    ASSERT_GE(place.stride, place.head + bytes);
    ASSERT_EQ(place.offset % 64 + place.stride % 64, 0u);
    ASSERT_EQ(entries.reserve(variable, bytes).offset, place.offset);
    taken.emplace_back(place.offset, 2 * place.stride);
  }
  EXPECT_GT(variable, 50u);
  std::sort(taken.begin(), taken.end());
  for (size_t i = 0; i + 1 < taken.size(); ++i) {
    ASSERT_LE(taken[i].first + taken[i].second, taken[i + 1].first);
  }
  EXPECT_LE(taken.back().first + taken.back().second, Boards::kBytes);
  // A smaller one has room.
  EXPECT_TRUE(entries.reserve(variable + 1, 8).exists());
}

// Waits for one entry.
struct OneReader final : EntryReader {
  OneReader(Entries& in, const EntryPlace& at) : entries(in), place(at) {}
  News read_entries() override {
    ++asked;
    const bool here = entries.kind(1, place, 1) != EntryKind::kNone;
    return {.moved = here, .awaits = !here};
  }
  Entries& entries;
  const EntryPlace place;
  uint32_t asked = 0;
};

// Given few readers, expect each to be asked at every look; given many, only once somebody has
// posted; and none once it has what it waits for, or is gone.
TEST(Entries, ReadersAreAskedUntilTheyHaveAll) {
  for (const uint32_t count : {3u, 20u}) {
    EntriesWorld world({0, 0});
    std::vector<std::unique_ptr<OneReader>> readers;
    EXPECT_FALSE(world[0].look());
    for (uint32_t i = 0; i < count; ++i) {
      const EntryPlace place = world[0].reserve(i, 8);
      world[1].reserve(i, 8);
      readers.push_back(std::make_unique<OneReader>(world[0], place));
      world[0].await(readers.back().get());
    }
    for (int i = 0; i < 10; ++i) EXPECT_FALSE(world[0].look());
    EXPECT_EQ(readers[0]->asked > 0, count == 3);
    const uint32_t before = readers[1]->asked;
    say_entry(world[1], readers[1]->place, 1, "12345678");
    world[1].flush();
    EXPECT_TRUE(world[0].look());
    EXPECT_FALSE(world[0].look());
    EXPECT_EQ(readers[1]->asked, before + 1) << "it has all";
    world[0].forget(readers[2].get());
    const uint32_t asked = readers[2]->asked;
    for (uint32_t i = 0; i < count; ++i) say_entry(world[1], readers[i]->place, 1, "12345678");
    world[1].flush();
    EXPECT_TRUE(world[0].look());
    EXPECT_FALSE(world[0].look());
    EXPECT_EQ(readers[2]->asked, asked);
    const uint32_t last = readers[0]->asked;
    EXPECT_FALSE(world[0].look());
    EXPECT_EQ(readers[0]->asked, last) << "it has all";
  }
}

// Given many readers, of whom one comes to wait for what was posted before, without a look of its
// own, expect the next look to ask it, once; and where it waits already, and awaits more by now,
// again.
TEST(Entries, WhoHasNotLookedIsAskedOnce) {
  constexpr uint32_t kCount = 20;
  EntriesWorld world({0, 0});
  std::vector<std::unique_ptr<OneReader>> readers;
  for (uint32_t i = 0; i < kCount; ++i) {
    const EntryPlace place = world[0].reserve(i, 8);
    world[1].reserve(i, 8);
    readers.push_back(std::make_unique<OneReader>(world[0], place));
    if (i > 0) world[0].await(readers.back().get());
  }
  say_entry(world[1], readers[0]->place, 1, "12345678");
  world[1].flush();
  EXPECT_FALSE(world[0].look()) << "nobody waits for that";
  world[0].await_unseen(readers[0].get());
  EXPECT_TRUE(world[0].look());
  EXPECT_EQ(readers[0]->asked, 1u);
  const uint32_t asked = readers[1]->asked;
  EXPECT_FALSE(world[0].look());
  EXPECT_EQ(readers[1]->asked, asked);
  world[0].await_unseen(readers[1].get());
  EXPECT_FALSE(world[0].look());
  EXPECT_EQ(readers[1]->asked, asked + 1) << "once, though it was among them before";
}

// Given nothing published, expect nobody to be told.
TEST(Entries, WhoPublishedNothingPostsNothing) {
  EntriesWorld world({0, 0});
  const EntryPlace place = world[0].reserve(0, 8);
  Boards& boards = *world.ranks.outbox(1).boards();
  const uint64_t before = boards.posts();
  world[0].flush();
  EXPECT_EQ(boards.posts(), before);
  world[0].publish(place, 1, EntryKind::kNothing);
  world[0].flush();
  world[0].flush();
  EXPECT_EQ(boards.posts(), before + 1);
}

}  // namespace
}  // namespace parallax
