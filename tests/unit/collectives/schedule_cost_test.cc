// SPDX-License-Identifier: Apache-2.0
// What a schedule is said to cost is what happens when it runs: every algorithm, for every world of
// 1 to 64 ranks and several layouts, against the schedules of all ranks run on symbols.
#include "collectives/schedule_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "support/host_map_of.h"
#include "support/slot_maps.h"
#include "unit/collectives/layouts.h"
#include "unit/collectives/symbolic_run.h"

namespace parallax::schedules {
namespace {

constexpr uint32_t kElementBytes = 4;

bool even(const HostMap& hosts) {
  return hosts.host_of.size() == hosts.ranks_of.size() * hosts.column_count;
}

// A job whose schedules have been run, in figures as of a ScheduleCost.
struct Job {
  Job(const DenseAlgorithm& algorithm, const HostMap& hosts, const Partition& partition,
      const ScheduleCosts::Way& way)
      : world(static_cast<uint32_t>(hosts.host_of.size())),
        parties(hosts.ranks_of.size() > 1 ? static_cast<uint32_t>(hosts.ranks_of.size()) : world) {
    std::vector<Schedule> schedules;
    for (uint32_t rank = 0; rank < world; ++rank) {
      const Columns columns(hosts, rank);
      schedules.push_back(algorithm.build({.columns = columns,
                                           .partition = partition,
                                           .variable = 3,
                                           .ordered = way.ordered,
                                           .returned = way.returned,
                                           .of_hosts = way.of_hosts}));
    }
    for (const Schedule& schedule : schedules) {
      for (const Op& op : schedule.ops) sends += op.kind == OpKind::kSend ? 1 : 0;
    }
    SymbolicRun run(std::move(schedules), partition.elements(), std::vector<double>(world, 1));
    wrong = run.run();
    for (uint32_t to = 0; to < world; ++to) {
      for (uint32_t from = 0; from < world; ++from) {
        const bool apart = hosts.ranks_of.size() == 1 || hosts.host_of[to] != hosts.host_of[from];
        if (apart) received += run.received(to, from);
      }
    }
    added = run.added();
    rounds = run.rounds();
  }

  double received_bytes() const { return static_cast<double>(received * kElementBytes) / parties; }
  double sent_messages() const { return static_cast<double>(sends) / world; }
  double summed_bytes() const { return static_cast<double>(added * kElementBytes) / world; }

