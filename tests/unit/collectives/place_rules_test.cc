// SPDX-License-Identifier: Apache-2.0
// What can be placed, and when the exchange's memory is the better place.
#include "collectives/place_rules.h"

#include <gtest/gtest.h>

#include <set>

#include "collectives/allreduce.h"
#include "support/host_map_of.h"
#include "support/slot_maps.h"

namespace parallax {
namespace {

// Writes that only say what there is room for, and who reaches this rank.
class RoomForSome final : public RemoteWrites {
 public:
  std::set<uint32_t> reaching;
  std::set<uintptr_t> room;

  size_t piece_bytes_max(uint32_t from) override { return reaching.count(from) * 4096; }
  bool has_room(const ByteRange& part) const override { return room.count(part.first) > 0; }
  Status send(uint32_t, std::span<const Segment>, const PlacedPiece&, uint64_t) override {
    return {};
  }
  bool know(const ByteRange&) override { return true; }
  void forget_area(const ByteRange&) override {}
  bool share(const ByteRange&, SharedPart*) override { return false; }
  void unshare(uint32_t) override {}
  void withdraw() override {}
  std::string json() const override { return "{}"; }
};

// Of four ranks on hosts of their own, each owning as many f32.
struct FourOwners {
  explicit FourOwners(uint64_t elements_each)
      : partition(4 * elements_each, 1, false, testkit::a_slot_each(4), 0),
        wiring(allreduce_direct({.columns = columns, .partition = partition})) {}
  HostMap hosts = testkit::host_map({0, 1, 2, 3});
  Columns columns{hosts, 0};
  Partition partition;
  ScheduleWiring wiring;
  RoomForSome writes;
  PlaceRules rules{.writes = &writes, .rank = 0, .element_bytes = 4};

  bool comes_to_own() const {
    return rules.comes_to_own(wiring, partition.elements(), {.first = 1000, .bytes = 8},
                              {.first = 2000, .bytes = 8});
  }
};

TEST(PlaceRules, WhatComesToTheExchangesMemory) {
  FourOwners job(kPlacedBytesMin / 4);
  job.writes.reaching = {1, 2, 3};
  EXPECT_FALSE(job.comes_to_own()) << "there is no room for it";
  job.writes.room = {1000, 2000};
  EXPECT_FALSE(job.comes_to_own()) << "the caller's can be written";
  job.writes.room = {1000};
  EXPECT_TRUE(job.comes_to_own());
  job.writes.reaching = {1, 3};
  EXPECT_TRUE(job.comes_to_own()) << "half of it";
  job.writes.reaching = {3};
  EXPECT_FALSE(job.comes_to_own()) << "a quarter";
  job.writes.reaching = {1, 2, 3};
  job.rules.writes = nullptr;
  EXPECT_FALSE(job.comes_to_own());
}

TEST(PlaceRules, ShortRangesAreNotPlaced) {
  FourOwners job(kPlacedBytesMin / 8);
  job.writes.reaching = {1, 2, 3};
  job.writes.room = {1000};
  EXPECT_FALSE(job.comes_to_own());
  job.rules.element_bytes = 8;
  EXPECT_TRUE(job.comes_to_own());
  for (const Op& op : job.wiring.ops()) {
    EXPECT_EQ(job.rules.can_be_placed(op), op.kind == OpKind::kReceiveCopy);
  }
}

}  // namespace
}  // namespace parallax
