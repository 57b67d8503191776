// SPDX-License-Identifier: Apache-2.0
#include "engine/peer_traffic.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "unit/server/layouts.h"

namespace parallax::testkit {
namespace {

constexpr uint32_t kEpoch = 7;

class TrafficClock final : public Clock {
 public:
  int64_t now_ns() const override { return now; }
  int64_t now = 0;
};

// Rank 0, with rank 1 on its host and rank 2 on another.
class PeerTrafficTest : public testing::Test {
 protected:
  static constexpr int64_t kLeaseNs = 1000 * kNanosecondsPerMillisecond;

  PeerTrafficTest() { traffic_.reserve(2); }

  bool take(uint32_t from, uint32_t sequence, uint32_t epoch = kEpoch) {
    const MessageHeader header = {.epoch = epoch, .sequence = sequence};
    return traffic_.take(from, SectionReader(std::as_bytes(std::span(&header, 1))), 100);
  }
  static SectionHeader section(SectionKind kind, uint32_t variable) {
    SectionHeader header;
    header.kind = kind;
    header.tag = variable;
    header.payload_bytes = 40;
    return header;
  }

  const HostMap hosts_ = host_map({0, 0, 1});
  TrafficClock clock_;
  Membership membership_{{1, 2}, kLeaseNs, 0};
  PeerTraffic traffic_{{.rank = 0, .epoch = kEpoch}, hosts_, clock_, membership_};
};

TEST_F(PeerTrafficTest, AMessageOfAnotherJobOrOfNobodyIsDropped) {
  EXPECT_FALSE(take(2, 1, kEpoch + 1));
  EXPECT_FALSE(take(3, 1));
  EXPECT_EQ(traffic_.dropped_messages(), 2u);
  EXPECT_EQ(traffic_.wire().received_messages, 0u);
  EXPECT_TRUE(take(2, 1));
}

// Given messages of the past, expect them dropped, and each rank counted by itself; also where the
// count wraps.
TEST_F(PeerTrafficTest, AMessageCountsOnce) {
  EXPECT_TRUE(take(1, 5));
  EXPECT_FALSE(take(1, 5));
  EXPECT_FALSE(take(1, 4));
  EXPECT_TRUE(take(2, 4));
  EXPECT_TRUE(take(1, INT32_MAX));
  EXPECT_TRUE(take(1, UINT32_MAX - 1));
  EXPECT_TRUE(take(1, 0));
  EXPECT_FALSE(take(1, UINT32_MAX - 1));
  EXPECT_EQ(traffic_.dropped_messages(), 3u);
}

TEST_F(PeerTrafficTest, WhatHasNoHeaderIsLeftToBeTold) {
  const std::vector<std::byte> garbage(50);
  EXPECT_TRUE(traffic_.take(2, SectionReader(garbage), garbage.size()));
  EXPECT_EQ(traffic_.wire().received_bytes, 50u);
  EXPECT_EQ(traffic_.dropped_messages(), 0u);
}

TEST_F(PeerTrafficTest, HostsAreApartAndLoopbackIsNone) {
  EXPECT_TRUE(take(0, 1));
  EXPECT_TRUE(take(1, 1));
  EXPECT_FALSE(take(1, 1)) << "a repeat came all the same";
  EXPECT_TRUE(take(2, 1));
  for (uint32_t to = 0; to < 3; ++to) traffic_.on_message_packed(to, 1000 + to);
  EXPECT_EQ(traffic_.local().received_messages, 2u);
  EXPECT_EQ(traffic_.local().received_bytes, 200u);
  EXPECT_EQ(traffic_.local().sent_messages, 1u);
  EXPECT_EQ(traffic_.local().sent_bytes, 1001u);
  EXPECT_EQ(traffic_.wire().received_messages, 1u);
  EXPECT_EQ(traffic_.wire().sent_bytes, 1002u);
}

TEST_F(PeerTrafficTest, VariablesCountWhatGoesToOtherHosts) {
  const SectionHeader rows = section(SectionKind::kHostReduce, 1);
  for (uint32_t peer = 0; peer < 3; ++peer) {
    traffic_.take_section(peer, rows);
    traffic_.on_section_packed(peer, rows, 64);
    // Of no variable: the tag is a rank, or is wrong.
    traffic_.take_section(peer, section(SectionKind::kLost, 1));
    traffic_.on_section_packed(peer, section(SectionKind::kHostReduce, 2), 64);
  }
  EXPECT_EQ(traffic_.variable(1).received_bytes, sizeof(SectionHeader) + 40);
  EXPECT_EQ(traffic_.variable(1).sent_bytes, 64u);
  EXPECT_EQ(traffic_.variable(1).placed_bytes, 0u);
  SectionHeader placed = section(SectionKind::kValuesHost, 1);
  placed.encoding = Encoding::kPlaced;
  placed.payload_bytes = 1000;
  traffic_.on_section_packed(2, placed, sizeof placed + 1000);
  EXPECT_EQ(traffic_.variable(1).sent_bytes, 64u + sizeof placed + 1000);
  EXPECT_EQ(traffic_.variable(1).placed_bytes, 1000u);
  EXPECT_EQ(traffic_.variable(0).received_bytes + traffic_.variable(0).sent_bytes, 0u);
}

// Given a rank that is heard of, expect its lease to be renewed, also by a repeat; and no heartbeat
// due to one that something was sent to.
TEST_F(PeerTrafficTest, WhatComesRenewsALeaseAndWhatGoesIsAHeartbeat) {
  clock_.now = kLeaseNs - 1;
  EXPECT_TRUE(take(1, 1));
  traffic_.on_message_packed(1, 10);
  clock_.now = kLeaseNs + 1;
  EXPECT_EQ(membership_.expired(clock_.now), 2u);
  EXPECT_EQ(membership_.heartbeat_due(clock_.now), 2u);
  membership_.dismiss(2);
  EXPECT_EQ(membership_.expired(clock_.now), Membership::kNoNeighbour);
  EXPECT_EQ(membership_.heartbeat_due(clock_.now), Membership::kNoNeighbour);
}

}  // namespace
}  // namespace parallax::testkit
