// SPDX-License-Identifier: Apache-2.0
#include "topology/binding_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/xml_machine.h"

namespace parallax {
namespace {

using testkit::XmlMachine;
using testkit::XmlWriter;
using Numbers = std::vector<uint32_t>;

Topology read_without_devices(const XmlMachine& machine) {
  Topology topology;
  const Status status =
      discover({.hwloc_xml = XmlWriter::write(machine), .devices = false}, &topology);
  EXPECT_TRUE(status.ok()) << status.message();
  return topology;
}

// Two packages of 8 PUs.
Topology two_sockets() { return read_without_devices(testkit::eight_gpus(8)); }

// Two packages of two nodes of 4 PUs: NPS2, sub-NUMA clustering.
Topology four_nodes() {
  XmlMachine machine;
  machine.nodes_per_package = 2;
  machine.pus_per_node = 4;
  return read_without_devices(machine);
}

// As mpirun, Slurm and taskset do.
Topology bound_to(Topology topology, const Numbers& pus) {
  topology.bound = true;
  topology.pus_allowed = static_cast<uint32_t>(pus.size());
  for (NumaNode& node : topology.numa_nodes) {
    Numbers kept;
    std::set_intersection(node.allowed.begin(), node.allowed.end(), pus.begin(), pus.end(),
                          std::back_inserter(kept));
    node.allowed = kept;
  }
  return topology;
}

BindingPlan planned(const Topology& topology, uint32_t local_rank, uint32_t local_world,
                    const std::string& bind = "auto") {
  BindingRequest request;
  EXPECT_TRUE(parse_bind(bind, &request.bind).ok()) << bind;
  request.local_rank = local_rank;
  request.local_world = local_world;
  BindingPlan plan;
  const Status status = plan_binding(topology, request, &plan);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_FALSE(plan.why.empty());
  return plan;
}

// The nodes of each rank.
std::vector<Numbers> nodes_of_all(const Topology& topology, uint32_t local_world) {
  std::vector<Numbers> all;
  for (uint32_t rank = 0; rank < local_world; ++rank) {
    all.push_back(planned(topology, rank, local_world).nodes);
  }
  return all;
}

std::string refusal(const Topology& topology, const std::string& bind) {
  BindingRequest request;
  Status status = parse_bind(bind, &request.bind);
  BindingPlan plan;
  if (status.ok()) status = plan_binding(topology, request, &plan);
  EXPECT_EQ(status.code(), PARALLAX_INVALID) << bind;
  EXPECT_EQ(plan, BindingPlan{}) << bind;
  return status.message();
}

TEST(BindingPlan, RanksShareTheSocketsInOrder) {
  const Topology machine = two_sockets();
  EXPECT_EQ(nodes_of_all(machine, 2), (std::vector<Numbers>{{0}, {1}}));
  EXPECT_EQ(nodes_of_all(machine, 3), (std::vector<Numbers>{{0}, {0}, {1}}));
  EXPECT_EQ(nodes_of_all(machine, 8),
            (std::vector<Numbers>{{0}, {0}, {0}, {0}, {1}, {1}, {1}, {1}}));
  const std::vector<Numbers> sixteen = nodes_of_all(machine, 16);
  EXPECT_EQ(std::count(sixteen.begin(), sixteen.end(), Numbers{0}), 8);
  EXPECT_EQ(sixteen[7], Numbers{0});
  EXPECT_EQ(sixteen[8], Numbers{1});
  const BindingPlan last = planned(machine, 7, 8);
  EXPECT_EQ(last.pus, (Numbers{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(last.why, "rank 7 of the 8 ranks on this host, which share out nodes 0-1");
}

TEST(BindingPlan, OneRankHasTheWholeMachine) {
  const BindingPlan plan = planned(two_sockets(), 0, 1);
  EXPECT_TRUE(plan.pus.empty());
  EXPECT_TRUE(plan.nodes.empty());
  EXPECT_EQ(plan.why, "the only rank of its host has the whole machine");
}

TEST(BindingPlan, FewerRanksThanNodesHaveSeveral) {
  const Topology machine = four_nodes();
  EXPECT_EQ(nodes_of_all(machine, 2), (std::vector<Numbers>{{0, 1}, {2, 3}}));
  EXPECT_EQ(planned(machine, 1, 2).pus, (Numbers{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(nodes_of_all(machine, 3), (std::vector<Numbers>{{0}, {1}, {2, 3}}));
  EXPECT_EQ(nodes_of_all(machine, 4), (std::vector<Numbers>{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(nodes_of_all(machine, 6), (std::vector<Numbers>{{0}, {0}, {1}, {2}, {2}, {3}}));
}

// Whatever the numbers: in order, every node used, loads that differ by one at most.
TEST(BindingPlan, SharesAreEven) {
  for (uint32_t packages = 2; packages <= 5; ++packages) {
    XmlMachine xml;
    xml.packages = packages;
    const Topology machine = read_without_devices(xml);
    for (uint32_t world = 2; world <= 40; ++world) {
      std::vector<uint32_t> ranks_on(packages), nodes_of(world);
      uint32_t highest = 0;
      for (uint32_t rank = 0; rank < world; ++rank) {
        for (const uint32_t node : planned(machine, rank, world).nodes) {
          ASSERT_GE(node, highest);
          highest = node;
          ++ranks_on[node];
          ++nodes_of[rank];
        }
      }
      const auto [fewest, most] = std::minmax_element(ranks_on.begin(), ranks_on.end());
      ASSERT_GE(*fewest, 1u) << packages << " nodes, " << world << " ranks";
      ASSERT_LE(*most - *fewest, 1u) << packages << " nodes, " << world << " ranks";
      const auto [least, largest] = std::minmax_element(nodes_of.begin(), nodes_of.end());
      ASSERT_GE(*least, 1u);
      ASSERT_LE(*largest - *least, 1u) << packages << " nodes, " << world << " ranks";
    }
  }
}

TEST(BindingPlan, OneNodeLeavesNothingToDo) {
  XmlMachine xml;
  xml.packages = 1;
  for (const uint32_t world : {1u, 2u, 8u}) {
    const BindingPlan plan = planned(read_without_devices(xml), world - 1, world);
    EXPECT_TRUE(plan.pus.empty());
    EXPECT_TRUE(plan.nodes.empty());
    EXPECT_EQ(plan.why, "the machine has one NUMA node");
  }
  xml.with_hbm = true;
  EXPECT_EQ(planned(read_without_devices(xml), 1, 2).why, "the machine has one NUMA node")
      << "HBM is no place";
}

TEST(BindingPlan, MemoryBesideOtherMemoryIsNoPlace) {
  XmlMachine xml;
  xml.with_hbm = true;
  const Topology machine = read_without_devices(xml);
  ASSERT_EQ(machine.numa_nodes.size(), 4u);
  EXPECT_EQ(nodes_of_all(machine, 4), (std::vector<Numbers>{{0}, {0}, {1}, {1}}));
}

TEST(BindingPlan, ABoundProcessKeepsWhatItHas) {
  // By core, by socket, over a boundary, and over both evenly.
  EXPECT_EQ(planned(bound_to(two_sockets(), {9}), 0, 8).pus, Numbers{9});
  EXPECT_EQ(planned(bound_to(two_sockets(), {9}), 0, 8).nodes, Numbers{1});
  EXPECT_EQ(planned(bound_to(two_sockets(), {8, 9, 10, 11, 12, 13, 14, 15}), 0, 2).nodes,
            Numbers{1});
  const BindingPlan over = planned(bound_to(two_sockets(), {5, 6, 7, 8}), 3, 4);
  EXPECT_EQ(over.pus, (Numbers{5, 6, 7}));
  EXPECT_EQ(over.nodes, Numbers{0});
  EXPECT_EQ(over.why, "this process was bound to 4 PUs; node 0 has most of them");
  const Topology both = bound_to(two_sockets(), {6, 7, 8, 9});
  EXPECT_EQ(nodes_of_all(both, 2), (std::vector<Numbers>{{0}, {1}}));
  EXPECT_EQ(planned(both, 1, 2).pus, (Numbers{8, 9}));
  EXPECT_EQ(planned(both, 0, 1).pus, (Numbers{6, 7, 8, 9})) << "alone: all that it has";
}

// What a container or a batch system's cgroup leaves: ranks are not bound one by one.
TEST(BindingPlan, RanksShareOutWhatTheCgroupAllows) {
  XmlMachine xml;
  xml.nodes_per_package = 2;
  xml.pus_per_node = 4;
  xml.allowed = {0, 1, 2, 3, 4, 8, 9};
  const Topology machine = read_without_devices(xml);
  EXPECT_EQ(nodes_of_all(machine, 3), (std::vector<Numbers>{{0}, {1}, {2}}));
  EXPECT_EQ(planned(machine, 2, 3).pus, (Numbers{8, 9}));
  xml.allowed = {14, 15};
  const BindingPlan only = planned(read_without_devices(xml), 0, 2);
  EXPECT_EQ(only.nodes, Numbers{3});
  EXPECT_EQ(only.pus, (Numbers{14, 15}));
  EXPECT_EQ(only.why, "this process may use PUs of node 3 alone");
}

TEST(BindingPlan, NothingKnownNothingBound) {
  EXPECT_TRUE(planned({}, 0, 2).pus.empty());
  const BindingPlan none = planned(two_sockets(), 3, 8, "none");
  EXPECT_TRUE(none.pus.empty());
  EXPECT_TRUE(none.nodes.empty());
  EXPECT_EQ(none.why, "asked for: none");
}

TEST(BindingPlan, TheNodeAskedFor) {
  const Topology machine = bound_to(four_nodes(), {0, 1, 4, 5, 6, 8});
  const BindingPlan plan = planned(machine, 3, 4, "node:1");
  EXPECT_EQ(plan.nodes, Numbers{1});
  EXPECT_EQ(plan.pus, (Numbers{4, 5, 6}));
  EXPECT_EQ(refusal(machine, "node:4"),
            "bind is 'node:4': the machine has no such NUMA node, it has nodes 0-3; name another, "
            "or use \"auto\" or \"none\"");
  EXPECT_EQ(refusal(machine, "node:3"),
            "bind is 'node:3': it has no PU that this process may use; name another, or use "
            "\"auto\" or \"none\"");
}

TEST(BindingPlan, ThePusAskedFor) {
  const Topology machine = four_nodes();
  const BindingPlan one = planned(machine, 0, 4, "pus:5,6");
  EXPECT_EQ(one.pus, (Numbers{5, 6}));
  EXPECT_EQ(one.nodes, Numbers{1});
  EXPECT_EQ(planned(machine, 0, 4, "pus:7-8").nodes, (Numbers{1, 2}));
  EXPECT_TRUE(planned(machine, 0, 4, "pus:0-15").nodes.empty()) << "everywhere";
  EXPECT_EQ(refusal(machine, "pus:14-17"),
            "bind is 'pus:14-17': the machine has no PU 16, it has 0-15; name others, or use "
            "\"auto\" or \"none\"");
}

TEST(BindingPlan, SettingsThatAreNone) {
  for (const char* text : {"Auto", "node", "node:", "node:x", "node:1,2", "node:0-1", "node:-1",
                           "node:65536", "pus", "pus:", "pus:1-", "pus:3-2", "cores:1", " auto"}) {
    Bind bind;
    const Status status = parse_bind(text, &bind);
    EXPECT_EQ(status.code(), PARALLAX_INVALID) << text;
    EXPECT_EQ(status.message().find("bind is '" + std::string(text) + "'; "), 0u)
        << status.message();
  }
  Bind bind;
  EXPECT_EQ(parse_bind("pus:", &bind).message(),
            "bind is 'pus:'; after pus: stands a list of PUs such as 0-3,8");
  const std::string message = parse_bind(std::string(5000, 'a'), &bind).message();
  EXPECT_LT(message.size(), 300u) << "a wrong value is not repeated at any length";
}

TEST(BindingPlan, SettingsThatAreSome) {
  Bind bind;
  ASSERT_TRUE(parse_bind("", &bind).ok());
  EXPECT_EQ(bind, Bind{});
  ASSERT_TRUE(parse_bind("none", &bind).ok());
  EXPECT_EQ(bind.mode, Bind::Mode::kNone);
  ASSERT_TRUE(parse_bind("node:12", &bind).ok());
  EXPECT_EQ(bind, (Bind{.mode = Bind::Mode::kNode, .node = 12, .pus = {}}));
  ASSERT_TRUE(parse_bind("pus:4,0-1", &bind).ok());
  EXPECT_EQ(bind, (Bind{.mode = Bind::Mode::kPus, .node = 0, .pus = {0, 1, 4}}));
}

}  // namespace
}  // namespace parallax
