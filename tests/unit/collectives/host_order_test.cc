// SPDX-License-Identifier: Apache-2.0
// Launches in two legs, in the order that the first rank of a host says: whole jobs with
// communicators that note what they are told and end it when the test says so.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "collectives/device_exchange.h"
#include "support/host_map_of.h"
#include "support/outbox_world.h"
#include "unit/collectives/fake_communicator.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kLarge = DeviceLaunches::kSmallBytes;  // of floats: launched by itself

// One rank, with variables 0, 1, ...
struct LaunchingRank {
  LaunchingRank(const HostMap& hosts, uint32_t rank, Outbox& outbox,
                const std::vector<uint64_t>& counts)
      : columns(hosts, rank), pinned(devices, 0) {
    CommunicatorId id;
    id.bytes[5] = static_cast<std::byte>(10 + columns.host());
    launches.go_by_host(
        std::make_unique<HostOrder>(columns, outbox, columns.local() == 0 ? id : CommunicatorId()));
    launches.begin(devices, {.rank = columns.local(), .shares = columns.count()});
    std::vector<DeviceLaunches::Entry> entries;
    for (uint32_t v = 0; v < counts.size(); ++v) {
      auto between = std::make_unique<BetweenHosts>(
          columns, outbox, pinned, BetweenHosts::Options{.variable = v, .elements = counts[v]});
      entries.push_back({.variable = v,
                         .like = {.count = counts[v], .dtype = PARALLAX_F32},
                         .between = between.get()});
      exchanges.push_back(
          std::make_unique<DeviceExchange>(v, rank, counts[v], launches, std::move(between)));
      EXPECT_TRUE(exchanges.back()->reserve().ok());
      for (const uint64_t step : {1, 2}) exchanges.back()->open(step);
    }
    launches.add(entries, 0);
  }
  bool on_section(uint32_t from, const Section& section) {
    return section.header.tag < exchanges.size() &&
           exchanges[section.header.tag]->on_section(from, section);
  }
  const auto& told() const { return devices.told.launches; }
  // "<0 >0": variable 0 to the host, and from there.
  std::string legs() const {
    std::string all;
    for (const auto& launch : told()) {
      all +=
          (all.empty() ? "" : " ") + std::string(launch[0].leg == DeviceLeg::kToHost ? "<" : ">");
      for (const DeviceReduction& each : launch) {
        all += std::to_string(reinterpret_cast<uintptr_t>(each.to) - 1000);
      }
    }
    return all;
  }

  Columns columns;
  FormingDevices devices;
  PinnedPool pinned;
  DeviceLaunches launches;
  std::vector<std::unique_ptr<DeviceExchange>> exchanges;
  uint32_t pending = 0;
};

class HostOrderTest : public testing::Test {
 protected:
  void make(const std::vector<uint32_t>& layout, const std::vector<uint64_t>& counts) {
    hosts_ = host_map(layout);
    world_ = std::make_unique<OutboxWorld<LaunchingRank>>(
        static_cast<uint32_t>(layout.size()), [&](uint32_t rank, Outbox& outbox) {
          return std::make_unique<LaunchingRank>(hosts_, rank, outbox, counts);
        });
  }
  LaunchingRank& at(uint32_t rank) { return world_->at(rank); }
  void give(uint32_t rank, uint32_t variable, uint64_t step) {
    auto* buffer = reinterpret_cast<std::byte*>(uintptr_t{1000} + variable);
    at(rank).exchanges[variable]->contribute(
        step, {.elements = {buffer, PARALLAX_F32}, .result = {buffer, PARALLAX_F32}},
        &at(rank).pending);
  }
  // All that is launched ends, and what follows is launched, until nothing moves.
  void end(uint32_t rank) {
    at(rank).devices.told.may_end = at(rank).told().size();
    move();
  }
  void move() {
    for (int i = 0; i < 4; ++i) {
      for (uint32_t rank = 0; rank < world_->size(); ++rank) {
        EXPECT_TRUE(at(rank).launches.advance(0).ok());
      }
      world_->settle();
    }
  }
  void put(uint32_t rank, float number) {
    const DeviceReduction& last = at(rank).told().back()[0];
    ASSERT_NE(last.staged, nullptr);
    std::memcpy(last.staged, &number, sizeof number);
  }
  float taken(uint32_t rank) {
    const DeviceReduction& last = at(rank).told().back()[0];
    float number = 0;
    std::memcpy(&number, last.staged, sizeof number);
    return number;
  }

  HostMap hosts_;
  std::unique_ptr<OutboxWorld<LaunchingRank>> world_;
};

TEST_F(HostOrderTest, ASumComesToTheHostAndItsTotalGoesBack) {
  make({0, 0, 1, 1}, {2});
  for (const uint32_t rank : {1, 2, 3}) give(rank, 0, 1);
  move();
  EXPECT_EQ(at(1).legs(), "") << "the first rank of its host has not said it";
  EXPECT_EQ(at(3).legs(), "<0");
  give(0, 0, 1);
  move();
  for (uint32_t rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(at(rank).legs(), "<0") << rank;
    EXPECT_EQ(at(rank).devices.told.id, 10 + rank / 2) << "the id of its host's first rank";
    put(rank, static_cast<float>(1 + rank));
  }
  for (const uint32_t rank : {0, 1, 2}) end(rank);
  EXPECT_EQ(at(1).legs(), "<0") << "its host's first rank has no total yet";
  EXPECT_TRUE(at(0).exchanges[0]->missing(1).to_give == std::vector<uint32_t>{2} ||
              at(0).exchanges[0]->missing(1).to_give.empty());
  end(3);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(at(rank).legs(), "<0 >0") << rank;
    EXPECT_EQ(taken(rank), rank % 2 == 0 ? 4.f : 6.f) << rank;
    EXPECT_FALSE(at(rank).launches.ended(0, 1));
    end(rank);
    EXPECT_TRUE(at(rank).launches.ended(0, 1));
    EXPECT_EQ(at(rank).pending, 0u);
  }
  EXPECT_EQ(world_->refused_count(), 0u);
}

