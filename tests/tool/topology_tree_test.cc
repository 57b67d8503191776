// SPDX-License-Identifier: Apache-2.0
#include "tool/topology_tree.h"

#include <gtest/gtest.h>

#include <string>

#include "support/nic_tables.h"
#include "support/xml_machine.h"

namespace parallax::tool {
namespace {

using testkit::infiniband_port;
using testkit::roce_port;
using testkit::XmlMachine;
using testkit::XmlWriter;

Topology read(const XmlMachine& machine) {
  Topology topology;
  const Status status = discover({.hwloc_xml = XmlWriter::write(machine)}, &topology);
  EXPECT_TRUE(status.ok()) << status.message();
  return topology;
}

TEST(TopologyTree, Rates) {
  EXPECT_EQ(rate_text(0), "rate unknown");
  EXPECT_EQ(rate_text(2'500), "2.5 Gbit/s");
  EXPECT_EQ(rate_text(400'000), "400 Gbit/s");
}

TEST(TopologyTree, Ports) {
  EXPECT_EQ(port_text(infiniband_port()),
            "active, InfiniBand, 400 Gbit/s, MTU 4096 of 4096, LID 7");
  EXPECT_EQ(port_text(testkit::down_port()),
            "down (polling), InfiniBand, 10 Gbit/s, MTU 4096 of 4096");
  EXPECT_EQ(port_text({.number = 1, .state = "active", .link_layer = "unknown"}),
            "active, link layer unknown, rate unknown")
      << "what hwloc alone says";
}

TEST(TopologyTree, TwoSocketsWithANicEach) {
  XmlMachine machine;
  machine.pci.resize(2);
  machine.pci[0].push_back(
      {.devices = {
           {.bus_id = "0000:17:00.0", .type = "0200 [15b3:101d]", .openfabrics = "mlx5_0"}}});
  machine.pci[1].push_back(
      {.devices = {
           {.bus_id = "0000:a1:00.0", .type = "0302 [10de:2330]"},
           {.bus_id = "0000:b1:00.0", .type = "0200 [15b3:101d]", .openfabrics = "mlx5_1"}}});
  Topology topology = read(machine);
  topology.nics[0].ports = {roce_port()};
  topology.nics[0].firmware = "22.39.2048";
  topology.nics[1].ports = {};
  topology.nics[1].error = "its file in /dev/infiniband cannot be opened: Permission denied";
  EXPECT_EQ(topology_tree(topology),
            "NUMA node 0; nearest mlx5_0\n"
            "`-- NIC mlx5_0 0000:17:00.0, firmware 22.39.2048\n"
            "    `-- port 1: active, Ethernet, 100 Gbit/s, MTU 4096 of 4096\n"
            "        |-- GID 0: fe80::ba3f:d2ff:fe12:3456 (RoCE v1, link-local, eth2)\n"
            "        |-- GID 1: fe80::ba3f:d2ff:fe12:3456 (RoCE v2, link-local, eth2)\n"
            "        |-- GID 2: ::ffff:10.1.2.3 (RoCE v1, IPv4, eth2)\n"
            "        `-- GID 3: ::ffff:10.1.2.3 (RoCE v2, IPv4, eth2), the one that UCX takes\n"
            "NUMA node 1; nearest mlx5_1\n"
            "|-- GPU 0000:a1:00.0 NVIDIA 10de:2330; nearest mlx5_1\n"
            "`-- NIC mlx5_1 0000:b1:00.0: its file in /dev/infiniband cannot be opened: Permission "
            "denied\n"
            "Rails, with a rank for each GPU\n"
            "`-- local rank 0: mlx5_0:1, none of those nearest to GPU 0000:a1:00.0 works\n");
}

TEST(TopologyTree, EightGpus) {
  Topology topology = read(testkit::eight_gpus());
  for (Nic& nic : topology.nics) nic.ports = {infiniband_port()};
  const std::string tree = topology_tree(topology);
  EXPECT_NE(tree.find("|-- GPU 0000:20:00.0 NVIDIA 10de:2330; nearest mlx5_0, mlx5_1\n"),
            std::string::npos)
      << tree;
  EXPECT_NE(tree.find("Rails, with a rank for each GPU\n"
                      "|-- local rank 0: mlx5_0:1, nearest to GPU 0000:20:00.0\n"
                      "|-- local rank 1: mlx5_1:1, nearest to GPU 0000:21:00.0\n"),
            std::string::npos)
      << tree;
}

TEST(TopologyTree, WithoutNics) {
  Topology topology = read({});
  topology.no_nics_why = "no such NIC";
  EXPECT_EQ(topology_tree(topology),
            "NUMA node 0\nNUMA node 1\nNICs for RDMA: none: no such NIC\n");
}

TEST(TopologyTree, NoPortThatWorks) {
  Topology topology;
  topology.nics = {testkit::nic_with("mlx5_0", {testkit::down_port()})};
  topology.nics[0].numa_node = kNoNumaNode;
  const std::string tree = topology_tree(topology);
  EXPECT_NE(tree.find("NUMA node unknown\n`-- NIC mlx5_0"), std::string::npos) << tree;
  EXPECT_NE(tree.find("Rails: none: no port of an RDMA device works: mlx5_0:1: it is down"),
            std::string::npos)
      << tree;
}

}  // namespace
}  // namespace parallax::tool
