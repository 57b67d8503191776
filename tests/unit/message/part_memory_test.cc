// SPDX-License-Identifier: Apache-2.0
// Boards that groups share, of ranks in one thread, over inproc.
#include "message/part_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/inproc/hub.h"
#include "transport/inproc/inproc_transport.h"

namespace parallax {
namespace {

using Ranks = std::vector<uint32_t>;

class PartMemory : public testing::Test {
 protected:
  static constexpr uint32_t kWorld = 3;

  struct Member {
    std::unique_ptr<InprocTransport> transport;
    BoardRegions regions;
  };
  // A part, as one of its ranks has it.
  struct Part {
    Part(Member& member, uint32_t epoch, const Ranks& part_ranks)
        : ranks(part_ranks), boards(*member.transport, member.regions, epoch, ranks) {}
    const Ranks ranks;
    PartBoards boards;
  };

  PartMemory() {
    const auto hub = std::make_shared<InprocHub>(kWorld);
    for (uint32_t rank = 0; rank < kWorld; ++rank) {
      EXPECT_TRUE(InprocTransport::create(hub, rank, &members_[rank].transport).ok());
    }
  }
  std::unique_ptr<Part> open(uint32_t rank, uint32_t epoch, const Ranks& ranks) {
    return std::make_unique<Part>(members_[rank], epoch, ranks);
  }
  static void say(Boards& boards, const std::string& what) {
    std::memcpy(boards.own(), what.data(), what.size());
    std::memcpy(boards.own() + boards.bytes() - what.size(), what.data(), what.size());
  }
  // What stands at the beginning and at the end.
  static std::string heard(const Boards& boards, uint32_t from, size_t size) {
    const char* const board = reinterpret_cast<const char*>(boards.of(from));
    return std::string(board, size) + std::string(board + boards.bytes() - size, size);
  }

  Member members_[kWorld];
};

TEST_F(PartMemory, GroupsOfARankHaveBoardsOfTheirOwn) {
  const auto one_at_1 = open(1, 77, {2, 1}), other_at_1 = open(1, 0, {1, 0, 2});
  // Whatever the others have opened, and in which order.
  const auto other_at_2 = open(2, 0, {1, 0, 2}), one_at_2 = open(2, 77, {2, 1});
  WholeBoards whole_at_1(*members_[1].transport), whole_at_2(*members_[2].transport);
  say(whole_at_1, "whole");
  say(one_at_1->boards, "one");
  say(other_at_1->boards, "other");
  EXPECT_EQ(heard(whole_at_2, 1, 5), "wholewhole");
  EXPECT_EQ(heard(one_at_2->boards, 1, 3), "oneone");
  EXPECT_EQ(heard(other_at_2->boards, 0, 5), "otherother");
  EXPECT_EQ(one_at_2->boards.bytes() % 4096, 0u);
}

TEST_F(PartMemory, WhoHasNotOpenedThePartHasNoBoardInIt) {
  const auto here = open(0, 5, {0, 1});
  EXPECT_EQ(here->boards.of(1), nullptr);
  const auto another = open(1, 6, {0, 1});
  EXPECT_EQ(here->boards.of(1), nullptr);
  const auto there = open(1, 5, {0, 1});
  ASSERT_NE(here->boards.of(1), nullptr);
  EXPECT_EQ(here->boards.of(1) - another->boards.own(),
            there->boards.own() - another->boards.own());
}

TEST_F(PartMemory, TheLastRegionsAreTakenAndWhatIsGivenBackIsZero) {
  std::vector<std::unique_ptr<Part>> parts;
  for (uint32_t i = 0; i < kBoardPartsMax; ++i) {
    parts.push_back(open(0, 100 + i, {0, 1}));
    ASSERT_TRUE(parts.back()->boards.has_region()) << i;
    say(parts.back()->boards, "old");
  }
  const auto late = open(0, 500, {0, 1});
  EXPECT_FALSE(late->boards.has_region());
  EXPECT_EQ(late->boards.own(), nullptr);
  EXPECT_EQ(open(1, 500, {0, 1})->boards.of(0), nullptr);
  late->boards.give_back();
  parts[3]->boards.give_back();
  const auto next = open(0, 501, {0, 1});
  ASSERT_TRUE(next->boards.has_region());
  const std::span<const std::byte> board(next->boards.own(), next->boards.bytes());
  EXPECT_TRUE(
      std::all_of(board.begin(), board.end(), [](std::byte b) { return b == std::byte(); }));
  EXPECT_EQ(open(1, 103, {0, 1})->boards.of(0), nullptr) << "that part is over";
}

TEST_F(PartMemory, WhatAPartTakesBackIsItsOwn) {
  const auto one = open(0, 8, {0, 1}), other = open(0, 9, {1, 0});
  const auto one_at_1 = open(1, 8, {0, 1}), other_at_1 = open(1, 9, {1, 0});
  EXPECT_TRUE(one_at_1->boards.was_meant(0));
  EXPECT_TRUE(other_at_1->boards.was_meant(1));
  one->boards.retract();
  EXPECT_FALSE(one_at_1->boards.was_meant(0));
  EXPECT_TRUE(one->boards.was_meant(1)) << "the other's loans are the other's to take back";
  EXPECT_TRUE(other_at_1->boards.was_meant(1));
  // Its place is not given away before its goodbye is over.
  const std::byte* const at = one->boards.own();
  EXPECT_NE(open(0, 10, {0, 1})->boards.own(), at);
}

TEST_F(PartMemory, NothingIsMeantOfWhoHasNoRegion) {
  const auto here = open(0, 5, {0, 1});
  EXPECT_FALSE(here->boards.was_meant(1));
}

}  // namespace
}  // namespace parallax
