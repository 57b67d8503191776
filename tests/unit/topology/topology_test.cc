// SPDX-License-Identifier: Apache-2.0
#include "topology/topology.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace parallax {
namespace {

using Json = nlohmann::json;

// Objects of hwloc's XML, version 2. Sets are bit masks; gp_index is unique in a document.
class XmlMachine {
 public:
  // Two packages of two cores, a NUMA node and an L3 cache each; package 1 has an mlx5 NIC.
  static std::string two_packages(const std::string& allowed_pus = "0x0000000f") {
    XmlMachine xml;
    // Each of the opening declarations on its line, as lstopo writes them: hwloc without its libxml
    // plugin reads no other.
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
           "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
           R"(<topology version="2.0"><object type="Machine" os_index="0" allowed_cpuset=")" +
           allowed_pus + R"(" allowed_nodeset="0x00000003")" +
           xml.sets("0x0000000f", "0x00000003") + ">" +
           xml.package(0, "0x00000001", "0x00000002", "0x00000003") +
           xml.package(1, "0x00000004", "0x00000008", "0x0000000c") + "</object></topology>";
  }

 private:
  using Text = std::string;

  Text sets(const Text& pus, const Text& nodes) {
    return " cpuset=\"" + pus + "\" complete_cpuset=\"" + pus + "\" nodeset=\"" + nodes +
           "\" complete_nodeset=\"" + nodes + "\" gp_index=\"" + std::to_string(++objects_) + "\"";
  }

  Text core(uint32_t index, const Text& pu, const Text& node) {
    const Text number = " os_index=\"" + std::to_string(index) + "\"";
    return "<object type=\"L1Cache\" cache_size=\"32768\" depth=\"1\" cache_linesize=\"64\" "
           "cache_associativity=\"0\" cache_type=\"1\"" +
           sets(pu, node) + "><object type=\"Core\"" + number + sets(pu, node) +
           "><object type=\"PU\"" + number + sets(pu, node) + "/></object></object>";
  }

  Text open(const Text& type) {
    return "<object type=\"" + type + "\" gp_index=\"" + std::to_string(++objects_) + "\" ";
  }

  Text nic() {
    Text text = open("Bridge") + "bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[00-3f]\">";
    text += open("PCIDev") + "pci_busid=\"0000:3b:00.0\" pci_link_speed=\"0.0\" ";
    text += "pci_type=\"0207 [15b3:1017] [15b3:0000] 00\">";
    text += open("OSDev") + "name=\"mlx5_0\" osdev_type=\"3\">";
    text += "<info name=\"Port1State\" value=\"4\"/><info name=\"Port2State\" value=\"1\"/>";
    return text + "</object></object></object>";
  }

  Text package(uint32_t index, const Text& pu0, const Text& pu1, const Text& both) {
    const Text number = " os_index=\"" + std::to_string(index) + "\"";
    const Text node = index == 0 ? "0x00000001" : "0x00000002";
    return "<object type=\"Package\"" + number + sets(both, node) +
           "><object type=\"NUMANode\" local_memory=\"8589934592\"" + number + sets(both, node) +
           "/><object type=\"L3Cache\" cache_size=\"16777216\" depth=\"3\" cache_linesize=\"64\" "
           "cache_associativity=\"0\" cache_type=\"0\"" +
           sets(both, node) + ">" + core(2 * index, pu0, node) + core(2 * index + 1, pu1, node) +
           "</object>" + (index == 1 ? nic() : "") + "</object>";
  }

  uint32_t objects_ = 0;
};

TEST(Topology, ReadsHwlocXml) {
  Topology topology;
  const Status status = discover({.hwloc_xml = XmlMachine::two_packages()}, &topology);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(topology.packages, 2u);
  EXPECT_EQ(topology.cores, 4u);
  EXPECT_EQ(topology.pus, 4u);
  EXPECT_EQ(topology.pus_allowed, 4u);
  EXPECT_EQ(topology.memory_bytes, 2 * 8589934592u);
  EXPECT_EQ(topology.host, "") << "a file has no identity";
  const std::vector<NumaNode> nodes = {{.index = 0, .memory_bytes = 8589934592, .pus = 2},
                                       {.index = 1, .memory_bytes = 8589934592, .pus = 2}};
  EXPECT_EQ(topology.numa_nodes, nodes);
}

TEST(Topology, AlikeCachesAreOneEntry) {
  Topology topology;
  ASSERT_TRUE(discover({.hwloc_xml = XmlMachine::two_packages()}, &topology).ok());
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
  ASSERT_TRUE(discover({.hwloc_xml = XmlMachine::two_packages()}, &topology).ok());
  const Nic expected = {.name = "mlx5_0",
                        .numa_node = 1,
                        .ports = {{.number = 1, .state = "active", .link_layer = "unknown"},
                                  {.number = 2, .state = "down", .link_layer = "unknown"}}};
  ASSERT_EQ(topology.nics.size(), 1u);
  EXPECT_EQ(topology.nics[0], expected);
}

TEST(Topology, NicsAreLeftOutOnRequest) {
  Topology topology;
  ASSERT_TRUE(discover({.hwloc_xml = XmlMachine::two_packages(), .nics = false}, &topology).ok());
  EXPECT_TRUE(topology.nics.empty());
}

TEST(Topology, TellsAllowedPusFromThoseOfTheMachine) {
  Topology topology;
  const std::string xml = XmlMachine::two_packages("0x00000006");
  ASSERT_TRUE(discover({.hwloc_xml = xml}, &topology).ok());
  EXPECT_EQ(topology.pus, 4u);
  EXPECT_EQ(topology.pus_allowed, 2u);
}

TEST(Topology, MalformedXmlIsAStatus) {
  const std::string good = XmlMachine::two_packages();
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
  for (size_t i = 1; i < topology.nics.size(); ++i) {
    EXPECT_LT(topology.nics[i - 1].name, topology.nics[i].name);
  }
}

TEST(Topology, DiscoveryIsRepeatable) {
  Topology first, second;
  ASSERT_TRUE(discover({}, &first).ok());
  ASSERT_TRUE(discover({}, &second).ok());
  EXPECT_EQ(first, second);
}

TEST(Topology, Json) {
  Topology topology;
  ASSERT_TRUE(discover({.hwloc_xml = XmlMachine::two_packages()}, &topology).ok());
  const Json json = Json::parse(topology_json(topology));
  EXPECT_EQ(json["packages"], 2);
  EXPECT_EQ(json["pus_allowed"], 4);
  EXPECT_EQ(json["numa_nodes"][1]["memory_bytes"], 8589934592);
  EXPECT_EQ(json["caches"][0]["count"], 4);
  EXPECT_EQ(json["nics"][0]["name"], "mlx5_0");
  EXPECT_EQ(json["nics"][0]["numa_node"], 1);
  EXPECT_EQ(json["nics"][0]["ports"][0]["state"], "active");
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
  const Json json = Json::parse(topology_json(topology));
  EXPECT_EQ(json["host"], "bad\xef\xbf\xbd");
  EXPECT_TRUE(json["nics"][0]["numa_node"].is_null());
}

}  // namespace
}  // namespace parallax
