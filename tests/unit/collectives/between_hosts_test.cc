// SPDX-License-Identifier: Apache-2.0
#include "collectives/between_hosts.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "support/fake_devices.h"
#include "support/host_map_of.h"
#include "support/outbox_world.h"
#include "unit/collectives/layouts.h"
#include "unit/collectives/symbolic_run.h"

namespace parallax::testkit {
namespace {

// Of every column of every layout, on symbols: each of its leaders ends with what each of them
// gave, once, and nobody else takes part.
TEST(BetweenHosts, ASharesScheduleIsThatOfOneRankForEachHost) {
  for (uint32_t world = 1; world <= 64; ++world) {
    if (world > 20 && world % 11 != 0 && world != 64) continue;
    if (schedules::skipped(world)) continue;
    for (const std::vector<uint32_t>& layout : schedules::layouts(world)) {
      const HostMap hosts = host_map(layout);
      for (uint32_t column = 0; column < hosts.column_count; ++column) {
        // From one message up to what goes round a ring, which takes long to play for many.
        for (const uint64_t elements : {uint64_t{1}, uint64_t{5000}, uint64_t{64} << 18}) {
          if (elements > 5000 && world > 9) continue;
          std::vector<Schedule> schedules;
          for (uint32_t rank = 0; rank < world; ++rank) {
            const Columns columns(hosts, rank);
            const bool leads = columns.is_leader() && columns.my_column() == column;
            schedules.push_back(leads ? share_schedule(columns, elements, 3) : Schedule());
          }
          schedules::SymbolicRun run(std::move(schedules), elements, std::vector<double>(world, 1));
          ASSERT_EQ(run.run(), "") << world << " ranks, column " << column;
          for (const uint64_t start : run.starts()) {
            for (const std::vector<uint32_t>& ranks : hosts.ranks_of) {
              const schedules::Value* got = run.result(ranks[column], start);
              ASSERT_NE(got, nullptr);
              for (uint32_t from = 0; from < world; ++from) {
                const uint32_t leader = hosts.ranks_of[hosts.host_of[from]][column];
                ASSERT_EQ(got->times[from], from == leader ? 1 : 0);
              }
            }
          }
        }
      }
    }
  }
}

// One rank with its pinned memory.
struct SharingRank {
  SharingRank(const HostMap& hosts, uint32_t rank, Outbox& outbox,
              const BetweenHosts::Options& options)
      : columns(hosts, rank), between(columns, outbox, share.pinned, options) {
    if (between.exchange() == nullptr) return;
    EXPECT_TRUE(between.exchange()->reserve().ok());
    for (const uint64_t step : {1, 2}) between.exchange()->open(step);
  }
  bool on_section(uint32_t from, const Section& section) {
    return between.exchange() != nullptr && between.exchange()->on_section(from, section);
  }
  Columns columns;
  FakeShare share;
  BetweenHosts between;
};

class BetweenHostsTest : public testing::Test {
 protected:
  void make(const std::vector<uint32_t>& layout, const BetweenHosts::Options& options) {
    hosts_ = host_map(layout);
    world_ = std::make_unique<OutboxWorld<SharingRank>>(
        static_cast<uint32_t>(layout.size()), [&](uint32_t rank, Outbox& outbox) {
          return std::make_unique<SharingRank>(hosts_, rank, outbox, options);
        });
  }
  BetweenHosts& at(uint32_t rank) { return world_->at(rank).between; }