  uint32_t world, parties, rounds = 0;
  uint64_t received = 0, added = 0, sends = 0;
  std::string wrong;
};

void compare(const DenseAlgorithm& algorithm, const std::vector<uint32_t>& layout,
             const Partition& partition, const ScheduleCosts::Way& way) {
  const HostMap hosts = testkit::host_map(layout);
  const Job job(algorithm, hosts, partition, way);
  ASSERT_EQ(job.wrong, "");
  const ScheduleCost cost = ScheduleCosts(hosts).of(algorithm, partition, kElementBytes, way);
  EXPECT_EQ(cost.algorithm, algorithm.name);
  // Only the ring has ranges that go more often than others: as wide as two blocks.
  const bool ring = std::string(algorithm.name) == "ring";
  EXPECT_NEAR(cost.received_bytes, job.received_bytes(),
              ring ? 2.0 * kBlockElements * kElementBytes : 1e-9 * job.received_bytes());
  EXPECT_NEAR(cost.summed_bytes, job.summed_bytes(), 1e-9 * job.summed_bytes());
  // Who owns a range that few have may lead a column or not.
  const bool all_have_one = partition.elements() >= kBlockElements * job.world;
  const bool cut = algorithm.by_range || algorithm.growth == Growth::kByDoubling;
  if (even(hosts) || all_have_one) {
    EXPECT_NEAR(cost.sent_messages, job.sent_messages(), 1e-9 * job.sent_messages());
  }
  EXPECT_GE(cost.rounds, job.rounds);
  if (even(hosts) && (all_have_one || !cut)) {
    EXPECT_EQ(cost.rounds, job.rounds);
  }
}

// By its row in the table.
class Cost : public testing::TestWithParam<size_t> {};

// Given every world and layout, a range for each rank, fewer blocks than ranks, and an element,
// ordered where the algorithm can be, returned or not, expect what was counted.
TEST_P(Cost, IsWhatTheSchedulesDo) {
  const DenseAlgorithm& algorithm = kDenseAlgorithms[GetParam()];
  const std::string name = algorithm.name;
  const bool orders = name == "direct" || name == "oneshot";
  for (uint32_t world = 1; world <= 64; ++world) {
    if (skipped(world)) continue;
    for (const std::vector<uint32_t>& layout : layouts(world)) {
      for (const uint64_t elements : {uint64_t{1}, uint64_t{700}, 256 * uint64_t{world} + 17}) {
        const ScheduleCosts::Way way = {
            .ordered = orders && world % 2 == 0,
            .returned = name == "oneshot" || name == "halving" || (world + elements) % 3 != 0};
        SCOPED_TRACE(std::string(algorithm.name) + ", world " + std::to_string(world) + ", " +
                     std::to_string(elements) + " elements");
        compare(algorithm, layout, Partition(elements, 1, false, testkit::a_slot_each(world), 3),
                way);
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Cost, testing::Range(size_t{0}, std::size(kDenseAlgorithms)),
                         [](const auto& info) { return kDenseAlgorithms[info.param].name; });

// Given rows made dense, cut at rows and not at blocks, expect what hosts send each other.
TEST(ScheduleCost, OfHostsIsWhatTheSchedulesDo) {
  for (uint32_t world = 1; world <= 64; ++world) {
    if (skipped(world)) continue;
    for (const std::vector<uint32_t>& layout : layouts(world)) {
      SCOPED_TRACE(world);
      compare(direct_algorithm(), layout, Partition(1500, 2, true, testkit::a_slot_each(world), 3),
              {.ordered = world % 2 == 0, .of_hosts = true});
      if (HasFailure()) return;
    }
  }
}

const DenseAlgorithm& algorithm_named(const std::string& name) {
  return *std::find_if(std::begin(kDenseAlgorithms), std::end(kDenseAlgorithms),
                       [&](const DenseAlgorithm& each) { return name == each.name; });
}

// Given even and uneven hosts and any split, expect of the direct schedule and the tree what the
// formula says, to the last bit: 2 (N-1)/N of the elements there and back, half of it one way; and
// of one shot (N-1) times all.
TEST(ScheduleCost, WhatIsNoRingReceivesAsTheFormulaSays) {
  for (uint32_t world = 1; world <= 64; ++world) {
    for (const std::vector<uint32_t>& layout : layouts(world)) {
      const HostMap hosts = testkit::host_map(layout);
      const auto host_count = static_cast<uint32_t>(hosts.ranks_of.size());
      const double n = host_count > 1 ? host_count : world;
      ScheduleCosts costs(hosts);
      for (const uint64_t elements : {1, 1000, 1025, 123'457}) {
        const Partition partition(elements, 1, false, testkit::a_slot_each(world), 1);
        const double bytes = static_cast<double>(elements * kElementBytes);
        const auto of = [&](const char* name, const ScheduleCosts::Way& way) {
          return costs.of(algorithm_named(name), partition, kElementBytes, way);
        };
        const ScheduleCost back = of("direct", {});
        ASSERT_EQ(back.received_bytes, bytes * (2 * (n - 1)) / n) << world;
        ASSERT_EQ(back.carried_bytes, bytes);
        ASSERT_EQ(of("direct", {.returned = false}).received_bytes, bytes * (n - 1) / n) << world;
        if (host_count > 1) {
          ASSERT_EQ(of("tree", {}).received_bytes, back.received_bytes) << world;
        }
        if (host_count == 1 && world <= kOneshotRanksMax) {
          ASSERT_EQ(of("oneshot", {}).received_bytes, bytes * (n - 1)) << world;
        }
      }
    }
  }
}

// Given a ring, expect a host to receive as each of its ranks would: 2 (P-1)/P of the elements.
TEST(ScheduleCost, ARingReceivesAsOneOfItsRanks) {
  std::vector<uint32_t> layout;
  for (uint32_t host = 0; host < 16; ++host) layout.insert(layout.end(), 1 + host % 3, host);
  const HostMap hosts = testkit::host_map(layout);
  const auto world = static_cast<uint32_t>(layout.size());
  const Partition partition(uint64_t{world} << 16, 1, false, testkit::a_slot_each(world), 0);
  const ScheduleCost cost =
      ScheduleCosts(hosts).of(algorithm_named("ring"), partition, kElementBytes, {});
  EXPECT_DOUBLE_EQ(cost.received_bytes, cost.carried_bytes * 2 * (world - 1) / world);
  EXPECT_EQ(cost.rounds, 2 * (world - 1));
  const ScheduleCost ordered =
      ScheduleCosts(hosts).of(direct_algorithm(), partition, kElementBytes, {.ordered = true});
  EXPECT_EQ(ordered.received_bytes, ordered.carried_bytes * 30 / 16);
  EXPECT_EQ(ordered.rounds, 4u);
}

// Given ten thousand ranks and as many variables, of every size, expect the schedules of few ranks
// to have been built, once for each way: this would else not end.
TEST(ScheduleCost, AThousandHostsCostWhatOneHostTakes) {
  std::vector<uint32_t> layout(10'000);
  for (uint32_t rank = 0; rank < layout.size(); ++rank) layout[rank] = rank / 8;
  const HostMap hosts = testkit::host_map(layout);
  ScheduleCosts costs(hosts);
  double received_bytes = 0;
  const SlotMap ranks = testkit::a_slot_each(10'000);
  for (uint64_t elements = 1; elements <= 10'000; ++elements) {
    const Partition partition(elements * 100, 1, false, ranks, static_cast<uint32_t>(elements));
    for (const bool returned : {false, true}) {
      const ScheduleCost cost =
          costs.of(direct_algorithm(), partition, kElementBytes, {.returned = returned});
      EXPECT_GE(cost.received_bytes, received_bytes);
      if (returned) received_bytes = cost.received_bytes;
    }
    received_bytes = 0;
  }
}

// Given the map that each rank has, expect one figure.
TEST(ScheduleCost, EveryRankCountsAlike) {
  const std::vector<uint32_t> layout = {0, 0, 1, 2, 2, 2, 3};
  const Partition partition(12'345, 1, false, testkit::a_slot_each(7), 2);
  std::set<double> received;
  for (int rank = 0; rank < 7; ++rank) {
    const HostMap hosts = testkit::host_map(layout);
    received.insert(
        ScheduleCosts(hosts).of(direct_algorithm(), partition, kElementBytes, {}).received_bytes);
  }
  EXPECT_EQ(received.size(), 1u);
}

}  // namespace
}  // namespace parallax::schedules
