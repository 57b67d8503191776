// SPDX-License-Identifier: Apache-2.0
// Which rows lie where neighbours may read them, and until when.
#include "collectives/host_staging.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "support/host_map_of.h"
#include "support/shared_host.h"
#include "unit/server/section_network.h"

namespace parallax::testkit {
namespace {

class HostStagingTest : public testing::Test {
 protected:
  void start(const std::vector<uint32_t>& hosts) {
    world_ = std::make_unique<World>(hosts);
    world_->network.set_memory(0, &world_->host.rank(0));
  }
  HostStaging& staging() { return *world_->staging; }
  SharedHost::Rank& memory() { return world_->host.rank(0); }

  struct World {
    explicit World(const std::vector<uint32_t>& hosts)
        : map(host_map(hosts)),
          columns(map, 0),
          host(static_cast<uint32_t>(hosts.size())),
          network(static_cast<uint32_t>(hosts.size()), 1),
          staging(std::make_unique<HostStaging>(columns, network.outbox(0).lending())) {}
    const HostMap map;
    const Columns columns;
    SharedHost host;
    SectionNetwork network;
    std::unique_ptr<HostStaging> staging;
  };
  std::unique_ptr<World> world_;
};

// Given variables of two commits, expect for each that has row ids two blocks that overlap with no
// other, which a neighbour finds where it is told.
TEST_F(HostStagingTest, EachVariableHasTwoBlocks) {
  start({0, 0});
  const std::vector<uint64_t> first = {100, 0, 5000}, later = {64};
  staging().add(first);
  staging().add(later);
  ASSERT_EQ(memory().shared.size(), 2u);
  std::set<std::byte*> taken;
  uint64_t all = 0;
  for (const auto& [variable, bytes] : {std::pair{0u, 100u}, {2u, 5000u}, {3u, 64u}}) {
    all += staging().reserved_bytes(variable);
    for (const uint64_t step : {7, 8}) {
      const std::span<std::byte> block = staging().block(variable, step);
      ASSERT_EQ(block.size(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data()) % 64, 0u);
      EXPECT_EQ(block.data(), staging().block(variable, step + 2).data());
      for (std::byte& byte : block) EXPECT_TRUE(taken.insert(&byte).second);
      const BufferPlace place = staging().place_for(1, variable, step);
      EXPECT_EQ(world_->host.rank(0).find(0, place, bytes), block.data());
    }
  }
  EXPECT_EQ(all, staging().reserved_bytes());
  EXPECT_LE(staging().touched_bytes(), staging().reserved_bytes());
  EXPECT_TRUE(staging().block(1, 1).empty());
  EXPECT_EQ(staging().reserved_bytes(1), 0u);
  EXPECT_EQ(staging().place_for(1, 1, 1).buffer, 0u);
  EXPECT_TRUE(staging().block(4, 1).empty()) << "of no commit";
  world_->staging.reset();
  EXPECT_TRUE(memory().shared.empty());
}

// Given a slab, expect one for each of two steps, in whole pages that overlap with no block, made
// once.
TEST_F(HostStagingTest, AStepHasASlab) {
  start({0, 0});
  EXPECT_TRUE(staging().slab(1).empty());
  const std::vector<uint64_t> blocks = {100};
  staging().add(blocks);
  staging().add_slab(8192);
  staging().add_slab(16384);
  ASSERT_EQ(memory().shared.size(), 2u);
  std::set<std::byte*> taken;
  for (const uint64_t step : {7, 8}) {
    const std::span<std::byte> slab = staging().slab(step);
    ASSERT_EQ(slab.size(), 8192u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slab.data()) % bytes_of_page(), 0u);
    EXPECT_EQ(slab.data(), staging().slab(step + 2).data());
    for (std::byte& byte : slab) EXPECT_TRUE(taken.insert(&byte).second);
    for (std::byte& byte : staging().block(0, step)) EXPECT_TRUE(taken.insert(&byte).second);
  }
  EXPECT_EQ(staging().reserved_bytes(), staging().reserved_bytes(0) + 2 * 8192);
  start({0, 1});
  staging().add_slab(8192);
  EXPECT_TRUE(staging().slab(1).empty()) << "nobody reads it";
}

// Given nobody to read it, or a transport that shares no more, expect no blocks.
TEST_F(HostStagingTest, WhatIsRefusedHasNoBlocks) {
  const std::vector<uint64_t> bytes = {100};
  for (const bool alone : {true, false}) {
    start(alone ? std::vector<uint32_t>{0, 1} : std::vector<uint32_t>{0, 0});
    memory().refuses = true;
    staging().add(bytes);
    EXPECT_TRUE(staging().block(0, 1).empty());
    EXPECT_EQ(staging().reserved_bytes(), 0u);
    EXPECT_TRUE(memory().shared.empty());
  }
}

// Given a rank whose rows go by messages, expect no blocks, and a slab.
TEST_F(HostStagingTest, WithoutRowsItHasASlabAlone) {
  start({0, 0});
  HostStaging staging(world_->columns, world_->network.outbox(0).lending(), false);
  const std::vector<uint64_t> bytes = {100};
  staging.add(bytes);
  EXPECT_TRUE(memory().shared.empty());
  EXPECT_TRUE(staging.block(0, 1).empty());
  EXPECT_EQ(staging.place_for(1, 0, 1).buffer, 0u);
  EXPECT_EQ(staging.reserved_bytes(0), 0u);
  staging.add_slab(8192);
  EXPECT_EQ(staging.slab(1).size(), 8192u);
}

TEST_F(HostStagingTest, CommitsBeyondTheBoundHaveNoBlocks) {
  start({0, 0});
  const std::vector<uint64_t> bytes = {64};
  for (size_t commit = 0; commit <= HostStaging::kChunksMax; ++commit) staging().add(bytes);
  EXPECT_EQ(memory().shared.size(), HostStaging::kChunksMax);
  EXPECT_FALSE(staging().block(HostStaging::kChunksMax - 1, 1).empty());
  EXPECT_TRUE(staging().block(HostStaging::kChunksMax, 1).empty());
}

// Given rows of a step that stay in another's memory, expect that step to be readable until the
// memory is gone, and other steps whatever becomes of it.
TEST_F(HostStagingTest, AStepIsReadableWhileWhatItLeansOnIsThere) {
  start({0, 0});
  std::vector<std::byte> theirs(4096);
  ASSERT_TRUE(world_->host.rank(1).share({theirs.data(), theirs.size(), -1}));
  const BufferPlace place = world_->host.rank(1).place_of(&theirs[128], 64);
  EXPECT_TRUE(staging().readable(1));
  staging().lean_on(1, place, &theirs[128], 3);
  staging().lean_on(1, place, &theirs[128], 3);
  EXPECT_TRUE(staging().readable(3));
  world_->host.rank(1).unshare(theirs.data());
  EXPECT_FALSE(staging().readable(3));
  EXPECT_TRUE(staging().readable(4));
  EXPECT_TRUE(staging().readable(5)) << "which has taken the place of step 3";
}

}  // namespace
}  // namespace parallax::testkit
