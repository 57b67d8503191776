// SPDX-License-Identifier: Apache-2.0
// Places of a schedule, and which operation a message is for.
#include "collectives/schedule_wiring.h"

#include <gtest/gtest.h>

#include "collectives/allreduce.h"
#include "collectives/copy_schedules.h"
#include "support/host_map_of.h"
#include "support/slot_maps.h"

namespace parallax {
namespace {

TEST(ScheduleWiring, OfADirectAllreduce) {
  const HostMap hosts = testkit::host_map({0, 0});
  const Columns columns(hosts, 0);
  const Partition partition(600, 1, false, testkit::a_slot_each(2), 0);
  const ScheduleWiring wiring(allreduce_direct({.columns = columns, .partition = partition}));
  const Range own = partition.range_of(0), other = partition.range_of(1);
  ASSERT_NE(wiring.owned_cell(), ScheduleWiring::kNone);
  EXPECT_EQ(wiring.cells()[wiring.owned_cell()].range, own);
  EXPECT_EQ(wiring.cells()[wiring.owned_cell()].addends, 2u);
  EXPECT_LT(wiring.owned_cell(), wiring.sum_cells());
  const uint32_t sums = wiring.find_receive(1, kReduceStage, own.first);
  ASSERT_NE(sums, ScheduleWiring::kNone);
  EXPECT_EQ(wiring.ops()[sums].kind, OpKind::kReceiveSum);
  EXPECT_EQ(wiring.cells_of(sums).to, wiring.owned_cell());
  const uint32_t back = wiring.find_receive(1, kGatherStage, other.first);
  ASSERT_NE(back, ScheduleWiring::kNone);
  // No rank has the other's sum before this one has given its share.
  const uint32_t given_by = wiring.cells()[wiring.cells_of(back).to].given_by;
  ASSERT_NE(given_by, ScheduleWiring::kNone);
  EXPECT_EQ(wiring.ops()[given_by].range, other);
  // Its total comes back by the one, as that of the own range goes by another.
  EXPECT_EQ(wiring.returned_by(given_by), back);
  const uint32_t gives = wiring.returned_by(sums);
  ASSERT_NE(gives, ScheduleWiring::kNone);
  EXPECT_EQ(wiring.ops()[gives].kind, OpKind::kSend);
  EXPECT_EQ(wiring.ops()[gives].range, own);
  EXPECT_EQ(wiring.ops()[gives].stage, kGatherStage);
  EXPECT_EQ(wiring.returned_by(back), ScheduleWiring::kNone);
  EXPECT_EQ(wiring.find_receive(1, kReduceStage, other.first), ScheduleWiring::kNone);
  EXPECT_EQ(wiring.find_receive(0, kReduceStage, own.first), ScheduleWiring::kNone);
  EXPECT_EQ(wiring.find_receive(1, kGatherStage, 600), ScheduleWiring::kNone);
}

// Of a slice that goes to several ranks, and is summed here too, nothing comes back.
TEST(ScheduleWiring, OfAOneshotNothingIsReturned) {
  const HostMap hosts = testkit::host_map({0, 0, 0});
  const Columns columns(hosts, 1);
  const Partition partition(600, 1, false, testkit::a_slot_each(3), 1);
  const ScheduleWiring wiring(allreduce_oneshot({.columns = columns, .partition = partition}));
  for (uint32_t op = 0; op < wiring.ops().size(); ++op) {
    EXPECT_EQ(wiring.returned_by(op), ScheduleWiring::kNone) << op;
  }
}

TEST(ScheduleWiring, PairwiseThereIsOneOperationForAPeer) {
  const HostMap hosts = testkit::host_map({0, 1, 2});
  const Columns columns(hosts, 1);
  const uint64_t sent[] = {4, 1, 2}, received[] = {3, 1, 2};
  const ScheduleWiring wiring(alltoallv_direct(columns, sent, received));
  const uint32_t found = wiring.find_receive(0, kGatherStage, 2);
  ASSERT_NE(found, ScheduleWiring::kNone);
  EXPECT_EQ(wiring.ops()[found].range, (Range{0, 3}));
  // Whose messages count from their own beginning.
  const uint32_t behind = wiring.find_receive(2, kGatherStage, 0);
  ASSERT_NE(behind, ScheduleWiring::kNone);
  EXPECT_EQ(wiring.ops()[behind].range, (Range{4, 2}));
  EXPECT_EQ(wiring.find_receive(1, kGatherStage, 0), ScheduleWiring::kNone);
  EXPECT_EQ(wiring.find_receive(0, kReduceStage, 0), ScheduleWiring::kNone);
}

TEST(ScheduleWiring, AnInputMayBePartOfTheElements) {
  const HostMap hosts = testkit::host_map({0, 1});
  const Columns columns(hosts, 1);
  const Range given[] = {{0, 5}, {5, 3}};
  const ScheduleWiring wiring(allgather_direct(columns, given));
  ASSERT_EQ(wiring.inputs().size(), 2u);  // its own copy, and what it sends
  for (const uint32_t op : wiring.inputs()) EXPECT_EQ(wiring.cells_of(op).input, 0u);
}

}  // namespace
}  // namespace parallax
