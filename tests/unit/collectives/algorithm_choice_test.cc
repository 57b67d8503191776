// SPDX-License-Identifier: Apache-2.0
// The choice among algorithms: it follows the constants, is the same for every rank, and of large
// jobs says what playing them whole would.
#include "collectives/algorithm_choice.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "support/host_map_of.h"
#include "support/slot_maps.h"

namespace parallax {
namespace {

std::vector<uint32_t> layout_of(uint32_t hosts, uint32_t each) {
  std::vector<uint32_t> layout(size_t{hosts} * each);
  for (uint32_t rank = 0; rank < layout.size(); ++rank) layout[rank] = rank / each;
  return layout;
}

// Links of 100 Gbit/s, with 2 us.
CostConstants infiniband() {
  CostConstants constants;
  constants.between = {2'000, 300, 80};
  return constants;
}

std::string chosen_on(const HostMap& map, uint64_t elements, const CostConstants& constants,
                      DenseShape shape) {
  AlgorithmChoice choice(map);
  choice.use(constants);
  shape.elements = elements;
  return choice.of(shape, SumType::kF32).name;
}

std::string chosen(uint32_t hosts, uint64_t elements, const CostConstants& constants,
                   const DenseShape& way = {}) {
  return chosen_on(testkit::host_map(layout_of(hosts, 1)), elements, constants, way);
}

// Given messages that cost nothing but their latency, expect few rounds; given messages that cost
// their ends much, few messages.
TEST(AlgorithmChoice, FollowsWhatMessagesCost) {
  CostConstants far = infiniband();
  far.between = {1'000'000, 0, 80};
  EXPECT_EQ(chosen(32, 1024, far), "direct");
  CostConstants busy = infiniband();
  busy.between = {0, 100'000, 80};
  EXPECT_NE(chosen(32, 32 * 256, busy), "direct");
  EXPECT_EQ(chosen(32, 1, busy, {.ordered = true}), "direct");
  EXPECT_EQ(chosen(32, 1, busy, {.returned = false}), "direct");
}

// Given slow links, expect one shot to give way where it brings a host more bytes than others do.
TEST(AlgorithmChoice, OneShotGivesWayOnSlowLinks) {
  CostConstants slow = infiniband();
  slow.between.byte_ps = 80'000;  // 100 Mbit/s
  EXPECT_EQ(chosen(6, 1024, infiniband(), {.held = true}), "oneshot");
  EXPECT_NE(chosen(6, 1024, slow, {.held = true}), "oneshot");
}

std::string chosen_of_domains(const std::vector<uint32_t>& domains, uint64_t elements,
                              const DenseShape& way = {}, const CostConstants& constants = {}) {
  return chosen_on(testkit::map_of_domains(domains), elements, constants, way);
}

// Given large machines, expect what crosses between domains to be spared where elements are many,
// and rounds where they are few and cost most; and with one domain, or a rank in each, nothing new.
TEST(AlgorithmChoice, LevelsPayWhereManyElementsCross) {
  CostConstants far;
  far.inside = {1'000'000, 0, 100};
  for (const auto& [domains, each] :
       {std::pair{8u, 8u}, std::pair{2u, 32u}, std::pair{8u, 16u}, std::pair{4u, 96u}}) {
    const std::vector<uint32_t> layout = layout_of(domains, each);
    EXPECT_EQ(chosen_of_domains(layout, 1 << 22), "levels") << domains << " x " << each;
    EXPECT_EQ(chosen_of_domains(layout, 1, {}, far), "direct") << domains << " x " << each;
    EXPECT_EQ(chosen_of_domains(layout, 1 << 22, {.ordered = true}), "direct");
  }
  EXPECT_EQ(chosen_of_domains(layout_of(1, 64), 1 << 22), "direct");
  EXPECT_EQ(chosen_of_domains(layout_of(8, 1), 1 << 22), "direct");
}

// Given every job and size, expect a sum in order never to go by what follows another.
TEST(AlgorithmChoice, OrderedSumsKeepTheirOrder) {
  for (const uint32_t hosts : {1u, 2u, 5u, 33u, 200u}) {
    for (const uint64_t elements : {uint64_t{1}, uint64_t{5000}, uint64_t{1} << 22}) {
      for (const bool held : {false, true}) {
        const std::string name =
            chosen(hosts, elements, infiniband(), {.ordered = true, .held = held});
        EXPECT_TRUE(name == "direct" || (held && name == "oneshot")) << name;
      }
    }
  }
}

// Given the map that each rank has, and sizes of one class, expect one answer.
TEST(AlgorithmChoice, EveryRankChoosesAlike) {
  const std::vector<uint32_t> layout = {0, 0, 1, 2, 2, 2, 3};
  for (const uint64_t elements : {3u, 900u, 40'000u}) {
    std::set<std::string> names;
    std::set<uint64_t> times;
    for (int rank = 0; rank < 7; ++rank) {
      const HostMap map = testkit::host_map(layout);
      AlgorithmChoice choice(map);
      choice.use(infiniband());
      names.insert(choice.of({.elements = elements}, SumType::kF32).name);
      for (const auto& each : choice.alternatives({.elements = elements}, SumType::kF32)) {
        if (each.chosen) times.insert(each.picoseconds);
        EXPECT_GT(each.picoseconds, 0u);
      }
    }
    EXPECT_EQ(names.size(), 1u);
    EXPECT_EQ(times.size(), 1u);
  }
}

// Given other constants, expect what was found by the ones before to be forgotten.
TEST(AlgorithmChoice, UsesTheLatestConstants) {
  const HostMap map = testkit::host_map(layout_of(32, 1));
  AlgorithmChoice choice(map);
  CostConstants constants = infiniband();
  const auto direct_ps = [&] {
    return choice.alternatives({.elements = 4096}, SumType::kF32).back().picoseconds;
  };
  choice.use(constants);
  const uint64_t before = direct_ps();
  constants.between.latency_ns *= 100;
  choice.use(constants);
  EXPECT_GE(direct_ps(), before + 2 * 99 * constants.between.latency_ns / 100 * 1000);
}

// Given a job just too large to be played, expect the time that follows from smaller ones to be
// near that of the schedules of all.
TEST(AlgorithmChoice, LargeJobsTakeWhatPlayingThemSays) {
  for (const uint64_t elements : {uint64_t{64}, uint64_t{1} << 14, uint64_t{1} << 20}) {
    const HostMap map = testkit::host_map(layout_of(64, 1));
    AlgorithmChoice choice(map);
    choice.use(infiniband());
    for (const auto& each : choice.alternatives({.elements = elements}, SumType::kF32)) {
      std::vector<Schedule> schedules;
      const Partition partition(elements, 1, false, testkit::a_slot_each(64), 0);
      for (uint32_t rank = 0; rank < 64; ++rank) {
        const Columns columns(map, rank);
        schedules.push_back(each.algorithm->build({.columns = columns, .partition = partition}));
      }
      const auto whole =
          static_cast<double>(ScheduleTime(schedules, elements, map)
                                  .picoseconds({.elements = elements, .constants = infiniband()}));
      EXPECT_NEAR(static_cast<double>(each.picoseconds) / whole, 1, 0.35)
          << each.algorithm->name << ", " << elements;
    }
  }
}

// Given ten thousand ranks and sizes of all classes, expect an answer at once: this would else not
// end.
TEST(AlgorithmChoice, AThousandHostsAreNotPlayed) {
  const HostMap map = testkit::host_map(layout_of(1250, 8));
  AlgorithmChoice choice(map);
  choice.use(infiniband());
  std::set<std::string> names;
  for (uint64_t elements = 1; elements < uint64_t{1} << 26; elements *= 8) {
    names.insert(choice.of({.elements = elements}, SumType::kF32).name);
  }
  EXPECT_GE(names.size(), 2u);
}

TEST(AlgorithmChoice, OneRankHasNoChoice) {
  const HostMap map = testkit::host_map({0});
  AlgorithmChoice choice(map);
  EXPECT_FALSE(choice.is_open({.elements = 100, .held = true}));
  EXPECT_EQ(std::string(choice.of({.elements = 100, .held = true}, SumType::kF32).name), "direct");
}

}  // namespace
}  // namespace parallax
