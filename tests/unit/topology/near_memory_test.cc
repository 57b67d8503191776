// SPDX-License-Identifier: Apache-2.0
// Which ranks of large machines, from files, are near each other.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/host_map_of.h"
#include "support/xml_machine.h"
#include "topology/binding_plan.h"
#include "topology/topology.h"

namespace parallax {
namespace {

using testkit::XmlMachine;
using testkit::XmlWriter;
using Ranks = std::vector<uint32_t>;

Topology machine_of(const XmlMachine& xml) {
  Topology topology;
  const Status found = discover({.hwloc_xml = XmlWriter::write(xml), .devices = false}, &topology);
  EXPECT_TRUE(found.ok()) << found.message();
  return topology;
}

// Two packages of four NUMA nodes of eight PUs, with two caches of the last level each.
XmlMachine large() {
  return {.packages = 2, .nodes_per_package = 4, .pus_per_node = 8, .caches_per_node = 2};
}

TEST(NearMemory, IsWhatAllItsPusHaveInCommon) {
  const Topology machine = machine_of(large());
  ASSERT_EQ(machine.last_caches.size(), 16u);
  EXPECT_EQ(machine.last_caches[5], (Ranks{20, 21, 22, 23}));
  std::string why;
  EXPECT_EQ(near_memory(machine, {21}, &why), (NearMemory{2, 5}));
  EXPECT_EQ(why, "it runs on PUs 21, of NUMA node 2 and the cache of PUs 20-23");
  EXPECT_EQ(near_memory(machine, {20, 21, 22, 23}, &why), (NearMemory{2, 5}));
  EXPECT_EQ(near_memory(machine, {19, 20}, &why), (NearMemory{2, NearMemory::kUnknown}));
  EXPECT_EQ(why, "it runs on PUs 19-20, of NUMA node 2");
  EXPECT_EQ(near_memory(machine, {7, 8}, &why), NearMemory());
  EXPECT_EQ(why, "it runs on PUs 7-8, of several NUMA nodes");
  EXPECT_EQ(near_memory(machine, {}, &why), NearMemory());
}

// Memory of another kind beside a node's own is no other place.
TEST(NearMemory, OrdinaryMemoryComesFirst) {
  XmlMachine xml;
  xml.with_hbm = true;
  std::string why;
  EXPECT_EQ(near_memory(machine_of(xml), {2, 3}, &why).node, 1u);
}

// The domains of so many ranks of a host that are bound as the library does it.
std::vector<uint32_t> domains_of(const Topology& machine, uint32_t ranks) {
  HostMap hosts = testkit::host_map(std::vector<uint32_t>(ranks));
  std::vector<NearMemory> places;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    BindingPlan plan;
    EXPECT_TRUE(
        plan_binding(machine, {.bind = {}, .local_rank = rank, .local_world = ranks}, &plan).ok());
    std::string why;
    places.push_back(near_memory(machine, plan.pus, &why));
  }
  set_domains(&hosts, places);
  return hosts.domain_of;
}

// Given ranks for all cores, half of them, or two, expect them to be grouped by the nodes that they
// were given; and on a machine of one node, nothing.
TEST(NearMemory, RanksOfANodeAreADomain) {
  const Topology machine = machine_of(large());
  const auto in_order = [](uint32_t ranks, uint32_t each) {
    Ranks domains(ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) domains[rank] = rank / each;
    return domains;
  };
  EXPECT_EQ(domains_of(machine, 64), in_order(64, 8));
  EXPECT_EQ(domains_of(machine, 32), in_order(32, 4));
  EXPECT_TRUE(domains_of(machine, 2).empty()) << "several nodes each";
  EXPECT_TRUE(domains_of(machine_of({.packages = 1}), 8).empty());
}

// Given ranks that a launcher bound to cores of a machine of one node and several caches, expect
// those that share one to be a domain.
TEST(NearMemory, RanksOfACacheAreADomain) {
  const Topology machine = machine_of({.packages = 1, .pus_per_node = 16, .caches_per_node = 4});
  HostMap hosts = testkit::host_map(Ranks(8));
  std::vector<NearMemory> places;
  for (uint32_t rank = 0; rank < 8; ++rank) {
    std::string why;
    places.push_back(near_memory(machine, {rank * 2}, &why));
  }
  set_domains(&hosts, places);
  EXPECT_EQ(hosts.domain_of, (Ranks{0, 0, 1, 1, 2, 2, 3, 3}));
}

}  // namespace
}  // namespace parallax
