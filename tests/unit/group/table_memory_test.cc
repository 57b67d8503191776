// SPDX-License-Identifier: Apache-2.0
// Which tables lie where neighbours may read them, and until when.
#include "group/table_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/host_map_of.h"
#include "support/shared_host.h"
#include "unit/server/section_network.h"
#include "world/view.h"

namespace parallax::testkit {
namespace {

Variable rows_of(uint64_t rows, uint64_t width, float initial) {
  Variable variable;
  variable.name = "v";
  variable.rows = rows;
  variable.row_elements = width;
  variable.rows_max = 4;
  variable.dtype = PARALLAX_F32;
  variable.rule = PARALLAX_RULE_SUM;
  variable.init_low = initial;  // of PARALLAX_INIT_CONSTANT
  return variable;
}

constexpr uint64_t kSmallRows = 100;
constexpr uint64_t kLargeRows = 2 * TableMemory::kOwnBytesMin / 64;  // of 64 bytes, half a rank's

class TableMemoryTest : public testing::Test {
 protected:
  void start(const std::vector<uint32_t>& hosts, bool read = true) {
    world_ = std::make_unique<World>(hosts, read);
    world_->network.set_memory(0, &world_->host.rank(0));
  }
  Table& add(uint64_t rows, bool sharded = true, float initial = 0) {
    Made& made = *made_.emplace_back(std::make_unique<Made>(rows, *world_, sharded, initial));
    EXPECT_TRUE(world_->memory->reserve(made.table).ok());
    return made.table;
  }
  std::map<uint64_t, SharedMemory>& shared() { return world_->host.rank(0).shared; }
  bool is_shared(const Table& table) {
    const ByteRange range = shared_range(table);
    const void* const first = reinterpret_cast<const void*>(range.first);
    return world_->host.rank(0).place_of(first, range.bytes).buffer != 0;
  }

