// SPDX-License-Identifier: Apache-2.0
#include "topology/nic_ports.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "support/nic_tables.h"

namespace parallax {
namespace {

using testkit::gid_entry;
using testkit::infiniband_port;
using testkit::nic_with;
using testkit::roce_port;

TEST(NicPorts, NamesOfNumbers) {
  EXPECT_EQ(port_state_name(1), "down");
  EXPECT_EQ(port_state_name(4), "active");
  EXPECT_EQ(port_state_name(6), "unknown");
  EXPECT_EQ(physical_state_name(2), "polling");
  EXPECT_EQ(physical_state_name(3), "disabled");
  EXPECT_EQ(physical_state_name(5), "link_up");
  EXPECT_EQ(physical_state_name(200), "unknown");
  EXPECT_EQ(gid_type_name(0), "ib");
  EXPECT_EQ(gid_type_name(1), "roce_v1");
  EXPECT_EQ(gid_type_name(2), "roce_v2");
  EXPECT_EQ(gid_type_name(3), "unknown");
}

TEST(NicPorts, MtuOfNumbers) {
  EXPECT_EQ(mtu_bytes_of(0), 0u);
  EXPECT_EQ(mtu_bytes_of(1), 256u);
  EXPECT_EQ(mtu_bytes_of(3), 1024u);
  EXPECT_EQ(mtu_bytes_of(5), 4096u);
  EXPECT_EQ(mtu_bytes_of(6), 0u);
}

TEST(NicPorts, RatesAreLanesTimesSpeed) {
  EXPECT_EQ(rate_mbit_s_of(2, 1), 10'000u) << "SDR";
  EXPECT_EQ(rate_mbit_s_of(2, 4), 40'000u) << "QDR";
  EXPECT_EQ(rate_mbit_s_of(2, 16), 56'000u) << "FDR";
  EXPECT_EQ(rate_mbit_s_of(2, 32), 100'000u) << "EDR";
  EXPECT_EQ(rate_mbit_s_of(2, 64), 200'000u) << "HDR";
  EXPECT_EQ(rate_mbit_s_of(16, 64), 100'000u) << "HDR100: two lanes";
  EXPECT_EQ(rate_mbit_s_of(2, 128), 400'000u) << "NDR";
  EXPECT_EQ(rate_mbit_s_of(2, 256), 800'000u) << "XDR";
  EXPECT_EQ(rate_mbit_s_of(1, 1), 2'500u) << "soft-RoCE says so";
  EXPECT_EQ(rate_mbit_s_of(3, 32), 0u);
  EXPECT_EQ(rate_mbit_s_of(2, 3), 0u);
}

TEST(NicPorts, Addresses) {
  std::array<uint8_t, 16> raw = {};
  raw[10] = raw[11] = 0xff;
  raw[12] = 10;
  raw[15] = 3;
  EXPECT_EQ(gid_address(raw), "::ffff:10.0.0.3");
  raw = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  EXPECT_EQ(gid_address(raw), "fe80::1");
}

TEST(NicPorts, FamiliesOfAddresses) {
  EXPECT_EQ(family_of(gid_entry(0, "::ffff:10.0.0.3", "roce_v2")), GidFamily::kIpv4);
  EXPECT_EQ(family_of(gid_entry(0, "fd00::3", "roce_v2")), GidFamily::kIpv6);
  EXPECT_EQ(family_of(gid_entry(0, "fe80::3", "roce_v2")), GidFamily::kLinkLocal);
  EXPECT_EQ(family_of(gid_entry(0, "10.0.0.3", "roce_v2")), GidFamily::kIpv6) << "no GID at all";
  EXPECT_EQ(describe(gid_entry(3, "::ffff:10.0.0.3", "roce_v2", "eth2")),
            "::ffff:10.0.0.3 (RoCE v2, IPv4, eth2)");
  EXPECT_EQ(describe(gid_entry(0, "fe80::3", "roce_v1")), "fe80::3 (RoCE v1, link-local)");
  EXPECT_EQ(describe(gid_entry(0, "fe80::3", "ib")), "fe80::3 (InfiniBand)");
}

TEST(NicPorts, TheAddressThatUcxTakes) {
  NicPort port = roce_port();
  ASSERT_NE(chosen_gid(port), nullptr);
  EXPECT_EQ(chosen_gid(port)->index, 3u) << "version 2, IPv4";
  port.gids.push_back(gid_entry(7, "::ffff:10.1.2.4", "roce_v2"));
  EXPECT_EQ(chosen_gid(port)->index, 3u) << "the first of those alike";
  port.gids = {gid_entry(0, "::ffff:10.1.2.3", "roce_v1"), gid_entry(1, "fe80::1", "roce_v2")};
  EXPECT_EQ(chosen_gid(port)->index, 1u) << "version 2 goes before IPv4";
  port.gids = {gid_entry(0, "fe80::1", "roce_v1"), gid_entry(2, "::ffff:10.1.2.3", "roce_v1")};
  EXPECT_EQ(chosen_gid(port)->index, 2u);
  port.gids = {gid_entry(1, "fe80::1", "roce_v2"), gid_entry(5, "fd00::1", "roce_v2")};
  EXPECT_EQ(chosen_gid(port)->index, 1u) << "a link-local address counts as IPv6";
  port.gids.clear();
  EXPECT_EQ(chosen_gid(port), nullptr);
  EXPECT_EQ(chosen_gid(infiniband_port()), nullptr);
}

TEST(NicPorts, PacketsOfRoceInThoseOfEthernet) {
  EXPECT_EQ(roce_mtu_bytes(1500), 1024u);
  EXPECT_EQ(roce_mtu_bytes(4191), 2048u);
  EXPECT_EQ(roce_mtu_bytes(4192), 4096u);
  EXPECT_EQ(roce_mtu_bytes(9000), 4096u);
  EXPECT_EQ(roce_mtu_bytes(300), 0u);
}

TEST(NicPorts, WhatKeepsAPortFromUse) {
  EXPECT_EQ(port_trouble(infiniband_port()), "");
  EXPECT_EQ(port_trouble(roce_port()), "");
  EXPECT_EQ(port_trouble(testkit::down_port()), "it is down (physical state polling)");
  NicPort port = roce_port();
  port.gids.clear();
  EXPECT_EQ(port_trouble(port), "it has no RoCE address (its GID table is empty here)");
  port = infiniband_port();
  port.state = "init";
  EXPECT_NE(port_trouble(port), "") << "no subnet manager has seen it";
}

TEST(NicPorts, WhatIsWrittenIsRead) {
  Topology topology;
  topology.nics = {nic_with("mlx5_0", {infiniband_port()}), nic_with("mlx5_1", {roce_port()})};
  topology.nics[1].numa_node = kNoNumaNode;
  topology.nics[1].error = "cannot be opened";
  std::vector<Nic> nics;
  const std::string json = topology_json(topology);
  ASSERT_TRUE(read_nics_json(json, &nics).ok()) << "a topology";
  EXPECT_EQ(nics, topology.nics);
  nics.clear();
  ASSERT_TRUE(read_nics_json("{\"build\":{},\"topology\":" + json + "}", &nics).ok());
  EXPECT_EQ(nics, topology.nics);
}

TEST(NicPorts, WhatIsNoTableIsAStatus) {
  Topology topology;
  topology.nics = {nic_with("mlx5_0", {roce_port()})};
  const std::string good = topology_json(topology);
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  std::string many = "[";
  for (int i = 0; i < 300; ++i) many += i == 0 ? "0" : ",0";
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[1]"), std::string("\"nics\""), many + "]",
        good.substr(0, good.size() / 2), with("\"mlx5_0\"", "7"),
        with("\"index\":0", "\"index\":\"\""), with("\"ports\":", "\"prots\":"),
        with("\"numa_node\":0", "\"numa_node\":\"0\"")}) {
    std::vector<Nic> nics = {nic_with("untouched", {})};
    const Status status = read_nics_json(text, &nics);
    EXPECT_EQ(status.code(), PARALLAX_INVALID) << text.substr(0, 100);
    EXPECT_EQ(nics[0].name, "untouched");
  }
}

TEST(NicPorts, TablesGoToTheDevicesOfTheirNames) {
  std::vector<Nic> nics = {nic_with("mlx5_1", {testkit::down_port()}), nic_with("mlx5_2", {})};
  nics[0].pci_bus_id = "0000:99:00.0";
  Nic known = nic_with("mlx5_1", {infiniband_port()});
  known.firmware = "new";
  merge_nics({known, nic_with("mlx5_0", {})}, &nics);
  ASSERT_EQ(nics.size(), 3u);
  EXPECT_EQ(nics[0].name, "mlx5_0");
  EXPECT_EQ(nics[1].ports[0].state, "active");
  EXPECT_EQ(nics[1].firmware, "new");
  EXPECT_EQ(nics[1].pci_bus_id, "0000:99:00.0") << "where it hangs is hwloc's";
}

}  // namespace
}  // namespace parallax