  HostMap hosts_;
  std::unique_ptr<OutboxWorld<SharingRank>> world_;
};

// Ranks 0, 1, 2 on a host and 3, 4 on another: two columns, of which rank 2 has none.
TEST_F(BetweenHostsTest, SharesAreSummedWithThoseOfTheirColumn) {
  make({0, 0, 0, 1, 1}, {.variable = 1, .elements = 5, .factor = 0.5});
  std::vector<std::byte*> shares(5);
  for (uint32_t rank = 0; rank < 5; ++rank) {
    ASSERT_TRUE(at(rank).stage(&shares[rank]).ok());
    EXPECT_FALSE(at(rank).idle());
    EXPECT_EQ(shares[rank] == nullptr, rank == 2);
    if (rank == 2) continue;
    const float mine[] = {rank + 1.0f, rank + 2.0f, rank + 3.0f};
    std::memcpy(shares[rank], mine, rank % 3 == 0 ? 8 : 12);
  }
  for (const uint32_t rank : {4, 2, 0, 1}) at(rank).give(1);
  world_->settle();
  std::byte* total = nullptr;
  EXPECT_TRUE(at(2).total(1, &total)) << "nothing of it is here";
  EXPECT_TRUE(at(1).total(1, &total));
  EXPECT_FALSE(at(0).total(1, &total));
  EXPECT_TRUE(at(0).waits(1));
  EXPECT_EQ(at(0).exchange()->missing(1).to_give, std::vector<uint32_t>{3});
  at(3).give(1);
  world_->settle();
  for (uint32_t rank = 0; rank < 5; ++rank) {
    ASSERT_TRUE(at(rank).total(1, &total)) << rank;
    EXPECT_FALSE(at(rank).waits(1));
    if (rank == 2) continue;
    float read[3];
    std::memcpy(read, total, sizeof read);
    const float first = rank % 3 == 0 ? (1 + 4) * 0.5f : (2 + 5) * 0.5f;
    EXPECT_EQ(read[0], first) << rank;
    EXPECT_EQ(read[1], first + 1) << rank;
    at(rank).done();
    EXPECT_TRUE(at(rank).idle());
  }
  EXPECT_EQ(world_->refused_count(), 0u);
}

// 2048 + 1 is no number of f16; two of them on either side are, summed in float.
TEST_F(BetweenHostsTest, HalfPrecisionTravelsAsFloatAndIsRoundedOnce) {
  constexpr uint64_t kMany = 300'000;  // more than a piece
  make({0, 0, 1, 1}, {.elements = 2 * kMany, .dtype = PARALLAX_F16, .sum = SumType::kF32});
  for (uint32_t rank = 0; rank < 4; ++rank) {
    std::byte* share = nullptr;
    ASSERT_TRUE(at(rank).stage(&share).ok());
    const std::vector<uint16_t> mine(kMany, rank < 2 ? 0x6800 : 0x3c00);
    std::memcpy(share, mine.data(), kMany * 2);
    at(rank).give(1);
  }
  world_->settle();
  std::byte* total = nullptr;
  EXPECT_FALSE(at(3).total(1, &total)) << "a piece at a time";
  EXPECT_TRUE(at(3).in_pieces());
  EXPECT_TRUE(at(3).total(1, &total));
  EXPECT_FALSE(at(3).in_pieces());
  std::vector<uint16_t> read(kMany);
  std::memcpy(read.data(), total, kMany * 2);
  EXPECT_EQ(read, std::vector<uint16_t>(kMany, 0x6800)) << "2049 is rounded to even";
}

TEST_F(BetweenHostsTest, PinnedMemoryIsForetoldAndGivenBack) {
  const BetweenHosts::Options options = {.elements = 100'001, .dtype = PARALLAX_BF16};
  make({0, 0, 1}, options);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    SharingRank& part = world_->at(rank);
    const uint64_t foretold = BetweenHosts::pinned_bytes(part.columns, options);
    EXPECT_EQ(foretold > 0, rank != 1) << "one column";
    std::byte* share = nullptr;
    ASSERT_TRUE(part.between.stage(&share).ok());
    EXPECT_EQ(part.share.pinned.bytes_in_use(), PinnedPool::block_bytes(foretold));
    part.between.release(rank == 0);
    EXPECT_EQ(part.share.pinned.bytes_in_use(), 0u);
    // Of a device that may still write there it is kept for good.
    EXPECT_EQ(part.share.pinned.bytes_held(), PinnedPool::block_bytes(foretold));
  }
}

TEST_F(BetweenHostsTest, ABoundOfPinnedMemoryIsALimitThatSaysWhatItIsFor) {
  make({0, 0, 1}, {.elements = 10});
  SharingRank& part = world_->at(0);
  part.share.devices.refuse_pinning = limit("none is left");
  std::byte* share = nullptr;
  const Status staged = part.between.stage(&share);
  EXPECT_EQ(staged.code(), PARALLAX_LIMIT);
  EXPECT_NE(staged.message().find("nccl is host"), std::string::npos) << staged.message();
}

}  // namespace
}  // namespace parallax::testkit
