// SPDX-License-Identifier: Apache-2.0
// What notes of another rank may say. (What lies there: host_rows_test.cc.)
#include "collectives/staged_notes.h"

#include <gtest/gtest.h>

#include <vector>

#include "unit/message/outbox_fixture.h"

namespace parallax {
namespace {

// Two buffers of rank 1 are mapped here: 5, of blocks, and 6, of a slice.
class BuffersOfRank1 final : public PeerMemory {
 public:
  bool share(const SharedMemory&) override { return false; }
  void unshare(const void*) override {}
  BufferPlace place_of(const void*, uint64_t) const override { return {}; }
  uint64_t used_bytes(uint64_t) const override { return 0; }
  bool mapped_by(uint32_t, uint64_t) const override { return false; }
  const std::byte* find(uint32_t rank, const BufferPlace& place, uint64_t bytes) override {
    const bool known = rank == 1 && (place.buffer == 5 || place.buffer == 6);
    const bool fits = place.offset <= memory.size() && bytes <= memory.size() - place.offset;
    return known && fits ? memory.data() + place.offset : nullptr;
  }
  void retract(uint32_t) override {}
  bool was_meant(uint32_t) const override { return true; }
  bool make_private(const ByteRange&) override { return true; }
  PeerMemoryCounts counts() const override { return {}; }

  std::vector<std::byte> memory = std::vector<std::byte>(1024);
};

// Given a note that fits, and each of its numbers made one that does not: expect it refused.
TEST(StagedNotes, EveryNumberOfANoteIsLookedAt) {
  const HostMap hosts = map_hosts(std::vector<std::string>{"a", "a"});
  const Columns columns(hosts, 0);
  const Partition partition(64, 3, true, SlotMap::of_ranks(2, kSlotsPerOwner), 0);
  BuffersOfRank1 memory;
  outbox_tests::RecordingTransport transport;
  transport.memory = &memory;
  const Lending lending(transport);
  const ExchangeOptions options = {.rows_max = 8, .rows_stay = true};
  const StagedNotes notes(columns, partition, lending, options, 12);
  const StagedNote right = {.block = {.buffer = 5, .offset = 64},
                            .slice = {.buffer = 6, .offset = 12},
                            .rows = 2,
                            .items = 5,
                            .first = 1,
                            .count = 4,
                            .slice_rows = 7};
  EXPECT_TRUE(notes.fits(1, right));
  const ExchangeOptions nothing_stays = {.rows_max = 8};
  EXPECT_TRUE(StagedNotes(columns, partition, lending, nothing_stays, 12).fits(1, right))
      << "of a rank that lets its own rows stay where they are";
  EXPECT_FALSE(notes.fits(0, right)) << "nothing of that rank is mapped here";
  const auto refused = [&](auto change) {
    StagedNote wrong = right;
    change(wrong);
    return !notes.fits(1, wrong);
  };
  EXPECT_TRUE(refused([](StagedNote& note) { note.block.buffer = 0; }));
  EXPECT_TRUE(refused([](StagedNote& note) { note.block.buffer = 7; }));
  EXPECT_TRUE(refused([](StagedNote& note) { note.block.offset = 60; })) << "not of a cache line";
  EXPECT_TRUE(refused([](StagedNote& note) { note.block.offset = 1024; }));
  EXPECT_TRUE(refused([](StagedNote& note) { note.items = 9; })) << "more than rows_max";
  EXPECT_TRUE(refused([](StagedNote& note) { note.rows = 6; })) << "more than items";
  EXPECT_TRUE(refused([](StagedNote& note) { note.first = 6; }));
  EXPECT_TRUE(refused([](StagedNote& note) { note.count = 5; }));
  EXPECT_TRUE(refused([](StagedNote& note) { note.slice_rows = 9; })) << "more than rows_max";
  EXPECT_TRUE(refused([](StagedNote& note) { note.slice.buffer = 0; }));
  EXPECT_TRUE(refused([](StagedNote& note) { note.slice.offset = 10; })) << "not of a number";
  EXPECT_TRUE(refused([](StagedNote& note) { note.slice.offset = 1024 - 12; }));
  EXPECT_FALSE(refused([](StagedNote& note) { note.slice_rows = 0, note.slice = {}; }));
}

}  // namespace
}  // namespace parallax