// Given totals that come to the ranks of a host at different times, expect the legs in one order
// all the same: that of the first rank.
TEST_F(HostOrderTest, TheRanksOfAHostLaunchInOneOrder) {
  make({0, 0, 1, 1}, {kLarge, kLarge});
  for (const uint32_t rank : {0, 1, 2, 3}) give(rank, 0, 1);
  move();
  for (const uint32_t rank : {1, 2, 3}) end(rank);
  give(1, 1, 1);
  move();
  // Rank 1 has its total, and the next sum given: neither is launched, since rank 0 has said none.
  EXPECT_EQ(at(1).legs(), "<0");
  give(0, 1, 1);
  move();
  EXPECT_EQ(at(0).legs(), "<0 <1") << "its total is not there";
  EXPECT_EQ(at(1).legs(), "<0 <1") << "and so for all";
  end(0);
  end(1);
  EXPECT_EQ(at(0).legs(), "<0 <1 >0");
  EXPECT_EQ(at(1).legs(), "<0 <1 >0");
  EXPECT_EQ(world_->refused_count(), 0u);
}

// Pinned memory of a step is not written before what it had is sent and taken.
TEST_F(HostOrderTest, TheNextStepWaitsForTheStage) {
  make({0, 0, 1, 1}, {2});
  for (const uint64_t step : {1, 2}) {
    for (const uint32_t rank : {0, 1, 2, 3}) give(rank, 0, step);
  }
  move();
  EXPECT_EQ(at(0).legs(), "<0");
  for (const uint32_t rank : {0, 1, 2, 3}) end(rank);
  EXPECT_EQ(at(0).legs(), "<0 >0");
  for (const uint32_t rank : {0, 1, 2, 3}) end(rank);
  EXPECT_EQ(at(0).legs(), "<0 >0 <0");
}

// A peer's word that is not the next, or not that rank's to say, is refused.
// Given a call behind which there is no pass, expect what is said and launched with it.
TEST_F(HostOrderTest, ACallSaysAndLaunchesWhatIsNext) {
  make({0, 0, 1, 1}, {kLarge, kLarge});
  for (uint32_t rank = 0; rank < 4; ++rank) give(rank, 0, 1);
  move();
  ASSERT_EQ(at(0).legs(), "<0");
  end(0);
  give(0, 1, 1);
  EXPECT_TRUE(at(0).launches.launch_due().ok());
  EXPECT_EQ(at(0).legs(), "<0 <1");
}

TEST_F(HostOrderTest, WordsThatDoNotFitAreRefused) {
  make({0, 0, 0, 1, 1, 1}, {2, kLarge});
  std::vector<std::byte> id(sizeof(CommunicatorId));
  Section word = {{.kind = SectionKind::kLaunchOrder, .step = 1}, id};
  const auto refused = [&](uint32_t from) { return !at(1).on_section(from, word); };
  EXPECT_TRUE(refused(2)) << "not the first rank of the host";
  EXPECT_TRUE(refused(3)) << "of another host";
  EXPECT_FALSE(at(0).on_section(1, word)) << "to the one that decides";
  word.header.part = 1;
  EXPECT_TRUE(refused(0)) << "a total ahead of its sum";
  word.header.part = 2;
  EXPECT_TRUE(refused(0)) << "no leg";
  word.header.part = 0;
  word.header.step = 2;
  EXPECT_TRUE(refused(0)) << "a step ahead";
  word.header.step = 1;
  word.header.first = 1;
  EXPECT_TRUE(refused(0)) << "a word ahead";
  word.header.first = 0;
  word.payload = std::span(id).first(4);
  EXPECT_TRUE(refused(0)) << "a cut id";
  word.payload = id;
  EXPECT_FALSE(refused(0));
  EXPECT_TRUE(refused(0)) << "once more";
  word.header.first = 1;
  EXPECT_TRUE(refused(0)) << "an id again";
  word.payload = {};
  EXPECT_TRUE(refused(0)) << "of a variable that is not the next";
  word.header.tag = 1;
  EXPECT_FALSE(refused(0));
}

TEST_F(HostOrderTest, AFailedJobGivesBackBetweenTheLegs) {
  make({0, 0, 1, 1}, {2});
  for (const uint32_t rank : {0, 1, 2}) give(rank, 0, 1);
  move();
  end(0);
  EXPECT_EQ(at(0).pending, 1u);
  EXPECT_GT(at(0).pinned.bytes_in_use(), 0u);
  at(0).launches.give_up();
  EXPECT_EQ(at(0).pending, 0u);
  EXPECT_GT(at(0).pinned.bytes_in_use(), 0u) << "sends may still read it";
  at(0).launches.finish(0);
  EXPECT_EQ(at(0).pinned.bytes_in_use(), 0u);
}

}  // namespace
}  // namespace parallax::testkit
