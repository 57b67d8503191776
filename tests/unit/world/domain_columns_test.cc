// SPDX-License-Identifier: Apache-2.0
// Who sums whose rows on hosts of several domains of memory, for many layouts; and on a machine
// from a file, with ranks bound as the library does it.
#include "world/domain_columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/host_map_of.h"
#include "support/xml_machine.h"
#include "topology/binding_plan.h"
#include "topology/topology.h"

namespace parallax {
namespace {

using Ranks = std::vector<uint32_t>;

// Hosts of any sizes, whose ranks lie in any domains.
HostMap random_hosts(std::mt19937& random, uint32_t world, uint32_t hosts, uint32_t domains) {
  Ranks host_of;
  std::vector<NearMemory> places;
  for (uint32_t rank = 0; rank < world; ++rank) {
    host_of.push_back(static_cast<uint32_t>(random() % hosts));
    places.push_back({.node = static_cast<uint32_t>(random() % domains)});
  }
  HostMap map = testkit::host_map(host_of);
  set_domains(&map, places);
  return map;
}

// By rank what it knows.
std::vector<DomainColumns> all_of(const HostMap& map) {
  std::vector<DomainColumns> all;
  for (uint32_t rank = 0; rank < map.host_of.size(); ++rank) {
    all.emplace_back(Columns(map, rank));
  }
  return all;
}

uint32_t domain_of(const HostMap& map, uint32_t rank) {
  return map.domain_of.empty() ? 0 : map.domain_of[rank];
}

// How many ranks' rows of a column it gives its leader, or who sums for it.
uint32_t rows_of(const RowGivers& givers, uint32_t rank) {
  const auto found = std::find(givers.ranks.begin(), givers.ranks.end(), rank);
  return found == givers.ranks.end() ? 0 : givers.rows_of[found - givers.ranks.begin()];
}

// Given any hosts, expect each leader to get the rows of every rank of its host once: of its own
// domain from each itself, of another from one rank that has those of all its domain's. And nobody
// to sum more than twice what it would if all ranks of the domain led.
void expect_each_rank_counted(const HostMap& map, const std::vector<DomainColumns>& all) {
  for (uint32_t rank = 0; rank < map.host_of.size(); ++rank) {
    const Columns columns(map, rank);
    if (!columns.is_leader() || !all[rank].any()) continue;
    const RowGivers& givers = all[rank].to_leader();
    ASSERT_EQ(givers.ranks.size(), givers.rows_of.size());
    EXPECT_TRUE(std::is_sorted(givers.ranks.begin(), givers.ranks.end()));
    EXPECT_EQ(std::accumulate(givers.rows_of.begin(), givers.rows_of.end(), 0u),
              columns.locals().size());
    const size_t of_domain = all[rank].in_domain().ranks.size();
    const size_t elsewhere = columns.count() - 1;
    EXPECT_LE(all[rank].summed().size(), 2 * (elsewhere / of_domain + 1)) << "ranks " << of_domain;
    const uint32_t column = columns.my_column();
    for (const uint32_t giver : columns.locals()) {
      const uint32_t taker = all[giver].taker(column);
      const uint32_t ranks = rows_of(givers, giver);
      EXPECT_EQ(ranks == 1 ? taker == rank : taker != rank, true) << giver;
      if (taker == rank) continue;
      EXPECT_EQ(domain_of(map, taker), domain_of(map, giver));
      EXPECT_NE(domain_of(map, taker), domain_of(map, rank));
      EXPECT_TRUE(columns.is_leader(taker));
      // Who takes knows it, and expects all of the domain.
      const Ranks& summed = all[taker].summed();
      EXPECT_TRUE(std::binary_search(summed.begin(), summed.end(), column));
      EXPECT_EQ(rows_of(all[taker].in_domain(), giver), 1u);
      EXPECT_EQ(ranks > 1, taker == giver);
    }
  }
}

TEST(DomainColumns, EachLeaderGetsTheRowsOfEachRankOnce) {
  std::mt19937 random(5);
  uint32_t with_domains = 0;
  for (uint32_t turn = 0; turn < 600; ++turn) {
    const uint32_t world = 1 + static_cast<uint32_t>(random() % 24);
    const HostMap map = random_hosts(random, world, 1 + turn % 3, 1 + turn % 4);
    const std::vector<DomainColumns> all = all_of(map);
    with_domains += all[0].any() ? 1 : 0;
    expect_each_rank_counted(map, all);
    if (testing::Test::HasFailure()) FAIL() << "turn " << turn;
  }
  EXPECT_GT(with_domains, 100u);
}

// Given one domain, or ranks that are alone in theirs, expect all to go to the leaders at once.
TEST(DomainColumns, WhereNoneHasSeveralRanksNobodySums) {
  for (const Ranks& domains : {Ranks{0, 0, 0, 0}, Ranks{0, 1, 2, 3}, Ranks{0}}) {
    const HostMap map = testkit::map_of_domains(domains);
    for (const DomainColumns& each : all_of(map)) {
      EXPECT_FALSE(each.any());
      EXPECT_TRUE(each.summed().empty());
    }
  }
  EXPECT_TRUE(DomainColumns(Columns(testkit::map_of_domains({0, 0, 1}), 2)).any());
}

// Given a host of two nodes of eight ranks beside a smaller one, by which one rank of the second
// node leads, expect it not to sum for all the others.
TEST(DomainColumns, AFewLeadersDoNotSumForAll) {
  Ranks hosts(16, 0);
  hosts.insert(hosts.end(), 9, 1);
  HostMap map = testkit::host_map(hosts);
  std::vector<NearMemory> places;
  for (uint32_t rank = 0; rank < hosts.size(); ++rank) places.push_back({.node = rank / 8 % 2});
  set_domains(&map, places);
  const std::vector<DomainColumns> all = all_of(map);
  EXPECT_TRUE(all[0].any()) << "the first node sums what the other leads";
  EXPECT_TRUE(all[8].summed().empty());
  EXPECT_EQ(all[9].taker(0), 0u);
  expect_each_rank_counted(map, all);
}

// Given domains that are caches of one node, expect nobody to sum, in a part of a job either.
TEST(DomainColumns, CachesAreNoNodes) {
  const Ranks domains = {0, 0, 1, 1};
  for (const bool nodes : {false, true}) {
    HostMap map = testkit::host_map(Ranks(4));
    std::vector<NearMemory> places;
    for (const uint32_t domain : domains) {
      places.push_back({.node = nodes ? domain : 0, .cache = domain});
    }
    set_domains(&map, places);
    ASSERT_EQ(domain_count(map, 0), 2u);
    EXPECT_EQ(DomainColumns(Columns(map, 1)).any(), nodes);
    const HostMap part = part_of(map, Ranks{3, 0, 1});
    ASSERT_EQ(domain_count(part, 0), 2u);
    EXPECT_EQ(DomainColumns(Columns(part, 1)).any(), nodes);
  }
}

// The ranks of a host that are bound as the library does it, on a machine of so many packages of
// two NUMA nodes of four PUs.
HostMap bound_ranks(uint32_t packages, uint32_t ranks) {
  Topology machine;
  const std::string xml =
      testkit::XmlWriter::write({.packages = packages, .nodes_per_package = 2, .pus_per_node = 4});
  EXPECT_TRUE(discover({.hwloc_xml = xml, .devices = false}, &machine).ok());
  HostMap map = testkit::host_map(Ranks(ranks));
  std::vector<NearMemory> places;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    BindingPlan plan;
    const BindingRequest request = {.bind = {}, .local_rank = rank, .local_world = ranks};
    EXPECT_TRUE(plan_binding(machine, request, &plan).ok());
    std::string why;
    places.push_back(near_memory(machine, plan.pus, &why));
  }
  set_domains(&map, places);
  return map;
}

// Given four NUMA nodes of four ranks, as lstopo writes them, expect a rank to give its rows within
// its node alone; each rank to sum one column of each other node; and a leader to hear of each
// other node from one rank.
TEST(DomainColumns, RowsAreSummedWithinANumaNode) {
  const HostMap map = bound_ranks(2, 16);
  const std::vector<DomainColumns> all = all_of(map);
  expect_each_rank_counted(map, all);
  for (uint32_t rank = 0; rank < 16; ++rank) {
    EXPECT_TRUE(all[rank].any());
    for (uint32_t column = 0; column < 16; ++column) {
      EXPECT_EQ(all[rank].taker(column) / 4, rank / 4) << "another node's";
      EXPECT_EQ(all[rank].taker(column) % 4, column % 4) << "a turn of its own";
    }
    EXPECT_EQ(all[rank].summed().size(), 3u);
    const std::vector<uint32_t>& given = all[rank].to_leader().rows_of;
    EXPECT_EQ(std::count(given.begin(), given.end(), 4u), 3);
    EXPECT_EQ(std::count(given.begin(), given.end(), 1u), 4);
  }
}

}  // namespace
}  // namespace parallax