  struct World {
    World(const std::vector<uint32_t>& hosts, bool read)
        : map(host_map(hosts)),
          slots(first_view(map, 1, {}).slots),
          columns(map, 0),
          host(static_cast<uint32_t>(hosts.size())),
          network(static_cast<uint32_t>(hosts.size()), 1),
          memory(std::make_unique<TableMemory>(columns, network.outbox(0).lending(), read)) {}
    const HostMap map;
    const SlotMap slots;
    const Columns columns;
    SharedHost host;
    SectionNetwork network;
    std::unique_ptr<TableMemory> memory;
  };
  struct Made {
    Made(uint64_t rows, const World& world, bool sharded, float initial)
        : variable(rows_of(rows, 16, initial)),
          partition(rows, 16, true, world.slots, 0),
          table(variable, partition, 0, sharded) {}
    const Variable variable;
    const Partition partition;
    Table table;
  };
  std::unique_ptr<World> world_;
  std::vector<std::unique_ptr<Made>> made_;
};

// Given shards of rows on one host: expect small ones together, and large ones in pages of their
// own, all zero, with room for what is written.
TEST_F(TableMemoryTest, ShardsAreShared) {
  start({0, 0});
  const Table& small = add(kSmallRows);
  EXPECT_EQ(shared().size(), 1u);
  EXPECT_TRUE(is_shared(small));
  EXPECT_TRUE(is_shared(add(kSmallRows)));
  EXPECT_EQ(shared().size(), 1u);
  Table& large = add(kLargeRows);
  EXPECT_EQ(shared().size(), 2u);
  EXPECT_TRUE(is_shared(large));
  for (const std::byte each : large.array(0)) ASSERT_EQ(each, std::byte{0});
  large.array(0).back() = std::byte{1};
  EXPECT_EQ(shared_range(large).bytes, kArenaAlignmentBytes + large.array(0).size());
}

// Given more small ones than fit together: expect more memory, each in its own part.
TEST_F(TableMemoryTest, SmallOnesHaveAPartEach) {
  start({0, 0});
  constexpr uint64_t kRows = kLargeRows / 2;  // half of what has pages of its own
  const size_t tables = 3 * TableMemory::kPoolBytes / TableMemory::kOwnBytesMin;
  for (size_t i = 0; i < tables; ++i) {
    Table& table = add(kRows);
    EXPECT_TRUE(is_shared(table));
    std::fill(table.array(0).begin(), table.array(0).end(), static_cast<std::byte>(i));
  }
  EXPECT_EQ(shared().size(), 2u);
  for (size_t i = 0; i < tables; ++i) {
    for (const std::byte each : made_[i]->table.array(0)) {
      ASSERT_EQ(each, static_cast<std::byte>(i));
    }
  }
}

// Given tables that share huge pages, each written at first, in turns of some rows: expect each to
// keep what was written while those behind it get theirs.
TEST_F(TableMemoryTest, InitialValuesOfTablesInOneHugePage) {
  start({0, 0});
  constexpr uint64_t kRows = TableMemory::kOwnBytesMin / 64;  // half of what has pages of its own
  for (int i = 0; i < 7; ++i) add(kRows + i, true, 1.1F * static_cast<float>(i + 1));
  EXPECT_EQ(shared().size(), 1u);
  for (const auto& made : made_) {
    uint64_t left = 0;
    do {
      left = 100'000;
    } while (!made->table.initialize(&left));
  }
  for (const auto& made : made_) {
    const auto* const values = reinterpret_cast<const float*>(made->table.array(0).data());
    for (uint64_t i = 0; i < made->table.owned_elements(0, 0); ++i) {
      ASSERT_EQ(values[i], static_cast<float>(made->variable.init_low)) << i;
    }
  }
}

// Given more than is asked for at once, in turns that end in its midst: expect every value.
TEST_F(TableMemoryTest, InitialValuesOfALargeTable) {
  start({0, 0});
  constexpr uint64_t kShardBytes = (uint64_t{34} << 20) + 64;
  const Table& table = add(2 * kShardBytes / 64, true, 1.1F);
  uint64_t left = 0;
  do {
    left = 1 << 18;
  } while (!made_.back()->table.initialize(&left));
  ASSERT_GT(table.array(0).size(), size_t{33} << 20);
  const auto* const values = reinterpret_cast<const float*>(table.array(0).data());
  const uint64_t count = table.owned_elements(0, 0);
  EXPECT_EQ(std::count(values, values + count, 1.1F), static_cast<ptrdiff_t>(count));
}

TEST_F(TableMemoryTest, NobodyElseReadsTheseTables) {
  for (const std::vector<uint32_t>& hosts : {std::vector<uint32_t>{0}, {0, 1}, {0, 1, 1}}) {
    start(hosts);
    EXPECT_FALSE(is_shared(add(kSmallRows)));
    EXPECT_EQ(shared().size(), 0u);
    made_.clear();
  }
  start({0, 0}, false);
  EXPECT_FALSE(is_shared(add(kSmallRows))) << "nobody reads where they lie";
  made_.clear();
  start({0, 0, 1});
  EXPECT_TRUE(is_shared(add(kSmallRows))) << "the one of the same host does";
  made_.clear();
  start({0, 0});
  EXPECT_FALSE(is_shared(add(kSmallRows, false))) << "a mirror";
  world_->network.set_memory(0, nullptr);
  EXPECT_FALSE(is_shared(add(kSmallRows))) << "no memory is shared at all";
}

// Given a bound that is reached: expect memory all the same.
TEST_F(TableMemoryTest, WhatIsRefusedIsMemoryLikeAnyOther) {
  start({0, 0});
  world_->host.rank(0).refuses = true;
  for (const uint64_t rows : {kSmallRows, kLargeRows}) {
    Table& table = add(rows);
    EXPECT_FALSE(is_shared(table));
    EXPECT_EQ(table.array(0).size(), table.owned_elements(0, 0) * sizeof(float));
    table.array(0).back() = std::byte{1};
  }
}

TEST_F(TableMemoryTest, TablesThatGoAreNotShared) {
  start({0, 0});
  const Table& large = add(kLargeRows);
  const Table& small = add(kSmallRows);
  const Table& beside = add(kSmallRows);
  world_->memory->unshare(small);
  EXPECT_TRUE(is_shared(small)) << "with the other there";
  world_->memory->unshare(large);
  EXPECT_FALSE(is_shared(large));
  EXPECT_EQ(shared().size(), 1u);
  world_->memory->unshare(beside);
  EXPECT_EQ(shared().size(), 0u) << "the last of what lies together";
  add(kSmallRows);
  add(kLargeRows);
  EXPECT_EQ(shared().size(), 2u);
  world_->memory.reset();
  EXPECT_EQ(shared().size(), 0u);
}

}  // namespace
}  // namespace parallax::testkit
