// SPDX-License-Identifier: Apache-2.0
#include "topology/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/machine_memory.h"
#include "support/xml_machine.h"

namespace parallax {
namespace {

using Json = nlohmann::json;

using testkit::XmlBridge;
using testkit::XmlMachine;
using testkit::XmlWriter;

// Two packages of two cores, a NUMA node and an L3 cache each; package 1 has an mlx5 NIC.
std::string two_packages(std::vector<uint32_t> allowed = {}) {
  XmlMachine machine;
  machine.allowed = std::move(allowed);
  machine.pci.resize(2);
  machine.pci[1].push_back({.devices = {{.bus_id = "0000:3b:00.0",
                                         .type = "0207 [15b3:1017]",
                                         .openfabrics = "mlx5_0",
                                         .port_states = "41"}}});
  return XmlWriter::write(machine);
}

Topology read(const XmlMachine& machine) {
  Topology topology;
  const Status status = discover({.hwloc_xml = XmlWriter::write(machine)}, &topology);
  EXPECT_TRUE(status.ok()) << status.message();
  return topology;
}

using Names = std::vector<std::string>;
using Numbers = std::vector<uint32_t>;

TEST(Topology, ReadsHwlocXml) {
  Topology topology;
  const Status status = discover({.hwloc_xml = two_packages()}, &topology);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(topology.packages, 2u);
  EXPECT_EQ(topology.cores, 4u);
  EXPECT_EQ(topology.pus, 4u);
  EXPECT_EQ(topology.pus_allowed, 4u);
  EXPECT_EQ(topology.memory_bytes, 2 * 8589934592u);
  EXPECT_EQ(topology.host, "") << "a file has no identity";
  const std::vector<NumaNode> nodes = {{.index = 0,
                                        .memory_bytes = 8589934592,
                                        .pus = 2,
                                        .pu_indices = {0, 1},
                                        .allowed = {0, 1},
                                        .nics = {"mlx5_0"}},
                                       {.index = 1,
                                        .memory_bytes = 8589934592,
                                        .pus = 2,
                                        .pu_indices = {2, 3},
                                        .allowed = {2, 3},
                                        .nics = {"mlx5_0"}}};
  EXPECT_EQ(topology.numa_nodes, nodes);
  EXPECT_EQ(topology.pu_indices, (Numbers{0, 1, 2, 3}));
  EXPECT_FALSE(topology.bound) << "a file has no process";
  EXPECT_TRUE(topology.gpus.empty());
}

TEST(Topology, AlikeCachesAreOneEntry) {
  Topology topology;
  ASSERT_TRUE(discover({.hwloc_xml = two_packages()}, &topology).ok());
  ASSERT_EQ(topology.caches.size(), 2u);
  EXPECT_EQ(topology.caches[0].level, 1u);
  EXPECT_EQ(topology.caches[0].kind, "data");
  EXPECT_EQ(topology.caches[0].count, 4u);
  EXPECT_EQ(topology.caches[0].pus_sharing, 1u);
  EXPECT_EQ(topology.caches[1].level, 3u);
  EXPECT_EQ(topology.caches[1].kind, "unified");
  EXPECT_EQ(topology.caches[1].size_bytes, 16777216u);
  EXPECT_EQ(topology.caches[1].line_bytes, 64u);
  EXPECT_EQ(topology.caches[1].count, 2u);
  EXPECT_EQ(topology.caches[1].pus_sharing, 2u);
}

TEST(Topology, NicsComeWithTheirNumaNode) {
  Topology topology;
  ASSERT_TRUE(discover({.hwloc_xml = two_packages()}, &topology).ok());
  const Nic expected = {.name = "mlx5_0",
                        .pci_bus_id = "0000:3b:00.0",
                        .numa_node = 1,
                        .ports = {{.number = 1, .state = "active", .link_layer = "unknown"},
                                  {.number = 2, .state = "down", .link_layer = "unknown"}}};
  ASSERT_EQ(topology.nics.size(), 1u);
  EXPECT_EQ(topology.nics[0], expected);
}

TEST(Topology, NicsAreLeftOutOnRequest) {
  Topology topology;
  ASSERT_TRUE(discover({.hwloc_xml = two_packages(), .devices = false}, &topology).ok());
  EXPECT_TRUE(topology.nics.empty());
  XmlMachine machine = testkit::eight_gpus();
  ASSERT_TRUE(discover({.hwloc_xml = XmlWriter::write(machine), .devices = false}, &topology).ok());
  EXPECT_TRUE(topology.gpus.empty());
}

TEST(Topology, EightGpusAndNicsOnFourSwitches) {
  const Topology topology = read(testkit::eight_gpus());
  EXPECT_EQ(topology.packages, 2u);
  EXPECT_EQ(topology.pus, 8u);
  ASSERT_EQ(topology.nics.size(), 9u);
  ASSERT_EQ(topology.gpus.size(), 8u) << "a management controller's display is no GPU";
  for (uint32_t i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    const std::string digit = std::to_string(i);
    EXPECT_EQ(topology.nics[i].name, "mlx5_" + digit);
    EXPECT_EQ(topology.nics[i].pci_bus_id, "0000:4" + digit + ":00.0");
    EXPECT_EQ(topology.nics[i].numa_node, i < 4 ? 0 : 1);
    const std::string even = std::to_string(i / 2 * 2), odd = std::to_string(i / 2 * 2 + 1);
    const Gpu expected = {.pci_bus_id = "0000:2" + digit + ":00.0",
                          .vendor = "NVIDIA",
                          .model = "10de:2330",
                          .numa_node = i < 4 ? 0 : 1,
                          .nics = {"mlx5_" + even, "mlx5_" + odd}};
    EXPECT_EQ(topology.gpus[i], expected);
  }
}

TEST(Topology, TheNearestNicSharesTheMostBuses) {
  // One host bridge: a switch with a GPU beside a NIC one bridge further down, a GPU without a NIC
  // on its switch; and another host bridge of the same package.
  const XmlBridge with_nic = {.devices = {{.bus_id = "0000:11:00.0", .type = "0302 [10de:2330]"}},
                              .below = {{.devices = {{.bus_id = "0000:12:00.0",
                                                      .type = "0207 [15b3:1021]",
                                                      .openfabrics = "near"}}}}};
  const XmlBridge without = {.devices = {{.bus_id = "0000:13:00.0", .type = "1200 [1002:74a1]"}}};
  const XmlBridge apart = {
      .devices = {{.bus_id = "0000:20:00.0", .type = "0207 [15b3:1021]", .openfabrics = "apart"}}};
  const XmlBridge remote = {.devices = {{.bus_id = "0000:80:00.0", .type = "0380 [8086:0bda]"}}};
  XmlMachine machine;
  machine.pci = {{{.below = {with_nic, without}}, apart}, {remote}};
  const Topology topology = read(machine);
  ASSERT_EQ(topology.gpus.size(), 3u);
  EXPECT_EQ(topology.gpus[0].nics, Names{"near"});
  EXPECT_EQ(topology.gpus[1].nics, Names{"near"}) << "the same host bridge";
  EXPECT_EQ(topology.gpus[1].vendor, "AMD");
  EXPECT_EQ(topology.gpus[2].nics, (Names{"apart", "near"})) << "on the other package: all tie";
  EXPECT_EQ(topology.gpus[2].vendor, "Intel");
  EXPECT_EQ(topology.gpus[2].numa_node, 1);
}

TEST(Topology, WhatIsAGpu) {
  XmlBridge bus;
  uint32_t next = 1;
  for (const char* type : {"0300 [10de:1eb8]", "0403 [10de:10f8]", "0300 [102b:0538]",
                           "1200 [8086:0b25]", "1200 [1da3:1000]", "0200 [8086:1572]"}) {
    bus.devices.push_back({.bus_id = "0000:0" + std::to_string(next++) + ":00.0", .type = type});
  }
  bus.devices[0].model = "TU104GL [Tesla T4]";
  XmlMachine machine;
  machine.packages = 1;
  machine.pci = {{bus}};
  const Topology topology = read(machine);
  ASSERT_EQ(topology.gpus.size(), 2u);
  const Gpu tesla = {.pci_bus_id = "0000:01:00.0",
                     .vendor = "NVIDIA",
                     .model = "TU104GL [Tesla T4]",
                     .numa_node = 0,
                     .nics = {}};
  EXPECT_EQ(topology.gpus[0], tesla);
  EXPECT_EQ(topology.gpus[1].pci_bus_id, "0000:04:00.0");
  EXPECT_TRUE(topology.nics.empty()) << "Ethernet without RDMA";
}

TEST(Topology, FourNodesInTwoPackages) {
  XmlMachine machine;
  machine.nodes_per_package = 2;
  machine.pus_per_node = 16;
  machine.allowed = {0, 1, 17, 40};
  const Topology topology = read(machine);
  EXPECT_EQ(topology.packages, 2u);
  EXPECT_EQ(topology.pus, 64u);
  EXPECT_EQ(topology.pus_allowed, 4u);
  ASSERT_EQ(topology.numa_nodes.size(), 4u);
  EXPECT_EQ(topology.numa_nodes[0].allowed, (Numbers{0, 1}));
  EXPECT_EQ(topology.numa_nodes[1].allowed, Numbers{17});
  EXPECT_EQ(topology.numa_nodes[2].allowed, Numbers{40});
  EXPECT_TRUE(topology.numa_nodes[3].allowed.empty());
  EXPECT_EQ(topology.numa_nodes[3].pu_indices.front(), 48u);
}

TEST(Topology, TellsAllowedPusFromThoseOfTheMachine) {
  Topology topology;
  const std::string xml = two_packages({1, 2});
  ASSERT_TRUE(discover({.hwloc_xml = xml}, &topology).ok());
  EXPECT_EQ(topology.pus, 4u);
  EXPECT_EQ(topology.pus_allowed, 2u);
}

TEST(Topology, MalformedXmlIsAStatus) {
  const std::string good = two_packages();
  for (const std::string& xml : {std::string("garbage"), good.substr(0, good.size() / 2),
                                 std::string(1, '\0'), std::string("<topology version=\"2.0\">")}) {
    Topology topology;
    topology.host = "left over";
    const Status status = discover({.hwloc_xml = xml}, &topology);
    EXPECT_EQ(status.code(), PARALLAX_INVALID) << xml;
    EXPECT_FALSE(status.message().empty());
    EXPECT_EQ(topology, Topology{}) << "nothing half filled in";
  }
}

TEST(Topology, ThisMachine) {
  Topology topology;
  const Status status = discover({}, &topology);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_FALSE(topology.host.empty());
  EXPECT_GE(topology.pus, 1u);
  EXPECT_GE(topology.pus_allowed, 1u);
  EXPECT_LE(topology.pus_allowed, topology.pus);
  EXPECT_GE(topology.numa_nodes.size(), 1u);
  EXPECT_EQ(topology.pu_indices.size(), topology.pus);
  EXPECT_GE(topology.memory_bytes, installed_memory_bytes()) << "memory that was plugged in too";
  if (topology.numa_nodes.size() == 1) {
    EXPECT_EQ(topology.numa_nodes[0].memory_bytes, topology.memory_bytes);
  }
  if (std::filesystem::exists("/sys/devices/system/node/online")) {
    EXPECT_EQ(online_numa_nodes().size(), topology.numa_nodes.size());
  }
  for (size_t i = 1; i < topology.nics.size(); ++i) {
    EXPECT_LT(topology.nics[i - 1].name, topology.nics[i].name);
  }
}

// All threads of this process, a sanitizer's too, as `taskset -a` does.
bool bind_process(uint32_t pu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(pu, &set);
  bool done = true;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const int thread = std::stoi(task.path().filename().string());
    done = sched_setaffinity(thread, sizeof set, &set) == 0 && done;
  }
  return done;
}

// In a child, which ends with its binding.
TEST(Topology, ABoundProcessIsKnown) {
  Topology before;
  ASSERT_TRUE(discover({.hwloc_xml = "", .devices = false}, &before).ok());
  ASSERT_GE(before.pus_allowed, 1u);
  Numbers allowed;
  for (const NumaNode& node : before.numa_nodes) {
    allowed.insert(allowed.end(), node.allowed.begin(), node.allowed.end());
  }
  const uint32_t pu = *std::max_element(allowed.begin(), allowed.end());
  EXPECT_EXIT(
      {
        Topology bound;
        const bool done =
            bind_process(pu) && discover({.hwloc_xml = "", .devices = false}, &bound).ok();
        Numbers left;
        for (const NumaNode& node : bound.numa_nodes) {
          left.insert(left.end(), node.allowed.begin(), node.allowed.end());
        }
        const bool expected = before.bound || before.pus_allowed > 1;
        std::_Exit(done && bound.bound == expected && left == Numbers{pu} ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Topology, DiscoveryIsRepeatable) {
  Topology first, second;
  ASSERT_TRUE(discover({}, &first).ok());
  ASSERT_TRUE(discover({}, &second).ok());
  EXPECT_EQ(first, second);
}

TEST(Topology, Json) {
  Topology topology;
  ASSERT_TRUE(discover({.hwloc_xml = two_packages()}, &topology).ok());
  const Json json = Json::parse(topology_json(topology));
  EXPECT_EQ(json["packages"], 2);
  EXPECT_EQ(json["pus_allowed"], 4);
  EXPECT_EQ(json["numa_nodes"][1]["memory_bytes"], 8589934592);
  EXPECT_EQ(json["caches"][0]["count"], 4);
  EXPECT_EQ(json["nics"][0]["name"], "mlx5_0");
  EXPECT_EQ(json["nics"][0]["numa_node"], 1);
  EXPECT_EQ(json["nics"][0]["ports"][0]["state"], "active");
  EXPECT_EQ(json["nics"][0]["pci_bus_id"], "0000:3b:00.0");
  EXPECT_EQ(json["bound"], false);
  EXPECT_EQ(json["pu_indices"], "0-3");
  EXPECT_EQ(json["numa_nodes"][1]["pu_indices"], "2-3");
  EXPECT_EQ(json["numa_nodes"][1]["allowed"], "2-3");
  EXPECT_EQ(json["gpus"], Json::array());
}

TEST(Topology, JsonOfGpus) {
  const Json json = Json::parse(topology_json(read(testkit::eight_gpus())));
  ASSERT_EQ(json["gpus"].size(), 8u);
  const Json expected = {{"pci_bus_id", "0000:27:00.0"},
                         {"vendor", "NVIDIA"},
                         {"model", "10de:2330"},
                         {"numa_node", 1},
                         {"nics", {"mlx5_6", "mlx5_7"}}};
  EXPECT_EQ(json["gpus"][7], expected);
}

TEST(Topology, JsonOfNothing) {
  const Json json = Json::parse(topology_json({}));
  EXPECT_EQ(json["nics"], Json::array());
  EXPECT_EQ(json["host"], "");
}

TEST(Topology, JsonRepairsNames) {
  Topology topology;
  topology.host = "bad\xff";
  topology.nics.resize(1);
  topology.gpus.resize(1);
  const Json json = Json::parse(topology_json(topology));
  EXPECT_EQ(json["host"], "bad\xef\xbf\xbd");
  EXPECT_TRUE(json["nics"][0]["numa_node"].is_null());
  EXPECT_TRUE(json["gpus"][0]["numa_node"].is_null());
}

}  // namespace
}  // namespace parallax
