// SPDX-License-Identifier: Apache-2.0
// The virtual clock of schedules, where what they take can be said by hand.
#include "collectives/schedule_time.h"

#include <gtest/gtest.h>

#include <vector>

#include "collectives/allreduce.h"
#include "support/host_map_of.h"
#include "support/slot_maps.h"

namespace parallax {
namespace {

constexpr uint64_t kElements = 1024;

uint64_t time_of(Schedule (*build)(const AllreduceShape&), const std::vector<uint32_t>& layout,
                 const CostConstants& constants, uint64_t scaled = kElements,
                 bool domains = false) {
  const HostMap hosts = domains ? testkit::map_of_domains(layout) : testkit::host_map(layout);
  const auto world = static_cast<uint32_t>(layout.size());
  const Partition partition(kElements, 1, false, testkit::a_slot_each(world), 0);
  std::vector<Schedule> schedules;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const Columns columns(hosts, rank);
    schedules.push_back(build({.columns = columns, .partition = partition}));
  }
  return ScheduleTime(schedules, kElements, hosts)
      .picoseconds({.elements = scaled, .constants = constants});
}

CostConstants nothing() { return {{0, 0, 0}, {0, 0, 0}, {0, 0, 0, 0}, 0, 0}; }

// Given latency alone, expect a hop for each round.
TEST(ScheduleTime, LatencyIsOfRounds) {
  CostConstants constants = nothing();
  constants.between.latency_ns = 10;
  const std::vector<uint32_t> four = {0, 1, 2, 3};
  EXPECT_EQ(time_of(allreduce_oneshot, four, constants), 10'000u);
  EXPECT_EQ(time_of(allreduce_direct, four, constants), 20'000u);
  EXPECT_EQ(time_of(allreduce_halving, four, constants), 40'000u);
  EXPECT_EQ(time_of(allreduce_ring, four, constants), 60'000u);
  EXPECT_EQ(time_of(allreduce_ring, {0}, constants), 0u);
}

// Given overhead alone, expect what a rank sends and takes in, one after the other.
TEST(ScheduleTime, OverheadIsOfMessages) {
  CostConstants constants = nothing();
  constants.inside.overhead_ns = 1;
  EXPECT_EQ(time_of(allreduce_oneshot, {0, 0}, constants), 2'000u);
  EXPECT_EQ(time_of(allreduce_oneshot, {0, 0, 0, 0}, constants), 6'000u);
}

// Given ports that take their time for bytes, expect those that cross, and the headers, once there
// and once back; and as many more for as many elements more.
TEST(ScheduleTime, BytesTakeThePorts) {
  CostConstants constants = nothing();
  constants.between.byte_ps = 1;
  const uint64_t out = 2 * (kElements / 2 * 4 + 32);
  EXPECT_EQ(time_of(allreduce_direct, {0, 1}, constants), out);
  EXPECT_EQ(time_of(allreduce_direct, {0, 1}, constants, 3 * kElements),
            out + 2 * 2 * (kElements / 2 * 4));
}

// Given a bus between domains that takes its time, expect all that crosses one after the other, on
// the way there and back, and nothing of what stays.
TEST(ScheduleTime, DomainsShareTheirBus) {
  CostConstants constants = nothing();
  constants.across_byte_ps = 1;
  const std::vector<uint32_t> two_of_two = {0, 0, 1, 1};
  const uint64_t quarter = kElements / 4 * 4;
  // Of each of four ranges two addends cross, and two totals; by levels one each.
  const uint64_t flat = 16 * (quarter + 32), levels = 8 * (quarter + 32);
  EXPECT_EQ(time_of(allreduce_direct, two_of_two, constants, kElements, true), flat);
  EXPECT_EQ(time_of(allreduce_levels, two_of_two, constants, kElements, true), levels);
  EXPECT_EQ(time_of(allreduce_direct, {0, 0, 0, 0}, constants, kElements, true), 0u);
}

// Given sums and copies alone, expect what comes to a range, and the result.
TEST(ScheduleTime, TheOwnAddendIsFree) {
  CostConstants constants = nothing();
  constants.sum_byte_ps[0] = 1;
  EXPECT_EQ(time_of(allreduce_direct, {0, 0}, constants), kElements / 2 * 4);
  constants.sum_byte_ps[0] = 0;
  constants.copy_byte_ps = 1;
  EXPECT_EQ(time_of(allreduce_direct, {0, 0}, constants), kElements * 4);
}

}  // namespace
}  // namespace parallax
